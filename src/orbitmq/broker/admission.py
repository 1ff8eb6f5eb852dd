"""Admission: what becomes of a message that somebody wants to send.

One decision for every protocol front end: the checks in the protocol's order, the properties the broker adds and
removes, the way to a dead-letter topic, and the rewrite of a delayed message to the schedule topic.

Rules of this file
1. `admit` performs no I/O and appends nothing. Its only effects are topics and groups that come into being by being
   used, as the protocol wants it.
2. The order of the checks is the protocol's: of two faults in one message, clients see the same one as with RocketMQ.
3. What is not built yet is refused, never stored as something else: half messages, timer messages, inner batches.
4. The due time of a delayed message is fixed here: the clock is read after its frame arrived, rounded up to the
   millisecond, plus its level. It stands in the tags code and in a property of our own, so a later change of the
   level list, a stepped clock or a rebuilt consume queue does not change it.

Source: RocketMQ broker, send path checks; delay levels at put time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from orbitmq.broker.attributes import CLEANUP_POLICY, QUEUE_TYPE
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.message_properties import (
    NEEDS_THOUGHT,
    TIMERS,
    BrokerProperties,
    is_true,
    parse_properties,
    waits_for_flush,
)
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.broker.refusal import Refusal, group_missing, topic_missing
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.topics import MULTI_TAG, WRITE, TopicTable
from orbitmq.errors import RecordError
from orbitmq.limits import PROPERTIES_BYTES_MAX, RETRY_TOPIC_BYTES_MAX, TOPIC_BYTES_MAX
from orbitmq.protocol.batches import BatchItem
from orbitmq.protocol.filters import tags_code
from orbitmq.protocol.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SEND_FORBIDDEN_TOPICS,
    topic_name_problem,
)
from orbitmq.protocol.properties import Property, decode_properties, encode_properties
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.versions import version_ordinal
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.protocol.sysflag import HOSTS_MASK, TRANSACTION_MASK, SysFlag
from orbitmq.store.store import NewMessage

MULTI_TAGS = int(SysFlag.MULTI_TAGS)
BATCH_BITS = int(SysFlag.NEEDS_UNWRAP | SysFlag.INNER_BATCH)
BORN_HOST_V6 = int(SysFlag.BORN_HOST_V6)
STORE_HOST_V6 = int(SysFlag.STORE_HOST_V6)
UNUSUAL_FLAGS = TRANSACTION_MASK | BATCH_BITS

MAX_RECONSUME_TIMES_SINCE = version_ordinal("3.4.9")
"""Older clients send no limit of their own."""


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where a message comes from: the peer's packed address and the version of its client."""

    host: bytes
    version: int


class Sending(msgspec.Struct, gc=False):
    """One message, or one batch, as a front end hands it over. `properties` is the encoded text of the request."""

    topic: str
    queue_id: int
    body: bytes
    properties: str = ""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    default_topic: str = ""
    default_topic_queues: int = 4
    unit_mode: bool = False
    reconsume_times: int = 0
    max_reconsume_times: int | None = None


class Placement(msgspec.Struct, gc=False):
    """An admitted message: what to append, and what to tell the sender.

    `queue_id` is the queue it asked for or was given, which for a delayed message is not the one it is stored in.
    """

    message: NewMessage
    queue_id: int
    unique_key: str
    wait: bool


