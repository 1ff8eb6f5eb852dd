"""Which Python the workers run, and what of it is found out on the driver's machine."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from orbitmq.errors import SparkWorkerError
from orbitmq.spark import workers
from orbitmq.spark.workers import WorkerPython, examine, is_this_python, tell_default, worker_python


def program(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_caller_wins_over_the_environment_and_it_over_this_program() -> None:
    assert worker_python({"spark.pyspark.python": "a"}, {"PYSPARK_PYTHON": "b"}) == ("a", True)
    assert worker_python({}, {"PYSPARK_PYTHON": "b"}) == ("b", True)
    assert worker_python({}, {"PYSPARK_PYTHON": ""}) == (sys.executable, False)


def test_a_link_to_this_python_is_another_one(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert is_this_python(sys.executable)
    assert not is_this_python(str(link))
    assert not is_this_python(str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('echo \'["0.0.1", "3.9"]\'', r"is Python 3\.9 with orbitmq 0\.0\.1; this program"),
        ("echo '[null, \"3.11\"]'", "without orbitmq"),
        ("echo broken >&2; exit 3", "no working Python: broken"),
        ("exit 3", "no working Python: exit code 3"),
    ],
)
def test_a_python_that_cannot_plan_is_refused_before_java_starts(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SparkWorkerError, match=said):
        examine(WorkerPython(program(tmp_path, text), True))


def too_new(folder: Path) -> Path:
    """A folder for PYTHONPATH whose orbitmq is of no use to any Python there is, as ours is to an old one."""
    (folder / "orbitmq").mkdir()
    (folder / "orbitmq" / "__init__.py").write_text("a syntax of later\n")
    return folder


def test_a_python_that_is_too_old_for_orbitmq_is_named(tmp_path: Path) -> None:
    path = program(tmp_path, f'PYTHONPATH={too_new(tmp_path)} exec {sys.executable} "$@"')
    with pytest.raises(SparkWorkerError, match=r"is Python 3\.\d+ without orbitmq; this program"):
        examine(WorkerPython(path, True))


def test_a_path_that_is_not_here_says_that_spark_plans_with_it() -> None:
    with pytest.raises(
        SparkWorkerError, match=r"\./environment/bin/python.*here it cannot be run.*unpack or link it here"
    ):
        examine(WorkerPython("./environment/bin/python", True))


def test_this_program_s_own_path_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(workers, "subprocess")
    examine(WorkerPython(sys.executable, False))


def test_a_path_that_nobody_named_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        tell_default(WorkerPython("/said", True), "spark://host")
        assert not caplog.records
        tell_default(WorkerPython("/own", False), "spark://host")
    assert "spark://host are to run /own" in caplog.text
