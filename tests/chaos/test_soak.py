"""Half load for long: the memory of server, producer and consumer stays flat, and every message arrives.

`SOAK_SECONDS` (default 15) says for how long; `make soak` runs an hour. Memory is judged by its growth from the second quarter
of the run to the last; in a short run that says little, so the bound is wide there.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from programs import Program
from server_process import ServedProcess, until

SECONDS = float(os.environ.get("SOAK_SECONDS", "15"))
GROWTH_MB = 8.0 if SECONDS >= 600 else 40.0
CAPACITY_S = 5.0
pytestmark = [pytest.mark.alone, pytest.mark.timeout(SECONDS + 240)]  # half of what the machine can do


def growth(samples: list[float]) -> float:
    """From the second quarter's median to that of the last quarter."""
    quarter = max(len(samples) // 4, 1)
    return statistics.median(samples[-quarter:]) - statistics.median(samples[quarter : 2 * quarter] or samples)


def test_growth_is_seen_and_a_plateau_is_not() -> None:
    assert growth([10.0, *[50.0] * 99]) == 0
    assert growth([float(number) for number in range(100)]) == 50.0


def test_half_load_for_long(tmp_path: Path, figure: Callable[[str], None]) -> None:
    server = ServedProcess(tmp_path / "server", settings={"mappedFileSizeCommitLog": 256 * 1024 * 1024})
    address = f"127.0.0.1:{server.name_port}"
    programs: list[Program] = []

    def run(role: str, *options: object) -> Program:
        programs.append(Program(role, address, *options))
        return programs[-1]

    try:
        server.create_topic("soak", 8)
        consumer = run("consume")
        assert consumer.answer() == {"ready": True}
        trial = run("produce", "--seconds", CAPACITY_S).answer()
        assert not trial["failed"], trial
        rate = trial["count"] / CAPACITY_S / 2
        producer = run("produce", "--rate", rate, "--seconds", SECONDS, "--first", trial["count"])
        memory: dict[str, list[float]] = {"server": [], "producer": [], "consumer": []}
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends and producer.running:
            memory["server"].append(server.rss_mb())
            memory["producer"].append(producer.rss_mb())
            memory["consumer"].append(consumer.rss_mb())
            time.sleep(min(SECONDS / 100, 10.0))
        sent = producer.answer()
        count = trial["count"] + sent["count"]
        lately: dict[str, Any] = {}

        def arrived() -> bool:
            lately.update(consumer.ask(f"report {count}"))
            time.sleep(0.5)
            return int(lately["missing"]) <= len(sent["failed"])

        until(arrived, 90, f"{count} messages: the consumer's account {lately}")
        consumer.end()
        server.stop()
    finally:
        for program in programs:
            if program.running:
                program.kill()
        server.kill()

    figure(
        f"soak: {SECONDS:.0f} s at {rate:.0f} messages/s, half of what was possible; {sent['count']} sent "
        f"({len(sent['failed'])} failed), {lately['missing']} missing, {lately['repeats']} repeats, {lately['early']} early"
    )
    figure(
        "soak, anonymous memory in MB (second quarter -> last quarter, peak): "
        + ", ".join(
            f"{name} {statistics.median(samples[-max(len(samples) // 4, 1) :]) - growth(samples):.1f} -> "
            f"{statistics.median(samples[-max(len(samples) // 4, 1) :]):.1f}, {max(samples):.1f}"
            for name, samples in memory.items()
        )
    )
    assert lately["strangers"] == 0
    assert lately["early"] == 0
    assert len(sent["failed"]) == 0, sent["errors"]
    for name, samples in memory.items():
        assert growth(samples) <= GROWTH_MB, f"{name} grew: {samples[:: max(len(samples) // 10, 1)]}"
