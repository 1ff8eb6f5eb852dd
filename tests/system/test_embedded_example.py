"""The example of a project that tests its own time-outs, run as its author would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "test_order_timeout"
PLUGIN = ("-p", "no:orbitmq", "-p", "orbitmq.testing.plugin", "-p", "no:cacheprovider")
"""Loaded by name, so that it is this one also where the installed entry points are older."""


def test_the_example_project_passes_its_tests(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", *PLUGIN, f"--basetemp={tmp_path}"]
    done = subprocess.run(command, cwd=EXAMPLE, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout
    assert "6 passed" in done.stdout


def test_its_tests_notice_a_shop_that_cancels_too_early(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("shop.py", "test_shop.py", "pytest.ini"):
        text = (EXAMPLE / name).read_text(encoding="utf-8")
        (project / name).write_text(text.replace("timedelta(minutes=30)", "timedelta(minutes=20)"), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", *PLUGIN, f"--basetemp={tmp_path / 'temp'}"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1, done.stdout
    assert "FAILED test_shop.py::test_an_unpaid_order_is_cancelled_after_half_an_hour" in done.stdout
