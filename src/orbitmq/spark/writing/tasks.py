"""What a task and the end of a job do with a cluster: the parts put together, and the pace of a task.

Rules of this file
1. Imported in the processes that write, never where Spark only looks for formats.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Final

from orbitmq.spark.reading.retrying import RetryClock
from orbitmq.spark.typed.encoding import encoded
from orbitmq.spark.writing.scopes import Writer, batch_scope
from orbitmq.spark.writing.sending import cluster
from orbitmq.spark.writing.task_writer import Marks, RowMark, TaskWriter, end_epochs
from orbitmq.spark.writing_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

PIECES_PER_SECOND: Final = 10
"""Bursts a second in which a task with a rate sends."""


def run_task(
    options: WriteOptions,
    places: dict[str, int],
    writer: Writer | None,
    part: int,
    batches: Iterable[pa.RecordBatch],
) -> tuple[int, Marks]:
    """Write the rows of one attempt of one task; every one is stored on return."""
    client = cluster(options.name_servers, options.connect)
    ends = writer is not None and writer.ends
    if options.encoding is not None:
        batches = encoded(batches, options.encoding, part)
    sending = client.sending(options, f"partition {part}", may_be_over=ends)
    if options.task_rows_per_second is not None:
        batches = paced(batches, options.task_rows_per_second, RetryClock())
    with closing(sending):
        return TaskWriter(options, places, writer, part, sending, client.unique_ids).write(batches)


def paced(batches: Iterable[pa.RecordBatch], rows_per_second: float, clock: RetryClock) -> Iterator[pa.RecordBatch]:
    """The same rows in pieces of at most a tenth of a second, each followed by the time it stands for.

    So the last row is followed by a pause as well, and tasks one after the other keep the rate together. A task that was slow does not
    make up for it: what a consumer bears does not grow because the broker was away.
    """
    step = max(1, int(rows_per_second / PIECES_PER_SECOND))
    for batch in batches:
        for begin in range(0, batch.num_rows, step):
            piece = batch.slice(begin, step)
            began_ms = clock.now_ms()
            yield piece
            left_ms = math.ceil(piece.num_rows * 1_000 / rows_per_second) - (clock.now_ms() - began_ms)
            if left_ms > 0:
                clock.sleep_ms(left_ms)


def end_job(options: WriteOptions, writer: Writer, of_tasks: Iterable[Marks]) -> None:
    """Tell the brokers that all tasks of a job have ended, and what they left."""
    marks: Marks = {}
    for left in of_tasks:
        for (topic, scope, broker), mark in left.items():
            key = topic, scope if options.row_key is not None else batch_scope(scope), broker
            marks[key] = marks.get(key, RowMark(0, 0)).plus(mark)
    if not marks:
        return
    sending = cluster(options.name_servers, options.connect).sending(options, "the job", may_be_over=True)
    for topic in {topic for topic, _, _ in marks}:
        sending.known(topic, "")  # the addresses of its brokers
    end_epochs(sending, writer, marks, frozenset())
