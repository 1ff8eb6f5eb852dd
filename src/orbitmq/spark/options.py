"""The options of the data source `orbitmq` for reading: their table, and the values they give.

Rules of this file
1. Pure, as `given_options`: every mistake is found before a server is asked.
2. The names are those of the Scala connector for RocketMQ where it has one, else those of Spark's Kafka source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from orbitmq.client.connect_settings import ConnectSettings
from orbitmq.client.consuming.subscription import subscribe
from orbitmq.columns.message_columns import PropertiesForm
from orbitmq.errors import ConfigurationError
from orbitmq.instants import parse_span_ms
from orbitmq.limits.spark import SPARK_PULL_MESSAGES_MAX, SPARK_TOPICS_MAX
from orbitmq.protocol.names import group_name_problem
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.connect_options import CONNECT_OPTIONS, connect_settings
from orbitmq.spark.given_options import KAFKA_SERVERS, NUMBER_MAX, SHOWN_CHARS, GivenOptions, Option, ReadKind
from orbitmq.spark.typed.payload_options import PAYLOAD_READ_OPTIONS, PayloadOptions, payload_options

READ_OPTIONS: Final = (
    Option("nameServer", "`host:port`, several separated by `;`", "required", "The name servers of the cluster."),
    Option("topic", "a name", "one of four", "The topic to read."),
    Option("subscribe", "names separated by commas", "one of four", "The topics to read."),
    Option(
        "subscribePattern",
        "a regular expression",
        "one of four",
        "Reads every topic whose whole name matches; a stream takes up topics that appear later. System topics never match.",
    ),
    Option("assign", '`{"topic": {"broker": [0, 1]}}`', "one of four", "Reads exactly these queues."),
    Option(
        "startingOffsets",
        '`earliest`, `latest` (streams), or `{"topic": {"broker": {"0": 23, "1": -1}}}`',
        "`earliest` (batch), `latest` (stream)",
        "Where to begin: -2 is the oldest message, -1 the end. Queues that the JSON does not name begin at the default. "
        "A stream with a checkpoint goes on where it was.",
    ),
    Option("endingOffsets", "`latest` or the same JSON", "`latest`", "Where to end: the first offset that is not read.", ReadKind.BATCH),
    Option("startingTimestamp", "milliseconds since 1970", "", "Begins every queue at the first message stored at or after this time."),
    Option(
        "endingTimestamp",
        "milliseconds since 1970",
        "",
        "Ends every queue before the first message stored at or after this time.",
        ReadKind.BATCH,
    ),
    Option("startingOffsetsByTimestamp", '`{"topic": {"broker": {"0": 1700000000000}}}`', "", "As startingTimestamp, by queue."),
    Option("endingOffsetsByTimestamp", "the same JSON", "", "As endingTimestamp, by queue; others end at `latest`.", ReadKind.BATCH),
    Option(
        "startingOffsetsByTimestampStrategy",
        "`error` or `latest`",
        "`error`",
        "What happens with a queue that has no message stored at or after the starting time.",
    ),
    Option("maxOffsetsPerTrigger", "a number", "", "At most so many rows in a batch, shared by backlog.", ReadKind.STREAM),
    Option(
        "minOffsetsPerTrigger",
        "a number",
        "",
        "A batch waits for so many rows, not more than maxOffsetsPerTrigger, or for maxTriggerDelay. Has no effect with the trigger "
        "availableNow.",
        ReadKind.STREAM,
    ),
    Option("maxTriggerDelay", "such as `30s`, `15m`", "`15m`", "Longest wait for minOffsetsPerTrigger.", ReadKind.STREAM),
    Option("minPartitions", "a number", "", "Splits large ranges until there are about so many Spark partitions."),
    Option("maxRecordsPerPartition", "a number", "", "Splits ranges that hold more."),
    Option(
        "failOnDataLoss",
        "`true` or `false`",
        "`true`",
        "Whether messages that should be there and are not end the query; else they are passed over with a warning.",
    ),
    Option("subExpression", "tags joined by `||`", "`*`", "The broker sends messages with these tags only."),
    Option(
        "subSql",
        "an SQL92 expression over properties",
        "",
        "The broker sends messages for which it is true: `region = 'eu' AND price > 10`. Brokers of RocketMQ need enablePropertyFilter.",
    ),
    Option("pullBatchSize", "1 to 65536", "1000", "Messages asked for in one pull; brokers have a bound of their own."),
    Option("pullTimeoutMs", "milliseconds", "3000", "Longest silence of a server that was asked something."),
    Option("retryTimeoutMs", "milliseconds", "60000", "How long a server that is away is tried again before the query fails."),
    Option(
        "group",
        "a name",
        "groupIdPrefix and a digest of what is read",
        "The consumer group in whose name is read, and under which a stream publishes how far it is. It is no member of the group.",
    ),
    Option("groupIdPrefix", "a name", "`spark-orbitmq-source`", "Beginning of the group's name where `group` is not given."),
    Option("includeProperties", "`map`, `json` or `none`", "`map`", "Form of the column `properties`."),
    Option(
        "pushdown",
        "`true` or `false`",
        "`false`",
        "Uses filters on topic, brokerName, queueId, queueOffset and storeTimestamp to read less. Needs "
        "`spark.sql.python.filterPushdown.enabled=true`.",
        ReadKind.BATCH,
    ),
    Option(
        "offsetRefreshMs",
        "milliseconds",
        "200",
        "How often the ends of the queues are asked for while nothing is new.",
        ReadKind.STREAM,
    ),
    KAFKA_SERVERS,
    Option("includeHeaders", "`true` or `false`", "`false`", "Whether columns named as Kafka's have `headers` among them."),
    *PAYLOAD_READ_OPTIONS,
    *CONNECT_OPTIONS,
)  # fmt: skip
"""Every option of a read, in the order of the documentation."""

EARLIEST: Final = -2
LATEST: Final = -1
"""Places in JSON offsets that are no offsets."""


class Subscribed(msgspec.Struct, frozen=True):
    """What is read: `topics`, or all that match `pattern`, or `queues` alone (and then `topics` are theirs)."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: frozenset[MessageQueue] | None = None

    def __str__(self) -> str:
        """For people."""
        return f"topics like {self.pattern!r}" if self.pattern is not None else f"topics {', '.join(self.topics)}"


