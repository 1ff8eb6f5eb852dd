"""What travels to workers, read by Pythons that can and cannot run it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from orbitmq.release import VERSION
from orbitmq.spark.carrying import LOADER, ArrowTask, Carried
from orbitmq.spark.log_source import LogSource
from orbitmq.spark.source import OrbitmqSource


class Parcel(Carried):
    def __init__(self, content: str) -> None:
        self.content = content


def test_an_object_arrives_as_it_was() -> None:
    arrived = pickle.loads(cloudpickle.dumps(Parcel("rows")))
    assert type(arrived) is Parcel
    assert arrived.content == "rows"


def test_a_function_arrives_with_what_it_holds() -> None:
    kept = [1, 2]
    assert list(pickle.loads(cloudpickle.dumps(ArrowTask(lambda _: iter(kept))))(iter(()))) == kept  # type: ignore[arg-type, return-value]


def said_without_orbitmq(thing: object, folder: Path) -> str:
    """The last line of what a Python says that has nothing but itself, and reads this."""
    parcel = folder / "parcel"
    parcel.write_bytes(cloudpickle.dumps(thing))
    program = f"import pickle; pickle.load(open({str(parcel)!r}, 'rb'))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    return done.stderr.strip().splitlines()[-1]


def test_a_source_travels_beside_its_reader_and_says_it_first(tmp_path: Path) -> None:
    for kind in (OrbitmqSource, LogSource):
        assert "orbitmq.errors.SparkWorkerError: the worker on " in said_without_orbitmq(kind({}), tmp_path)


def test_a_python_without_orbitmq_says_so(tmp_path: Path) -> None:
    last = said_without_orbitmq(Parcel("rows"), tmp_path)
    assert last.startswith("orbitmq.errors.SparkWorkerError: the worker on ")
    assert "with no orbitmq" in last
    assert f"orbitmq {VERSION}" in last
    assert "PYSPARK_PYTHON" in last


def test_a_python_that_is_too_old_for_orbitmq_says_so(tmp_path: Path) -> None:
    (tmp_path / "orbitmq").mkdir()
    (tmp_path / "orbitmq" / "__init__.py").write_text("a syntax of later\n")
    program = f"space = {{}}; exec({LOADER!r}, space); space['load'](b'', {VERSION!r}, '3.99', 'the sender')"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("orbitmq.errors.SparkWorkerError: the worker on ")
    assert "with no orbitmq (invalid syntax" in last


@pytest.mark.parametrize(("release", "python"), [("0.0.1", None), (VERSION, "2.7")])
def test_another_release_and_another_python_are_refused_before_the_bytes_are_read(
    release: str, python: str | None
) -> None:
    space: dict[str, object] = {}
    exec(LOADER, space)
    here = ".".join(str(number) for number in sys.version_info[:2])
    with pytest.raises(RuntimeError, match=f"with orbitmq {VERSION}; the sender, which is Python {python or here}"):
        space["load"](b"no pickle", release, python or here, "the sender")  # type: ignore[operator]
