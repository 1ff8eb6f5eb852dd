"""A service without Spark: what fails, what goes on, what is told, and how it ends. PartWork is played by functions."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from orbitmq.clock import ManualClock
from orbitmq.errors import ConfigurationError, ConnectionLostError, PortTakenError, StoreError, StoreLockedError
from orbitmq.limits.spark import SERVICE_HTTP_REQUESTS_MAX
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.pipelines.run import Run, StopRequest
from orbitmq.spark.pipelines.serving import service as serving
from orbitmq.spark.pipelines.serving import work
from orbitmq.spark.pipelines.serving.figures import SERVICE_METRICS, BatchDone, ServiceFigures, ServiceState
from orbitmq.spark.pipelines.serving.health_port import HealthPort
from orbitmq.spark.pipelines.serving.lineage import Lineage
from orbitmq.spark.pipelines.serving.service import Service, ServiceEnd
from orbitmq.spark.pipelines.serving.service_directory import ServiceDirectory
from orbitmq.spark.pipelines.serving.service_file import ServicePart, read_service_file
from orbitmq.spark.pipelines.serving.work import behind, is_up
from orbitmq.spark.reading.offsets import Extent

FILE = """
[service]
state = "{state}"
http = "127.0.0.1:0"
stop-within = "{within}"
[defaults]
name-server = "localhost:9876"
[[stream]]
name = "orders"
sink = "archive"
topic = "orders"
to = "/data/archive"
every = "100ms"
[[job]]
name = "tidy"
pipeline = "compact"
archive = "/data/archive"
every = "1h"
"""
LIMIT_S = 30


class Played:
    """A service whose work is `work(part name, run)`."""

    def __init__(
        self,
        folder: Path,
        work: Callable[[str, Any], None],
        within: str = "30s",
        is_up: Callable[[], bool] | None = None,
        lineage: Lineage | None = None,
    ) -> None:
        file = folder / "lake.toml"
        file.write_text(FILE.format(state=folder / "state", within=within))
        said = read_service_file(file)
        self.figures = ServiceFigures([part.name for part in said.parts])
        self.stop = StopRequest()
        self.state = ServiceDirectory(said.service.state)
        self.up = True
        self.ends: list[ServiceEnd] = []
        service = Service(
            said,
            self.figures,
            self.state,
            self.stop,
            lineage or Lineage(),
            lambda spark, part, run: work(part.name, run),
        )
        asked = is_up or (lambda: self.up)
        self.thread = threading.Thread(target=lambda: self.ends.append(service.run(None, asked)), daemon=True)
        self.thread.start()

    def ended(self) -> ServiceEnd:
        self.stop.request()
        return self.end()

    def end(self) -> ServiceEnd:
        self.thread.join(LIMIT_S)
        self.state.close()
        return self.ends[0]

    def metrics(self) -> dict[tuple[str, str], float]:
        return {
            (family.metric.name.removeprefix("orbitmq_pipeline_"), sample.labels[0]): float(sample.value)  # type: ignore[arg-type]
            for family in self.figures.families()
            for sample in family.samples
            if sample.labels
        }


def until(true: Callable[[], bool]) -> None:
    for _ in range(LIMIT_S * 100):
        if true():
            return
        time.sleep(0.01)
    pytest.fail("it did not come")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.spark.pipelines.serving.service.SERVICE_RESTART_MS", 1)
    monkeypatch.setattr(serving, "SERVICE_LOOK_MS", 5)
    monkeypatch.setattr(serving, "SERVICE_END_SLACK_MS", 0)


def test_a_stream_that_fails_at_every_batch_stops_no_other_part(tmp_path: Path) -> None:
    ran = threading.Event()

    def work(name: str, run: Any) -> None:
        if name == "orders":
            raise ConnectionLostError("no name server answered", remedy="check name-server")
        run.done(BatchDone(0, 0, 0.1))
        ran.set()

    service = Played(tmp_path, work)
    assert ran.wait(LIMIT_S)
    until(lambda: service.metrics()["failures_total", "orders"] >= 3)
    assert service.figures.reasons() == {"orders": "no name server answered (check name-server)"}
    assert service.figures.readiness()[0], "one part works"
    found = service.metrics()
    assert found["restarts_total", "orders"] >= 2
    assert (found["failing", "orders"], found["failing", "tidy"], found["batches_total", "tidy"]) == (1, 0, 1)
    assert service.ended() is ServiceEnd.IN_ORDER
    assert not service.figures.readiness()[0]


def test_a_panic_of_a_library_ends_no_part(tmp_path: Path) -> None:
    class PanicException(BaseException):
        """As delta-rs raises it."""

    panics = iter([PanicException("Invalid object store url")] * 2)

    def work(name: str, run: Any) -> None:
        if name == "orders" and (panic := next(panics, None)) is not None:
            raise panic
        run.idle()

    service = Played(tmp_path, work)
    until(lambda: service.metrics()["last_success_timestamp_seconds", "orders"] > 0)
    assert service.metrics()["failures_total", "orders"] == 2
    assert service.ended() is ServiceEnd.IN_ORDER


def test_a_part_whose_time_cannot_be_told_is_failing_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = iter([OverflowError("a year too far")] * 2)
    correct = ServiceDirectory.last_ms

    def last_ms(state: ServiceDirectory, job: str) -> int | None:
        if (problem := next(problems, None)) is not None:
            raise problem
        return correct(state, job)

    monkeypatch.setattr(ServiceDirectory, "last_ms", last_ms)
    service = Played(tmp_path, lambda name, run: run.done(BatchDone(0, 0, 0.1)))
    until(lambda: service.metrics()["batches_total", "tidy"] == 1)
    assert service.metrics()["failures_total", "tidy"] == 2
    assert service.ended() is ServiceEnd.IN_ORDER


def test_a_job_by_the_clock_runs_at_each_of_its_instants(tmp_path: Path) -> None:
    """Looks come seconds apart and a little late. In the middle the clock is set back by a day, and the service starts anew."""
    file = tmp_path / "lake.toml"
    file.write_text(FILE.format(state=tmp_path / "state", within="1s").replace('every = "1h"', 'cron = "5 * * * *"'))
    said = read_service_file(file)
    job, clock, runs = said.parts[1], ManualClock(), []

    def work(spark: Any, part: Any, run: Any) -> None:
        runs.append(clock.now_ms())
        run.done(BatchDone(0, 0, 0.1))

    for hours in (6, 12, 6):
        state = ServiceDirectory(said.service.state)
        figures = ServiceFigures([part.name for part in said.parts])
        turns = serving._Serving(Service(said, figures, state, StopRequest(), Lineage(), work, clock), job, 0)
        until_ns = clock.monotonic_ns() + hours * 3_600_000_000_000
        while clock.monotonic_ns() < until_ns:
            clock.advance(turns.turn(None, work) + 3)
            if hours == 12 and len(runs) == 12:
                clock.set_wall(clock.now_ms() - 86_400_000)
                hours = 0
        state.close()
    assert len(runs) == 24
    assert {at_ms % 3_600_000 // 10_000 for at_ms in runs} == {30}, "within ten seconds of the fifth minute"


def test_what_was_away_and_comes_back_goes_on(tmp_path: Path) -> None:
    tries = iter([StoreError("no space left on device")] * 3)

    def work(name: str, run: Any) -> None:
        if name == "tidy":
            raise StoreError("away for ever")
        if (problem := next(tries, None)) is not None:
            raise problem
        run.done(BatchDone(7, 2, 0.5, {("orders", ""): 11}))

    service = Played(tmp_path, work)
    until(lambda: service.metrics()["batches_total", "orders"] >= 2)
    found = service.metrics()
    assert (found["failures_total", "orders"], found["failing", "orders"], found["lag_messages", "orders"]) == (
        3,
        0,
        11,
    )
    assert found["rows_total", "orders"] >= 14
    assert found["last_success_timestamp_seconds", "orders"] > 1.7e9
    assert service.ended() is ServiceEnd.IN_ORDER


def test_a_run_that_was_made_is_not_made_again_by_the_next_start(tmp_path: Path) -> None:
    runs: list[str] = []

    def work(name: str, run: Any) -> None:
        runs.append(name)
        run.idle()

    for _ in range(2):
        service = Played(tmp_path, work)
        until(lambda: runs.count("orders") % 100 >= 2 and "tidy" in runs)
        assert service.ended() is ServiceEnd.IN_ORDER
    assert runs.count("tidy") == 1


def test_a_batch_that_does_not_end_in_time_is_given_up_and_the_end_says_so(tmp_path: Path) -> None:
    begun, never = threading.Event(), threading.Event()

    def work(name: str, run: Any) -> None:
        if name == "tidy":
            begun.set()
            never.wait(LIMIT_S)

    service = Played(tmp_path, work, within="1ms")
    assert begun.wait(LIMIT_S)
    end = service.ended()
    never.set()
    assert (end, end.exit_code) == (ServiceEnd.GIVEN_UP, 7)
    assert service.state.last_ms("tidy") is None, "the next start makes the run again"


def test_a_batch_that_fails_while_the_service_stops_is_told_by_the_end(tmp_path: Path) -> None:
    begun = threading.Event()

    def work(name: str, run: Any) -> None:
        begun.set()
        run.stop.wait(LIMIT_S * 1000)
        if name == "orders":
            raise StoreError("Java got the signal as well")

    service = Played(tmp_path, work)
    assert begun.wait(LIMIT_S)
    assert service.ended() is ServiceEnd.GIVEN_UP


class JavaErrorWithoutJava(Exception):
    """As py4j's, whose text is asked of Java."""

    def __str__(self) -> str:
        raise ConnectionRefusedError("Java is gone")


