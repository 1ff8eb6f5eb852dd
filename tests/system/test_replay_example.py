"""The replay example as a newcomer runs it: twice the same, and no group notices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from server_process import ServedProcess

import orbitmq

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "replay.py"


def run(server: ServedProcess, topic: str) -> list[str]:
    command = [sys.executable, str(EXAMPLE), topic, "--name-server", f"127.0.0.1:{server.name_port}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout.splitlines()


async def test_a_replay_prints_everything_and_may_be_repeated(server: ServedProcess) -> None:
    async with orbitmq.connect(f"127.0.0.1:{server.name_port}") as mq:
        for number in range(30):
            await mq.send("Replayed", f"message {number}".encode(), tag="t")
        first, second = run(server, "Replayed"), run(server, "Replayed")
        assert sorted(first[:-1]) == sorted(second[:-1])
        assert first[-1] == "30 messages"
        assert {line.partition(" t ")[2] for line in first[:-1]} == {f"message {number}" for number in range(30)}
        progress = await mq.admin.group_progress("replay-example", "Replayed")
        assert {queue.consumer_offset for queue in progress.values()} == {0}, "nothing was committed"
