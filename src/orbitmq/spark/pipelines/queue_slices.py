"""Cutting ranges of queues into slices that are worked on one after the other, and reading such a slice.

Rules of this file
1. A slice takes from every queue in proportion to what is left of it, so that queues move on together.
2. The same ranges have the same slices.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from orbitmq.limits.spark import REPLAY_SLICE_MS
from orbitmq.spark.reading.offsets import share, to_json
from orbitmq.spark.reading.plan import QueueRange

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def slices_of(ranges: Sequence[QueueRange], rows: int) -> Iterator[tuple[QueueRange, ...]]:
    """Together the ranges; each slice has at most so many offsets, or one of every queue where there are more queues than that."""
    ends = {piece.queue: piece.end for piece in ranges}
    at = {piece.queue: piece.begin for piece in ranges}
    while shares := share({queue: ends[queue] - begin for queue, begin in at.items()}, rows):
        yield tuple(QueueRange(queue, at[queue], at[queue] + count) for queue, count in sorted(shares.items()))
        for queue, count in shares.items():
            at[queue] += count


def rows_of_slice(most: int, rate: float | None) -> int:
    """How many rows a slice has: with a rate, of so many a second, few enough that a stop request is heard soon."""
    return most if rate is None else max(1, min(most, int(rate * REPLAY_SLICE_MS / 1_000)))


def rows_within(frame: DataFrame, ranges: Iterable[QueueRange]) -> DataFrame:
    """The rows of an archive that lie in these ranges, one at least.

    Rows of a log that was archived without a name have null for their broker, and its ranges an empty text.
    """
    from pyspark.sql import functions as F

    def belongs(one: QueueRange) -> Column:
        return (
            (F.col("topic") == one.queue.topic)
            & F.col("brokerName").eqNullSafe(F.lit(one.queue.broker_name or None))
            & (F.col("queueId") == one.queue.queue_id)
            & (F.col("queueOffset") >= one.begin)
            & (F.col("queueOffset") < one.end)
        )

    return frame.where(reduce(lambda one, other: one | other, map(belongs, ranges)))


def read_ranges(
    spark: SparkSession, ranges: Iterable[QueueRange], options: Mapping[str, str], schema: str | None = None
) -> DataFrame:
    """The messages of these ranges. schema: the columns to read, all without it."""
    assigned: dict[str, dict[str, list[int]]] = {}
    begins, ends = {}, {}
    for piece in ranges:
        queue = piece.queue
        assigned.setdefault(queue.topic, {}).setdefault(queue.broker_name, []).append(queue.queue_id)
        begins[queue], ends[queue] = piece.begin, piece.end
    reader = spark.read.format("orbitmq").options(**options).option("assign", json.dumps(assigned))
    reader = reader.options(startingOffsets=json.dumps(to_json(begins)), endingOffsets=json.dumps(to_json(ends)))
    return (reader if schema is None else reader.schema(schema)).load()
