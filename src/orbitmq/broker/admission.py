"""Admission: what becomes of a message that somebody wants to send.

One decision for every protocol front end: the checks in the protocol's order, the properties the broker adds and
removes, the way to a dead-letter topic, and the rewrite of a delayed message to the schedule topic and of a timer message
to the timer topic. What a message says is read once (`message_properties`), what batches add is in `batch_admission`, what times
mean in `timers.intake`.

Rules of this file
1. `admit` performs no I/O and appends nothing. Its only effects are topics and groups that come into being by being
   used, as the protocol wants it.
2. The order of the checks is the protocol's: of two faults in one message, clients see the same one as with RocketMQ.
3. What is not built yet is refused, never stored as something else: inner batches.
4. The due time of a delayed message is fixed here: the clock is read after its frame arrived, rounded up to the
   millisecond, plus its level. It stands in the tags code and in a property of our own, so a later change of the
   level list, a stepped clock or a rebuilt consume queue does not change it.
5. A delay level wins over timer properties, and what was delivered by a timer (TIMER_OUT_MS) is an ordinary message again.
6. Whether a send is a repeat is asked last: a repeat is answered with the first one's place only if it would be
   admitted itself.
7. A half message waits in the half topic whatever times it names: they are looked at when it is sent, and count from its commit.
8. Every message is placed by `place`. Of a topic that no check can fail for, only its queues and its type are looked up; that is forgotten
   as soon as the topic table changes.

Source: RocketMQ broker, send path checks; delay levels and timers at put time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from orbitmq.broker.attributes import CLEANUP_POLICY, QUEUE_TYPE
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.idempotence.identity import ONCE_NAMES, SendIdentity, read_identity
from orbitmq.broker.idempotence.memory import SentPlace
from orbitmq.broker.message_properties import (
    CANCEL,
    COPY,
    LEVEL,
    ONCE,
    PLACED,
    PLACES,
    REFUSED,
    STAMPED,
    TIMED,
    TIMERS,
    TRANSACTIONAL,
    URGENT,
    SendFacts,
    broker_properties,
    facts_of,
    is_true,
    level_of,
    priority_of,
    read_facts,
)
from orbitmq.broker.message_types import check_lite, check_type, taken_type
from orbitmq.broker.refusal import Refusal, group_missing, topic_missing
from orbitmq.broker.sending import EarlierResult, Origin, Placement, Sending
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.timers.intake import TimerIntake
from orbitmq.broker.topics import MULTI_TAG, WRITE
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.errors import RecordError
from orbitmq.limits.transactions import UNDECIDED_MAX
from orbitmq.limits.wire import (
    PROPERTIES_BYTES_MAX,
    PROPERTIES_PLAIN_MAX,
    PROPERTIES_ROOM_BYTES,
    RETRY_TOPIC_BYTES_MAX,
    TOPIC_BYTES_MAX,
)
from orbitmq.protocol.filtering.tags import tags_code
from orbitmq.protocol.ids import UniqueIds, unpack_host
from orbitmq.protocol.message_types import MessageType
from orbitmq.protocol.names import (
    DLQ_PREFIX,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    is_send_forbidden,
    topic_name_problem,
)
from orbitmq.protocol.properties import Property, encode_properties
from orbitmq.protocol.remoting.bodies import DataVersion, TopicConfig
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.versions import version_ordinal
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.protocol.sysflag import COMPRESSION_MASK, HOSTS_MASK, TRANSACTION_MASK, SysFlag
from orbitmq.store.message import NewMessage

MULTI_TAGS = int(SysFlag.MULTI_TAGS)
BATCH_BITS = int(SysFlag.NEEDS_UNWRAP | SysFlag.INNER_BATCH)
BORN_HOST_V6 = int(SysFlag.BORN_HOST_V6)
STORE_HOST_V6 = int(SysFlag.STORE_HOST_V6)

PLAIN_BITS = COMPRESSION_MASK | int(SysFlag.COMPRESSED)
"""Bits of the sender's flag that are stored as they are; any other one asks for something."""

IPV4_HOST_BYTES = 8

