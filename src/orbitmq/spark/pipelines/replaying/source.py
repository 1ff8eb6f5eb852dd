"""Where a replay reads: an archive, or the topics of a cluster. Both know what there is, and the rows of a slice of it.

Rules of this file
1. `stretches` is asked once for a replay; what is there later does not count.
2. `ordered` leaves the messages of a queue in their order, in one task. Of how many tasks None leaves to Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from orbitmq.client.addresses import parse_addresses
from orbitmq.client.connect_settings import ConnectSettings
from orbitmq.columns.message_columns import COLUMN_TYPES
from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import REPLAY_RETRY_TIMEOUT_MS, REPLAY_TIMEOUT_MS
from orbitmq.spark.archives import archive, kinds_of
from orbitmq.spark.pipelines.failed_jobs import job_errors
from orbitmq.spark.pipelines.queue_slices import read_ranges, rows_within
from orbitmq.spark.pipelines.replaying.plan import Slice, Stretch
from orbitmq.spark.pipelines.replaying.rows import Choice, in_order, selected
from orbitmq.spark.reading.retrying import Retrying

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


NEEDED: Final = (
    "topic", "day", "body", "flag", "properties", "brokerName", "queueId", "queueOffset", "storeTimestamp", "tags", "keys",
    "deliverTimestamp",
)  # fmt: skip
"""Columns without which an archive cannot be replayed."""


class ReplayedArchive:
    """The table of an archive, as it is when the replay begins or goes on: rows of a plan stay where they are."""

    def __init__(self, spark: SparkSession, place: str, topics: Sequence[str]) -> None:
        from pyspark.sql import functions as F

        self._place = place
        frame = archive(place, spark=spark)
        if kinds_of(frame, place, NEEDED, "a replay")["properties"] == "string":
            frame = frame.withColumn("properties", F.from_json("properties", "map<string,string>"))
        frame = frame.withColumn("day", F.col("day").cast("string"))
        for name in COLUMN_TYPES.keys() - set(frame.columns):  # asked for by nobody but an expression
            frame = frame.withColumn(name, F.lit(None).cast(COLUMN_TYPES[name]))
        self._topics = sorted(set(topics))
        self._frame = frame.where(F.col("topic").isin(self._topics)) if topics else frame

    def stretches(self, since_ms: int | None, until_ms: int | None) -> list[Stretch]:
        from pyspark.sql import functions as F

        meant = selected(self._frame, Choice(since_ms=since_ms, until_ms=until_ms))
        groups = meant.groupBy("day", "topic", "brokerName", "queueId")
        with job_errors(f"looking over archive {self._place}"):
            found = groups.agg(F.min("queueOffset"), F.max("queueOffset") + 1).collect()
        # A message without a time has no day, and one of a log that nobody named no broker.
        stretches = [Stretch(row[0] or "", row[1], row[2] or "", *row[3:]) for row in found]
        missing = sorted(set(self._topics) - {stretch.topic for stretch in stretches})
        if missing:
            raise ConfigurationError(
                f"archive {self._place} has no messages of topic {', '.join(missing)} in that time",
                remedy="select topic, count(*) from it to see which topics it has",
            )
        return sorted(stretches)

    def rows(self, piece: Slice) -> DataFrame:
        from pyspark.sql import functions as F

        # Rows without a day have null there, and their stretches no text.
        of_day = self._frame.where(F.col("day").eqNullSafe(F.lit(piece.day or None)))
        return rows_within(of_day, [stretch.range for stretch in piece.stretches])

    def ordered(self, rows: DataFrame, tasks: int | None) -> DataFrame:
        return in_order(rows, tasks)


class ReplayedTopics:
    """Topics of a cluster, from their oldest message to what is there at the start."""

    def __init__(self, spark: SparkSession, cluster: Mapping[str, str], topics: Sequence[str], expression: str) -> None:
        """cluster: the options that say which one, and how to connect to it."""
        self._spark = spark
        self._options = dict(cluster)
        self._topics = ",".join(sorted(set(topics)))
        self._expression = expression

    def stretches(self, since_ms: int | None, until_ms: int | None) -> list[Stretch]:
        from orbitmq.spark.options import read_options
        from orbitmq.spark.reading.starting import ranges_of

        options = {**self._options, "subscribe": self._topics, "startingOffsetsByTimestampStrategy": "latest"}
        if since_ms is not None:
            options["startingTimestamp"] = str(since_ms)
        if until_ms is not None:
            options["endingTimestamp"] = str(until_ms)
        wanted = read_options(options, streaming=False)
        found = Retrying(REPLAY_RETRY_TIMEOUT_MS).run(f"looking up topics {self._topics}", lambda: ranges_of(wanted))
        return sorted(Stretch.of("", piece) for piece in found if piece.count > 0)

    def rows(self, piece: Slice) -> DataFrame:
        ranges = [stretch.range for stretch in piece.stretches]
        return read_ranges(self._spark, ranges, {**self._options, "subExpression": self._expression})

    def ordered(self, rows: DataFrame, tasks: int | None) -> DataFrame:
        return rows if tasks is None else rows.coalesce(tasks)


ReplaySource = ReplayedArchive | ReplayedTopics


def writable_queues(name_server: str, connect: ConnectSettings, topic: str) -> dict[str, int]:
    """How many queues a topic has at each broker. `RouteNotFoundError` when there is no such topic."""
    from orbitmq.spark.reading.cluster import cluster_of

    cluster = cluster_of(parse_addresses(name_server), REPLAY_TIMEOUT_MS, connect)
    route = Retrying(REPLAY_RETRY_TIMEOUT_MS).run(
        f"looking up topic {topic!r}", lambda: cluster.route(topic, fresh=True)
    )
    counts = Counter(queue.broker_name for queue in route.publish_queues)
    if not counts:
        raise ConfigurationError(
            f"topic {topic!r} cannot be written to",
            remedy=f"give it the permission: orbitmq topic update {topic} --perm 6",
        )
    return dict(counts)
