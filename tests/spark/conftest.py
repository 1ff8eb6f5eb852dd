"""One Spark session for all tests of this folder, and a real server beside it.

Rules of this file
1. A test that finds no PySpark or no Java is skipped with the reason.
2. Session and server are shared, so every test makes topics of its own. Who breaks or ends a server starts one by `serve`.
3. The Java ends with the last test of this folder: what runs after it has the machine for itself.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orbitmq.errors import SparkUnavailableError
from orbitmq.spark import session

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent / "system"), str(HERE)]

from class_archive import VARIABLE, quick_environment  # noqa: E402
from process_family import end_process  # noqa: E402
from server_process import ServedProcess  # noqa: E402

from processes import within  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_LIMIT_S = 60
"""For the end of a stream or of a session; then its Java is ended."""

LIMIT_S = 300
"""For one test; the first waits for the session and for the first use of everything."""

SMALL = {"mappedFileSizeCommitLog": 64 * 1024 * 1024, "maxIndexNum": 200_000}
"""A small store: its files are created in no time, and rolled in tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(LIMIT_S))


@pytest.fixture(scope="module", autouse=True)
def _quick_starts() -> None:
    """Every Java and every Python of Spark that is started here, by whomever, starts quickly; `end_java` takes that back, also when a
    lane goes to other tests and comes again."""
    if _before:
        return
    for name, value in quick_environment().items():
        _before.setdefault(name, os.environ.get(name))
        os.environ[name] = value
    if VARIABLE in _before:
        _left.append(
            tempfile.mkdtemp(prefix="javas-")
        )  # not below tmp_path: the name of a socket in it has to be short
        os.environ[VARIABLE] += f" -Djava.io.tmpdir={_left[-1]}"


_before: dict[str, str | None] = {}
_left: list[str] = []
"""Where Javas put what those leave behind that are killed: some 100 MB in a whole run."""


@pytest.fixture(scope="session")
def _spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], SparkSession]]:
    """Gives the session, and another one after its Java had to be ended."""
    settings = {
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }

    running: list[SparkSession] = []

    def get() -> SparkSession:
        if running and running[0]._instantiatedSession is running[0]:
            return running[0]
        interrupt = signal.getsignal(signal.SIGINT)
        try:
            started = session("local[2]", app_name="tests", **settings)
        except SparkUnavailableError as reason:
            pytest.skip(str(reason))
        signal.signal(signal.SIGINT, interrupt)  # Spark takes it to cancel its jobs; pytest wants it
        running[:] = [started]
        return started

    yield get
    end_java()


@pytest.fixture
def spark(_spark: Callable[[], SparkSession]) -> Iterator[SparkSession]:
    """The session. Streams that a test leaves behind end with it; settings and temporary views are its own business."""
    started = _spark()
    yield started
    for query in started.streams.active:
        if not within(STOP_LIMIT_S, query.stop):  # Spark may wait for a callback whose thread is gone
            end_java()
            pytest.fail(f"stream {query.id} did not stop within {STOP_LIMIT_S} s; its Java was ended")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is None or HERE not in nextitem.path.parents:
        end_java()
        while _left:
            shutil.rmtree(_left.pop(), ignore_errors=True)


def end_java() -> None:
    """Stop the session and the process behind it, if there is one. Later Javas start as usual."""
    for name, value in _before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _before.clear()
    if "pyspark" not in sys.modules:
        return
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    running, gateway = SparkSession._instantiatedSession, SparkContext._gateway
    is_calm = running is None or within(STOP_LIMIT_S, running.stop)
    if gateway is not None:
        SparkContext._gateway = SparkContext._jvm = None
        is_calm = is_calm and within(STOP_LIMIT_S, gateway.shutdown)
        if not is_calm:
            end_process(gateway.proc.pid)
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
    if not is_calm:
        SparkSession._instantiatedSession = SparkContext._active_spark_context = None


SERVE_CONNECT = """
import sys
from orbitmq.spark import session
plugin = {"spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin", "spark.connect.grpc.binding.port": "0"}
spark = session("local[2]", **plugin, **{"spark.sql.shuffle.partitions": 2, "spark.ui.showConsoleProgress": False})
service = getattr(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
port = getattr(service, "MODULE$").localPort()
print(f"sc://127.0.0.1:{port}", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark Connect server. Its clients have to be processes of their own: this one has a classic session."""
    log_path = tmp_path_factory.mktemp("connect") / "log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE_CONNECT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=log_path.parent,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    with process, process.stdin:
        line = process.stdout.readline().decode().strip()
        if not line:
            reason = log_path.read_text(errors="replace")
            if SparkUnavailableError.__name__ in reason:
                pytest.skip(reason.splitlines()[-1])
            pytest.fail(reason[-3000:])
        yield line


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    """A name server and a broker, stopped in order at the end."""
    process = ServedProcess(tmp_path_factory.mktemp("server"), settings=SMALL)
    try:
        yield process
        process.stop()
    finally:
        process.kill()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., ServedProcess]]:
    """Starts servers that do not outlive the test: `serve("name", settings={...})`."""
    started: list[ServedProcess] = []

    def start(name: str = "server", **options: object) -> ServedProcess:
        settings = {**SMALL, **options.pop("settings", {})}  # type: ignore[dict-item]
        process = ServedProcess(tmp_path / name, settings=settings, **options)  # type: ignore[arg-type]
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def name_server(server: ServedProcess) -> str:
    """The address that the option `nameServer` takes."""
    return f"127.0.0.1:{server.name_port}"


_topics = itertools.count(1)


@pytest.fixture
def topic(server: ServedProcess, request: pytest.FixtureRequest) -> str:
    """A new topic with four queues; with others: `@pytest.mark.parametrize("topic", [1], indirect=True)`."""
    name = f"topic-{next(_topics)}"
    server.create_topic(name, getattr(request, "param", 4))
    return name
