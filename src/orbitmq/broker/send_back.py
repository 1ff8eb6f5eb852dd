"""Sending back: a consumer returns a message it could not process (request 36).

The message is stored again, in the retry topic of its group and by way of a delay level, or in the group's dead-letter
topic when its attempts are used up.

Rules of this file
1. The original is read from the commit log; the copy keeps its body, flags, times and addresses.
2. RETRY_TOPIC and ORIGIN_MESSAGE_ID name the first topic and the first record; later rounds keep them.
3. The answer waits for the write, not for the flush (WAIT=false): the original is still there.

Source: RocketMQ broker, send-back and dead letters.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.access.gate import LedTo
from orbitmq.broker.admission import MAX_RECONSUME_TIMES_SINCE, Admission, broker_not_writable
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.idempotence.identity import without_identity
from orbitmq.broker.message_properties import facts_of
from orbitmq.broker.real_topics import topics_at
from orbitmq.broker.refusal import Refusal, group_missing
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.broker.topics import WRITE
from orbitmq.errors import RecordError, StoreUnwritableError
from orbitmq.protocol.ids import encode_offset_id
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record, decode_record
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.sysflag import TRANSACTION_MASK, with_hosts
from orbitmq.store.durability import PutStatus
from orbitmq.store.store import Appended

FIRST_RETRY_LEVEL = 3
"""Delay level of the first retry when the consumer leaves the choice to the broker; each further one is a level higher."""


class SendBackProcessor(Room):
    def __init__(self, core: BrokerCore, admission: Admission) -> None:
        self._settings = core.settings
        self._topics = core.topics
        self._groups = core.groups
        self._admission = admission
        self._store = core.store
        self._clock = core.clock
        self._statistics = core.statistics
        self._unwritable = core.unwritable
        self._random_below = core.facilities.random_below

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def led_to(self) -> Mapping[RequestCode, LedTo]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: lambda command: topics_at(self._store, _place(command))}

    def send_back(self, command: Command, peer: Peer) -> Command | None:
        group_name = command.text("group")
        group = self._groups.get(group_name)
        if group is None:
            raise group_missing(group_name)
        if not self._settings.broker_permission & WRITE:
            raise broker_not_writable(self._settings)
        if group.retry_queue_nums <= 0:
            return response(command, ResponseCode.SUCCESS)
        retry = self._topics.ensure_retry(group_name, group.retry_queue_nums, unit=command.boolean("unitMode"))
        if not retry.perm & WRITE:
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                f"the retry topic {retry.topic_name!r} takes no messages (perm={retry.perm})",
            )
        record = self._original(_place(command))
        values = _properties_of_copy(record)
        level, dead = command.int32("delayLevel"), False
        topic, queue_id = retry.topic_name, self._random_below(max(1, retry.write_queue_nums))
        if level < 0 or record.reconsume_times >= _attempts_max(group, command):
            topic, queue_id, level = self._topics.ensure_dead_letter(group_name).topic_name, 0, 0
            dead = True
        elif level == 0:
            level = FIRST_RETRY_LEVEL + record.reconsume_times
        values[Property.DELAY] = str(level)
        appended = self._append_copy(record, topic, queue_id, values)
        now_ns = self._clock.monotonic_ns()
        self._statistics.stored(topic, 1, appended.size)
        self._statistics.returned(values[Property.RETRY_TOPIC], group_name, now_ns, dead=dead)
        if command.is_oneway:
            return None
        answer = response(command, ResponseCode.SUCCESS)

        def stored(status: PutStatus) -> None:
            if status is PutStatus.PUT_OK:
                peer.send(answer)
            else:
                peer.send(
                    response(answer, ResponseCode.SYSTEM_ERROR, f"storing the message again failed: {status.name}")
                )

        self._store.wait_durable(appended.end_offset, False, stored)
        return None

    def _append_copy(self, record: Record, topic: str, queue_id: int, values: dict[str, str]) -> Appended:
        """Store a message once more, for one attempt more. Raises Refusal."""
        admission, facts, now_ms = self._admission, facts_of(values), self._clock.now_ms()
        admission.check_writable()
        message = admission.place(
            topic,
            queue_id,
            bytes(record.body),
            facts,
            admission.timers.due_time(facts, now_ms),
            now_ms,
            record.flag,
            with_hosts(record.sys_flag & ~TRANSACTION_MASK, record.born_host, admission.store_host),
            record.born_timestamp,
            record.born_host,
            record.reconsume_times + 1,
        )
        try:
            return self._store.append(message)
        except StoreUnwritableError as error:
            raise self._unwritable() from error
        except RecordError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the message cannot be stored again: {error}") from error

    def _original(self, offset: int) -> Record:
        data = self._store.record_at(offset) if offset >= 0 else None
        if data is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"there is no message at commit log offset {offset}; send it back to the broker that stores it",
            )
        return decode_record(data)


def _place(command: Command) -> int:
    """Log position of the message that is sent back."""
    return command.integer("offset", -1)


def _properties_of_copy(record: Record) -> dict[str, str]:
    """What the copy says of itself, but the level that it waits for."""
    values = decode_properties(record.properties)
    values.setdefault(Property.RETRY_TOPIC, record.topic)
    values[Property.WAIT] = "false"
    values.setdefault(Property.ORIGIN_MESSAGE_ID, encode_offset_id(record.store_host, record.physical_offset))
    # What a former round through a delay level left behind; this round sets its own.
    values.pop(Property.DUE_MS, None)
    return without_identity(values)  # the copy is no repeat of the first send


def _attempts_max(group: SubscriptionGroupConfig, command: Command) -> int:
    limit = command.optional_integer("maxReconsumeTimes")
    if limit is not None and command.version >= MAX_RECONSUME_TIMES_SINCE:
        return limit
    return group.retry_max_times
