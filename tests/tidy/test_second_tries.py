"""A judge of running programs gets a second try in continuous integration; everything else, and everywhere else, does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

FLIPS = """
from pathlib import Path

def test_flips(request):
    flag = request.path.with_suffix(".flag")
    seen = flag.exists()
    flag.touch()
    assert seen, "what was seen first"
"""

SHARES = """
from pathlib import Path
import pytest

TOLD = Path(__file__).with_suffix(".told")

def tell(what):
    with TOLD.open("a") as file:
        file.write(what)

@pytest.fixture(scope="session")
def server():
    tell("start ")
    yield []
    tell("end ")

@pytest.fixture(scope="module")
def topic(server):
    return server

def test_sends(topic):
    topic.append("a message")
    assert topic == ["a message"], "a server that nobody has used"
    assert TOLD.read_text().count("start") == 2, "what was seen first"

def test_receives(topic):
    assert topic == ["a message"], "the server of the test before"
"""


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Rules of the real conftest over a test of programs and a unit test, both of which fail at first."""
    tests = tmp_path / "tests"
    for suite in ("system", "unit"):
        (tests / suite).mkdir(parents=True)
        (tests / suite / f"test_{suite}.py").write_text(FLIPS)
    for name in ("conftest.py", "costs.py", "watchdog.py", "processes.py"):
        shutil.copy(TESTS / name, tests)
    return tests


def run(tests: Path, *words: str, required: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tests, *words, tests],
        env=os.environ | {"ORBITMQ_REQUIRE_ALL": required}, capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip


def test_only_judges_of_programs_are_tried_again_and_their_first_failure_is_told(copied: Path) -> None:
    said = run(copied, "--rerun-show-tracebacks", required="1")
    assert "1 failed, 1 passed, 1 rerun" in said
    assert "tests/unit/test_unit.py::test_flips" in said.partition("short test summary info")[2]
    first, again = said.split("rerun test summary info")
    assert "what was seen first" in first, "by the unit test"
    assert "what was seen first" in again, "by the judge"


def test_nothing_is_tried_again_outside_continuous_integration(copied: Path) -> None:
    assert "2 failed" in run(copied, required="0")


def test_a_second_try_has_servers_of_its_own(copied: Path) -> None:
    shares = copied / "system" / "test_shares.py"
    shares.write_text(SHARES)
    assert "2 passed, 2 deselected, 1 rerun" in run(copied, "-k", shares.name, required="1")
    assert shares.with_suffix(".told").read_text() == "start end start end "