class Bound(msgspec.Struct, frozen=True):
    """Where reading begins or ends.

    everywhere: EARLIEST or LATEST, for queues that the rest says nothing about.
    offsets: by queue; an offset, EARLIEST or LATEST.
    everywhere_ms, times_ms: the first message stored at or after.
    """

    everywhere: int
    offsets: Mapping[MessageQueue, int] = {}
    everywhere_ms: int | None = None
    times_ms: Mapping[MessageQueue, int] = {}

    def time_ms(self, queue: MessageQueue) -> int | None:
        """The time at which this queue's bound lies, if a time says so."""
        return self.times_ms.get(queue, self.everywhere_ms)

    def place(self, queue: MessageQueue) -> int:
        """Offset, EARLIEST or LATEST, where no time says otherwise."""
        return self.offsets.get(queue, self.everywhere)

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """Queues that are named."""
        return frozenset(self.offsets) | frozenset(self.times_ms)


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the options of a read say. Times are milliseconds; None is no limit."""

    name_servers: tuple[str, ...]
    connect: ConnectSettings
    subscribed: Subscribed
    starting: Bound
    ending: Bound
    late_start_is_error: bool
    max_rows: int | None
    min_rows: int | None
    max_delay_ms: int
    min_partitions: int | None
    max_partition_rows: int | None
    fail_on_data_loss: bool
    expression: str
    sql: str | None
    pull_count: int
    pull_timeout_ms: int
    retry_timeout_ms: int
    group: str
    properties: PropertiesForm | None
    pushdown: bool
    refresh_ms: int
    payload: PayloadOptions | None


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The values of the options of one read. `ConfigurationError` says which option is wrong, and how it would be right."""
    given = GivenOptions(options, READ_OPTIONS, "reading")
    given.check_reads(streaming=streaming)
    subscribed = _subscribed(given)
    expression = given.get("subExpression") or "*"
    sql = given.get("subSql") or None
    subscribe(subscribed.topics[0] if subscribed.topics else "any", expression, 0, sql=sql)
    max_rows, min_rows = (given.number(f"{word}OffsetsPerTrigger", None, 1) for word in ("max", "min"))
    if max_rows is not None and min_rows is not None and min_rows > max_rows:
        raise ConfigurationError(
            f"minOffsetsPerTrigger is {min_rows} and maxOffsetsPerTrigger {max_rows}: no batch could have so many rows",
            remedy="a batch waits for the former and has at most the latter: make the former the smaller one",
        )
    return ReadOptions(
        name_servers=given.name_servers(),
        connect=connect_settings(given),
        subscribed=subscribed,
        starting=_starting(given, streaming),
        ending=_ending(given),
        late_start_is_error=given.choice("startingOffsetsByTimestampStrategy", ("error", "latest")) == "error",
        max_rows=max_rows,
        min_rows=min_rows,
        max_delay_ms=_span_ms(given, "maxTriggerDelay", "15m"),
        min_partitions=given.number("minPartitions", None, 1),
        max_partition_rows=given.number("maxRecordsPerPartition", None, 1),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        expression=expression,
        sql=sql,
        pull_count=given.number("pullBatchSize", 1000, 1, SPARK_PULL_MESSAGES_MAX),
        pull_timeout_ms=given.number("pullTimeoutMs", 3000, 1, 600_000),
        retry_timeout_ms=given.number("retryTimeoutMs", 60_000, 0),
        group=_group(given, subscribed, expression if sql is None else sql),
        properties=given.properties_form(),
        pushdown=given.flag("pushdown", default=False),
        refresh_ms=given.number("offsetRefreshMs", 200, 1),
        payload=payload_options(given),
    )  # fmt: skip