def test_an_error_whose_words_went_with_java_is_a_failure_like_others(tmp_path: Path) -> None:
    def work(name: str, run: Any) -> None:
        if name == "orders":
            raise JavaErrorWithoutJava

    service = Played(tmp_path, work)
    until(lambda: service.metrics()["failures_total", "orders"] >= 2)
    assert service.figures.reasons()["orders"].startswith("JavaErrorWithoutJava")
    assert service.ended() is ServiceEnd.IN_ORDER


def test_a_batch_that_lost_java_while_the_service_stops_did_not_end_in_order(tmp_path: Path) -> None:
    begun = threading.Event()

    def work(name: str, run: Any) -> None:
        begun.set()
        run.stop.wait(LIMIT_S * 1000)
        if name == "orders":
            raise JavaErrorWithoutJava

    service = Played(tmp_path, work)
    assert begun.wait(LIMIT_S)
    assert service.ended() is ServiceEnd.GIVEN_UP


class Told(Lineage):
    """The ends of runs, by part."""

    def __init__(self) -> None:
        self.ends: dict[str, str] = {}

    def begun(self, part: ServicePart) -> str:
        return part.name

    def completed(self, part: ServicePart, run: str) -> None:
        self.ends[run] = "complete"

    def failed(self, part: ServicePart, run: str, reason: str) -> None:
        self.ends[run] = reason


