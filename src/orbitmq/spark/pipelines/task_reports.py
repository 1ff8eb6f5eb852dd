"""What the tasks of a job tell the driver: rows of one small table, whatever the job.

Rules of this file
1. A task tells what it did after it is done; an attempt that failed has told nothing.
2. What tasks tell is bounded, because the driver holds all of it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from orbitmq.spark.carrying import ArrowTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REPORT_COLUMNS: Final = "kind string, part bigint, text string, rows bigint"
"""The schema, as Spark takes it."""

_SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("part", pa.int64()),
        ("text", pa.string()),
        ("rows", pa.int64()),
    ]
)


class LineKind(StrEnum):
    READ = "read"
    """rows: that many rows came in."""
    NEAR = "near"
    """rows: that many are due too soon for a file."""
    FILE = "file"
    """A file was written. text: its name, size and checksum, as JSON. rows: how many it has."""
    SENT = "sent"
    """rows: that many are stored by a broker."""
    BROKEN = "broken"
    """text: why row number `rows` of the part cannot be scheduled, and what it holds, as `BrokenRow`."""


class ReportLine(NamedTuple):
    kind: LineKind
    part: int
    text: str = ""
    rows: int = 0


class BrokenRow(NamedTuple):
    """A row that cannot be scheduled. values: those of its columns that fit, as text."""

    part: int
    row: int
    reason: str
    values: dict[str, str]


@dataclass
class TaskReport:
    """Everything that the tasks of a job told."""

    counts: Counter[LineKind] = field(default_factory=Counter)
    broken: list[BrokenRow] = field(default_factory=list)
    files: list[tuple[str, int]] = field(default_factory=list)
    """Text and rows of each."""


def batches_of(lines: Iterable[ReportLine]) -> Iterator[pa.RecordBatch]:
    found = list(lines)
    if found:
        columns = zip(*((str(line.kind), *line[1:]) for line in found), strict=True)
        arrays = [pa.array(list(values), field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def reported(frame: DataFrame, tell: Callable[[Iterator[pa.RecordBatch], int], Iterable[ReportLine]]) -> DataFrame:
    """What the tasks of a job over these rows tell, for `report_of`. tell: given the rows of a task and its number."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches_of(tell(batches, 0 if context is None else context.partitionId()))

    return frame.mapInArrow(ArrowTask(run), REPORT_COLUMNS)


def broken_line(row: BrokenRow) -> ReportLine:
    return ReportLine(LineKind.BROKEN, row.part, json.dumps([row.reason, row.values]), row.row)


def report_of(rows: Iterable[Any]) -> TaskReport:
    """From the rows that Spark collected."""
    report = TaskReport()
    for row in rows:
        kind = LineKind(row["kind"])
        if kind is LineKind.BROKEN:
            reason, values = json.loads(row["text"])
            report.broken.append(BrokenRow(row["part"], row["rows"], reason, values))
        elif kind is LineKind.FILE:
            report.files.append((row["text"], row["rows"]))
        else:
            report.counts[kind] += row["rows"]
    report.files.sort()
    report.broken.sort(key=lambda broken: broken[:2])
    return report
