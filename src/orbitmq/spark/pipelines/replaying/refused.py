"""The rows of a slice that cannot be written again, found by tasks and put into a file by the driver.

A slice is written without looking; only when its writer refuses a row is it looked through, and then written without the refused rows.
What the first attempt had sent is recognised by the brokers.

Rules of this file
1. A line of the file names topic, broker, queue and offset: the message itself stays where it is.
2. The file of a slice is written before the slice is noted, under the same name whenever the slice is run again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orbitmq.limits.spark import SPARK_BROKEN_ROWS_MAX
from orbitmq.spark.pipelines.broken_rows import MessageRules, refused_rows, too_many, values_of
from orbitmq.spark.pipelines.replaying.rows import POSITION
from orbitmq.spark.pipelines.task_reports import BrokenRow, ReportLine, batches_of, broken_line

if TYPE_CHECKING:
    import pyarrow as pa

    from orbitmq.spark.log_files.places import FilePlace


class RefusedTask(NamedTuple):
    """What every task is given. names: the columns of the rows, as `messages` gives them; places: `row_columns` of them."""

    names: tuple[str, ...]
    places: Mapping[str, int]
    topic: str
    max_message_bytes: int

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches_of(self.look(batches, 0 if context is None else context.partitionId()))

    def look(self, batches: Iterator[pa.RecordBatch], part: int) -> Iterator[ReportLine]:
        """A line for each row that cannot be written, whose values hold its position. MessageIllegalError when there are too many."""
        rules = MessageRules(
            self.places, topic=self.topic, max_message_bytes=self.max_message_bytes, part=part, by_key=True
        )
        place = self.names.index(POSITION)
        first = found = 0
        for batch in batches:
            for row, reason in refused_rows(batch, np.arange(batch.num_rows), rules.check, first):
                found += 1
                if found > SPARK_BROKEN_ROWS_MAX:
                    raise too_many(part, reason, "written again")
                values = values_of(batch, row, self.names)
                values[POSITION] = batch.column(place)[row].as_py()  # never shortened
                yield broken_line(BrokenRow(part, first + row, reason, values))
            first += batch.num_rows


def put_aside(directory: FilePlace, slice_number: int, refused: Sequence[BrokenRow]) -> None:
    """The file of one slice: `slice-000003.jsonl`."""
    from orbitmq.spark.quarantine import Quarantine

    with Quarantine(directory.under(f"slice-{slice_number:06d}.jsonl")) as file:
        for row in refused:
            file.add(place_of(row.values[POSITION]), row.reason, json.dumps(row.values).encode())


def place_of(position: str) -> dict[str, int | str | None]:
    """Where a row came from; a log that nobody named has no broker."""
    topic, _, rest = position.partition("/")
    *broker, queue_id, offset = rest.rsplit("/", 2)
    return {
        "topic": topic,
        "brokerName": "/".join(broker) or None,
        "queueId": int(queue_id),
        "queueOffset": int(offset),
    }
