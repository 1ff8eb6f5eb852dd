"""The lateness meter of the benchmarks against a broker with planted faults: each must be reported exactly."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rig.process import ServerProcess, free_ports
from rig.toolchain import REPOSITORY
from rig.wire import Wire

pytestmark = pytest.mark.alone  # it measures lateness

TOOLS = REPOSITORY / "benchmarks"
COUNT = 300
FAULTY = COUNT // 10
FAULTS = ("none", "early", "dup", "missing", "crc", "late")
START_LIMIT_S = 10
LATE_MS = 700


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    """One meter and one faulty broker per fault, all side by side: they mostly wait."""
    folder = tmp_path_factory.mktemp("meter")
    brokers, meters = [], {}
    try:
        for fault in FAULTS:
            port = free_ports()[1]
            brokers.append(
                ServerProcess([sys.executable, TOOLS / "faulty_broker.py", str(port), fault], folder / f"{fault}.log")
            )
            await_port(port)
            meters[fault] = start_meter(port)
        yield {fault: result_of(meter) for fault, meter in meters.items()}
    finally:
        for meter in meters.values():
            meter.kill()
            meter.wait()
        for broker in brokers:
            broker.kill()


def await_port(port: int) -> None:
    end = time.monotonic() + START_LIMIT_S
    while True:
        try:
            return Wire(port, timeout_s=1).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def start_meter(port: int) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        TOOLS / "lateness.py",
        "--port",
        str(port),
        "--timer",
        "--count",
        str(COUNT),
        "--over-ms",
        "1000",
        "--grace",
        "2",
    ]
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True, cwd=Path.cwd())


def result_of(meter: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = meter.communicate(timeout=180)
    found: dict[str, Any] = json.loads(out)
    return found


def counted(found: dict[str, Any]) -> dict[str, int]:
    return {name: found[name] for name in ("early", "duplicates", "missing", "foreign", "bad_crc")}


SOUND = {"early": 0, "duplicates": 0, "missing": 0, "foreign": 0, "bad_crc": 0}


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("none", SOUND),
        ("early", {**SOUND, "early": FAULTY}),
        ("dup", {**SOUND, "duplicates": FAULTY}),
        ("missing", {**SOUND, "missing": FAULTY}),
        ("crc", {**SOUND, "bad_crc": FAULTY}),
        ("late", SOUND),
    ],
)
def test_fault_is_counted_exactly(fault: str, expected: dict[str, int], findings: dict[str, dict[str, Any]]) -> None:
    assert counted(findings[fault]) == expected
    assert findings[fault]["sent"] == COUNT


def test_lateness_is_measured(findings: dict[str, dict[str, Any]]) -> None:
    assert findings["none"]["lateness_ms"]["p50"] < LATE_MS / 2
    assert findings["late"]["lateness_ms"]["p99"] >= LATE_MS
