"""Settings of clients, producers and consumers.

Rules of this file
1. A settings object is checked when it is made; `ConfigurationError` names the field, its value and the allowed range.
2. Defaults are those of RocketMQ's own clients unless the field's line says otherwise.
3. Times are milliseconds, sizes bytes, in the names.
"""

from __future__ import annotations

import ssl
from enum import Enum

import msgspec

from orbitmq.client.consuming.allocation import AllocateAverage, Strategy
from orbitmq.client.consuming.outcomes import RetryDelays, check_retry_delays
from orbitmq.client.hooks import ClientHooks
from orbitmq.client.sending.queue_choice import Selector
from orbitmq.errors import ConfigurationError
from orbitmq.limits.client import (
    CLIENT_BYTES_IN_FLIGHT_MAX,
    CLIENT_SEND_RETRIES_MAX,
    CLIENT_SENDS_IN_FLIGHT_MAX,
    CONSUMER_BATCH_MESSAGES_MAX,
    CONSUMER_BYTES_MAX,
    CONSUMER_MESSAGES_MAX,
    CONSUMER_PULL_MESSAGES_MAX,
    CONSUMER_QUEUE_BYTES_MAX,
    CONSUMER_QUEUE_MESSAGES_MAX,
    CONSUMER_SPAN_MAX,
)
from orbitmq.limits.wire import BODY_BYTES_MAX, FRAME_BYTES_MAX, RECORD_OVERHEAD_BYTES_MAX
from orbitmq.protocol.names import TRACE_TOPIC, topic_name_problem
from orbitmq.protocol.signing import Credentials


class ConsumeFrom(Enum):
    """Where a group starts on a queue for which the broker has no offset of it. A stored offset always wins."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    """At the end: only what is sent from now on. A broker may still start young topics at 0."""
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    """At the oldest message the broker still has."""
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"
    """At the first message stored at or after `from_timestamp_ms`."""


class Codec(Enum):
    """How large bodies are compressed. Clients of RocketMQ before 4.9.4 can read ZLIB only."""

    NONE = "none"
    ZLIB = "zlib"
    LZ4 = "lz4"
    ZSTD = "zstd"


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one client: its network and its timers.

    request_timeout_ms: for a request to a name server, a heartbeat, and the like.
    admin_timeout_ms: for one call of `Client.admin` to a broker, which may have to search its disk.
    instance_name: makes the client id `<ip>@<instance_name>` unique; None draws `<pid>#<nanoseconds>`.
    unit_name: appended to the client id, for clusters that run in units.
    trace: tell `trace_topic` what this client sends and consumes; see `Admin.trace`.
    credentials: who this client is: every request is signed. None signs nothing.
    hooks: what is told of sends, pulls and handled messages, for metrics and traces; see `ClientHooks`.
    tls: speak TLS with every server. True trusts what the system trusts, and a certificate has to name the host or address that
        is connected to; an `ssl.SSLContext` says what to trust, and with what certificate of its own the client comes.
    """

    instance_name: str | None = None
    unit_name: str | None = None
    connect_timeout_ms: int = 3_000
    request_timeout_ms: int = 3_000
    admin_timeout_ms: int = 9_000
    route_refresh_ms: int = 30_000
    heartbeat_ms: int = 30_000
    offset_persist_ms: int = 5_000
    close_timeout_ms: int = 3_000
    trace: bool = False
    trace_topic: str = TRACE_TOPIC
    tls: bool | ssl.SSLContext = False
    credentials: Credentials | None = None
    hooks: ClientHooks | None = None

    def __post_init__(self) -> None:
        check_switch(self, "trace")
        if not isinstance(self.tls, bool | ssl.SSLContext):
            raise ConfigurationError(f"tls={self.tls!r}: must be True, False or an ssl.SSLContext")
        check_kind(self, "trace_topic", str)
        if not isinstance(self.hooks, ClientHooks | None):
            raise ConfigurationError(f"ClientOptions.hooks={self.hooks!r}: must be an object of a class of ClientHooks")
        if not isinstance(self.credentials, Credentials | None):  # what it is may be a secret
            raise ConfigurationError("ClientOptions.credentials must be an orbitmq.Credentials, or None")
        check_range(self, "connect_timeout_ms", 1, 600_000)
        check_range(self, "request_timeout_ms", 1, 600_000)
        check_range(self, "admin_timeout_ms", 1, 600_000)
        check_range(self, "route_refresh_ms", 100, 3_600_000)
        check_range(self, "heartbeat_ms", 1_000, 100_000)  # the broker forgets a client after 120 s
        check_range(self, "offset_persist_ms", 100, 3_600_000)
        check_range(self, "close_timeout_ms", 0, 600_000)
        problem = topic_name_problem(self.trace_topic)
        if problem is not None:
            raise ConfigurationError(f"trace_topic={self.trace_topic!r}: {problem}")
        for name in ("instance_name", "unit_name"):
            check_kind(self, name, str, or_none=True)
            value = getattr(self, name)
            if value is not None and (not value or "@" in value or value != value.strip()):
                raise ConfigurationError(f"{name}={value!r}: must be non-blank text without '@'")


class ProducerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one producer.

    send_timeout_ms: for one send with all its attempts.
    attempt_timeout_ms: for one attempt; None gives each attempt all the time left, so that a first attempt that
        hangs leaves no time for a second one.
    retries_count: further attempts after the first, on other brokers where there are any; None makes as many as fit into
        `send_timeout_ms`, a broker that has failed after pauses of 100, 200 and then 400 ms.
    retry_not_stored_ok: also try again when a broker stored the message but its flush or a replica was late.
    compress_from_bytes: bodies from this size are compressed, if that makes them smaller; batches never are.
    topic_queues_count: queues asked for when the broker creates the topic.
    selector: chooses the queue of each message; None walks the queues in turn, and takes the hash of an ordering key.
    avoid_slow_brokers: prefer brokers that have answered quickly, and probe those that failed.
    in_flight_max, in_flight_bytes_max: what may be under way; later sends wait for room within their own time.
    idempotent: send again after a lost answer in a way that the broker recognises, to the same queue, so that the message is stored
        once. RocketMQ's broker does not recognise it; with False such a repeat goes to another broker, as RocketMQ's clients do.
    elsewhere_after_ms: when a broker that may have stored the message has not said so for this long, the next attempt goes to
        another broker, and where the first one had stored it, consumers get it twice. None: never; the send fails with `maybe_stored`.
        So does a send with `once` whose broker did not take it, or is away.
    auto_batch_ms: how long a send may wait for others, to leave as one batch with them; 0 sends each on its own. Only sends without delay,
        ordering key, `once` and time limit of their own wait. auto_batch_bytes: the size at which a batch leaves at once.
    """

    send_timeout_ms: int = 3_000
    attempt_timeout_ms: int | None = None
    retries_count: int | None = None
    retry_not_stored_ok: bool = False
    max_message_bytes: int = BODY_BYTES_MAX
    compress_from_bytes: int = 4_096
    codec: Codec = Codec.ZLIB
    topic_queues_count: int = 4
    selector: Selector | None = None
    avoid_slow_brokers: bool = False
    in_flight_max: int = CLIENT_SENDS_IN_FLIGHT_MAX
    in_flight_bytes_max: int = CLIENT_BYTES_IN_FLIGHT_MAX
    idempotent: bool = True
    elsewhere_after_ms: int | None = None
    auto_batch_ms: int = 0
    auto_batch_bytes: int = 32_768

    def __post_init__(self) -> None:
        for switch in ("retry_not_stored_ok", "avoid_slow_brokers", "idempotent"):
            check_switch(self, switch)
        check_kind(self, "codec", Codec)
        check_range(self, "send_timeout_ms", 1, 600_000)
        if self.attempt_timeout_ms is not None:
            check_range(self, "attempt_timeout_ms", 1, 600_000)
        if self.retries_count is not None:
            check_range(self, "retries_count", 0, CLIENT_SEND_RETRIES_MAX)
        if self.elsewhere_after_ms is not None:
            check_range(self, "elsewhere_after_ms", 0, 600_000)
        check_range(self, "max_message_bytes", 1, FRAME_BYTES_MAX - RECORD_OVERHEAD_BYTES_MAX)
        check_range(self, "compress_from_bytes", 0, FRAME_BYTES_MAX)
        check_range(self, "topic_queues_count", 1, 65_535)
        check_range(self, "in_flight_max", 1, 1_000_000)
        check_range(self, "in_flight_bytes_max", 1_048_576, 100 * 1024 * 1024 * 1024)
        check_range(self, "auto_batch_ms", 0, 30_000)
        check_range(self, "auto_batch_bytes", 1_024, 2 * 1_048_576)
        if self.auto_batch_ms and self.auto_batch_bytes > self.max_message_bytes:
            raise ConfigurationError(
                f"auto_batch_bytes is {self.auto_batch_bytes}, more than max_message_bytes ({self.max_message_bytes})",
                remedy="a batch counts as one message: raise max_message_bytes or lower auto_batch_bytes",
            )
        if self.selector is not None and not callable(self.selector):
            raise ConfigurationError(
                f"ProducerOptions.selector={self.selector!r}: must be a function of the queues and the ordering key",
                remedy="for example orbitmq.RandomQueue()",
            )


class ConsumerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one consumer.

    broadcasting: every member of the group gets every message, and failed ones do not come again; offsets are kept in a file
        under `offsets_folder` (None: `.rocketmq_offsets` in the home directory, RocketMQ's own place).
    orderly: one message of a queue at a time, in order, under a lock of the broker; a failed one holds its queue for `suspend_ms` and
        is tried again.
    max_retries_count: further attempts after the first before a message goes to the dead-letter topic; None leaves it to the
        group's setting at the broker (16), and means without end for an orderly consumer. Not for a broadcasting one.
    settle_timeout_ms: a message not settled for so long is sent back to be retried, though its handler may still run.
    retry_delays: how long a message that failed waits before each further attempt, timedeltas or seconds: (1, 2, 4). The last one counts
        for all that follow; how many there are `max_retries_count` says. Empty leaves it to the broker: 10 s, 30 s, 1 m ... Not for a
        broadcasting consumer. A broker without timer messages waits the nearest delay level.
    batch_messages_count: largest number of messages of one call of `Consumer.run_batches`.
    queue_messages_max, queue_bytes_max, span_max: what may be pulled of one queue and not yet settled; see `limits`.
    topic_messages_max, topic_bytes_max: the same of all queues of a topic here; None sets no such bound.
    messages_max, bytes_max: the same of all queues of the consumer.
    strategy: how the group's members share the queues; all members must use the same. One of the `Allocate...` classes,
        or a function of (own client id, sorted client ids, sorted queues) that returns the own queues.
    """

    consume_from: ConsumeFrom = ConsumeFrom.LAST
    from_timestamp_ms: int | None = None
    broadcasting: bool = False
    offsets_folder: str | None = None
    orderly: bool = False
    suspend_ms: int = 1_000
    batch_messages_count: int = 1
    pull_messages_count: int = 32
    max_retries_count: int | None = None
    settle_timeout_ms: int = 15 * 60_000
    retry_delays: RetryDelays = ()
    queue_messages_max: int = CONSUMER_QUEUE_MESSAGES_MAX
    queue_bytes_max: int = CONSUMER_QUEUE_BYTES_MAX
    topic_messages_max: int | None = None
    topic_bytes_max: int | None = None
    messages_max: int = CONSUMER_MESSAGES_MAX
    bytes_max: int = CONSUMER_BYTES_MAX
    span_max: int = CONSUMER_SPAN_MAX
    strategy: Strategy = AllocateAverage()

    def __post_init__(self) -> None:
        for switch in ("broadcasting", "orderly"):
            check_switch(self, switch)
        check_kind(self, "consume_from", ConsumeFrom)
        check_kind(self, "offsets_folder", str, or_none=True)
        if self.from_timestamp_ms is not None:
            check_range(self, "from_timestamp_ms", 0, 2**63 - 1)
        check_range(self, "pull_messages_count", 1, CONSUMER_PULL_MESSAGES_MAX)
        if self.max_retries_count is not None:
            check_range(self, "max_retries_count", 0, 2**31 - 1)
            if self.broadcasting:
                raise ConfigurationError(
                    f"max_retries_count is {self.max_retries_count} and the consumer is broadcasting",
                    remedy="a broadcasting consumer leaves failed messages behind and retries none: leave it out",
                )
        check_range(self, "settle_timeout_ms", 1_000, 24 * 3_600_000)
        check_retry_delays(self.retry_delays)
        if self.retry_delays and self.broadcasting:
            raise ConfigurationError(
                f"retry_delays is {self.retry_delays} and the consumer is broadcasting",
                remedy="a broadcasting consumer leaves failed messages behind and retries none: leave it out",
            )
        check_range(self, "queue_messages_max", 1, 65_535)
        check_range(self, "queue_bytes_max", 1, 1024 * 1024 * 1024)
        check_range(self, "suspend_ms", 10, 30_000)
        check_range(self, "batch_messages_count", 1, CONSUMER_BATCH_MESSAGES_MAX)
        if self.topic_messages_max is not None:
            check_range(self, "topic_messages_max", 1, 6_553_500)
        if self.topic_bytes_max is not None:
            check_range(self, "topic_bytes_max", 1, 100 * 1024 * 1024 * 1024)
        check_range(self, "messages_max", 1, 6_553_500)
        check_range(self, "bytes_max", 1, 100 * 1024 * 1024 * 1024)
        check_range(self, "span_max", 1, 65_535)
        if self.offsets_folder is not None and not self.broadcasting:
            raise ConfigurationError(
                f"offsets_folder is {self.offsets_folder!r} and the consumer is not broadcasting",
                remedy="only broadcasting consumers keep offsets in a file; others keep them at the brokers",
            )
        if not callable(self.strategy) or isinstance(self.strategy, type):
            raise ConfigurationError(
                f"ConsumerOptions.strategy={self.strategy!r}: must be a strategy", remedy="such as AllocateCircle()"
            )
        if (self.consume_from is ConsumeFrom.TIMESTAMP) != (self.from_timestamp_ms is not None):
            raise ConfigurationError(
                f"consume_from is {self.consume_from.name} and from_timestamp_ms is {self.from_timestamp_ms}",
                remedy="give from_timestamp_ms with ConsumeFrom.TIMESTAMP, and only then",
            )


def check_range(options: object, name: str, low: int, high: int) -> None:
    """Raise `ConfigurationError` when a field is no whole number from `low` to `high`."""
    value = getattr(options, name)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigurationError(f"{type(options).__name__}.{name}={value!r}: must be a whole number {low} to {high}")


def check_switch(options: object, name: str) -> None:
    """Raise `ConfigurationError` when a field is neither True nor False: the text "no" would count as True."""
    value = getattr(options, name)
    if not isinstance(value, bool):
        raise ConfigurationError(f"{type(options).__name__}.{name}={value!r}: must be True or False")


def check_kind(options: object, name: str, kind: type[str] | type[Enum], *, or_none: bool = False) -> None:
    """Raise `ConfigurationError` when a field is no text, or no member of its enumeration."""
    value = getattr(options, name)
    if isinstance(value, kind) or (or_none and value is None):
        return
    wanted = f"one of {', '.join(str(member) for member in kind)}" if issubclass(kind, Enum) else "text"
    raise ConfigurationError(f"{type(options).__name__}.{name}={value!r}: must be {wanted}")