def test_lineage_says_of_no_run_that_it_completed_which_a_stop_broke_off(tmp_path: Path) -> None:
    begun = threading.Semaphore(0)

    def broken_off(name: str, run: Any) -> None:
        begun.release()
        run.stop.wait(LIMIT_S * 1000)
        if name == "orders":
            raise StoreError("the session is closed")

    lineage = Told()
    service = Played(tmp_path, broken_off, lineage=lineage)
    for _ in range(2):
        assert begun.acquire(timeout=LIMIT_S)
    assert service.ended() is ServiceEnd.GIVEN_UP
    assert lineage.ends == {
        "orders": "the session is closed",
        "tidy": "it was stopped, and the next start makes it again",
    }


def test_lineage_says_what_a_stop_gave_up_and_what_ended_with_it(tmp_path: Path) -> None:
    begun = threading.Semaphore(0)

    def work(name: str, run: Any) -> None:
        begun.release()
        run.stop.wait(LIMIT_S * 1000)
        if name == "orders":
            run.give_up()
        else:
            run.done(BatchDone(1, 0, 0.1))

    lineage = Told()
    service = Played(tmp_path, work, lineage=lineage)
    for _ in range(2):
        assert begun.acquire(timeout=LIMIT_S)
    assert service.ended() is ServiceEnd.GIVEN_UP
    assert lineage.ends == {"orders": "it did not end in the time of a stop", "tidy": "complete"}


def test_a_batch_that_ends_in_time_is_waited_for(tmp_path: Path) -> None:
    begun = threading.Event()

    def work(name: str, run: Any) -> None:
        begun.set()
        run.stop.wait(LIMIT_S * 1000)
        run.done(BatchDone(1, 0, 0.1))

    service = Played(tmp_path, work)
    assert begun.wait(LIMIT_S)
    end = service.ended()
    assert (end, end.exit_code, service.metrics()["rows_total", "orders"]) == (ServiceEnd.IN_ORDER, 0, 1)


def test_a_service_without_spark_ends(tmp_path: Path) -> None:
    service = Played(tmp_path, lambda name, run: run.idle())
    service.up = False
    end = service.end()
    assert (end, end.exit_code) == (ServiceEnd.SPARK_GONE, 1)


