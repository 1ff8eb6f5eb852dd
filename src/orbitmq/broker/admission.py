"""Admission: what becomes of a message that somebody wants to send.

One decision for every protocol front end: the checks in the protocol's order, the properties the broker adds and
removes, the way to a dead-letter topic, and the rewrite of a delayed message to the schedule topic and of a timer message
to the timer topic. Plain messages take a short way through (`plain_admission`), batches have a module of their own
(`batch_admission`), what times mean is in `timers.intake`.

Rules of this file
1. `admit` performs no I/O and appends nothing. Its only effects are topics and groups that come into being by being
   used, as the protocol wants it.
2. The order of the checks is the protocol's: of two faults in one message, clients see the same one as with RocketMQ.
3. What is not built yet is refused, never stored as something else: half messages, inner batches.
4. The due time of a delayed message is fixed here: the clock is read after its frame arrived, rounded up to the
   millisecond, plus its level. It stands in the tags code and in a property of our own, so a later change of the
   level list, a stepped clock or a rebuilt consume queue does not change it.
5. A delay level wins over timer properties, and what was delivered by a timer (TIMER_OUT_MS) is an ordinary message again.
6. Whether a send is a repeat is asked last: a repeat is answered with the first one's place only if it would be
   admitted itself.

Source: RocketMQ broker, send path checks; delay levels and timers at put time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from orbitmq.broker.attributes import CLEANUP_POLICY, QUEUE_TYPE
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.message_properties import BrokerProperties, is_true, waits_for_flush, without_timers
from orbitmq.broker.once.idempotence import Idempotence
from orbitmq.broker.once.identity import Once, sort_out
from orbitmq.broker.once.memory import Place
from orbitmq.broker.plain_admission import PlainAdmission
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.broker.refusal import Refusal, group_missing, topic_missing
from orbitmq.broker.sending import EarlierResult, Origin, Placement, Sending
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.timers.intake import TimerIntake, waiting_values
from orbitmq.broker.topics import MULTI_TAG, WRITE, TopicTable
from orbitmq.errors import RecordError
from orbitmq.limits.wire import PROPERTIES_BYTES_MAX, RETRY_TOPIC_BYTES_MAX, TOPIC_BYTES_MAX
from orbitmq.protocol.filters import tags_code
from orbitmq.protocol.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    is_send_forbidden,
    topic_name_problem,
)
from orbitmq.protocol.properties import Property, decode_properties, encode_properties
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.versions import version_ordinal
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.protocol.sysflag import HOSTS_MASK, TRANSACTION_MASK, SysFlag
from orbitmq.store.message import NewMessage

MULTI_TAGS = int(SysFlag.MULTI_TAGS)
BATCH_BITS = int(SysFlag.NEEDS_UNWRAP | SysFlag.INNER_BATCH)
BORN_HOST_V6 = int(SysFlag.BORN_HOST_V6)
STORE_HOST_V6 = int(SysFlag.STORE_HOST_V6)

MAX_RECONSUME_TIMES_SINCE = version_ordinal("3.4.9")
"""Older clients send no limit of their own."""


class Writability(Protocol):
    """The part of the store that admission asks."""

    @property
    def writable(self) -> bool: ...


class Admission:
    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        groups: GroupTable,
        locks: QueueLocks,
        store: Writability,
        *,
        store_host: bytes,
        next_unique_key: Callable[[], str],
        unwritable: Callable[[], Refusal],
        body_bytes_max: int,
        random_below: Callable[[int], int] = random.randrange,
        idempotence: Idempotence | None = None,
        timers: TimerIntake | None = None,
        clock_rounding_ms: int = 1,
    ) -> None:
        """`unwritable()` words the refusal while the store accepts nothing. `random_below(n)` chooses a queue in [0, n).

        Without `idempotence` sends that may be repeated are refused, without `timers` timer messages.
        `clock_rounding_ms` is that of the clock that times come from.
        """
        self.levels = DelayLevels.parse(settings.message_delay_level, clock_rounding_ms)
        self.clamped_count = 0
        """Delay levels above the highest one, which the protocol wants lowered to it."""
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._locks = locks
        self._store = store
        self.store_host = store_host
        self._store_bits = STORE_HOST_V6 if len(store_host) == 20 else 0
        self.next_unique_key = next_unique_key
        self._unwritable = unwritable
        self.body_bytes_max = body_bytes_max
        self._random_below = random_below
        self.idempotence = idempotence
        self.own = BrokerProperties(settings.region_id, settings.trace_on, settings.broker_cluster_name)
        self.timers = timers or TimerIntake(settings, None)
        self._plain = PlainAdmission(settings, topics, self.levels, self.own, self.timers, store_host, body_bytes_max)

    # --- front door -------------------------------------------------------------------------------------------------

    def admit(self, sending: Sending, origin: Origin, now_ms: int, now_ns: int) -> Placement | EarlierResult | Refusal:
        """Decide about one message. `now_ms` was read after its frame had arrived; `now_ns` is monotonic."""
        placement = self._plain.admit(sending, origin, now_ms)
        try:
            if placement is None:
                placement = self._admit(sending, origin, now_ms, now_ns)
            if placement.once is None:
                return placement
            earlier = self._memory().admit_one(placement.once, now_ms)
        except Refusal as refusal:
            return refusal
        if earlier is None:
            return placement
        return EarlierResult(
            earlier.queue_id, placement.unique_key, placement.wait, earlier.physical_offset, earlier.queue_offset
        )

    def earlier_places(self, sends: Sequence[Once], now_ms: int) -> list[Place | None]:
        """Where the sends of one request went before, None for new ones. Raises `Refusal`."""
        return self._memory().admit(sends, now_ms)

    def _memory(self) -> Idempotence:
        if self.idempotence is None:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"this broker keeps no memory of idempotent sends (property {Property.ONCE_SCOPE})",
            )
        return self.idempotence

    # --- single messages --------------------------------------------------------------------------------------------

    def _admit(self, sending: Sending, origin: Origin, now_ms: int, now_ns: int) -> Placement:
        topic = sending.topic
        config = self.topic_of(sending, now_ms)
        queue_id = self.queue_of(config, sending.queue_id)
        values = decode_properties(sending.properties)
        if topic.startswith(RETRY_PREFIX):
            return self._admit_retry(sending, config, queue_id, values, origin, now_ms, now_ns)
        self._check_body(sending)
        check_attributes(config, values)
        return self._admit_message(sending, config, topic, queue_id, values, origin, now_ms)

    def _admit_message(
        self,
        sending: Sending,
        config: TopicConfig,
        topic: str,
        queue_id: int,
        values: dict[str, str],
        origin: Origin,
        now_ms: int,
    ) -> Placement:
        """The checks of the store's side, and the message for `queue_id` of `topic`, whose settings are `config`."""
        is_delayed_retry = sending.reconsume_times > 0 and level_of(values) > 0
        self.check_transaction(sending.sys_flag, values, is_delayed_retry=is_delayed_retry)
        self.check_writable()
        self._check_topic_length(topic)
        if sending.sys_flag & BATCH_BITS or Property.INNER_NUM in values:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                "the message claims to be an inner batch (sysFlag 0x40 or 0x80, or property INNER_NUM), "
                "which needs a queue.type=BatchCQ topic; this broker has none",
            )
        wait = waits_for_flush(values)
        values, once = sort_out(topic, values)
        unique_key = values.get(Property.UNIQ_KEY)
        if unique_key is None:
            unique_key = self.next_unique_key()
            values = values | {Property.UNIQ_KEY: unique_key}
        message, slot_ms = self.place(
            topic,
            queue_id,
            sending.body,
            values,
            now_ms=now_ms,
            flag=sending.flag,
            sys_flag=self.sys_flag_of(sending.sys_flag, config, origin.host) & ~TRANSACTION_MASK,
            born_timestamp=sending.born_timestamp,
            born_host=origin.host,
            reconsume_times=sending.reconsume_times,
        )
        handle = None
        if slot_ms is not None and not topic.startswith(RETRY_PREFIX):
            handle = self.timers.handle_of(topic, slot_ms, unique_key)
        return Placement(message, queue_id, unique_key, wait, once, handle)

    def _admit_retry(
        self, sending: Sending, config: TopicConfig, queue_id: int, values: dict[str, str], origin: Origin,
        now_ms: int, now_ns: int,
    ) -> Placement:  # fmt: skip
        """A consumer's own re-send to the retry topic of its group; over its limit it becomes a dead letter."""
        topic = sending.topic
        stored_queue = queue_id
        group_name = topic[len(RETRY_PREFIX) :]
        group = self._groups.get(group_name)
        if group is None:
            raise group_missing(group_name)
        limit = group.retry_max_times
        if sending.max_reconsume_times is not None and origin.version >= MAX_RECONSUME_TIMES_SINCE:
            limit = sending.max_reconsume_times
        # A group with live queue locks consumes in order; its consumers send here only what they have given up.
        if sending.reconsume_times > limit or self._locks.holds_any(group_name, now_ns):
            config = self._topics.ensure_dead_letter(group_name)
            topic, stored_queue = config.topic_name, 0
            values = without_timers(values) | {Property.DELAY: "0"}
        self._check_body(sending)
        placement = self._admit_message(sending, config, topic, stored_queue, values, origin, now_ms)
        return msgspec.structs.replace(placement, queue_id=queue_id)

    def place(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        values: dict[str, str],
        *,
        now_ms: int,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> tuple[NewMessage, int | None]:
        """The message as it is stored, with the broker's properties and, with a time to wait for, in a topic for that; and its
        slot time when it is a timer message that waits.

        `sys_flag` has its host bits. Raises `Refusal` for a level or a time that cannot be had, and sizes.
        """
        values = self.own.complete(values)
        level = level_of(values)
        due_ms: int | None = None
        slot_ms: int | None = None
        if level > 0:
            values = without_timers(values)
            if level > self.levels.max_level:
                level = self.levels.max_level
                self.clamped_count += 1
                values[Property.DELAY] = str(level)
            due_ms = self.levels.due_ms(level, now_ms)
            values[Property.REAL_TOPIC] = topic
            values[Property.REAL_QID] = str(queue_id)
            values[Property.DUE_MS] = str(due_ms)
            topic, queue_id = SCHEDULE_TOPIC, level - 1
        elif (time := self.timers.time_of(values, now_ms)) is not None:
            slot_ms = None if time.is_cancel else time.slot_ms
            stored_topic = self.timers.topic_for(time, now_ms)
            waiting_values(values, topic, queue_id, time, stored_topic)
            topic, queue_id = stored_topic, 0
        try:
            properties = encode_properties(values)
        except RecordError as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the properties cannot be stored: {error}") from error
        self.check_sizes(body, properties)
        tag = values.get(Property.TAGS)
        message = NewMessage(
            topic,
            queue_id,
            body,
            properties,
            flag,
            sys_flag,
            born_timestamp,
            born_host,
            self.store_host,
            reconsume_times,
            0,
            due_ms if due_ms is not None else tags_code(tag),
            values.get(Property.UNIQ_KEY),
            values.get(Property.KEYS),
        )
        return message, slot_ms

    # --- checks -----------------------------------------------------------------------------------------------------

    def topic_of(self, sending: Sending, now_ms: int) -> TopicConfig:
        settings = self._settings
        topic = sending.topic
        if now_ms < settings.start_accept_send_request_timestamp:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                "this broker accepts messages only from the instant "
                f"{settings.start_accept_send_request_timestamp} ms on (startAcceptSendRequestTimeStamp)",
            )
        config = self._topics.get(topic)
        if config is not None:
            if config.order and not settings.broker_permission & WRITE:
                raise broker_not_writable(settings)
            if is_send_forbidden(topic):
                raise _send_forbidden(topic)
            return config
        problem = topic_name_problem(topic)
        if problem is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, problem)
        if is_send_forbidden(topic):
            raise _send_forbidden(topic)
        config = self._topics.auto_create(
            topic, sending.default_topic, sending.default_topic_queues, unit=sending.unit_mode
        )
        if config is None:
            raise topic_missing(topic)
        return config

    def queue_of(self, config: TopicConfig, queue_id: int) -> int:
        write = config.write_queue_nums
        if queue_id >= write and queue_id >= config.read_queue_nums:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queue {queue_id} of topic {config.topic_name!r} does not exist: it has {write} write and "
                f"{config.read_queue_nums} read queues",
            )
        if queue_id >= 0:
            return queue_id
        if write <= 0:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"topic {config.topic_name!r} has no write queue")
        return self._random_below(write)

    def sys_flag_of(self, sys_flag: int, config: TopicConfig, born_host: bytes) -> int:
        """The sender's flag with the bits only the broker knows: address families and multi-tag topics."""
        sys_flag = sys_flag & ~HOSTS_MASK | self._store_bits
        if len(born_host) == 20:
            sys_flag |= BORN_HOST_V6
        if config.topic_filter_type == MULTI_TAG:
            sys_flag |= MULTI_TAGS
        return sys_flag

    def _check_body(self, sending: Sending) -> None:
        if not sending.body:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "the message has no body")

    def check_writable(self) -> None:
        if not self._store.writable:
            raise self._unwritable()

    def _check_topic_length(self, topic: str) -> None:
        if len(topic) > TOPIC_BYTES_MAX:
            allowed = RETRY_TOPIC_BYTES_MAX if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_BYTES_MAX
            if len(topic) > allowed:
                raise topic_too_long(topic, allowed)

    def check_transaction(self, sys_flag: int, values: dict[str, str], *, is_delayed_retry: bool) -> None:
        if (sys_flag & TRANSACTION_MASK or is_true(values.get(Property.TRAN_MSG))) and not is_delayed_retry:
            reason = (
                "transactional messages are switched off on this broker (rejectTransactionMessage=true)"
                if self._settings.reject_transaction_message
                else "this broker does not serve transactional messages (TRAN_MSG, or transaction bits in sysFlag)"
            )
            raise Refusal(ResponseCode.NO_PERMISSION, reason)

    def check_sizes(self, body: bytes, properties: bytes) -> None:
        if len(body) > self.body_bytes_max:
            raise self.body_too_large(len(body), "body")
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the properties have {len(properties)} bytes with those of the broker; "
                f"at most {PROPERTIES_BYTES_MAX} fit into a record",
            )

    def body_too_large(self, size: int, what: str) -> Refusal:
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the {what} has {size} bytes; this broker takes at most {self.body_bytes_max} (maxMessageSize)",
        )