class BatchPlacement(msgspec.Struct, gc=False):
    """An admitted batch: appended as one block, consecutive in one queue. `unique_key` is that of the batch as a whole."""

    messages: list[NewMessage]
    queue_id: int
    unique_key: str | None
    wait: bool


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
    ) -> None:
        """`unwritable()` words the refusal while the store accepts nothing. `random_below(n)` chooses a queue in [0, n)."""
        self.levels = DelayLevels.parse(settings.message_delay_level)
        self.clamped_count = 0
        """Delay levels above the highest one, which the protocol wants lowered to it."""
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._locks = locks
        self._store = store
        self._store_host = store_host
        self._store_bits = STORE_HOST_V6 if len(store_host) == 20 else 0
        self._next_unique_key = next_unique_key
        self._unwritable = unwritable
        self._body_bytes_max = body_bytes_max
        self._random_below = random_below
        self._own = BrokerProperties(settings.region_id, settings.trace_on, settings.broker_cluster_name)

    # --- front door -------------------------------------------------------------------------------------------------

    def admit(self, sending: Sending, origin: Origin, now_ms: int, now_ns: int) -> Placement | Refusal:
        """Decide about one message. `now_ms` was read after its frame had arrived; `now_ns` is monotonic."""
        try:
            return self._admit(sending, origin, now_ms, now_ns)
        except Refusal as refusal:
            return refusal

    def admit_batch(
        self, sending: Sending, items: Sequence[BatchItem], origin: Origin, now_ms: int
    ) -> BatchPlacement | Refusal:
        """Decide about a batch: all of it or nothing. `sending.body` is the encoded form of `items`."""
        try:
            return self._admit_batch(sending, items, origin, now_ms)
        except Refusal as refusal:
            return refusal

    # --- single messages --------------------------------------------------------------------------------------------

    def _admit(self, sending: Sending, origin: Origin, now_ms: int, now_ns: int) -> Placement:
        topic = sending.topic
        config = self._topic(sending, now_ms)
        queue_id = self._queue(config, sending.queue_id, origin)
        parsed = parse_properties(sending.properties)
        values = parsed.values
        if topic.startswith(RETRY_PREFIX):
            return self._admit_retry(sending, config, queue_id, values, origin, now_ms, now_ns)
        self._check_body(sending)
        if config.attributes:
            _check_attributes(config, values)
        sys_flag = self._sys_flag(sending.sys_flag, config, origin.host)
        if sending.sys_flag & UNUSUAL_FLAGS or not parsed.exact or not NEEDS_THOUGHT.isdisjoint(values):
            return self._admit_unusual(sending, topic, queue_id, sys_flag, values, origin, now_ms)
        self._check_writable()
        self._check_topic_length(topic)
        # What follows does the same as `place` without building the properties again.
        text = sending.properties
        unique_key = values.get(Property.UNIQ_KEY)
        if unique_key is None:
            unique_key = self._next_unique_key()
            text = f"{text}{_separator(text)}{Property.UNIQ_KEY}\x01{unique_key}\x02"
        elif text[-1] != "\x02":
            text += "\x02"
        properties = text.encode() + self._own.encoded
        self._check_sizes(sending.body, properties)
        tag = values.get(Property.TAGS)
        message = NewMessage(
            topic,
            queue_id,
            sending.body,
            properties,
            sending.flag,
            sys_flag,
            sending.born_timestamp,
            origin.host,
            self._store_host,
            sending.reconsume_times,
            0,
            tags_code(tag),
            unique_key,
            values.get(Property.KEYS),
        )
        return Placement(message, queue_id, unique_key, waits_for_flush(values))

    def _admit_unusual(
        self, sending: Sending, topic: str, queue_id: int, sys_flag: int, values: dict[str, str], origin: Origin,
        now_ms: int,
    ) -> Placement:  # fmt: skip
        """A message with properties or flags that change what is stored, or that must be refused."""
        is_delayed_retry = sending.reconsume_times > 0 and _level(values) > 0
        self._check_transaction(sending.sys_flag, values, is_delayed_retry=is_delayed_retry)
        self._check_writable()
        self._check_topic_length(topic)
        if sending.sys_flag & BATCH_BITS or Property.INNER_NUM in values:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                "the message claims to be an inner batch (sysFlag 0x40 or 0x80, or property INNER_NUM), "
                "which needs a queue.type=BatchCQ topic; this broker has none",
            )
        wait = waits_for_flush(values)
        unique_key = values.get(Property.UNIQ_KEY)
        if unique_key is None:
            unique_key = self._next_unique_key()
            values = values | {Property.UNIQ_KEY: unique_key}
        message = self.place(
            topic,
            queue_id,
            sending.body,
            values,
            now_ms=now_ms,
            flag=sending.flag,
            sys_flag=sys_flag & ~TRANSACTION_MASK,
            born_timestamp=sending.born_timestamp,
            born_host=origin.host,
            reconsume_times=sending.reconsume_times,
        )
        return Placement(message, queue_id, unique_key, wait)

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
            values = values | {Property.DELAY: "0"}
        self._check_body(sending)
        sys_flag = self._sys_flag(sending.sys_flag, config, origin.host)
        return msgspec.structs.replace(
            self._admit_unusual(sending, topic, stored_queue, sys_flag, values, origin, now_ms), queue_id=queue_id
        )

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
    ) -> NewMessage:
        """The message as it is stored, with the broker's properties and, for a delay level, in the schedule topic.

        `sys_flag` has its host bits. Raises `Refusal` for timer properties, a level that is no number, and sizes.
        """
        values = self._own.complete(values)
        level = _level(values)
        due_ms: int | None = None
        if level > 0:
            for name in TIMERS:
                values.pop(name, None)
            if level > self.levels.max_level:
                level = self.levels.max_level
                self.clamped_count += 1
                values[Property.DELAY] = str(level)
            # The clock rounds down; the next millisecond is never before the moment of acceptance.
            due_ms = now_ms + 1 + self.levels.delay_ms(level)
            values[Property.REAL_TOPIC] = topic
            values[Property.REAL_QID] = str(queue_id)
            values[Property.DUE_MS] = str(due_ms)
            topic, queue_id = SCHEDULE_TOPIC, level - 1
        else:
            _check_no_timer(values)
        try:
            properties = encode_properties(values)
        except RecordError as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the properties cannot be stored: {error}") from error
        self._check_sizes(body, properties)
        tag = values.get(Property.TAGS)
        return NewMessage(
            topic,
            queue_id,
            body,
            properties,
            flag,
            sys_flag,
            born_timestamp,
            born_host,
            self._store_host,
            reconsume_times,
            0,
            due_ms if due_ms is not None else tags_code(tag),
            values.get(Property.UNIQ_KEY),
            values.get(Property.KEYS),
        )

    # --- batches ----------------------------------------------------------------------------------------------------

    def _admit_batch(self, sending: Sending, items: Sequence[BatchItem], origin: Origin, now_ms: int) -> BatchPlacement:
        topic = sending.topic
        config = self._topic(sending, now_ms)
        queue_id = self._queue(config, sending.queue_id, origin)
        if topic.startswith(RETRY_PREFIX):
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"a batch cannot be sent to the retry topic {topic!r}")
        if len(topic) > TOPIC_BYTES_MAX:
            raise _topic_too_long(topic, TOPIC_BYTES_MAX)
        if not items:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "the batch holds no message")
        common = parse_properties(sending.properties).values
        if config.attributes:
            _check_attributes(config, common)
        self._check_transaction(sending.sys_flag, common, is_delayed_retry=False)
        self._check_writable()
        if sending.sys_flag & BATCH_BITS:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "an inner batch cannot stand in a batch")
        self._check_batch_part(common)
        if len(sending.body) > self._body_bytes_max:
            raise self._body_too_large(len(sending.body), "batch")
        sys_flag = self._sys_flag(sending.sys_flag, config, origin.host)
        messages = [self._batch_message(item, topic, queue_id, sys_flag, common, sending, origin) for item in items]
        return BatchPlacement(messages, queue_id, common.get(Property.UNIQ_KEY), waits_for_flush(common))

    def _batch_message(
        self, item: BatchItem, topic: str, queue_id: int, sys_flag: int, common: dict[str, str], sending: Sending,
        origin: Origin,
    ) -> NewMessage:  # fmt: skip
        """One message of a batch. What it does not say itself it takes from the batch, except the batch's own identity."""
        values = decode_properties(item.properties)
        self._check_batch_part(values)
        for name, value in common.items():
            if name != Property.UNIQ_KEY:
                values.setdefault(name, value)
        if Property.UNIQ_KEY not in values:
            values[Property.UNIQ_KEY] = self._next_unique_key()
        properties = encode_properties(self._own.complete(values))
        self._check_sizes(item.body, properties)
        tag = values.get(Property.TAGS)
        return NewMessage(
            topic,
            queue_id,
            item.body,
            properties,
            item.flag,
            sys_flag,
            sending.born_timestamp,
            origin.host,
            self._store_host,
            sending.reconsume_times,
            0,
            tags_code(tag),
            values[Property.UNIQ_KEY],
            values.get(Property.KEYS),
        )

    def _check_batch_part(self, values: dict[str, str]) -> None:
        if Property.DELAY in values and _level(values) > 0:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot hold delayed messages (property DELAY)")
        if is_true(values.get(Property.TRAN_MSG)):
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot hold transactional messages (TRAN_MSG)")
        if Property.INNER_NUM in values:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "an inner batch (INNER_NUM) cannot stand in a batch")
        _check_no_timer(values)

    # --- checks -----------------------------------------------------------------------------------------------------

    def _topic(self, sending: Sending, now_ms: int) -> TopicConfig:
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
            if topic in SEND_FORBIDDEN_TOPICS:
                raise _send_forbidden(topic)
            return config
        problem = topic_name_problem(topic)
        if problem is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, problem)
        if topic in SEND_FORBIDDEN_TOPICS:
            raise _send_forbidden(topic)
        config = self._topics.auto_create(
            topic, sending.default_topic, sending.default_topic_queues, unit=sending.unit_mode
        )
        if config is None:
            raise topic_missing(topic)
        return config

    def _queue(self, config: TopicConfig, queue_id: int, origin: Origin) -> int:
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

    def _sys_flag(self, sys_flag: int, config: TopicConfig, born_host: bytes) -> int:
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

    def _check_writable(self) -> None:
        if not self._store.writable:
            raise self._unwritable()

    def _check_topic_length(self, topic: str) -> None:
        if len(topic) > TOPIC_BYTES_MAX:
            allowed = RETRY_TOPIC_BYTES_MAX if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_BYTES_MAX
            if len(topic) > allowed:
                raise _topic_too_long(topic, allowed)

    def _check_transaction(self, sys_flag: int, values: dict[str, str], *, is_delayed_retry: bool) -> None:
        if (sys_flag & TRANSACTION_MASK or is_true(values.get(Property.TRAN_MSG))) and not is_delayed_retry:
            reason = (
                "transactional messages are switched off on this broker (rejectTransactionMessage=true)"
                if self._settings.reject_transaction_message
                else "this broker does not serve transactional messages (TRAN_MSG, or transaction bits in sysFlag)"
            )
            raise Refusal(ResponseCode.NO_PERMISSION, reason)

    def _check_sizes(self, body: bytes, properties: bytes) -> None:
        if len(body) > self._body_bytes_max:
            raise self._body_too_large(len(body), "body")
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the properties have {len(properties)} bytes with those of the broker; "
                f"at most {PROPERTIES_BYTES_MAX} fit into a record",
            )

    def _body_too_large(self, size: int, what: str) -> Refusal:
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the {what} has {size} bytes; this broker takes at most {self._body_bytes_max} (maxMessageSize)",
        )


