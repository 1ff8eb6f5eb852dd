"""A service: a thread for each stream and job, what happens when one fails, and how all of them end.

Rules of this file
1. A thread does one part and nothing else; all that it decides (when, how long to wait) is decided by pure modules.
2. A stop waits for batches under way, for a time that has a bound. What does not end by then is given up, and the end says so.
3. The service ends by itself only when Spark is gone: a supervisor starts it again.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from types import FrameType
from typing import TYPE_CHECKING, Any

from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import OrbitError
from orbitmq.limits.spark import (
    SERVICE_CLOCK_LOOK_MS,
    SERVICE_END_SLACK_MS,
    SERVICE_LOG_REPEATS_MAX,
    SERVICE_LOOK_MS,
    SERVICE_RESTART_MS,
    SERVICE_RESTART_MS_MAX,
    SERVICE_SESSION_END_MS,
    SERVICE_UNANSWERED_LOOKS_MAX,
)
from orbitmq.spark.pipelines.failed_jobs import reason_of
from orbitmq.spark.pipelines.run import StopRequest
from orbitmq.spark.pipelines.serving.figures import BatchDone, ServiceFigures, ServiceState
from orbitmq.spark.pipelines.serving.lineage import Lineage, SentLineage
from orbitmq.spark.pipelines.serving.service_directory import ServiceDirectory
from orbitmq.spark.pipelines.serving.service_file import ServiceFile, ServicePart, StreamSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orbitmq.spark.pipelines.serving.timetable import Timetable
    from orbitmq.spark.pipelines.serving.work import PartRun

logger = logging.getLogger("orbitmq.service")


PartWork = Callable[[Any, ServicePart, "PartRun"], None]


class ServiceEnd(Enum):
    """How a service ended."""

    IN_ORDER = "in order"
    GIVEN_UP = "given up"
    """Some batch or run did not end within the time of a stop; the next start does it again."""
    SPARK_GONE = "Spark is gone"

    @property
    def exit_code(self) -> int:
        """Of the process; those of `orbitmq`."""
        return {ServiceEnd.IN_ORDER: 0, ServiceEnd.GIVEN_UP: 7, ServiceEnd.SPARK_GONE: 1}[self]


def serve(
    said: ServiceFile,
    *,
    log_format: str = "text",
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str | bool | int | float] | None = None,
) -> ServiceEnd:
    """Run the service of a file until it is told to stop, in the main thread.

    Port and directory are taken before Spark starts: PortTakenError and StoreLockedError tell of another one.
    """
    from orbitmq.spark.pipelines.serving.health_port import HealthPort
    from orbitmq.spark.pipelines.serving.java_shutdown import stopped_with_java
    from orbitmq.spark.pipelines.serving.work import do_part, import_all, is_up
    from orbitmq.spark.pipelines.starting import QUIET, quiet_queries
    from orbitmq.spark.spark_session import session
    from orbitmq.telemetry.logs import begin_logging

    if remote is None and master is None:
        master, remote = said.master, said.remote
    handler = begin_logging(log_format, (), repeats_max=SERVICE_LOG_REPEATS_MAX)
    logging.getLogger("py4j").setLevel(logging.WARNING)  # else it tells of every call that comes from Java
    figures = ServiceFigures([part.name for part in said.parts])
    say_of_signals()
    stop = StopRequest()
    state = ServiceDirectory(said.service.state)
    try:
        port = HealthPort(said.service.address, said.service.name, figures)
        try:
            lineage = lineage_of(said, figures)
            quiet = QUIET if remote is None else {}
            settings = {**quiet, **said.conf, **(conf or {})}
            with _ended_by_sigterm():
                import_all()
                spark = session(master, remote=remote, app_name=f"orbitmq {said.service.name}", **settings)
            quiet_queries()
            host = said.service.address[0]
            logger.info(
                "service %s: %d streams and jobs, health on %s:%d", said.service.name, len(said.parts), host, port.port
            )
            within_ms = said.service.stop_within_ms + 2 * SERVICE_END_SLACK_MS
            # Signals are taken to the very end: a supervisor that sends another one meanwhile changes nothing of what the exit code says.
            with stop.on_signals(lambda: logger.info("stopping: batches under way may end")):
                try:
                    service = Service(said, figures, state, stop, lineage, do_part)
                    with stopped_with_java(spark, stop, within_ms):
                        return service.run(spark, lambda: is_up(spark))
                finally:
                    lineage.close()
                    _end(spark)
        finally:
            port.close()
    finally:
        state.close()
        handler.flush()


def say_of_signals() -> None:
    """SIGHUP and SIGUSR1, which end a program that does not heed them, are answered in the log and change nothing."""
    wordings = {
        signal.SIGHUP: "SIGHUP: nothing of a service can be read anew; its file counts at a start",
        signal.SIGUSR1: "SIGUSR1: the log goes to standard error, there is no file to open anew",
    }
    for number in wordings:
        signal.signal(number, lambda got, _: logger.info(wordings[signal.Signals(got)]))


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the program in order and with 0 (SystemExit), because nothing is under way yet. The first process of a container would
    not hear it otherwise."""

    def end(_: int, __: FrameType | None) -> None:
        logger.info("stopped before Spark was up")
        raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def lineage_of(said: ServiceFile, figures: ServiceFigures) -> Lineage:
    """Where runs are told. ConfigurationError where the package for it is missing."""

    def dropped() -> None:
        figures.lineage_dropped += 1

    url = said.service.lineage_url
    return Lineage() if url is None else SentLineage(url, said.service.name, dropped)


