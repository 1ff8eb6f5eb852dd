"""Messages due in a year on a real server with its helper process: landed, looked up, recalled, killed, restored."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the far tier's files are written with pyarrow")

from server_process import ServedProcess, clean_environment, until

import orbitmq
from orbitmq import TimerVerdict

TOPIC = "renewals"
COUNT = 40


def far(server: ServedProcess, *words: object, code: int | None = 0) -> dict[str, Any]:
    """What `orbitmq timer far` says of the one broker; code: None where trouble may be told."""
    done = subprocess.run(
        [sys.executable, "-m", "orbitmq.cli.main", "timer", "far", *map(str, words), "--json"],
        capture_output=True, text=True, timeout=240, check=False,
        env={**clean_environment(), "ORBITMQ_NAMESRV": f"127.0.0.1:{server.name_port}"},
    )  # fmt: skip
    assert code is None or done.returncode == code, done.stderr
    (row,) = json.loads(done.stdout)
    return dict(row)


def helpers(server: ServedProcess) -> list[int]:
    """Processes that keep files for this server."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # it ended meanwhile
            if b"orbitmq.timing.far.file_server" in line and str(server.data / "far").encode() in line:
                found.append(int(entry.name))
    return found


async def send(server: ServedProcess) -> list[str]:
    """Recall handles."""
    async with orbitmq.connect(f"127.0.0.1:{server.name_port}") as mq:
        receipts = [
            await mq.send(TOPIC, b"%d" % number, after=timedelta(days=300 + number), key=f"contract-{number}")
            for number in range(COUNT)
        ]
    return [str(receipt.recall_handle) for receipt in receipts]


async def look(server: ServedProcess, handles: list[str]) -> None:
    """Everything that is asked of near messages is answered for far ones."""
    async with orbitmq.connect(f"127.0.0.1:{server.name_port}") as mq:
        found = [timer async for timer in mq.timers.list(topic=TOPIC, key_prefix="contract-", page_count=7)]
        assert len(found) == COUNT
        assert {timer.tier for timer in found} == {"far"}
        assert (await mq.timers.recall(handles[3])).verdict is TimerVerdict.RECALLED
        assert (await mq.timers.recall(handles[3])).verdict is TimerVerdict.ALREADY_RECALLED
        moved = await mq.timers.reschedule(handles[4], after=timedelta(days=500))
        assert moved.verdict is TimerVerdict.RESCHEDULED
        assert (await mq.timers.counts()).far == COUNT - 1


def test_land_look_kill_the_helper_restart_and_restore(serve: Callable[..., ServedProcess]) -> None:
    server = serve("years")
    handles = asyncio.run(send(server))
    assert far(server, "status")["in_log"] == COUNT
    far(server, "compact")
    until(lambda: far(server, "status")["rows"] == COUNT, what="a file with every message")
    (helper,) = helpers(server)
    os.kill(helper, signal.SIGKILL)
    far(server, "compact")
    until(lambda: helpers(server) not in ([], [helper]), what="another helper")
    until(lambda: far(server, "status", code=None)["trouble"] is None, what="a tier without trouble")
    asyncio.run(look(server, handles))
    server.kill()
    until(lambda: helpers(server) == [], what="no helper without its server")
    again = serve("years")
    state = far(again, "status")
    assert state["pending"] == COUNT - 1
    assert far(again, "restore", "--wait", 30)["pending"] == 0
    assert not far(again, "status")["takes"]
    again.stop()
    until(lambda: helpers(again) == [], what="no helper without its server")
    third = serve("years")

    async def counted() -> tuple[int, int]:
        async with orbitmq.connect(f"127.0.0.1:{third.name_port}") as mq:
            counts = await mq.timers.counts()
            return counts.near, counts.far

    assert asyncio.run(counted()) == (COUNT - 1, 0)
    third.stop()