def broker_not_writable(settings: BrokerSettings) -> Refusal:
    return Refusal(
        ResponseCode.NO_PERMISSION,
        f"broker {settings.broker_name!r} does not accept messages (brokerPermission={settings.broker_permission})",
    )


def _send_forbidden(topic: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, f"clients may not send to the system topic {topic!r}")


def _topic_too_long(topic: str, allowed: int) -> Refusal:
    return Refusal(
        ResponseCode.MESSAGE_ILLEGAL, f"the topic name has {len(topic)} bytes; a record of it holds at most {allowed}"
    )


def _separator(text: str) -> str:
    return "" if not text or text[-1] == "\x02" else "\x02"


def _level(values: dict[str, str]) -> int:
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


def _check_no_timer(values: dict[str, str]) -> None:
    """Raises `Refusal` for a timer message. TIMER_OUT_MS marks one that was delivered: it is an ordinary message again."""
    if Property.TIMER_OUT_MS in values:
        return
    for name in TIMERS:
        if name in values:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"timer messages are not enabled on this broker (property {name}); use a delay level (property DELAY)",
            )


def _check_attributes(config: TopicConfig, values: dict[str, str]) -> None:
    """Rules of topics that came from a RocketMQ configuration with attributes this broker does not give itself."""
    if config.attributes.get(CLEANUP_POLICY) == "COMPACTION" and not values.get(Property.KEYS):
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"topic {config.topic_name!r} is compacted: its messages need KEYS")
    if config.attributes.get(QUEUE_TYPE) == "BatchCQ":
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"topic {config.topic_name!r} has queue.type=BatchCQ, which this broker does not serve",
        )