def _end(spark: SparkSession) -> None:
    """Stop the session. A Java that is gone, or has a task that does not end, is not waited for."""

    def end() -> None:
        try:
            spark.stop()
        except Exception as error:
            logger.debug("the session did not stop: %s", error)

    thread = threading.Thread(target=end, name="end of Spark", daemon=True)
    thread.start()
    thread.join(SERVICE_SESSION_END_MS / 1000)


class Service:
    """The parts of a file, each in its thread."""

    def __init__(
        self,
        said: ServiceFile,
        figures: ServiceFigures,
        state: ServiceDirectory,
        stop: StopRequest,
        lineage: Lineage,
        work: PartWork,
        clock: Clock | None = None,
    ) -> None:
        self._said = said
        self._work = work
        self.figures = figures
        self.state = state
        self.stop = stop
        self.lineage = lineage
        self.clock: Clock = clock or SystemClock()
        self.given_up: list[str] = []
        """Queries whose last batch did not end in time."""

    def run(self, spark: Any, is_up: Callable[[], bool]) -> ServiceEnd:
        """Until a stop is requested or Spark is gone."""
        figures, stop = self.figures, self.stop
        figures.spark_up = True
        figures.state = ServiceState.SERVING
        threads = {
            part.name: threading.Thread(target=self._serve, args=(spark, part), name=part.name, daemon=True)
            for part in self._said.parts
        }
        for thread in threads.values():
            thread.start()
        watch = _SparkWatch(is_up, stop)
        while not stop.wait(SERVICE_LOOK_MS):
            if (problem := watch.problem()) is not None:
                figures.spark_up = False
                stop.request()
                logger.error("the Spark session %s: the service ends", problem)
                return ServiceEnd.SPARK_GONE
        figures.state = ServiceState.STOPPING
        return self._ended(threads)

    def _ended(self, threads: Mapping[str, threading.Thread]) -> ServiceEnd:
        working = sorted(name for name, thread in threads.items() if thread.is_alive())
        logger.info("stopping: waiting up to %d ms for %s", self._said.service.stop_within_ms, ", ".join(working))
        until_ns = self.clock.monotonic_ns() + (self._said.service.stop_within_ms + SERVICE_END_SLACK_MS) * 1_000_000
        for thread in threads.values():
            thread.join(max(0.0, (until_ns - self.clock.monotonic_ns()) / 1e9))
        left = sorted({*self.given_up, *(name for name, thread in threads.items() if thread.is_alive())})
        if left:
            logger.warning("given up, to be done again by the next start: %s", ", ".join(left))
            return ServiceEnd.GIVEN_UP
        logger.info("stopped in order")
        return ServiceEnd.IN_ORDER

    def _serve(self, spark: Any, part: ServicePart) -> None:
        serving = _Serving(self, part, self._said.service.stop_within_ms)
        pause_ms = 0
        while not self.stop.wait(pause_ms):
            pause_ms = serving.turn(spark, self._work)
        serving.end()


class _SparkWatch:
    """Asks in a thread of its own, because a Java that hangs answers nothing."""

    def __init__(self, is_up: Callable[[], bool], stop: StopRequest) -> None:
        self._is_up = is_up
        self._stop = stop
        self._up = True
        self._unanswered = 0
        threading.Thread(target=self._ask, name="watch of Spark", daemon=True).start()

    def problem(self) -> str | None:
        """Called at every look of the service, which are counted instead of seconds: a machine that slept has not waited."""
        self._unanswered += 1
        if not self._up:
            return "is gone"
        return "does not answer" if self._unanswered > SERVICE_UNANSWERED_LOOKS_MAX else None

    def _ask(self) -> None:
        while self._up and not self._stop.wait(SERVICE_LOOK_MS):
            self._up = self._is_up()
            self._unanswered = 0


class Restarts:
    """How long one stream or job is left alone after a failure.

    A pause is twice the one before, up to a bound; what went well makes the next one the shortest again.
    """

    def __init__(self) -> None:
        self.failures = 0
        """One after the other, up to now."""

    def worked(self) -> None:
        self.failures = 0

    def failed(self) -> int:
        """Milliseconds until the next try."""
        pause_ms = SERVICE_RESTART_MS << min(self.failures, 30)
        self.failures += 1
        return min(pause_ms, SERVICE_RESTART_MS_MAX)