# --- one option --------------------------------------------------------------------------------------------------


def _subscribed(given: GivenOptions) -> Subscribed:
    ways = given.among("topic", "subscribe", "subscribePattern", "assign")
    if len(ways) != 1:
        what = f"{' and '.join(ways)} are given together" if ways else "nothing says what to read"
        raise ConfigurationError(
            what, remedy="give exactly one of the options topic, subscribe, subscribePattern, assign"
        )
    [way] = ways
    if way == "subscribePattern":
        return Subscribed(pattern=given.pattern(way))
    if way == "assign":
        queues = frozenset(_assigned(given.get(way) or ""))
        if not queues:
            raise ConfigurationError(
                "option assign names no queue", remedy='write for example {"orders": {"broker-a": [0, 1]}}'
            )
        return Subscribed(tuple(sorted({queue.topic for queue in queues})), queues=queues)
    topics = given.topics(way)
    if not 0 < len(topics) <= SPARK_TOPICS_MAX:
        raise ConfigurationError(
            f"option {way} names {len(topics)} topics; 1 to {SPARK_TOPICS_MAX} can be read together"
        )
    return Subscribed(tuple(sorted(set(topics))))


def _assigned(text: str) -> Iterable[MessageQueue]:
    try:
        brokers = msgspec.json.decode(text, type=dict[str, dict[str, list[int]]])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigurationError(
            f"option assign cannot be read: {error}", remedy='write for example {"orders": {"broker-a": [0, 1]}}'
        ) from error
    for topic, names in brokers.items():
        for broker_name, queue_ids in names.items():
            for queue_id in queue_ids:
                yield _queue("assign", topic, broker_name, queue_id)


def _by_queue(given: GivenOptions, name: str, lowest: int) -> dict[MessageQueue, int]:
    text = given.get(name) or ""
    try:
        topics = msgspec.json.decode(text, type=dict[str, dict[str, dict[str, int]]])
    except (msgspec.DecodeError, RecursionError) as error:
        raise _says_nothing(name, text, f": {error}") from error
    values: dict[MessageQueue, int] = {}
    for topic, brokers in topics.items():
        for broker_name, queues in brokers.items():
            for queue_id, value in queues.items():
                if not (queue_id.isascii() and queue_id.isdecimal() and len(queue_id) <= len(str(NUMBER_MAX))):
                    raise ConfigurationError(
                        f"option {name}: {queue_id[:SHOWN_CHARS]!r} is no queue id (topic {topic!r}, broker {broker_name!r})"
                    )
                if not lowest <= value < 2**63:
                    raise ConfigurationError(
                        f"option {name}: {value} is out of range (topic {topic!r}, broker {broker_name!r})"
                    )
                values[_queue(name, topic, broker_name, int(queue_id))] = value
    if not values:
        raise _says_nothing(name, text)
    return values


