"""What the thread of a stream or a job does in Spark: a pass of a pipeline, or a query until the service stops.

Rules of this file
1. Modules are imported before threads begin.
2. Every part has a session of its own beside that of the service: settings of one do not reach another. Spark Connect has one for all.
3. What was committed is told, batch by batch.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from orbitmq.clock import SystemClock
from orbitmq.errors import OrbitError, SparkJobError
from orbitmq.limits.spark import REPLAY_TIMEOUT_MS, SERVICE_LOOK_MS
from orbitmq.spark.options import read_options
from orbitmq.spark.pipelines.run import Run, Silent, StopRequest
from orbitmq.spark.pipelines.serving.figures import BatchDone
from orbitmq.spark.pipelines.serving.service_file import ServicePart, StreamSink, job_named
from orbitmq.spark.workers import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orbitmq.protocol.remoting.bodies import MessageQueue
    from orbitmq.spark.pipelines.archiving.settings import ArchiveSettings
    from orbitmq.spark.pipelines.serving.stream_settings import StreamSettings
    from orbitmq.spark.reading.offsets import Extent, Offsets


logger = logging.getLogger("orbitmq.service")

_SENT: Final = "sent"
"""Name of the count of rows that a stream into a topic sends."""

_MINE: Final = threading.local()
"""The session of a thread, and the one that it was made from."""


class PartRun(Protocol):
    """What surrounds the work of a part."""

    stop: StopRequest
    checkpoint: str
    """Of a stream that names none."""
    stop_within_ms: int

    def done(self, batch: BatchDone) -> None:
        """A batch was committed."""

    def idle(self) -> None:
        """Nothing was new, or something was committed that is told later."""

    def give_up(self) -> None:
        """A batch did not end within the time that a stop has."""


def do_part(spark: SparkSession, part: ServicePart, run: PartRun) -> None:
    """One pass of an archive or a job; a query until it is to stop. Raises what made it fail."""
    settings = part.settings(SystemClock().now_ms())
    if getattr(_MINE, "of", None) is not spark:
        _MINE.of, _MINE.session = spark, _own_session(spark)
    own = _MINE.session
    if part.is_stream and part.does == StreamSink.ARCHIVE:
        _archive(own, settings, run)
    elif part.is_stream:
        _query(own, part, settings, run)
    else:
        _pipeline(own, part.does, settings, run)


def import_all() -> None:
    """Everything that parts import when they need it: threads that import the same modules for the first time, which import each other,
    find them half made."""
    import contextlib
    import importlib
    import pkgutil

    import orbitmq.spark

    for module in pkgutil.walk_packages(orbitmq.spark.__path__, "orbitmq.spark."):
        with contextlib.suppress(ModuleNotFoundError):  # of an extra that is not installed; who needs it will say so
            importlib.import_module(module.name)
    for name in (
        "deltalake.transaction",
        "deltalake.exceptions",
        "deltalake.fs",
        "pyarrow.parquet",
        "pyspark.sql.pandas.types",
    ):
        importlib.import_module(name)


def is_up(spark: SparkSession) -> bool:
    """Whether the session can be used. Its Java may be gone, or its context stopped."""
    try:
        if is_remote(spark):
            spark.conf.get("spark.app.name", None)  # its version is asked for once, and known for ever
            return True
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False


def _own_session(spark: SparkSession) -> SparkSession:
    from orbitmq.spark.threads import write_from_any_thread
    from orbitmq.spark.workers import ready_workers, register_formats

    if is_remote(spark):
        ready_workers(spark)
        return spark
    own = spark.newSession()
    write_from_any_thread(own)
    ready_workers(own)
    register_formats(own)
    return own


def _archive(spark: SparkSession, settings: Any, run: PartRun) -> None:
    from orbitmq.spark.pipelines import archive

    summary = archive(spark, **vars(settings), run=Run(stop=run.stop, progress=_Committed(run)))
    try:
        lags = archive_lags(settings)
    except OrbitError as error:  # what was committed counts all the same; the next pass meets the trouble itself
        logger.warning("nobody knows how far the archive %s is behind: %s", settings.to, error)
        lags = None
    run.done(BatchDone(summary.rows_written, summary.rows_quarantined, summary.seconds, lags))


class _Committed(Silent):
    """Takes each batch of a pass as a sign of life: a pass over much that is old has many, and ends after hours."""

    def __init__(self, run: PartRun) -> None:
        self._run = run

    def advance(self, rows: int, *, size_bytes: int = 0, lag: int | None = None) -> None:
        self._run.idle()


def archive_lags(settings: ArchiveSettings) -> dict[tuple[str, str], int]:
    """Messages by topic, under the empty group; nothing of logs. Asks the cluster and reads the table's log."""
    if settings.store:
        return {}
    from orbitmq.client.addresses import parse_addresses
    from orbitmq.spark.pipelines.archiving.delta_log import DeltaLog
    from orbitmq.spark.pipelines.archiving.reached import reached_of
    from orbitmq.spark.pipelines.archiving.storage import table_place
    from orbitmq.spark.pipelines.archiving.table import opened
    from orbitmq.spark.reading.cluster import cluster_of

    cluster = cluster_of(parse_addresses(settings.name_server or ""), REPLAY_TIMEOUT_MS, settings.connect)
    topics = settings.topic or cluster.matching(settings.topic_pattern or "")
    numbers = DeltaLog(table_place(settings.to)).applications(opened(settings.to).version())
    return behind(reached_of(numbers).queues, cluster.extents(topics))


