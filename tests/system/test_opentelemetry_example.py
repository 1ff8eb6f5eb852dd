"""The example that tells OpenTelemetry what a client does, where OpenTelemetry is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from server_process import ServedProcess

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "opentelemetry_hooks.py"
PRINTS = (
    r"the handler is in the trace of the order: True\nspans: place an order, process TelemetryDemo\n"
    r"messaging\.client\.sent\.messages 1\nmessaging\.client\.operation\.duration 1\norbitmq\.client\.send\.repeats 0\n"
    r"messaging\.process\.duration 1\norbitmq\.client\.message\.age 1\norbitmq\.client\.lag \d+\n"
)


def test_the_example_shows_figures_and_one_trace(server: ServedProcess) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
    command = [sys.executable, EXAMPLE, f"127.0.0.1:{server.name_port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(PRINTS, done.stdout), done.stdout
