"""Lanes of tests: what may run beside something does, and what has to run alone does."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

pytest.importorskip("xdist", reason="pytest-xdist is not installed; it comes with the test extra")

TESTS = Path(__file__).resolve().parents[1]

CONFTEST = """
import json, os, time
from pathlib import Path
import pytest

RECORD = Path(__file__).parent.parent / "record"
MEETING = Path(__file__).parent.parent

def pytest_configure(config):
    from lanes import Lanes
    config.pluginmanager.register(Lanes(config))

@pytest.fixture(autouse=True)
def recorded(request, worker_id):
    began = time.monotonic()
    yield
    with RECORD.open("a") as file:
        print(json.dumps([request.node.nodeid, worker_id, began, time.monotonic()]), file=file)

@pytest.fixture
def meet():
    def wait_for(own, other):
        (MEETING / own).touch()
        ends = time.monotonic() + 120
        while not (MEETING / other).exists():
            assert time.monotonic() < ends, "nobody came"
            time.sleep(0.005)
    return wait_for
"""

ALONE = "import pytest\npytestmark = pytest.mark.alone\n"
MEETS = "def test_meets_{own}(meet): meet({own!r}, {other!r})\n"
TAKES_A_WHILE = """
import time
import pytest
@pytest.mark.parametrize("number", range(4))
def test_takes_a_while(number): time.sleep(0.03)
"""


class Ran(NamedTuple):
    test: str
    lane: str
    began: float
    ended: float

    @property
    def suite(self) -> str:
        return self.test.split("/")[1]

    def overlaps(self, other: Ran) -> bool:
        return self is not other and self.began < other.ended and other.began < self.ended


def run(
    root: Path, files: dict[str, str], lanes: str = (TESTS / "lanes.py").read_text(encoding="utf-8")
) -> tuple[str, list[Ran]]:
    """Run a small tree of tests on three lanes: the summary, and what ran when."""
    for name, text in files.items():
        (root / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "tests" / name).write_text(text, encoding="ascii")
    (root / "tests" / "conftest.py").write_text(CONFTEST, encoding="ascii")
    (root / "tests" / "lanes.py").write_text(lanes, encoding="utf-8")
    (root / "pytest.ini").write_text("[pytest]\nmarkers = alone\n", encoding="ascii")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "3", "--import-mode=importlib", "-p", "no:cacheprovider", "tests"],
        cwd=root,
        env={"PYTHONPATH": str(root / "tests"), "PATH": "", "TMPDIR": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not list(root.glob("lanes-*")), "the locks go with the run"
    ran = [Ran(*json.loads(line)) for line in (root / "record").read_text(encoding="ascii").splitlines()]
    return done.stdout + done.stderr, ran


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Ran]:
    files = {
        "interop/test_broker.py": MEETS.format(own="broker", other="one") + TAKES_A_WHILE,
        "interop/test_timed_link.py": ALONE + TAKES_A_WHILE,
        "unit/test_one.py": MEETS.format(own="one", other="broker") + TAKES_A_WHILE,
        "unit/test_two.py": TAKES_A_WHILE,
        "unit/test_three.py": TAKES_A_WHILE,
        "spark/test_first.py": TAKES_A_WHILE,
        "spark/test_second.py": TAKES_A_WHILE,
        "system/test_idle.py": ALONE + TAKES_A_WHILE,
    }
    printed, ran = run(tmp_path_factory.mktemp("lanes"), files)
    assert "34 passed" in printed, printed
    return ran


def test_what_waits_runs_beside_what_computes(runs: list[Ran]) -> None:
    one, two = (next(run for run in runs if run.test.endswith(f"test_meets_{name}")) for name in ("one", "broker"))
    assert one.lane != two.lane
    assert one.overlaps(two)


def test_what_measures_the_machine_runs_alone(runs: list[Ran]) -> None:
    alone = [run for run in runs if "test_idle" in run.test or "test_timed_link" in run.test]
    assert len(alone) == 8
    beside = [(run.test, other.test) for run in alone for other in runs if run.overlaps(other)]
    assert beside == []


def test_without_the_rule_they_would_not(tmp_path: Path) -> None:
    """Two tests that can only pass together, one of them marked, do when the mark is not looked at."""
    lanes = (TESTS / "lanes.py").read_text(encoding="utf-8")
    planted = lanes.replace('get_closest_marker("alone")', 'get_closest_marker("another")')
    files = {
        "unit/test_one.py": MEETS.format(own="one", other="two"),
        "system/test_two.py": ALONE + MEETS.format(own="two", other="one"),
    }
    printed, ran = run(tmp_path, files, planted)
    assert "2 passed" in printed, printed
    assert ran[0].overlaps(ran[1])


@pytest.mark.parametrize("suite", ["spark", "interop"])
def test_suites_that_share_something_stay_on_one_lane(runs: list[Ran], suite: str) -> None:
    assert len({run.lane for run in runs if run.suite == suite and "timed_link" not in run.test}) == 1


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location("lanes_here", TESTS / "lanes.py")
    assert spec is not None
    assert spec.loader is not None
    lanes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lanes)
    return lanes


def test_files_that_run_alone_are_known_to_come_last() -> None:
    marked = {
        str(path.relative_to(TESTS.parent))
        for path in TESTS.rglob("test_*.py")
        if "mark.alone" in path.read_text(encoding="utf-8") and path != Path(__file__).resolve()
    }
    assert marked == loaded().ALONE


def test_files_that_wait_are_there() -> None:
    assert [name for name in loaded().WAITING if not (TESTS.parent / name).exists()] == []


@pytest.mark.parametrize(
    ("lanes_count", "begins"),
    [
        (2, ["computes", "waits"]),
        (3, ["computes", "computes", "waits"]),
        (5, ["computes", "computes", "waits", "waits", "waits"]),
    ],
)
def test_what_each_lane_begins_with(lanes_count: int, begins: list[str]) -> None:
    kinds = {"tests/interop": "waits", "tests/unit/test_a.py": "computes", "tests/system/test_idle.py": "alone"}
    scheduler = object.__new__(loaded().Scheduler)
    scheduler.numnodes = lanes_count
    scheduler.assigned_work = {f"lane {number}": {} for number in range(lanes_count)}
    scheduler.workqueue = dict.fromkeys(kinds)
    assert [kinds[scheduler._next_scope(lane)] for lane in scheduler.nodes] == begins


def test_the_third_lane_computes_when_nothing_waits_any_more_and_those_beyond_it_end() -> None:
    scheduler = object.__new__(loaded().Scheduler)
    scheduler.numnodes = 4
    scheduler.assigned_work = {f"lane {number}": {} for number in range(4)}
    scheduler.workqueue = dict.fromkeys(["tests/unit/test_a.py", "tests/system/test_idle.py"])
    assert [scheduler._next_scope(lane) for lane in scheduler.nodes] == ["tests/unit/test_a.py"] * 3 + [None]
    del scheduler.workqueue["tests/unit/test_a.py"]
    assert scheduler._next_scope("lane 2") is None, "what is alone is for the first two"


def test_the_longest_come_first() -> None:
    """And what is named with its seconds is there."""
    lanes = loaded()
    names = [
        "tests/unit/test_clock.py::test_a",
        "tests/crash/test_recovery.py::test_a",
        *(f"{scope}::test_a" for scope in lanes.LASTS_S),
    ]
    items = [SimpleNamespace(nodeid=name, path=TESTS.parent / name.partition("::")[0]) for name in names]
    lanes.Lanes.pytest_collection_modifyitems(None, items)
    seconds = [lanes.LASTS_S.get(lanes.scope_of(item.nodeid), 0) for item in items]
    assert seconds == sorted(seconds, reverse=True)
    assert [item.nodeid for item in items[-2:]] == [
        "tests/crash/test_recovery.py::test_a",
        "tests/unit/test_clock.py::test_a",
    ]
    assert all((TESTS.parent / scope.removesuffix("/java")).exists() for scope in lanes.LASTS_S)


def test_files_that_share_nothing_do_not_wait_for_their_suite() -> None:
    """And they are there."""
    lanes = loaded()
    scheduler = object.__new__(lanes.Scheduler)
    scheduler.config = SimpleNamespace(rootpath=TESTS.parent)
    assert scheduler._split_scope("tests/spark/test_reading.py::test_a") == "tests/spark"
    assert scheduler._split_scope("tests/interop/test_our_client.py::test_a[java]") == "tests/interop/java"
    for file in lanes.APART | lanes.ALONE:
        assert (TESTS.parent / file).is_file()
        assert scheduler._split_scope(f"{file}::test_a") == file


def test_a_file_is_run_in_its_order(runs: list[Ran]) -> None:
    for file in {run.test.partition("::")[0] for run in runs}:
        numbers = [
            run.test.rpartition("[")[2] for run in sorted(runs, key=lambda run: run.began) if run.test.startswith(file)
        ]
        assert [number for number in numbers if number.endswith("]")] == ["0]", "1]", "2]", "3]"]
