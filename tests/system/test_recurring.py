"""Recurring messages of a real server that is killed and started again, and the commands about them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from server_process import ServedProcess, clean_environment, until

import orbitmq

TOPIC, NAME = "ticks", "tick"


def command(server: ServedProcess, *words: object, code: int = 0) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "orbitmq.cli.main", "recurring", *map(str, words), "--json"],
        capture_output=True, text=True, timeout=240, check=False,
        env={**clean_environment(), "ORBITMQ_NAMESRV": f"127.0.0.1:{server.name_port}"},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout) if done.stdout else None


def planned(server: ServedProcess) -> list[tuple[int, int]]:
    """(planned instant, store time) of every stored run, in order."""

    async def read() -> list[tuple[int, int]]:
        async with orbitmq.connect(f"127.0.0.1:{server.name_port}") as mq:
            found = []
            pulls = mq.pull_consumer("test-ticks")
            for queue in await pulls.queues(TOPIC):
                offset = 0
                while (pulled := await pulls.pull(queue, offset)).messages:
                    found += [
                        (int(message.properties["ORBITMQ_PLANNED_MS"]), message.store_timestamp)
                        for message in pulled.messages
                    ]
                    offset = pulled.next_offset
            return sorted(found)

    return asyncio.run(read())


def test_kill_and_restart_store_every_run_once(serve: Callable[..., ServedProcess]) -> None:
    settings = {"flushDiskType": "ASYNC_FLUSH"}
    server = serve("ticks", settings=settings)
    made = command(server, "put", NAME, TOPIC, "now", "--every", "1s", "--catch-up", "all")
    assert (made["outcome"], made["state"], made["rule"]) == ("created", "active", "every 1s")
    for _ in range(2):
        count = len(planned(server))
        until(lambda: len(planned(server)) > count + 1, what="two more runs")  # noqa: B023 - called before the next round
        server.kill()
        time.sleep(1.2)
        server = serve("ticks", settings=settings, ports=(server.name_port, server.port))
    count = len(planned(server))
    until(lambda: len(planned(server)) > count, what="one more run")
    runs = planned(server)
    assert all(after - before == 1_000 for (before, _), (after, _) in pairwise(runs)), "one of each second"
    assert all(stored_ms >= planned_ms for planned_ms, stored_ms in runs), "none early"
    shown = command(server, "show", NAME)
    assert shown["runs"] >= len(runs)
    assert len(shown["next_runs"]) == 10
    assert command(server, "put", NAME, TOPIC, "now", "--every", "1s", "--catch-up", "all")["outcome"] == "unchanged"


def test_the_commands(serve: Callable[..., ServedProcess]) -> None:
    server = serve("commands")
    made = command(
        server, "put", "report", "reports", "x", "--cron", "0 9 * * *", "--zone", "Europe/Berlin", "--tag", "t"
    )
    assert (made["outcome"], made["zone"], made["tag"]) == ("created", "Europe/Berlin", "t")
    assert [row["name"] for row in command(server, "list")] == ["report"]
    assert command(server, "list", "--topic", "other") == []
    paused = command(server, "pause", "report")
    assert (paused["outcome"], paused["state"], paused["next_ms"]) == ("paused", "paused", None)
    assert command(server, "resume", "report")["state"] == "active"
    assert command(server, "show", "report")["body"] == "x"
    assert command(server, "delete", "report")["outcome"] == "deleted"
    assert command(server, "show", "report", code=5) is None
    command(server, "put", "bad", "reports", "x", "--cron", "61 * * * *", code=4)
    command(server, "put", "bad", "reports", "x", code=2)