def _says_nothing(name: str, text: str, why: str = "") -> ConfigurationError:
    """Of a text that names no queue, or cannot be read: it would begin or end at the default, and nobody meant that."""
    what, value, words = "offsets", 23, f"{'earliest' if name.startswith('starting') else 'latest'}, or by queue "
    if "Timestamp" in name:
        what, value, words = "times", 1_700_000_000_000, "by queue, in milliseconds since 1970, "
    shown = text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "..."
    return ConfigurationError(
        f"option {name}: {shown!r} says no {what}{why}",
        remedy=f'write {words}{{"orders": {{"broker-a": {{"0": {value}}}}}}}',
    )


def _queue(option: str, topic: str, broker_name: str, queue_id: int) -> MessageQueue:
    if not 0 <= queue_id < 2**31:
        raise ConfigurationError(f"option {option}: {queue_id} is no queue id")
    return MessageQueue(topic, broker_name, queue_id)


def _starting(given: GivenOptions, streaming: bool) -> Bound:
    default = LATEST if streaming else EARLIEST
    bound = _bound(given, ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"), default)
    if not streaming and (bound.everywhere == LATEST or LATEST in bound.offsets.values()):
        raise ConfigurationError(
            "a batch read cannot begin at the latest offset, there is nothing behind it", remedy="begin at earliest, or at an offset"
        )  # fmt: skip
    return bound


def _ending(given: GivenOptions) -> Bound:
    bound = _bound(given, ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"), LATEST)
    if bound.everywhere == EARLIEST or EARLIEST in bound.offsets.values():
        raise ConfigurationError("a read cannot end at the earliest offset", remedy="end at latest, or at an offset")
    return bound


def _bound(given: GivenOptions, names: tuple[str, str, str], default: int) -> Bound:
    """The bound that one of three options gives: a time for all, times by queue, or offsets."""
    used = given.among(*names)
    if len(used) > 1:
        raise ConfigurationError(f"{' and '.join(used)} say different things", remedy="give only one of them")
    if not used:
        return Bound(default)
    for_all, by_queue, offsets = names
    [name] = used
    if name == for_all:
        return Bound(default, everywhere_ms=given.number(name, None, 0))
    if name == by_queue:
        return Bound(default, times_ms=_by_queue(given, name, 0))
    assert name == offsets
    text = given.get(name) or ""
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in words:
        return Bound(words[text.lower()])
    return Bound(default, offsets=_by_queue(given, name, EARLIEST))


def _group(given: GivenOptions, subscribed: Subscribed, expression: str) -> str:
    """The name given, else one that is the same whenever the same is read."""
    group = given.get("group")
    name = "group"
    if not group:
        import hashlib

        what = repr((subscribed.topics, subscribed.pattern, sorted(subscribed.queues or ()), expression))
        digest = hashlib.blake2b(what.encode(), digest_size=4).hexdigest()
        name, group = "groupIdPrefix", f"{given.get('groupIdPrefix') or 'spark-orbitmq-source'}-{digest}"
    elif given.get("groupIdPrefix"):
        raise ConfigurationError("group and groupIdPrefix are given together", remedy="give only one of them")
    problem = group_name_problem(group)
    if problem is not None:
        raise ConfigurationError(f"option {name}: {problem}")
    return group


def _span_ms(given: GivenOptions, name: str, default: str) -> int:
    """As Spark takes it: also with blanks, `min` for minutes, and milliseconds without a unit."""
    text = "".join((given.get(name) or default).lower().split())
    text = text.removesuffix("in") if text.endswith("min") else text
    return parse_span_ms(f"option {name}:", f"{text}ms" if text.isdecimal() else text)
