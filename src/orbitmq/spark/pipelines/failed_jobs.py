"""Why a job of Spark failed, in the words of who knew it.

An error that a task raises reaches the driver as text inside of Spark's own error, between the lines of two programs' stacks. If it was
one of ours, its words say what, where and what to do; the rest is left to the log and the chain of causes.

Rules of this file
1. Nothing is hidden: the error of Spark is the cause of the one that is raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from orbitmq.errors import OrbitError, SparkJobError, SparkWorkerError
from orbitmq.spark.worker_failures import is_sparks, worker_problem

_OURS: Final = re.compile(r"^(?:.*\b)?orbitmq\.errors\.\w+: (.+)$", re.MULTILINE)


def reason_of(text: str) -> str:
    """The words of the error of ours that stands in `text`; else its first line that says something."""
    found = _OURS.findall(text)
    if found:
        return str(found[-1]).strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")


def was_caused_by(error: SparkJobError, kind: type[OrbitError]) -> bool:
    """Whether an error of this kind, raised in a task, made the job fail. Subclasses are other kinds."""
    return f"{kind.__module__}.{kind.__name__}: " in str(error.__cause__)


@contextmanager
def job_errors(doing: str) -> Iterator[None]:
    """Errors of Spark become a `SparkJobError` that says what was done, and why it failed; a `SparkWorkerError` where a worker's Python
    is the reason."""
    try:
        yield
    except Exception as error:
        if not is_sparks(error):
            raise
        problem = worker_problem(str(error))
        if problem is not None:
            raise SparkWorkerError(f"{doing} failed: {problem}") from error
        raise SparkJobError(f"{doing} failed: {reason_of(str(error))}") from error
