"""Half load for long: the memory of server, producer and consumer stays flat, and every message arrives.

`SOAK_SECONDS` (default 30) says for how long; `make soak` runs an hour. Memory is judged by its growth from the second quarter
of the run to the last; in a short run that says little, so the bound is wide there.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server_process import ServedProcess, clean_environment, until

SECONDS = float(os.environ.get("SOAK_SECONDS", "30"))
GROWTH_MB = 8.0 if SECONDS >= 600 else 40.0
CAPACITY_S = 5.0
HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.timeout(SECONDS + 240)


class Program:
    """One role of `soak_client.py`."""

    def __init__(self, role: str, address: str, *options: object) -> None:
        self.role = role
        self._popen = subprocess.Popen(
            [sys.executable, str(HERE / "soak_client.py"), role, address, *map(str, options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=clean_environment(),
            text=True,
        )

    def ask(self, line: str) -> dict[str, Any]:
        assert self._popen.stdin is not None
        self._popen.stdin.write(line + "\n")
        self._popen.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        assert line, f"{self.role} ended with {self._popen.wait(10)}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def rss_mb(self) -> float:
        return _anonymous_mb(self._popen.pid)

    def end(self) -> None:
        """Let it end in order."""
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        assert self._popen.wait(60) == 0

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()


def _anonymous_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return 0.0  # it ends


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