def test_a_service_whose_spark_hangs_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SERVICE_UNANSWERED_LOOKS_MAX", 3)
    answers, hung = iter([True] * 10), threading.Event()
    service = Played(tmp_path, lambda name, run: run.idle(), is_up=lambda: next(answers, None) or hung.wait(LIMIT_S))
    end = service.end()
    hung.set()
    assert end is ServiceEnd.SPARK_GONE


def connect_session(get: Callable[..., str]) -> Any:
    """A session of Spark Connect, which asks for its version once and knows it then for ever."""
    kind = type("SparkSession", (), {"version": "4.2.0", "conf": SimpleNamespace(get=get)})
    kind.__module__ = "pyspark.sql.connect.session"
    return kind()


def test_a_server_of_spark_connect_that_is_gone_is_noticed() -> None:
    def away(*_: object) -> str:
        raise ConnectionRefusedError("the server is gone")

    assert is_up(connect_session(lambda *_: "lake"))
    assert not is_up(connect_session(away))


class PlayedQuery:
    """A query of which the triggers are known; `asked` counts how often all of them were."""

    def __init__(self) -> None:
        self.triggers: list[dict[str, Any]] = []
        self.asked = 0

    def trigger(self, batch_id: int, rows: int) -> None:
        progress = {"batchId": batch_id, "numInputRows": rows, "timestamp": f"at {len(self.triggers)}"}
        self.triggers.append({**progress, "durationMs": {"triggerExecution": 500}, "sources": []})

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        return self.triggers[-1] if self.triggers else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        self.asked += 1
        return self.triggers[-100:]


def test_a_stream_without_news_is_looked_at_cheaply_and_everything_is_told_once() -> None:
    told: list[Any] = []
    around: Any = SimpleNamespace(
        done=lambda batch: told.append((batch.rows, batch.seconds)), idle=lambda: told.append("idle")
    )
    settings: Any = SimpleNamespace(read={"nameServer": "ns:9876", "subscribe": "orders"})
    query = PlayedQuery()
    watched = work._Watched(query, settings, lambda progress: (progress["numInputRows"], 0), around)
    watched.look()
    assert (told, query.asked) == ([], 0), "it has only begun"
    for batch_id, rows in enumerate((7, 5)):
        query.trigger(batch_id, rows)
    for _ in range(10):
        watched.look()
    assert (told, query.asked) == ([(7, 0.5), (5, 0.5)], 1)
    query.trigger(2, 0)
    query.trigger(2, 0)  # nothing was new: the number stays
    watched.look()
    watched.look()
    query.trigger(2, 3)
    watched.look()
    assert told[2:] == ["idle", (3, 0.5)]
    assert query.asked == 3


def test_each_batch_of_a_pass_of_an_archive_is_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over much that is old takes hours; it fails in its third batch here."""

    def archive(spark: Any, *, run: Run) -> Any:
        with run.progress.stage("archive", 30) as stage:
            stage.advance(10)
            stage.advance(10)
        raise StoreError("no space left on device")

    monkeypatch.setattr("orbitmq.spark.pipelines.archive", archive)
    signs: list[str] = []
    around = SimpleNamespace(stop=StopRequest(), idle=lambda: signs.append("idle"))
    with pytest.raises(StoreError):
        work._archive(None, SimpleNamespace(), around)  # type: ignore[arg-type]
    assert signs == ["idle"] * 2


def test_sigterm_before_spark_is_up_ends_the_service_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also in a container, whose first process hears no signal that it does not heed."""
    file = tmp_path / "lake.toml"
    file.write_text(FILE.format(state=tmp_path / "state", within="1s"))
    said = read_service_file(file)
    monkeypatch.setattr("orbitmq.telemetry.logs.begin_logging", lambda *_, **__: logging.NullHandler())
    monkeypatch.setattr(work, "import_all", lambda: None)
    monkeypatch.setattr("orbitmq.spark.spark_session.session", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)}
    try:
        with caplog.at_level(logging.INFO), pytest.raises(SystemExit) as caught:
            serving.serve(said)
        assert signal.getsignal(signal.SIGTERM) == before[signal.SIGTERM]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert caught.value.code == 0
    assert caplog.messages == ["stopped before Spark was up"]
    ServiceDirectory(said.service.state).close()  # nobody has it any more