BESIDE_A_LEVEL = TIMERS | {Property.REAL_TOPIC, Property.REAL_QID}
"""What a message loses that waits for a delay level: its wish for a time, and what is said anew."""

HALF_STAMPS = PLACES | {Property.TRANSACTION_CHECK_TIMES, Property.TRAN_PREPARED_QUEUE_OFFSET}
"""What a half message does not say itself."""

MAX_RECONSUME_TIMES_SINCE = version_ordinal("3.4.9")
"""Older clients send no limit of their own."""


class PlainTopic(NamedTuple):
    """A topic that no check can fail for: from how many queues a sender may choose, among how many the broker chooses, and the type of
    messages that it takes."""

    queues: int
    write_queues: int
    taken: str


NOT_PLAIN: Final = PlainTopic(0, 0, MessageType.UNSPECIFIED)


class Admission:
    def __init__(
        self,
        core: BrokerCore,
        timers: TimerIntake,
        idempotence: Idempotence | None = None,
        transactions: Transactions | None = None,
    ) -> None:
        """Without `idempotence` sends that may be repeated are refused, without `transactions` half messages."""
        settings, self.store_host = core.settings, core.facilities.store_host
        self.levels = DelayLevels.parse(settings.message_delay_level, core.clock.rounding_ms)
        self.clamped_count = 0
        """Delay levels above the highest one, which the protocol wants lowered to it."""
        self.timers = timers
        self.idempotence = idempotence
        self._transactions = transactions
        self.own = broker_properties(settings.region_id, settings.trace_on, settings.broker_cluster_name)
        """What the broker adds to every message's properties."""
        self.next_unique_key = UniqueIds(core.clock, unpack_host(self.store_host)[0]).next
        self.body_bytes_max = core.store.settings.max_message_size
        self.check_writable = core.check_writable
        self._settings = settings
        self._topics = core.topics
        self._groups = core.groups
        self._locks = core.locks
        self._random_below = core.facilities.random_below
        self._store_bits = STORE_HOST_V6 if len(self.store_host) == 20 else 0
        self._plain_bits = 0 if self._store_bits else PLAIN_BITS
        self._known: dict[str, PlainTopic] = {}
        """By name."""
        self._version: DataVersion | None = None
        """That of the topics when these were learnt."""

    # --- front door -------------------------------------------------------------------------------------------------

    def admit(self, sending: Sending, origin: Origin, now_ms: int, now_ns: int) -> Placement | EarlierResult | Refusal:
        """Decide about one message. `now_ms` was read after its frame had arrived; `now_ns` is monotonic."""
        try:
            placement = self._admit(sending, origin, now_ms, now_ns)
            if placement.identity is None:
                return placement
            earlier = self._memory().admit_one(placement.identity, sending.topic, now_ms)
        except Refusal as refusal:
            return refusal
        if earlier is None:
            return placement
        return EarlierResult(placement, earlier)

    def earlier_places(self, sends: Sequence[SendIdentity], topic: str, now_ms: int) -> list[SentPlace | None]:
        """Where the sends of one request to `topic` went before, None for new ones. Raises `Refusal`."""
        return self._memory().admit(sends, topic, now_ms)

    def _memory(self) -> Idempotence:
        if self.idempotence is None:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"this broker keeps no memory of idempotent sends (property {Property.ONCE_SCOPE})",
            )
        return self.idempotence

    # --- single messages --------------------------------------------------------------------------------------------

    def _admit(self, sending: Sending, origin: Origin, now_ms: int, now_ns: int) -> Placement:
        topic, queue_id, config = sending.topic, sending.queue_id, None
        known = self._known.get(topic, NOT_PLAIN) if self._version is self._topics.version else NOT_PLAIN
        if queue_id < 0 < known.write_queues:
            queue_id = self._random_below(known.write_queues)
        elif not 0 <= queue_id < known.queues:
            config = self.topic_of(sending, now_ms)
            queue_id = self.queue_of(config, queue_id)
            self._learn(config)
        facts = read_facts(sending.properties)
        if config is None and origin.knows_types and facts.message_type != known.taken != MessageType.MIXED:
            config = self.topic_of(sending, now_ms)
        if facts.marks & URGENT:
            config = config or self.topic_of(sending, now_ms)
            queue_id, facts = self._by_priority(config, queue_id, facts)
        stored_queue = queue_id
        is_retry = config is not None and topic.startswith(RETRY_PREFIX)
        if config is not None and is_retry and self._is_given_up(sending, origin, now_ns):
            config = self._topics.ensure_dead_letter(topic[len(RETRY_PREFIX) :])
            topic, stored_queue = config.topic_name, 0
            facts = facts_of(facts.without(TIMERS).values | {Property.DELAY: "0"})
        if not sending.body:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "the message has no body")
        sys_flag, host, marks, is_half = sending.sys_flag, origin.host, facts.marks, False
        if (
            config is not None
            or sys_flag & ~self._plain_bits
            or len(host) != IPV4_HOST_BYTES
            or marks & (REFUSED | TRANSACTIONAL)
            or (sending.reconsume_times and marks & LEVEL)
        ):
            if config is None:
                config = self.topic_of(sending, now_ms)
            elif not is_retry:
                check_attributes(config, facts.values)
                self.check_type(config, facts, origin)
            sys_flag = self._check_unusual(sending, config, topic, facts, host)
            is_half = facts.is_half
        elif marks:
            self.check_writable()  # of a message that asks for nothing the store says so itself
        identity = due_ms = None
        wait = facts.values.get(Property.WAIT)
        if marks & ONCE or Property.UNIQ_KEY not in facts.values:
            facts, identity = self.identity(topic, facts, partial(read_identity, topic))
        if marks & TIMED:
            due_ms = self.timers.due_time(facts, now_ms)
        facts.is_half = is_half
        message = self.place(
            topic, stored_queue, sending.body, facts, due_ms, now_ms,
            sending.flag, sys_flag, sending.born_timestamp, host, sending.reconsume_times,
        )  # fmt: skip
        unique_key, handle = message.unique_key or "", None
        if due_ms is not None and not is_retry and not is_half and not marks & CANCEL:
            handle = self.timers.recall_handle(due_ms, topic, unique_key)
        return Placement(message, queue_id, unique_key, wait is None or is_true(wait), identity, handle)

    def _by_priority(self, config: TopicConfig, queue_id: int, facts: SendFacts) -> tuple[int, SendFacts]:
        """The queue that a message's priority chooses, whatever its topic's type; a message of another type loses its priority."""
        priority = priority_of(facts.values)
        if priority < 0:
            return queue_id, facts
        if facts.message_type is not MessageType.PRIORITY:
            return queue_id, facts.without({Property.PRIORITY})
        return self.queue_of(config, min(priority, config.write_queue_nums - 1)), facts

    def _is_given_up(self, sending: Sending, origin: Origin, now_ns: int) -> bool:
        """Whether a consumer's own re-send to the retry topic of its group becomes a dead letter. Raises `Refusal`."""
        group_name = sending.topic[len(RETRY_PREFIX) :]
        group = self._groups.get(group_name)
        if group is None:
            raise group_missing(group_name)
        limit = group.retry_max_times
        if sending.max_reconsume_times is not None and origin.version >= MAX_RECONSUME_TIMES_SINCE:
            limit = sending.max_reconsume_times
        # A group with live queue locks consumes in order; its consumers send here only what they have given up.
        return sending.reconsume_times > limit or self._locks.holds_any(group_name, now_ns)

    def _learn(self, config: TopicConfig) -> None:
        """Remember a topic that no check can fail for."""
        if self._version is not self._topics.version:
            self._version = self._topics.version
            self._known.clear()
        settings, topic = self._settings, config.topic_name
        if not (
            settings.start_accept_send_request_timestamp
            or settings.enforce_message_type
            or topic.startswith(RETRY_PREFIX)
            or len(topic) > TOPIC_BYTES_MAX
            or config.topic_filter_type == MULTI_TAG
            or (config.order and not settings.broker_permission & WRITE)
            or CLEANUP_POLICY in config.attributes
            or QUEUE_TYPE in config.attributes
        ):
            write_queues = config.write_queue_nums
            self._known[topic] = PlainTopic(
                max(write_queues, config.read_queue_nums), write_queues, taken_type(config.attributes)
            )

    def _check_unusual(
        self, sending: Sending, config: TopicConfig, topic: str, facts: SendFacts, born_host: bytes
    ) -> int:
        """The checks that nearly no message can fail; answers the flag to be stored, and marks half messages. Raises `Refusal`."""
        is_delayed_retry = sending.reconsume_times > 0 and level_of(facts.values) > 0
        if not is_delayed_retry and self.is_half(sending.sys_flag, facts.values):
            self._check_half(facts)
            facts.is_half = True
        self.check_writable()
        if len(topic) > TOPIC_BYTES_MAX:
            allowed = RETRY_TOPIC_BYTES_MAX if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_BYTES_MAX
            if len(topic) > allowed:
                raise topic_too_long(topic, allowed)
        if sending.sys_flag & BATCH_BITS or Property.INNER_NUM in facts.values:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                "the message claims to be an inner batch (sysFlag 0x40 or 0x80, or property INNER_NUM), "
                "which needs a queue.type=BatchCQ topic; this broker has none",
            )
        check_lite(facts.values)
        return self.sys_flag_of(sending.sys_flag, config, born_host) & ~TRANSACTION_MASK

    def identity(
        self, topic: str, facts: SendFacts, read: Callable[[dict[str, str]], SendIdentity | None]
    ) -> tuple[SendFacts, SendIdentity | None]:
        """A message with a unique key, and which send it is, as `read` reads it, when its sender may repeat it. A copy of another message
        loses the names of that one's send. Raises `Refusal`."""
        identity = None
        if facts.marks & ONCE:
            if facts.marks & (COPY | STAMPED) or topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                facts = facts.without(ONCE_NAMES)
            else:
                identity = read(facts.values)
        if Property.UNIQ_KEY not in facts.values:
            facts = facts_of(facts.values | {Property.UNIQ_KEY: self.next_unique_key()})
        return facts, identity

    def place(
        self, topic: str, queue_id: int, body: bytes, facts: SendFacts, due_ms: int | None, now_ms: int,
        flag: int, sys_flag: int, born_timestamp: int, born_host: bytes, reconsume_times: int,
    ) -> NewMessage:  # fmt: skip
        """The message as it is stored, with the broker's properties and, with a delay level or a due time, in a topic where it waits.

        `due_ms` is what `TimerIntake.due_time` said; `sys_flag` has its host bits. Raises `Refusal` for a level that is no number, and
        sizes. Cost: 1 us, for a message that waits 2.
        """
        marks, is_accepted, code, place = facts.marks, facts.is_accepted, None, b""
        stored_topic, stored_queue = topic, queue_id
        if facts.is_half:
            facts, place = _waiting_half(facts, topic, queue_id)
            stored_topic, stored_queue = HALF_TOPIC, 0
        elif marks & LEVEL and (level := level_of(facts.values)) > 0:
            if marks & (TIMED | PLACED):
                facts = facts.without(BESIDE_A_LEVEL)
            if level > self.levels.max_level:
                level = self.levels.max_level
                self.clamped_count += 1
                facts = facts_of(facts.values | {Property.DELAY: str(level)})
            code = self.levels.due_ms(level, now_ms)
            stored_topic, stored_queue = SCHEDULE_TOPIC, level - 1
            place = b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02ORBITMQ_DUE_MS\x01%d\x02" % (topic.encode(), queue_id, code)
        elif due_ms is not None:
            if marks & PLACED:
                facts = facts.without(PLACES)
            stored_topic, place = self.timers.waiting_place(facts, due_ms, topic, queue_id, now_ms)
            stored_queue = 0
        values = facts.values
        properties = (facts.kept or _encoded(values)) + self.own + place
        unique_key = values.get(Property.UNIQ_KEY)
        if not is_accepted and (len(body) > self.body_bytes_max or len(properties) > PROPERTIES_PLAIN_MAX):
            room = 0 if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else PROPERTIES_ROOM_BYTES
            if due_ms is not None and unique_key is not None:
                room += 2 * len(unique_key.encode())
            self.check_writable()
            self._check_sizes(body, properties, room)
        return NewMessage(
            stored_topic,
            stored_queue,
            body,
            properties,
            flag,
            sys_flag,
            born_timestamp,
            born_host,
            self.store_host,
            reconsume_times,
            0,
            tags_code(values.get(Property.TAGS)) if code is None else code,
            unique_key,
            values.get(Property.KEYS),
        )

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

    def check_type(self, config: TopicConfig, facts: SendFacts, origin: Origin) -> None:
        """Raises `WrongTypeRefusal` for a message of a type that its topic does not take, where types are enforced or known."""
        if self._settings.enforce_message_type or origin.knows_types:
            why = "its sender knows types" if origin.knows_types else "of enforceMessageType=true"
            check_type(config.topic_name, config.attributes, facts.message_type, why)

    def is_half(self, sys_flag: int, values: dict[str, str]) -> bool:
        """Whether a message is sent as half of a transaction. Raises `Refusal` where that is switched off or not served."""
        is_said = is_true(values.get(Property.TRAN_MSG))
        if not is_said and not sys_flag & TRANSACTION_MASK:
            return False
        if self._settings.reject_transaction_message:
            reason = "transactional messages are switched off on this broker (rejectTransactionMessage=true)"
        elif self._transactions is None:
            reason = "this broker does not serve transactional messages (TRAN_MSG, or transaction bits in sysFlag)"
        elif not is_said:
            reason = "transaction bits in sysFlag need the property TRAN_MSG=true"
        else:
            return True
        raise Refusal(ResponseCode.NO_PERMISSION, reason)

    def _check_half(self, facts: SendFacts) -> None:
        """Raises `Refusal` for a half message that nobody could decide, and while too many are undecided."""
        if not facts.values.get(Property.PGROUP):
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a half message names its producer group in {Property.PGROUP}: only that group may decide about it",
            )
        if facts.marks & CANCEL:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL, "the cancellation of a timer message cannot be part of a transaction"
            )
        level_of(facts.values)
        if self._transactions is not None and len(self._transactions.undecided) >= UNDECIDED_MAX:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"{UNDECIDED_MAX} transactions of this broker are undecided; more are taken when some are decided",
            )

    def _check_sizes(self, body: bytes, properties: bytes, room: int) -> None:
        """`room` is how many bytes of properties have to stay free. Raises `Refusal`."""
        if len(body) > self.body_bytes_max:
            raise self.body_too_large(len(body), "body")
        if len(properties) + room > PROPERTIES_BYTES_MAX:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the properties have {len(properties)} bytes with those of the broker; at most {PROPERTIES_BYTES_MAX - room} are taken: "
                f"{PROPERTIES_BYTES_MAX} fit into a record, and {room} stay free for what waiting, retries and dead letters add",
            )

    def body_too_large(self, size: int, what: str) -> Refusal:
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the {what} has {size} bytes; this broker takes at most {self.body_bytes_max} (maxMessageSize)",
        )


def _encoded(values: dict[str, str]) -> bytes:
    try:
        return encode_properties(values)
    except RecordError as error:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the properties cannot be stored: {error}") from error


def _waiting_half(facts: SendFacts, topic: str, queue_id: int) -> tuple[SendFacts, bytes]:
    """A half message as it waits, and the properties that say where its message is to go. What it says of checks and of the half message
    that it is a copy of comes from nobody but a broker."""
    if not HALF_STAMPS.isdisjoint(facts.values):
        facts = facts.without(HALF_STAMPS)
    names = (topic.encode(), queue_id, facts.values[Property.UNIQ_KEY].encode())
    return facts, b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02__transactionId__\x01%b\x02" % names


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


def check_attributes(config: TopicConfig, values: dict[str, str]) -> None:
    """Rules of topics that came from a RocketMQ configuration with attributes this broker does not give itself."""
    if config.attributes.get(CLEANUP_POLICY) == "COMPACTION" and not values.get(Property.KEYS):
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"topic {config.topic_name!r} is compacted: its messages need KEYS")
    if config.attributes.get(QUEUE_TYPE) == "BatchCQ":
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"topic {config.topic_name!r} has queue.type=BatchCQ, which this broker does not serve",
        )
