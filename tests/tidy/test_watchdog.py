"""A test that hangs is named with what its processes do, and the run closes with its figures."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pytest_timeout", reason="pytest-timeout is not installed; it comes with the test extra")

TESTS = Path(__file__).resolve().parents[1]

CONFTEST = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
def pytest_configure(config):
    from watchdog import Watchdog
    config.pluginmanager.register(Watchdog(config, grace_s=1.0))
"""

WAITS_FOR_A_CHILD = """
import subprocess, sys
import pytest

@pytest.fixture
def never_over():
    yield
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)  # a child that stays"])
    while child.poll() is None:
        try:
            child.wait(0.1)
        except BaseException:  # deaf to pytest-timeout, as a library may be
            pass

def test_before(): pass

@pytest.mark.timeout(1)
def test_hangs(never_over): pass

def test_after(): pass
"""

WAITS_FOR_EVER = """
import time
import pytest

def test_before(): pass

@pytest.mark.timeout(1)
def test_hangs():
    while True:
        try:
            time.sleep(0.1)
        except BaseException:
            pass
"""


def run(folder: Path, programs: dict[str, str], *options: str, conftest: str = CONFTEST) -> tuple[int, str]:
    (folder / "conftest.py").write_text(conftest)
    for name, program in programs.items():
        (folder / name).write_text(program)
    began = time.monotonic()
    plain = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(folder)]
    command = [sys.executable, "-m", "pytest", *plain, *options, str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=folder, check=False)
    assert time.monotonic() - began < 90
    return ran.returncode, ran.stdout + ran.stderr


def test_a_fixture_that_waits_for_its_child_is_freed_and_the_run_goes_on(tmp_path: Path) -> None:
    code, printed = run(tmp_path, {"test_it.py": WAITS_FOR_A_CHILD})
    assert "HUNG: test_it.py::test_hangs" in printed
    assert "a child that stays" in printed
    assert "1 processes below it were ended" in printed
    assert "3 passed" in printed or "1 error" in printed, printed
    assert code in (0, 1)


def test_a_test_that_waits_for_nothing_ends_its_process_with_the_figures(tmp_path: Path) -> None:
    code, printed = run(tmp_path, {"test_it.py": WAITS_FOR_EVER})
    assert printed.count("HUNG: test_it.py::test_hangs") == 2
    assert "in test_hangs" in printed, "its stack"
    assert "1 passed, 1 failed" in printed
    assert code == 70


# --- on two lanes ---------------------------------------------------------------------------------------------------

LANES = """
    from lanes import Lanes
    config.pluginmanager.register(Lanes(config))
"""
QUICK = "def test_quick_{name}(): pass\n"
HANGS = """
import time
import pytest

def test_before_{name}(): pass

@pytest.mark.timeout(0.2)
def test_hangs_{name}():
    while True:
        try:
            time.sleep(0.1)
        except BaseException:
            pass

def test_after_{name}(): pass
"""


ENDS_ITS_LANE = """
import os
from pathlib import Path

def test_ends():
    Path(__file__).with_name("test_new.py").write_text("def test_new(): pass")
    os._exit(1)

def test_left(): pass
"""


def test_both_lanes_hang_and_the_run_closes_with_its_summary(tmp_path: Path) -> None:
    """Each hung test is told once and not tried again; what its lane had before it runs in the next."""
    pytest.importorskip("xdist", reason="pytest-xdist is not installed; it comes with the test extra")
    programs = {f"test_{name}.py": HANGS.format(name=name) for name in ("a", "b", "c")}
    programs |= {f"test_{name}.py": QUICK.format(name=name) for name in ("d", "e", "f", "g")}
    code, printed = run(tmp_path, programs, "-n", "2", conftest=CONFTEST.replace("1.0", "0.3") + LANES)
    assert "INTERNALERROR" not in printed, printed
    for name in ("a", "b", "c"):
        assert printed.count(f"HUNG: test_{name}.py::test_hangs_{name} does not end") == 1, printed
        assert f"FAILED test_{name}.py::test_hangs_{name}" in printed, printed
    assert re.search(r"^3 failed, 10 passed in ", printed, re.MULTILINE), printed
    assert code == 1


def test_a_lane_that_finds_other_tests_than_before_ends_the_run(tmp_path: Path) -> None:
    """As when files change meanwhile; it waited for ever."""
    pytest.importorskip("xdist", reason="pytest-xdist is not installed; it comes with the test extra")
    programs = {"test_a.py": ENDS_ITS_LANE, "test_b.py": "def test_one(): pass\ndef test_two(): pass\n"}
    code, printed = run(tmp_path, programs, "-n", "2", conftest=CONFTEST + LANES)
    assert "finds other tests than the lanes before it" in printed, printed
    assert re.search(r"^1 failed, 2 passed in ", printed, re.MULTILINE), printed
    assert code == 2
