"""What a stop leaves for RocketMQ where timers wait, and what the commands for stores say of it: in order, killed, on a full disk."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from server_process import ServedProcess, clean_environment, until
from tests.edges.full_disk import free_mb, small_file_system
from tests.edges.run import CannotRunError

import orbitmq
from orbitmq import TimerVerdict

COUNT, RECALLED = 40, 4
SPREAD, BATCH = 1_600, 100
SPREAD_FROM_S, APART_S = 3_600, 130
"""128 slots of the wheel are a page."""

WHEEL_BYTES = 38_707_200
"""Of RocketMQ's wheel; of any other length it refuses the store."""

SMALL = {
    "mappedFileSizeCommitLog": 4 << 20, "mappedFileSizeConsumeQueue": 20_000, "mappedFileSizeTimerLog": 52_000,
    "maxIndexNum": 20_000, "maxHashSlotNum": 5_000,
}  # fmt: skip
"""A store that has room on a small disk."""

Serve = Callable[..., ServedProcess]


def filled(server: ServedProcess) -> None:
    """Some timers, and some that were recalled."""

    async def fill() -> None:
        async with orbitmq.connect(f"127.0.0.1:{server.name_port}") as mq:
            for number in range(COUNT + RECALLED):
                receipt = await mq.send("T", b"%d" % number, after=timedelta(hours=1, seconds=number))
                if number >= COUNT:
                    assert (await receipt.recall()).verdict is TimerVerdict.RECALLED

    server.create_topic("T", 1)
    asyncio.run(fill())


def spread(server: ServedProcess) -> None:
    """Timers in slots that lie far apart: the wheel needs a page of the disk for each."""

    async def fill() -> None:
        async with orbitmq.connect(f"127.0.0.1:{server.name_port}") as mq:
            for begin in range(0, SPREAD, BATCH):
                whole = (
                    mq.send("T", b"%d" % at, after=SPREAD_FROM_S + at * APART_S) for at in range(begin, begin + BATCH)
                )
                await asyncio.gather(*whole)

    server.create_topic("T", 1)
    asyncio.run(fill())


def still_pending(server: ServedProcess) -> int:
    async def count() -> int:
        async with orbitmq.connect(f"127.0.0.1:{server.name_port}") as mq:
            return (await mq.timers.counts()).pending

    return asyncio.run(count())


def command(*words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "orbitmq.cli.main", *map(str, words)],
        capture_output=True, text=True, env=clean_environment() | {"COLUMNS": "200"}, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


def store(action: str, data: Path, *words: object, code: int = 0) -> Any:
    return json.loads(command("store", action, data, *words, "--json", code=code).stdout)


def handed_over(data: Path) -> Any:
    return store("hand-over", data, *(word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")))


def doctor_on_rocketmq(data: Path) -> str:
    """What `orbitmq doctor` says of RocketMQ and this store."""
    done = subprocess.run(
        [sys.executable, "-m", "orbitmq.cli.main", "doctor", "--data", str(data), "--json"],
        capture_output=True, text=True, env=clean_environment(), timeout=240, check=False,
    )  # fmt: skip
    return next(json.dumps(row) for row in json.loads(done.stdout) if "RocketMQ" in json.dumps(row))


def is_rocketmqs(data: Path) -> bool:
    return (data / "timerwheel").stat().st_size == WHEEL_BYTES


def test_an_orderly_stop_leaves_what_waits_to_rocketmq(serve: Serve) -> None:
    server = serve(settings=SMALL)
    filled(server)
    assert not is_rocketmqs(server.data), "while orbitmq serves it, RocketMQ refuses it"
    server.stop()
    assert is_rocketmqs(server.data)
    assert not server.log_lines("RocketMQ refuses")
    data = server.data
    assert store("hand-over", data, "--dry-run")["pending_count"] == COUNT
    assert command("store", "check", data).stderr.endswith("sound\n")
    stat = store("stat", data)["timers"]
    assert (stat["pending_count"], stat["cancelled_count"], stat["unlinked_count"]) == (COUNT, 0, 0)
    units = [
        json.loads(line) for line in command("store", "dump", data, "--what", "timerlog", "--json").stdout.splitlines()
    ]
    assert len([unit for unit in units if unit["kind"] == "unit"]) == COUNT + 1, (
        "and the one that names the newest record"
    )
    again = serve(settings=SMALL)
    assert not is_rocketmqs(data)
    assert still_pending(again) == COUNT
    again.stop()
    assert is_rocketmqs(data)


def test_a_killed_store_is_refused_until_the_command_has_run(serve: Serve) -> None:
    server = serve(settings=SMALL)
    filled(server)
    data = server.data
    until((data / "orbitmq.timers").exists, what="the first save")
    server.kill()
    assert not is_rocketmqs(data)
    assert store("hand-over", data, "--dry-run", code=1)["is_exact"] is False
    assert "hand-over" in command("store", "check", data).stderr
    assert "hand-over" in doctor_on_rocketmq(data)
    assert store("stat", data)["timers"]["pending_count"] == COUNT
    done = handed_over(data)
    assert (done["is_exact"], done["was_exact"], done["pending_count"]) == (True, False, COUNT)
    assert is_rocketmqs(data)
    assert command("store", "check", data).stderr.endswith("sound\n")
    assert "hand-over" not in doctor_on_rocketmq(data)
    again = serve(settings=SMALL)
    assert still_pending(again) == COUNT
    again.stop()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The folder of the server's data, on a file system of 64 MB; its log lies elsewhere."""
    try:
        with small_file_system(tmp_path / "small") as folder:
            (folder / "data").mkdir()
            (tmp_path / "server").mkdir()
            (tmp_path / "server" / "data").symlink_to(folder / "data")
            yield folder
    except CannotRunError as error:
        pytest.skip(str(error))


def fill_up(folder: Path) -> Path:
    """A file that takes all the room there is."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while file.write(os.urandom(size)) == size:
                    pass
            except OSError:
                continue
    assert free_mb(folder) == 0
    return ballast


def test_a_stop_on_a_full_disk_loses_nothing_and_names_the_command(serve: Serve, small_disk: Path) -> None:
    server = serve(settings=SMALL)
    spread(server)
    ballast = fill_up(small_disk)
    server.stop()  # asserts status 0
    assert not is_rocketmqs(server.data)
    assert f"orbitmq store hand-over {server.data}" in "".join(server.log().splitlines()[-3:])
    ballast.unlink()
    assert handed_over(server.data)["pending_count"] == SPREAD
    assert is_rocketmqs(server.data)
    again = serve(settings=SMALL)
    assert still_pending(again) == SPREAD
    again.stop()