def test_two_services_with_one_directory(tmp_path: Path) -> None:
    state = ServiceDirectory(str(tmp_path))
    with pytest.raises(StoreLockedError, match="another service has the directory"):
        ServiceDirectory(str(tmp_path))
    state.note("nightly", 5)
    state.close()
    again = ServiceDirectory(str(tmp_path))
    assert (again.last_ms("nightly"), again.last_ms("other")) == (5, None)
    again.close()


def test_a_directory_whose_files_cannot_be_locked_is_nobody_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refused)
    with pytest.raises(ConfigurationError, match="cannot be locked: No locks available"):
        ServiceDirectory(str(tmp_path))


@pytest.mark.parametrize("content", ["", "[]", '{"nightly": "x"}', "\x00\x00", '{"nightly": Infinity}', "[" * 100_000])
def test_notes_that_cannot_be_read_are_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "runs.json").write_text(content)
    state = ServiceDirectory(str(tmp_path))
    assert state.last_ms("nightly") is None
    state.close()


# --- the HTTP port ----------------------------------------------------------------------------------------------------


@pytest.fixture
def port() -> Iterator[HealthPort]:
    figures = ServiceFigures(["orders", "tidy"])
    served = HealthPort(("127.0.0.1", 0), "lake", figures)
    served.figures = figures  # type: ignore[attr-defined]
    yield served
    served.close()


def asked(port: HealthPort, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port.port}{path}", timeout=LIMIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_probes_say_where_the_service_is(port: HealthPort) -> None:
    figures: ServiceFigures = port.figures  # type: ignore[attr-defined]
    assert asked(port, "/livez")[0] == 200
    assert asked(port, "/readyz") == (503, '{"status": "not ready", "service": "starting"}\n')
    figures.state, figures.spark_up = ServiceState.SERVING, True
    figures.failed("orders", "away")
    code, text = asked(port, "/readyz?verbose")
    assert (code, json.loads(text)["failing"]) == (200, {"orders": "away"})
    figures.failed("tidy", "away")
    assert asked(port, "/readyz")[0] == 503, "nothing gets done"
    figures.spark_up = False
    assert asked(port, "/livez")[0] == 503
    assert asked(port, "/")[0] == 404


def test_slow_clients_keep_no_probe_out(port: HealthPort) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(3 * SERVICE_HTTP_REQUESTS_MAX):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", port.port), LIMIT_S))
            slow.sendall(b"GET /livez HTTP/1.1\r\nX-Slow: ")
        assert asked(port, "/livez")[0] == 200


def test_threads_that_could_not_be_started_take_no_room(port: HealthPort, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        for _ in range(2 * SERVICE_HTTP_REQUESTS_MAX):
            with pytest.raises(ConnectionError):
                asked(port, "/livez")
    assert asked(port, "/livez")[0] == 200


def test_a_host_that_cannot_be_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"cannot listen on a\.\.b:0"):
        HealthPort(("a..b", 0), "lake", ServiceFigures([]))


def test_metrics_are_those_of_the_table(port: HealthPort) -> None:
    figures: ServiceFigures = port.figures  # type: ignore[attr-defined]
    figures.done("orders", BatchDone(3, 1, 0.5, {('or"ders', "g"): 4}), 1_700_000_000_000)
    code, text = asked(port, "/metrics")
    found = {sample.name: sample for family in text_string_to_metric_families(text) for sample in family.samples}
    assert code == 200
    assert {metric.name for metric in SERVICE_METRICS} <= found.keys()
    lag = found["orbitmq_pipeline_lag_messages"]
    assert (lag.labels, lag.value) == ({"service": "lake", "part": "orders", "topic": 'or"ders', "group": "g"}, 4)


def test_a_port_that_is_taken(port: HealthPort) -> None:
    with pytest.raises(PortTakenError, match="the port is taken"):
        HealthPort(("127.0.0.1", port.port), "other", ServiceFigures([]))


def test_lag_counts_queues_that_the_archive_has_not_entered() -> None:
    queues = [MessageQueue("orders", "a", number) for number in range(3)]
    extents = {queues[0]: Extent(0, 10), queues[1]: Extent(5, 10), queues[2]: Extent(5, 10)}
    assert behind({queues[0]: 7, queues[2]: 2}, extents) == {("orders", ""): 3 + 5 + 5}


def test_signals_that_ask_for_a_reload_end_nothing_and_are_answered(caplog: pytest.LogCaptureFixture) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGUSR1)}
    try:
        serving.say_of_signals()
        with caplog.at_level(logging.INFO):
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGUSR1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert [line.partition(":")[0] for line in caplog.messages] == ["SIGHUP", "SIGUSR1"]
