"""The options of the data source `orbitmq` for reading, as a table: what documentation and error messages say of them.

Rules of this file
1. The names are those of the Scala connector for RocketMQ where it has one, else those of Spark's Kafka source.
"""

from __future__ import annotations

from typing import Final

from orbitmq.spark.given_options import Option, ReadKind

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
        "A batch waits for so many rows, or for maxTriggerDelay. Has no effect with the trigger availableNow.",
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
)  # fmt: skip
"""Every option of a read, in the order of the documentation."""
