"""Looking at queues and messages.

Rules of this file
1. Looking changes nothing: no offset is committed, no group is joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from orbitmq.client._async.administration.admin_calls import AdminCalls
from orbitmq.client._async.consuming.reading import records_of, restore_body
from orbitmq.client.consuming.pull_plan import PULL_ANSWERS, PullFlag, PullStatus
from orbitmq.client.sending.trace import Trace, decode_traces
from orbitmq.client.stored import StoredMessage
from orbitmq.errors import ClientError
from orbitmq.limits.client import CLIENT_KEY_MATCHES_MAX
from orbitmq.protocol.filtering.expression import SQL92, TAG
from orbitmq.protocol.ids import decode_offset_id, host_text
from orbitmq.protocol.names import TRACE_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode

LOOK_UP_GROUP: Final = "TOOLS_CONSUMER"
"""Group under which messages are looked at; every broker has it."""

_FOUND_OR_NOT: Final = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
_FOREVER_MS: Final = 2**63 - 1


class ReadRecords(NamedTuple):
    """Stored records of a queue from some offset on; `next_offset` is where to go on reading."""

    records: list[Record]
    next_offset: int
    min_offset: int
    max_offset: int


class Peeked(NamedTuple):
    """Messages of a queue from some offset on; `next_offset` is where to go on looking."""

    messages: list[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int


class LookUp(AdminCalls):
    """Calls that look at queues and messages."""

    async def min_offset(self, queue: MessageQueue) -> int:
        """Offset of the oldest message a queue still has; equal to `max_offset` when it has none."""
        return await self._offset(queue, RequestCode.GET_MIN_OFFSET)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Offset the next message of a queue will get."""
        return await self._offset(queue, RequestCode.GET_MAX_OFFSET)

    async def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Offset of the first message stored at or after an instant; `max_offset` when there is none."""
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": str(timestamp_ms)})

    async def peek(
        self, queue: MessageQueue, offset: int, *, count: int = 32, tags: str = "*", sql: str | None = None
    ) -> Peeked:
        """Messages of a queue from `offset` on, at most `count`; at once, without waiting for new ones. With `sql` only those for which
        this SQL92 expression over their properties is true."""
        read = await self.read_records(queue, offset, count=count, tags=tags, sql=sql)
        messages = [await _stored(record, queue) for record in read.records]
        return Peeked(messages, read.next_offset, read.min_offset, read.max_offset)

    async def read_records(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count: int = 32,
        tags: str = "*",
        sql: str | None = None,
        hold_ms: int = 0,
    ) -> ReadRecords:
        """As `peek`, but records as they are stored. The broker holds the request for up to `hold_ms` while there are none."""
        flags = PullFlag.SUBSCRIPTION | PullFlag.SUSPEND if hold_ms else PullFlag.SUBSCRIPTION
        address = await self._reader(queue)
        answer = await self._ask(
            address,
            RequestCode.PULL_MESSAGE,
            {
                "consumerGroup": LOOK_UP_GROUP,
                "topic": queue.topic,
                "queueId": str(queue.queue_id),
                "queueOffset": str(offset),
                "maxMsgNums": str(count),
                "sysFlag": str(int(flags)),
                "commitOffset": "0",
                "suspendTimeoutMillis": str(hold_ms),
                "subscription": tags if sql is None else sql,
                "subVersion": "0",
                "expressionType": TAG if sql is None else SQL92,
                "bname": queue.broker_name,
            },
            doing=f"looking at {queue.topic} {queue.broker_name}/{queue.queue_id}",
            accept=PULL_ANSWERS,
            more_ms=hold_ms,
        )
        return ReadRecords(
            list(records_of(answer.body)) if answer.code == PullStatus.FOUND.value else [],
            answer.integer("nextBeginOffset", offset),
            answer.integer("minOffset"),
            answer.integer("maxOffset"),
        )

    async def message_at(self, queue: MessageQueue, offset: int) -> StoredMessage | None:
        """The message at one offset of a queue, or None."""
        for message in (await self.peek(queue, offset, count=1)).messages:
            if message.queue_offset == offset:
                return message
        return None

    async def message_by_id(self, message_id: str, topic: str | None = None) -> StoredMessage | None:
        """The message with an offset id, asked from the broker that the id names; or, with its topic, one with a unique id.

        Both kinds of id look alike. With `topic` the unique id is tried first.
        """
        if topic is not None:
            found = await self.messages_by_unique_id(topic, message_id)
            if found:
                return found[0]
        host, physical_offset = decode_offset_id(message_id)
        fields = {"offset": str(physical_offset)}
        if topic is not None:
            fields["topic"] = topic
        answer = await self._ask(
            host_text(host),
            RequestCode.VIEW_MESSAGE_BY_ID,
            fields,
            doing=f"looking up message {message_id}",
            accept=(ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR),
        )
        if answer.code != ResponseCode.SUCCESS:
            return None
        for record in records_of(answer.body):
            return await _stored(record, MessageQueue(record.topic, "", record.queue_id))
        return None

    async def messages_by_unique_id(self, topic: str, unique_id: str) -> list[StoredMessage]:
        """Messages of a topic with this sender's id; more than one when a send was repeated."""
        found = await self._by_key(topic, unique_id, CLIENT_KEY_MATCHES_MAX, 0, _FOREVER_MS, unique=True)
        return [message for message in found if message.properties.get(Property.UNIQ_KEY) == unique_id]

    async def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        max_count: int = CLIENT_KEY_MATCHES_MAX,
        begin_ms: int = 0,
        end_ms: int = _FOREVER_MS,
    ) -> list[StoredMessage]:
        """Messages of a topic that carry `key`, stored in a span of time; at most `max_count` from each broker."""
        found = await self._by_key(topic, key, max_count, begin_ms, end_ms, unique=False)
        return [message for message in found if key in message.keys and message.record.topic == topic]

    async def trace(self, message_id: str, *, topic: str = TRACE_TOPIC) -> list[Trace]:
        """What clients with trace told about a message (by its unique id), in the order in which it was stored.

        A send is one record, an attempt to consume two: `ConsumeBegun` and `ConsumeEnded` with the same `request_id`. Records are told some
        seconds late, and each broker returns at most 64 trace messages. Nothing was told while the trace topic does not exist.
        """
        if await self._client.routes.find(topic) is None:
            return []
        told = await self._by_key(topic, message_id, CLIENT_KEY_MATCHES_MAX, 0, _FOREVER_MS, unique=False)
        told.sort(key=lambda message: message.store_timestamp)
        records = [record for message in told for record in decode_traces(message.body)]
        return [record for record in records if message_id in record.message_id.split(",")]

    # --- inside

    async def _by_key(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> list[StoredMessage]:
        route = await self._route(topic)
        found: list[StoredMessage] = []
        for broker_name in route.brokers:
            address = route.reader(broker_name)
            if address is None:
                continue
            answer = await self._ask(
                address,
                RequestCode.QUERY_MESSAGE,
                {
                    "topic": topic,
                    "key": key,
                    "maxNum": str(max_count),
                    "beginTimestamp": str(begin_ms),
                    "endTimestamp": str(end_ms),
                    "_UNIQUE_KEY_QUERY": "true" if unique else "false",
                },
                doing=f"searching topic {topic!r} for {key!r}",
                accept=_FOUND_OR_NOT,
            )
            if answer.code == ResponseCode.SUCCESS:
                for record in records_of(answer.body):
                    found.append(await _stored(record, MessageQueue(record.topic, broker_name, record.queue_id)))
        return found

    async def _offset(self, queue: MessageQueue, code: RequestCode, more: Mapping[str, str] | None = None) -> int:
        fields = {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name, **(more or {})}
        where = f"{queue.topic} {queue.broker_name}/{queue.queue_id}"
        answer = await self._ask(await self._reader(queue), code, fields, doing=f"reading an offset of {where}")
        offset = answer.optional_integer("offset")
        if offset is None:
            raise ClientError(f"the broker of {where} answered without an offset")
        return offset


async def _stored(record: Record, queue: MessageQueue) -> StoredMessage:
    return StoredMessage(record, await restore_body(record), decode_properties(record.properties), queue)