def broker_not_writable(settings: BrokerSettings) -> Refusal:
    return Refusal(
        ResponseCode.NO_PERMISSION,
        f"broker {settings.broker_name!r} does not accept messages (brokerPermission={settings.broker_permission})",
    )


def _send_forbidden(topic: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, f"clients may not send to the system topic {topic!r}")


def topic_too_long(topic: str, allowed: int) -> Refusal:
    return Refusal(
        ResponseCode.MESSAGE_ILLEGAL, f"the topic name has {len(topic)} bytes; a record of it holds at most {allowed}"
    )


def level_of(values: dict[str, str]) -> int:
    """The delay level a message asks for; 0 is none. Raises `Refusal` when it is no number."""
    text = values.get(Property.DELAY)
    if text is None:
        return 0
    try:
        if len(text) <= 11 and "_" not in text:
            return int(text)
    except ValueError:
        pass
    raise Refusal(ResponseCode.SYSTEM_ERROR, f"the delay level (property DELAY) is a number, not {text[:32]!r}")


def check_attributes(config: TopicConfig, values: dict[str, str]) -> None:
    """Rules of topics that came from a RocketMQ configuration with attributes this broker does not give itself."""
    if config.attributes.get(CLEANUP_POLICY) == "COMPACTION" and not values.get(Property.KEYS):
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"topic {config.topic_name!r} is compacted: its messages need KEYS")
    if config.attributes.get(QUEUE_TYPE) == "BatchCQ":
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"topic {config.topic_name!r} has queue.type=BatchCQ, which this broker does not serve",
        )