def behind(reached: Offsets, extents: Mapping[MessageQueue, Extent]) -> dict[tuple[str, str], int]:
    """The same of offsets and bounds of queues; one that the archive has not entered yet counts from its oldest message on. Pure."""
    found: Counter[tuple[str, str]] = Counter()
    for queue, extent in extents.items():
        at = max(reached.get(queue, extent.low), extent.low)
        found[queue.topic, ""] += max(extent.high - at, 0)
    return dict(found)


def _pipeline(spark: SparkSession, name: str, settings: Any, run: PartRun) -> None:
    summary = job_named(name)(spark, **vars(settings), run=Run(stop=run.stop))
    if summary.failed:
        raise SparkJobError(f"{name} could not do all it should: {summary.record()}")
    if not summary.stopped:
        run.done(BatchDone(summary.rows_written, summary.rows_quarantined, summary.seconds))


# --- queries ----------------------------------------------------------------------------------------------------------


def _query(spark: SparkSession, part: ServicePart, settings: StreamSettings, run: PartRun) -> None:
    from pyspark.errors import StreamingQueryException

    from orbitmq.spark.pipelines.failed_jobs import reason_of

    checkpoint = settings.checkpoint or run.checkpoint
    rows = spark.readStream.format("orbitmq").options(**settings.read).load()
    writer, counts = _writer(rows, part, settings, checkpoint)
    query = (
        writer.queryName(part.name)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=f"{settings.every_ms} milliseconds")
        .start()
    )
    watched = _Watched(query, settings, counts, run)
    try:
        while not run.stop.requested and not query.awaitTermination(SERVICE_LOOK_MS / 1000):
            watched.look()
        if run.stop.requested:
            watched.end_batch()
    except StreamingQueryException as error:
        raise SparkJobError(reason_of(str(error))) from error
    finally:
        watched.stop()
    if not run.stop.requested:
        raise OrbitError(f"the query of stream {part.name} ended by itself", remedy="look who stopped it")


_Counts = Callable[[Any], tuple[int, int]]
"""Of the progress of a batch: how many rows were committed, and how many put aside."""


