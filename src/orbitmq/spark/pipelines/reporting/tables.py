"""The report as Parquet, one file for each table, for whoever wants to go on reckoning.

    lateness.parquet       topic (empty: all), slot (null: all), timed, p50_ms ... max_ms, early, earliest_ms, overdue
    distribution.parquet   low_ms, count: lateness of all topics by bucket
    throughput.parquet     topic, slot, messages, size_bytes
    retries.parquet, dead_letters.parquet    group, slot, messages, attempts

Rules of this file
1. Times are timestamps of milliseconds in UTC; what is null in the figures is null there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from orbitmq.spark.pipelines.reporting.figures import Failures, Figures, Lateness, TopicTraffic

if TYPE_CHECKING:
    import pyarrow as pa


def tables(figures: Figures) -> Iterator[tuple[str, pa.Table]]:
    """Name of the file without its ending, and what is in it."""
    lateness = (figures.overall, *figures.by_topic, *figures.by_slot, *figures.by_topic_and_slot)
    yield "lateness", _table(Lateness, lateness)
    yield "distribution", _columns({"low_ms": int, "count": int}, figures.distribution)
    yield "throughput", _table(TopicTraffic, figures.traffic)
    yield "retries", _table(Failures, figures.retries)
    yield "dead_letters", _table(Failures, figures.dead_letters)


def _table(kind: type[msgspec.Struct], rows: Sequence[msgspec.Struct]) -> pa.Table:
    types: dict[str, type] = {field.name: str if field.type is str else int for field in msgspec.structs.fields(kind)}
    return _columns(types, [msgspec.structs.astuple(row) for row in rows])


def _columns(types: dict[str, type], rows: Iterable[tuple[object, ...]]) -> pa.Table:
    import pyarrow as pa

    found = list(rows)
    columns = {}
    for place, (name, kind) in enumerate(types.items()):
        is_time = name == "slot_ms"
        arrow_type = pa.timestamp("ms", tz="UTC") if is_time else pa.string() if kind is str else pa.int64()
        columns["slot" if is_time else name] = pa.array([row[place] for row in found], arrow_type)
    return pa.table(columns)
