"""Sending back: a consumer returns a message it could not process. Remoting asks for it by request 36.

The message is stored again, in the retry topic of its group and by way of a delay level, or in the group's dead-letter
topic when its attempts are used up.

Rules of this file
1. The original is read from the commit log; the copy keeps its body, flags, times and addresses.
2. RETRY_TOPIC and ORIGIN_MESSAGE_ID name the first topic and the first record; later rounds keep them.
3. The answer to a consumer waits for the write, not for the flush (WAIT=false): the original is still there.
4. `SendBacks` decides and knows no protocol; `SendBackRequests` reads the request and writes the answer.

Source: RocketMQ broker, send-back and dead letters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

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
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.sysflag import TRANSACTION_MASK, with_hosts
from orbitmq.store.durability import PutStatus
from orbitmq.store.placing import Appended

FIRST_RETRY_LEVEL = 3
"""Delay level of the first retry when the consumer leaves the choice to the broker; each further one is a level higher."""


class GivenBack(NamedTuple):
    """A message that a group gives back."""

    group: str
    physical_offset: int
    level: int
    """The delay level to wait for; 0 leaves it to the broker, below 0 the message is a dead letter at once."""
    attempts_max: int | None = None
    """After so many attempts it is a dead letter; None: as many as the group says."""
    unit_mode: bool = False
    origin_topic: str | None = None
    """The topic that the group consumes, where a dead letter says which message of which topic it was."""


class SendBacks:
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

    def send_back(
        self, wish: GivenBack, told: Callable[[PutStatus], None] | None, *, waits_for_flush: bool = False
    ) -> bool:
        """Store the message once more. `told` hears once what became of the copy; False: the group keeps none, and nobody hears anything.

        waits_for_flush: the original is given up for the copy, so that one has to be as safe as a message that was sent. Raises `Refusal`.
        """
        group = self._groups.get(wish.group)
        if group is None:
            raise group_missing(wish.group)
        if not self._settings.broker_permission & WRITE:
            raise broker_not_writable(self._settings)
        if group.retry_queue_nums <= 0:
            return False
        retry = self._topics.ensure_retry(wish.group, group.retry_queue_nums, unit=wish.unit_mode)
        if not retry.perm & WRITE:
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                f"the retry topic {retry.topic_name!r} takes no messages (perm={retry.perm})",
            )
        record = self._original(wish.physical_offset)
        values = _properties_of_copy(record)
        level, dead = wish.level, False
        topic, queue_id = retry.topic_name, self._random_below(max(1, retry.write_queue_nums))
        attempts_max = group.retry_max_times if wish.attempts_max is None else wish.attempts_max
        if level < 0 or record.reconsume_times >= attempts_max:
            topic, queue_id, level = self._topics.ensure_dead_letter(wish.group).topic_name, 0, 0
            dead = True
            if wish.origin_topic is not None:
                values[Property.RETRY_TOPIC] = values[Property.DLQ_ORIGIN_TOPIC] = wish.origin_topic
                values[Property.DLQ_ORIGIN_MESSAGE_ID] = (
                    values.get(Property.UNIQ_KEY) or values[Property.ORIGIN_MESSAGE_ID]
                )
        elif level == 0:
            level = FIRST_RETRY_LEVEL + record.reconsume_times
        values[Property.DELAY] = str(level)
        appended = self._append_copy(record, topic, queue_id, values)
        now_ns = self._clock.monotonic_ns()
        self._statistics.stored(topic, 1, appended.size)
        self._statistics.returned(values[Property.RETRY_TOPIC], wish.group, now_ns, dead=dead)
        if told is not None:
            self._store.wait_durable(appended.end_offset, waits_for_flush, told)
        return True

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


class SendBackRequests(Room):
    def __init__(self, core: BrokerCore, send_backs: SendBacks) -> None:
        self._store = core.store
        self._send_backs = send_backs

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def led_to(self) -> Mapping[RequestCode, LedTo]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: lambda command: topics_at(self._store, _place(command))}

    def send_back(self, command: Command, peer: Peer) -> Command | None:
        answer = response(command, ResponseCode.SUCCESS)

        def stored(status: PutStatus) -> None:
            if not status.satisfies_flush:
                answer.code, answer.remark = (
                    ResponseCode.SYSTEM_ERROR,
                    f"storing the message again failed: {status.name}",
                )
            peer.send(answer)

        wish = GivenBack(
            command.text("group"),
            _place(command),
            command.int32("delayLevel"),
            command.optional_integer("maxReconsumeTimes") if command.version >= MAX_RECONSUME_TIMES_SINCE else None,
            command.boolean("unitMode"),
        )
        return None if self._send_backs.send_back(wish, None if command.is_oneway else stored) else answer


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
