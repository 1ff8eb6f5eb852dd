"""What tasks of an archive are given and do: they read their ranges, write the rows to files, and say which files there are.

Rules of this file
1. Decoding and writing happen in the task itself; what goes back to the driver is a line of JSON.
2. Every attempt has names of its own. Files count when the driver commits those of one attempt; the others are for `vacuum`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from orbitmq.spark.carrying import ArrowTask, Carried
from orbitmq.spark.log_files.ranges import LogRange
from orbitmq.spark.log_files.reading import RowRules
from orbitmq.spark.pipelines.archiving.committing import LandedFile
from orbitmq.spark.pipelines.archiving.landing import FileForm
from orbitmq.spark.reading.fetching import Fetch
from orbitmq.spark.reading.plan import QueueRange
from orbitmq.spark.workers import is_remote

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from orbitmq.protocol.remoting.bodies import MessageQueue
    from orbitmq.spark.quarantine import Quarantine

RESULT: Final = "done"
"""The only column of what comes back from a session of Spark Connect."""

QUARANTINE: Final = "_quarantine"
"""Below the archive: a JSON file for each task that found something it could not read."""


class QueueWork(msgspec.Struct, frozen=True, kw_only=True):
    """Ranges of queues to archive."""

    fetch: Fetch
    ranges: tuple[QueueRange, ...]


class LogWork(msgspec.Struct, frozen=True, kw_only=True):
    """A range of a log to archive."""

    rules: RowRules
    part: LogRange
    name: str
    """Name of the broker; empty where it has none."""


Work = QueueWork | LogWork


class TaskPiece(NamedTuple):
    """The work of one task. ends: numbers behind it, by application (`reached.py`)."""

    work: Work
    ends: Mapping[str, int]


class ArchivePlan(NamedTuple):
    """What a run has to do. Pieces are in order: after any number of them from the beginning, the numbers they name are where the archive
    stands."""

    pieces: Sequence[TaskPiece]
    rows: int | None
    """In all pieces; None where only reading tells."""
    missing: int = 0
    """Messages that were to be archived and are gone, where that is allowed."""
    begins: Mapping[str, int] = {}
    """Numbers that are stored before the first piece: what `since` left out of queues and logs, and queues that lost messages, once these
    are counted."""


class TaskDone(msgspec.Struct, frozen=True, kw_only=True):
    """What a task did. `rows` + `quarantined` + `missing` are what was to be read."""

    files: list[LandedFile]
    rows: int
    quarantined: int
    missing: int = 0
    """Offsets without a message, where that was allowed."""


class ArchiveTasks(Carried):
    """The function that Spark runs: number `i` of its input stands for piece `i` of the work."""

    def __init__(self, root: str, form: FileForm, works: tuple[Work, ...]) -> None:
        self._root = root
        self._form = form
        self._works = works

    def __call__(self, numbers: Iterable[int]) -> Iterator[str]:
        for number in numbers:
            done = archive_work(self._root, self._form, self._works[number])
            yield msgspec.json.encode(done).decode()


def said_by(spark: SparkSession, tasks: ArchiveTasks, count: int) -> list[str]:
    """What the tasks of all pieces say, in the order of the pieces.

    Where Spark allows it they are given out without SQL, whose classes are half of what Java reads until the first row is archived
    (benchmarks/spark/first_row.py).
    """
    if not is_remote(spark):
        return spark.sparkContext.parallelize(range(count), count).mapPartitions(tasks).collect()

    def over_arrow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            yield pa.record_batch({RESULT: list(tasks(batch.column(0).to_pylist()))})

    rows = spark.range(0, count, 1, count).mapInArrow(ArrowTask(over_arrow), f"{RESULT} string").collect()
    return [row[RESULT] for row in rows]


def archive_work(root: str, form: FileForm, work: Work) -> TaskDone:
    """The rows of one piece of work, in files that nobody knows yet."""
    from orbitmq.spark.pipelines.archiving.landing import Landing
    from orbitmq.spark.pipelines.archiving.storage import table_place
    from orbitmq.spark.quarantine import Quarantine

    token = uuid.uuid4().hex
    place = table_place(root)
    landing = Landing(place, token, form)
    path = f"{QUARANTINE}/{token}.jsonl"
    with Quarantine(place.under(path)) as quarantine:
        rows = 0
        for batch in (
            _queue_batches(work, quarantine) if isinstance(work, QueueWork) else _log_batches(work, quarantine)
        ):
            landing.add(batch)
            rows += batch.num_rows
    files = landing.close()
    if quarantine.count:
        files.append(LandedFile(path=path, rows=quarantine.count, size_bytes=quarantine.size_bytes))
    wanted = sum(part.count for part in work.ranges) if isinstance(work, QueueWork) else rows + quarantine.count
    return TaskDone(
        files=files, rows=rows, quarantined=quarantine.count, missing=max(0, wanted - rows - quarantine.count)
    )


def _queue_batches(work: QueueWork, quarantine: Quarantine) -> Iterator[pa.RecordBatch]:
    from orbitmq.spark.reading.fetching import fetch_ranges

    def tell(queue: MessageQueue, offset: int, why: str, content: bytes) -> None:
        where: dict[str, int | str | None] = {
            "topic": queue.topic,
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "queueOffset": offset,
        }
        quarantine.add(where, why, content)

    return fetch_ranges(work.fetch, work.ranges, tell=tell)


def _log_batches(work: LogWork, quarantine: Quarantine) -> Iterator[pa.RecordBatch]:
    from orbitmq.spark.log_files.reading import range_batches, tell_into

    return range_batches(
        work.part, work.rules, tell_into(quarantine, file=work.part.path, brokerName=work.name or None)
    )
