"""Looking up messages: by position (33) and by key (12); and the units of a consume queue (321).

Rules of this file
1. The key index works with hashes: an answer may hold messages with another key, which clients compare. Those of another topic are left
   out here: who may read one topic could else choose a key that finds messages of another.
2. An answer is bounded by count and by what fits a frame.
3. `eval` of 321 is what a pull of the group would decide. RocketMQ leaves it false for units without an extension.

Source: RocketMQ broker, queries; remoting, look-up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orbitmq.access.gate import LedTo
from orbitmq.broker.choosing.wanted import ArrivedMessage, WantedMessages
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.real_topics import topics_at
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.limits.broker import QUERY_ANSWER_BYTES_MAX, QUEUE_UNITS_SHOWN_MAX
from orbitmq.protocol.records import decode_record
from orbitmq.protocol.remoting.bodies import ConsumeQueueBody, ConsumeQueueUnit
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Buffer, Command, response
from orbitmq.protocol.remoting.peer import Peer

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


class QueryProcessor(Room):
    def __init__(self, core: BrokerCore) -> None:
        self._settings = core.settings
        self._clients = core.clients
        self._subscriptions = core.subscriptions
        self._store = core.store

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        code = RequestCode
        return {
            code.QUERY_MESSAGE: self.by_key,
            code.VIEW_MESSAGE_BY_ID: self.view,
            code.QUERY_CONSUME_QUEUE: self.units,
        }

    def led_to(self) -> Mapping[RequestCode, LedTo]:
        return {RequestCode.VIEW_MESSAGE_BY_ID: lambda command: topics_at(self._store, _place(command))}

    def view(self, command: Command, peer: Peer) -> Command | None:
        offset = _place(command)
        record = self._store.record_at(offset) if offset >= 0 else None
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"there is no message at commit log offset {offset}")
        return response(command, ResponseCode.SUCCESS, None, None, bytes(record))

    def by_key(self, command: Command, peer: Peer) -> Command | None:
        topic, key = command.text("topic"), command.text("key")
        count_max = self._settings.default_query_max_num
        if not command.boolean(UNIQUE_KEY_QUERY):
            count_max = max(1, min(command.int32("maxNum"), count_max))
        begin_ms, end_ms = command.integer("beginTimestamp"), command.integer("endTimestamp")
        found = self._store.query_by_key(topic, key, count_max, begin_ms, end_ms)
        parts: list[Buffer] = []
        size = 0
        for record in self._store.records_at(found):
            if decode_record(record, body=False).topic != topic:
                continue
            size += len(record)
            if parts and size > QUERY_ANSWER_BYTES_MAX:
                break
            parts.append(record)
        updated_ms, updated_offset = self._last_update()
        fields = {"indexLastUpdateTimestamp": str(updated_ms), "indexLastUpdatePhyoffset": str(updated_offset)}
        if not parts:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND,
                f"no message of topic {topic!r} with key {key!r} in this time range; "
                "only messages still in the log are found",
                fields,
            )
        return response(command, ResponseCode.SUCCESS, None, fields, b"".join(parts))

    def units(self, command: Command, peer: Peer) -> Command:
        """Units of a queue from an index on, and whether a group's subscription takes them."""
        topic, queue_id, group = command.text("topic"), command.int32("queueId"), command.text("consumerGroup")
        queue = self._store.queues.get(topic, queue_id)
        if queue is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"queue {queue_id} of topic {topic!r} has no messages on this broker"
            )
        body = ConsumeQueueBody(min_queue_index=queue.min_offset, max_queue_index=queue.max_offset)
        wanted: WantedMessages | None = None
        online = self._clients.consumer(group) if group else None
        if online is not None:
            body.subscription_data = online.subscriptions.get(topic)
        if body.subscription_data is not None:
            told = body.subscription_data
            try:
                wanted = self._subscriptions.wanted(topic, told.sub_string, told.expression_type)
            except Refusal as refusal:
                body.filter_data = str(refusal)
        first = max(command.integer("index"), queue.min_offset)
        count = max(0, min(command.int32("count"), QUEUE_UNITS_SHOWN_MAX))
        units = list(queue.scan(first, min(first + count, queue.max_offset)))
        messages = self._messages(units, wanted)
        body.queue_data = [
            ConsumeQueueUnit(
                physic_offset=physical,
                physic_size=size,
                tags_code=code,
                eval=wanted is not None and physical in messages and messages[physical].is_one_of(wanted),
            )
            for physical, size, code in units
        ]
        return response(command, ResponseCode.SUCCESS, None, None, body.encode())

    def _messages(
        self, units: Sequence[tuple[int, int, int]], wanted: WantedMessages | None
    ) -> dict[int, ArrivedMessage]:
        """What these units are of, by log position. Records are read only where their properties are asked."""
        codes = {physical: code for physical, _, code in units}
        if wanted is None or wanted.properties is None:
            return {physical: ArrivedMessage(code, b"") for physical, code in codes.items()}
        records = [decode_record(record, body=False) for record in self._store.records_at(list(codes))]
        return {
            record.physical_offset: ArrivedMessage(codes[record.physical_offset], record.properties)
            for record in records
        }

    def _last_update(self) -> tuple[int, int]:
        """Newest store time and position that the key index knows of; 0 and 0 when it is empty."""
        index = self._store.index
        if index is None or not index.index_files:
            return 0, 0
        newest = index.index_files[-1].header
        return newest.end_timestamp, newest.end_offset


def _place(command: Command) -> int:
    """Log position of the message that is asked for."""
    return command.integer("offset", -1)
