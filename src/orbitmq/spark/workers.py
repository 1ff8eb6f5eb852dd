"""Which Python the workers of Spark run, and whether it can run orbitmq.

The rule: **the Python that the caller says (`spark.pyspark.python`, else PYSPARK_PYTHON), else the path of this program's own, for
source, sinks and pipelines alike.** Spark by itself has three: a format found by its name runs the driver's path, on every machine; one
that was registered, and functions, run PYSPARK_PYTHON, else `python3` of the PATH. So our formats are registered wherever the paths can
differ, and no path is left unsaid.

Rules of this file
1. In `local[n]` with this program's Python there is nothing that could differ, and nothing is asked.
2. Nothing is touched but a session: it works through Spark Connect as well.
"""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from orbitmq.errors import SparkWorkerError
from orbitmq.limits.spark import SPARK_WORKER_ANSWER_MS, SPARK_WORKER_PROBES
from orbitmq.release import VERSION
from orbitmq.spark.carrying import Carried
from orbitmq.spark.worker_failures import REMEDY, is_sparks, worker_problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

PYTHON_SETTING: Final = "spark.pyspark.python"
PYTHON_VARIABLE: Final = "PYSPARK_PYTHON"

_ASK: Final = """
import json, sys
try:
    from orbitmq.release import VERSION as release
except Exception:  # a Python that is too old for it says SyntaxError
    release = None
print(json.dumps([release, "%d.%d" % sys.version_info[:2]]))
"""


class WorkerPython(NamedTuple):
    """What runs on the workers."""

    path: str
    is_said: bool
    """The caller or the environment says so; else it is this program's own."""


def worker_python(texts: Mapping[str, str], environment: Mapping[str, str]) -> WorkerPython:
    """By the rule of this module. texts: settings of Spark by their names."""
    said = texts.get(PYTHON_SETTING) or environment.get(PYTHON_VARIABLE)
    return WorkerPython(said or sys.executable, said is not None and said != "")


def is_this_python(path: str) -> bool:
    """Links are not followed: a virtual environment is a link to somebody else's program."""
    found = shutil.which(path)
    return found is not None and Path(found).absolute() == Path(sys.executable).absolute()


def examine(python: WorkerPython) -> None:
    """The path leads on this machine, too, to a Python that can plan with our formats: Spark runs it here for that.

    Takes 0.1 s, nothing where it is this program's own. SparkWorkerError says what is wrong.
    """
    path = python.path
    if is_this_python(path):
        return
    here = "%d.%d" % sys.version_info[:2]  # noqa: UP031 (as the other side writes it)
    try:
        done = subprocess.run(
            [path, "-c", _ASK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SPARK_WORKER_ANSWER_MS / 1000,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise SparkWorkerError(
            f"the workers are to run {path}, with which Spark also plans reads and writes here, and here it cannot be run: {problem}",
            remedy=f"unpack or link it here, too, or {REMEDY}",
        ) from problem
    try:
        release, version = json.loads(done.stdout)
    except ValueError as problem:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        said = lines[-1] if lines else f"exit code {done.returncode}"
        raise SparkWorkerError(f"the workers are to run {path}, which is no working Python: {said}") from problem
    if (release, version) != (VERSION, here):
        has = "without orbitmq" if release is None else f"with orbitmq {release}"
        raise SparkWorkerError(
            f"the workers are to run {path}, which on this machine is Python {version} {has}; this program is "
            f"{sys.executable}, Python {here} with orbitmq {VERSION}",
            remedy=REMEDY,
        )


def tell_default(python: WorkerPython, place: str) -> None:
    """One line where a cluster's workers get a path that nobody has named."""
    if not python.is_said:
        log.warning(
            "the workers of %s are to run %s, the path of this program's Python; %s or %s says another",
            place,
            python.path,
            PYTHON_SETTING,
            PYTHON_VARIABLE,
        )


def register_formats(spark: SparkSession) -> None:
    """Have Spark run our formats with the Python that it runs functions with."""
    import pyspark_orbitmq
    import pyspark_orbitmq_log

    for ours in (pyspark_orbitmq, pyspark_orbitmq_log):
        spark.dataSource.register(ours.DefaultSource)


# --- before the first job of a pipeline -------------------------------------------------------------------------------

_ready: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


def ready_workers(spark: SparkSession) -> None:
    """Every core that the session has at present runs a Python that can run orbitmq; asked once for a session.

    Costs a small job, the first time; nothing in `local[n]` with this program's Python. SparkWorkerError names host, path and versions.
    Workers that come later are compared by what travels to them (`carrying`).
    """
    if spark in _ready:
        return
    if not _is_this_process(spark):
        python = None if is_remote(spark) else spark.sparkContext.pythonExec
        _ask_workers(spark, python)
        register_formats(spark)
    _ready.add(spark)


def is_remote(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _is_this_process(spark: SparkSession) -> bool:
    if is_remote(spark):
        return False
    context = spark.sparkContext
    master = context.master or ""
    is_local = master.startswith("local") and not master.startswith("local-cluster")
    return is_local and is_this_python(context.pythonExec)


class _Probe(Carried):
    """A function of a row that says nothing: that it was read is the answer, and that what tasks import can be imported."""

    def __call__(self, _: int) -> str:
        import msgspec
        import numpy
        import pyarrow

        return f"{msgspec.__name__} {numpy.__name__} {pyarrow.__name__}"


def _ask_workers(spark: SparkSession, python: str | None) -> None:
    from pyspark.sql.functions import udf

    # Rows of this form travel without Arrow, which a bare Python lacks: then the error is Spark's and names no package of ours.
    probe = udf(_Probe(), "string", useArrow=False)
    try:
        spark.range(SPARK_WORKER_PROBES).select(probe("id")).collect()
    except Exception as error:
        problem = worker_problem(str(error), python) if is_sparks(error) else None
        if problem is None:
            raise
        raise SparkWorkerError(problem) from error
