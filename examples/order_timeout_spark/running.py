"""Sessions and streams as the story needs them: started with patience, watched, and ended in order.

Rules of this file
1. Spark gives a Python process of a data source ten seconds to start, which a busy machine may exceed. That is tried again: a batch
   job has its `idempotencyKey` and a stream its checkpoint, so nothing happens twice. Every other failure ends the story.
2. What a stream has done is known from its own progress reports.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import orbitmq.spark
from examples.order_timeout_spark.stages import Stages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

SLOW_START: Final = ("Python worker failed to connect back", "while waiting for the Python worker to connect back")
"""What Spark says then."""

SLOW_START_TRIES: Final = 10

Result = TypeVar("Result")


@contextmanager
def spark_session(directory: Path, stages: Stages) -> Iterator[SparkSession]:
    """A session of the story's own that keeps its files, and what it has to say, in `directory`."""
    settings = {
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.showConsoleProgress": "false",
    }
    # Standard error belongs to the Java that is started now, and to all that it starts.
    with stages.stage("Spark started"), standard_error_to(directory / "spark.log"):
        spark = orbitmq.spark.session(app_name="order-timeout", **settings)
    try:
        yield spark
    finally:
        apart(spark.stop)


def apart(last: Callable[[], object]) -> None:
    """Call Java from a thread of its own: after an interrupt this one may still have an answer coming that nobody took."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(last).result()


@contextmanager
def standard_error_to(path: Path) -> Iterator[None]:
    """Processes that are started meanwhile write their complaints to a file, not between our bars."""
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)


def is_slow_start(error: BaseException | None) -> bool:
    return error is not None and any(words in str(error) for words in SLOW_START)


def patiently(job: Callable[[], Result], tell: Callable[[str], None]) -> Result:
    """Run a batch job that may be run again, once more for each Python process that was too slow to start."""
    for number in range(1, SLOW_START_TRIES):
        try:
            return job()
        except PySparkException as problem:
            if not is_slow_start(problem):
                raise
            tell(f"the machine is busy: a Python process needed more than ten seconds to start, try {number + 1}")
    return job()


class Watch(StreamingQueryListener):
    """What the streams of a session have done, by their names. Spark calls it from a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: Counter[str] = Counter()
        self._batches: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._milliseconds: Counter[str] = Counter()
        self._watermark_ms: dict[str, int] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        watermark = progress.eventTime.get("watermark")
        with self._lock:
            name = progress.name or str(progress.id)
            self._batches[name] += 1
            self._rows[name] += progress.numInputRows
            self._milliseconds[name] += progress.batchDuration
            self._dropped[name] += sum(state.numRowsDroppedByWatermark for state in progress.stateOperators)
            if watermark is not None:
                self._watermark_ms[name] = round(datetime.fromisoformat(watermark).timestamp() * 1000)

    def rows(self, name: str) -> int:
        """Rows that its finished batches have read."""
        with self._lock:
            return self._rows[name]

    def batches(self, name: str) -> int:
        with self._lock:
            return self._batches[name]

    def batch_ms(self, name: str) -> float:
        """How long its batches took, on average."""
        with self._lock:
            return self._milliseconds[name] / max(1, self._batches[name])

    def dropped(self, name: str) -> int:
        """Rows that came later than its watermark allows, and were not looked at."""
        with self._lock:
            return self._dropped[name]

    def watermark_ms(self, name: str) -> int:
        """The watermark of its last finished batch; 0 before there is one."""
        with self._lock:
            return self._watermark_ms.get(name, 0)


class Streams:
    """The streams of the story: a context manager that stops them all."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._running: dict[str, tuple[DataStreamWriter, StreamingQuery, int]] = {}

    def start(self, name: str, writer: DataStreamWriter) -> None:
        self._running[name] = (writer, writer.start(), 1)

    def check(self) -> None:
        """Raise what ended a stream; start it again from its checkpoint if a Python process of it was too slow to start."""
        for name, (writer, query, tries) in self._running.items():
            if query.isActive:
                continue
            problem = query.exception()
            if problem is None:
                raise RuntimeError(f"the stream {name!r} ended by itself")
            if not is_slow_start(problem) or tries >= SLOW_START_TRIES:
                raise problem
            self._tell(
                f"the machine is busy: the stream {name!r} needed more than ten seconds to start, try {tries + 1}"
            )
            self._running[name] = (writer, writer.start(), tries + 1)

    def __enter__(self) -> Streams:
        return self

    def __exit__(self, *_: object) -> None:
        for _writer, query, _tries in self._running.values():
            apart(query.stop)
