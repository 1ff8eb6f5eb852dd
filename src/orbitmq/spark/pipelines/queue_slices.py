"""Cutting ranges of queues into slices that are worked on one after the other, and reading such a slice.

Rules of this file
1. A slice takes from every queue in proportion to what is left of it, so that queues move on together.
2. The same ranges have the same slices.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from orbitmq.spark.reading.offsets import share, to_json
from orbitmq.spark.reading.plan import QueueRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def slices_of(ranges: Iterable[QueueRange], rows: int) -> Iterator[tuple[QueueRange, ...]]:
    """Together the ranges; each slice has at most so many offsets, or one of every queue where there are more queues than that."""
    ends = {piece.queue: piece.end for piece in ranges}
    at = {piece.queue: piece.begin for piece in ranges}
    while shares := share({queue: ends[queue] - begin for queue, begin in at.items()}, rows):
        yield tuple(QueueRange(queue, at[queue], at[queue] + count) for queue, count in sorted(shares.items()))
        for queue, count in shares.items():
            at[queue] += count


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
