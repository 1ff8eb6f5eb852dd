"""What is wrong with a worker's Python, read from the text of a failed job.

Where a worker cannot start its Python, or that Python cannot read what Spark sends, no code of ours runs there: what is known stands
in Spark's text, between the lines of two programs' stacks.

Rules of this file
1. Pure. A text that says nothing of a worker gives None: a module that somebody's own function lacks is not our business.
"""

from __future__ import annotations

import re
from typing import Final

REMEDY: Final = (
    "say by PYSPARK_PYTHON, or the setting spark.pyspark.python, a path that leads on every machine to a Python with orbitmq and its "
    "extra spark, of the driver's release and minor version"
)

_OURS: Final = re.compile(r"^.*\borbitmq\.errors\.SparkWorkerError: (.+)$", re.MULTILINE)
_MISSING: Final = re.compile(r'Cannot run program "([^"]+)"[^\n]*?: error=\d+, ([^\n]+)')
_NOT_STARTED: Final = re.compile(r"Error from python worker:\s*\n\s*([^\n]+)")
_TOO_LATE: Final = re.compile(
    r"Python worker failed to connect back|Timed out while waiting for the Python worker to connect back"
)
_VERSIONS: Final = re.compile(
    r"\[PYTHON_VERSION_MISMATCH\] Python in worker has different version: (\S+) than that in driver: ([\d.]+)"
)
_LACKS: Final = re.compile(
    r"ModuleNotFoundError: (No module named '(?:orbitmq|pyspark|pyarrow|numpy|msgspec)\b[^'\n]*')"
    r"|\[PACKAGE_NOT_INSTALLED\] ([^\n]+)"
)
_HOST: Final = re.compile(r"\(TID \d+\) \((\S+) executor")


def is_sparks(error: BaseException) -> bool:
    """Whether an error is of PySpark, or of the JVM where PySpark has no class for it."""
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException) or type(error).__module__.startswith("py4j")


def worker_problem(text: str, python: str | None = None) -> str | None:
    """What a worker's Python lacks by the text of a job's failure, with its host where Spark says it. python: the path, if it is known."""
    if ours := _OURS.search(text):
        return ours[1].strip()
    host = _HOST.search(text)
    where = f"the worker on {host[1]}" if host else "this machine, where Spark plans,"
    path = python or "its Python"
    if missing := _MISSING.search(text):
        return f"{where} cannot run {missing[1]}: {missing[2].strip()} ({REMEDY})"
    if versions := _VERSIONS.search(text):
        return f"{where} runs {path}, which is Python {versions[1]}; the driver runs Python {versions[2]} ({REMEDY})"
    if failed := _NOT_STARTED.search(text):
        return f"{where} runs {path}, which does not start: {failed[1].strip()} ({REMEDY})"
    if _TOO_LATE.search(text):
        return (
            f"{where} did not start {path} in the ten seconds that Spark allows: it has more to do than its cores can, or that path lies "
            "on slow storage; start the job again when it has less to do"
        )
    if lacks := _LACKS.search(text):
        return f"{where} runs {path}, which lacks a package: {lacks[1] or lacks[2]} ({REMEDY})"
    return None
