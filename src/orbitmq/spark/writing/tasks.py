"""What a task and the end of a job do with a cluster: the parts put together.

Rules of this file
1. Imported in the processes that write, never where Spark only looks for formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from orbitmq.spark.writing.scopes import Writer
from orbitmq.spark.writing.sending import cluster
from orbitmq.spark.writing.task_writer import Mark, Marks, TaskWriter, end_epochs
from orbitmq.spark.writing_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from orbitmq.spark.writing.sent import Sent


def run_task(
    options: WriteOptions,
    places: dict[str, int],
    writer: Writer | None,
    part: int,
    batches: Iterable[pa.RecordBatch],
) -> tuple[int, Marks]:
    """Write the rows of one attempt of one task; every one is stored on return."""
    client = cluster(options.name_servers)
    ends = writer is not None and writer.ends
    sending = client.sending(options, f"partition {part}", may_be_over=ends)
    return TaskWriter(options, places, writer, part, sending, client.unique_ids).write(batches)


def end_job(options: WriteOptions, writer: Writer, sent: Sequence[Sent]) -> None:
    """Tell the brokers that all tasks of a job have ended."""
    marks: Marks = {}
    for message in sent:
        for key, mark in message.marks.items():
            marks[key] = marks.get(key, Mark(0, 0)).plus(mark)
    sending = cluster(options.name_servers).sending(options, "the job", may_be_over=True)
    for topic in {topic for topic, _, _ in marks}:
        sending.known(topic, "")  # the addresses of its brokers
    end_epochs(sending, writer, marks, frozenset())
