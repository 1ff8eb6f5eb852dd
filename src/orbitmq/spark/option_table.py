"""The options of the data source `orbitmq` for reading, as a table: what documentation and error messages say of them.

Rules of this file
1. Names count in any letter case, as everywhere in Spark. An unknown one is an error that lists the known ones; so is one that would
   have no effect on this kind of read.
2. The names are those of the Scala connector for RocketMQ where it has one, else those of Spark's Kafka source.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from orbitmq.errors import ConfigurationError


class ReadKind(Enum):
    """For which reads an option counts."""

    BOTH = "both"
    BATCH = "batch"
    STREAM = "stream"


class Option(NamedTuple):
    name: str
    values: str
    default: str
    reads: ReadKind
    meaning: str


READ_OPTIONS: Final = (
    Option("nameServer", "`host:port`, several separated by `;`", "required", ReadKind.BOTH, "The name servers of the cluster."),
    Option("topic", "a name", "one of four", ReadKind.BOTH, "The topic to read."),
    Option("subscribe", "names separated by commas", "one of four", ReadKind.BOTH, "The topics to read."),
    Option(
        "subscribePattern",
        "a regular expression",
        "one of four",
        ReadKind.BOTH,
        "Reads every topic whose whole name matches; a stream takes up topics that appear later. System topics never match.",
    ),
    Option(
        "assign",
        '`{"topic": {"broker": [0, 1]}}`',
        "one of four",
        ReadKind.BOTH,
        "Reads exactly these queues.",
    ),
    Option(
        "startingOffsets",
        '`earliest`, `latest` (streams), or `{"topic": {"broker": {"0": 23, "1": -1}}}`',
        "`earliest` (batch), `latest` (stream)",
        ReadKind.BOTH,
        "Where to begin: -2 is the oldest message, -1 the end. Queues that the JSON does not name begin at the default. "
        "A stream with a checkpoint goes on where it was.",
    ),
    Option(
        "endingOffsets",
        "`latest` or the same JSON",
        "`latest`",
        ReadKind.BATCH,
        "Where to end: the first offset that is not read.",
    ),
    Option(
        "startingTimestamp",
        "milliseconds since 1970",
        "",
        ReadKind.BOTH,
        "Begins every queue at the first message stored at or after this time.",
    ),
    Option(
        "endingTimestamp",
        "milliseconds since 1970",
        "",
        ReadKind.BATCH,
        "Ends every queue before the first message stored at or after this time.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        '`{"topic": {"broker": {"0": 1700000000000}}}`',
        "",
        ReadKind.BOTH,
        "As startingTimestamp, by queue.",
    ),
    Option(
        "endingOffsetsByTimestamp", "the same JSON", "", ReadKind.BATCH, "As endingTimestamp, by queue; others end at `latest`."
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "`error` or `latest`",
        "`error`",
        ReadKind.BOTH,
        "What happens with a queue that has no message stored at or after the starting time.",
    ),
    Option("maxOffsetsPerTrigger", "a number", "", ReadKind.STREAM, "At most so many rows in a batch, shared by backlog."),
    Option(
        "minOffsetsPerTrigger",
        "a number",
        "",
        ReadKind.STREAM,
        "A batch waits for so many rows, or for maxTriggerDelay. Has no effect with the trigger availableNow.",
    ),
    Option("maxTriggerDelay", "such as `30s`, `15m`", "`15m`", ReadKind.STREAM, "Longest wait for minOffsetsPerTrigger."),
    Option("minPartitions", "a number", "", ReadKind.BOTH, "Splits large ranges until there are about so many Spark partitions."),
    Option("maxRecordsPerPartition", "a number", "", ReadKind.BOTH, "Splits ranges that hold more."),
    Option(
        "failOnDataLoss",
        "`true` or `false`",
        "`true`",
        ReadKind.BOTH,
        "Whether messages that should be there and are not end the query; else they are passed over with a warning.",
    ),
    Option("subExpression", "tags joined by `||`", "`*`", ReadKind.BOTH, "The broker sends messages with these tags only."),
    Option("pullBatchSize", "1 to 65536", "1000", ReadKind.BOTH, "Messages asked for in one pull; brokers have a bound of their own."),
    Option("pullTimeoutMs", "milliseconds", "3000", ReadKind.BOTH, "Longest silence of a server that was asked something."),
    Option(
        "retryTimeoutMs",
        "milliseconds",
        "60000",
        ReadKind.BOTH,
        "How long a server that is away is tried again before the query fails.",
    ),
    Option(
        "group",
        "a name",
        "groupIdPrefix and a digest of what is read",
        ReadKind.BOTH,
        "The consumer group in whose name is read, and under which a stream publishes how far it is. It is no member of the group.",
    ),
    Option("groupIdPrefix", "a name", "`spark-orbitmq-source`", ReadKind.BOTH, "Beginning of the group's name where `group` is not given."),
    Option("includeProperties", "`map`, `json` or `none`", "`map`", ReadKind.BOTH, "Form of the column `properties`."),
    Option(
        "pushdown",
        "`true` or `false`",
        "`false`",
        ReadKind.BATCH,
        "Uses filters on topic, brokerName, queueId, queueOffset and storeTimestamp to read less. Needs "
        "`spark.sql.python.filterPushdown.enabled=true`.",
    ),
    Option(
        "offsetRefreshMs",
        "milliseconds",
        "200",
        ReadKind.STREAM,
        "How often the ends of the queues are asked for while nothing is new.",
    ),
)  # fmt: skip
"""Every option of a read, in the order of the documentation."""


def check_known(given: Iterable[str], known: Iterable[Option], *, streaming: bool) -> None:
    """`given` are names in lower case. Raises for the first that is not known, or has no effect on this kind of read."""
    by_name = {option.name.lower(): option for option in known}
    for name in given:
        option = by_name.get(name)
        if option is None:
            raise ConfigurationError(
                f"there is no option {name!r} for reading", remedy=f"the options are {', '.join(o.name for o in by_name.values())}"
            )  # fmt: skip
        if option.reads is (ReadKind.BATCH if streaming else ReadKind.STREAM):
            kind, other = ("stream", "batch reads") if streaming else ("batch read", "streams")
            raise ConfigurationError(f"option {option.name} has no effect on a {kind}; it is for {other}")