class _Serving:
    """One part: its turns one after the other, and what they told. It is the `PartRun` of its work."""

    def __init__(self, service: Service, part: ServicePart, stop_within_ms: int) -> None:
        self._service = service
        self._part = part
        self._restarts = Restarts()
        self._run_id: str | None = None
        self._made = False
        """Whether the run of a job came to its end."""
        self.stop = service.stop
        self.stop_within_ms = stop_within_ms
        self.checkpoint = service.state.checkpoint(part.name)

    def turn(self, spark: Any, work: PartWork) -> int:
        """Do what is due; milliseconds until the next turn. Whatever fails is told and tried again: the thread goes on."""
        try:
            return self._turn(spark, work)
        except BaseException as error:  # a panic in delta-rs is no Exception
            return self._failed(error)

    def _turn(self, spark: Any, work: PartWork) -> int:
        part, clock = self._part, self._service.clock
        planned_ms = None
        if part.timetable is not None:
            now_ms = clock.now_ms()
            planned_ms = self._planned_ms(part, part.timetable, now_ms)
            if planned_ms is None or planned_ms > now_ms:
                left_ms = SERVICE_CLOCK_LOOK_MS if planned_ms is None else planned_ms - now_ms
                return min(left_ms, SERVICE_CLOCK_LOOK_MS)
        if self._restarts.failures:
            self._service.figures.restarted(part.name)
        if self._run_id is None:
            self._run_id = self._service.lineage.begun(part)
        self._made = False
        work(spark, part, self)
        if planned_ms is not None and self._made:
            self._service.state.note(part.name, planned_ms)
        self._restarts.worked()
        if part.timetable is not None:
            if self._made:
                self.end()
            else:
                self._tell_failed("it was stopped, and the next start makes it again")
            return 0
        return int(part.settings(clock.now_ms()).every_ms) if part.does == StreamSink.ARCHIVE else 0

    def _planned_ms(self, part: ServicePart, timetable: Timetable, now_ms: int) -> int | None:
        """The next run of a job; from when on runs are looked for is kept, so that a start in between passes none over."""
        state = self._service.state
        begin_ms = timetable.begin_ms(state.last_ms(part.name), now_ms)
        if begin_ms is not None:
            state.note(part.name, begin_ms)
        return timetable.next_ms(state.last_ms(part.name), now_ms)

    def end(self) -> None:
        """The run of a stream, or of a job, ended well."""
        if self._run_id is not None:
            self._service.lineage.completed(self._part, self._run_id)
            self._run_id = None

    def done(self, batch: BatchDone) -> None:
        self._made = True
        self._restarts.worked()
        self._service.figures.done(self._part.name, batch, self._service.clock.now_ms())
        if batch.rows or batch.quarantined or self._part.timetable is not None:
            told: dict[str, object] = {"part": self._part.name, "rows": batch.rows, "quarantined": batch.quarantined}
            told["seconds"] = round(batch.seconds, 3)
            told["behind"] = "unknown" if batch.lags is None else sum(batch.lags.values())
            logger.info("%(part)s: %(rows)d rows, %(quarantined)d put aside, %(seconds).3f s, behind: %(behind)s", told)

    def idle(self) -> None:
        self._made = True
        self._restarts.worked()
        self._service.figures.idle(self._part.name, self._service.clock.now_ms())

    def give_up(self, reason: str = "it did not end in the time of a stop") -> None:
        """What is under way does not end; the next start does it again."""
        self._service.given_up.append(self._part.name)
        self._tell_failed(reason)

    def _tell_failed(self, reason: str) -> None:
        if self._run_id is not None:
            self._service.lineage.failed(self._part, self._run_id, reason)
            self._run_id = None

    def _failed(self, error: BaseException) -> int:
        part = self._part
        is_known = isinstance(error, OrbitError) or type(error).__module__.startswith(("pyspark", "py4j"))
        reason = str(error) if isinstance(error, OrbitError) else reason_of(_words_of(error))
        if self.stop.requested:  # the end of Spark, or of what a batch needs
            logger.warning("%s did not end what was under way: %s", part.name, reason)
            self.give_up(reason)
            return 0
        pause_ms = self._restarts.failed()
        self._service.figures.failed(part.name, reason)
        self._tell_failed(reason)
        logger.error(
            "%(part)s failed, %(failures)d in a row; again in %(pause).0f s: %(reason)s",
            {"part": part.name, "failures": self._restarts.failures, "pause": pause_ms / 1000, "reason": reason},
            exc_info=None if is_known else error,
        )
        return pause_ms


def _words_of(error: BaseException) -> str:
    """An error of Java's asks Java for its words, which may be gone."""
    try:
        return str(error) or type(error).__name__
    except Exception:
        return f"{type(error).__name__}, and Java, which knows more, is gone"