def _writer(rows: Any, part: ServicePart, settings: Any, checkpoint: str) -> tuple[Any, _Counts]:
    """Where the rows go, and what counts them: Spark's own count is of what was read, also where a condition takes a part of it."""
    from pyspark.sql import functions

    from orbitmq.spark.pipelines.condition import rows_where

    remedy = "it is a condition in SQL over the columns of a read, such as tags = 'red' AND queueId < 4"
    if part.does == StreamSink.TABLE:
        from orbitmq.spark.pipelines.serving.typed_table import TypedTable

        # What asks for a payload is null where there is none: such a row is put aside, not passed over. Others are asked of the source.
        is_asked = "payload" in (settings.where or "").lower()
        broken = functions.col("payloadError").isNotNull() if is_asked else None
        wanted = rows_where(rows, settings.where, rows="messages", remedy=remedy, undecided=broken)
        table = TypedTable(settings.to, settings.quarantine, checkpoint)
        return wanted.writeStream.foreachBatch(table.store), lambda progress: table.stored.pop(
            progress["batchId"], (0, 0)
        )
    wanted = rows_where(rows, settings.where, rows="messages", remedy=remedy)
    from orbitmq.spark.pipelines.replaying.rows import POSITION, DueTimes, messages

    options = {
        **settings.connect_options,
        "nameServer": settings.to_name_server or settings.name_server or "",
        "topic": settings.to,
        "rowKey": POSITION,
    }
    sent = messages(wanted, due_times=DueTimes.KEEP, shift_due_ms=0, brokers={})
    if settings.where is None:
        return sent.writeStream.format("orbitmq").options(**options), lambda progress: (progress["numInputRows"], 0)
    watched = sent.observe(_SENT, functions.count(functions.lit(1)).alias(_SENT))
    return watched.writeStream.format("orbitmq").options(**options), _observed


def _observed(progress: Any) -> tuple[int, int]:
    found = progress["observedMetrics"].get(_SENT)
    return (0 if found is None else found[_SENT] or 0, 0)


class _Watched:
    """A query, and what was told of it."""

    def __init__(self, query: Any, settings: StreamSettings, counts: _Counts, run: PartRun) -> None:
        self._query = query
        self._group = read_options(settings.read, streaming=True).group
        self._counts = counts
        self._run = run
        self._told = -1
        """The last batch that was told."""
        self._seen = (-1, "")
        """Number and time of the last trigger that was looked at."""

    def look(self) -> None:
        """Tell what is new. Where nothing is, the last trigger alone is asked for: a hundred of them cost tens of milliseconds."""
        last = self._query.lastProgress
        if last is None or (last["batchId"], last["timestamp"]) == self._seen:
            return
        self._seen = (last["batchId"], last["timestamp"])
        for progress in self._query.recentProgress:
            if progress["batchId"] > self._told and progress["numInputRows"]:
                self._told = progress["batchId"]
                seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
                self._run.done(BatchDone(*self._counts(progress), seconds, self._lags(progress)))
        if not last["numInputRows"]:
            self._run.idle()

    def end_batch(self) -> None:
        """Let the batch under way end, for as long as a stop has. What is given up is done again by the next start."""
        clock = SystemClock()
        until_ns = clock.monotonic_ns() + self._run.stop_within_ms * 1_000_000
        last = self._query.lastProgress
        before = -1 if last is None else last["batchId"]
        while self._query.isActive and self._query.status["isTriggerActive"]:
            last = self._query.lastProgress
            if last is not None and last["batchId"] > before:
                return
            if clock.monotonic_ns() >= until_ns:
                self._run.give_up()
                return
            self._query.awaitTermination(0.1)

    def stop(self) -> None:
        try:
            self.look()
        finally:
            self._query.stop()

    def _lags(self, progress: Any) -> dict[tuple[str, str], int]:
        from orbitmq.spark.stream_lag import lag

        found: dict[tuple[str, str], int] = {}
        for source in lag(progress):
            for queue, count in source.queues.items() if source is not None else ():
                found[queue.topic, self._group] = found.get((queue.topic, self._group), 0) + count
        return found
