"""Programs with our client as processes of their own: what a client takes of memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from server_process import ServedProcess

ROOT = Path(__file__).resolve().parents[2]
CLIENT_MB_MAX = 60


def run(server: ServedProcess, program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, ROOT / program, *arguments], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("client", ["async", "sync"])
def test_a_client_stays_small(server: ServedProcess, client: str) -> None:
    address = f"127.0.0.1:{server.name_port}"
    figures = json.loads(
        run(server, "benchmarks/client_memory.py", "--client", client, "--name-server", address, "--count", "20000")
    )
    assert figures["highest_mb"] <= CLIENT_MB_MAX
