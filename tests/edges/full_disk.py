"""Edge: a file system that is really full, a small one in a user namespace of its own."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.edges.run import CannotRunError, EdgeRun
from tests.system.server_process import RawClient, ServedProcess, until

from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

SIZE_MB: Final = 64
RESUMED_WITHIN_S: Final = 1.5
SLACK_S: Final = 1.0
"""Of a busy machine."""


@contextmanager
def small_file_system(mount_point: Path, size_mb: int = SIZE_MB) -> Iterator[Path]:
    """A file system in memory, as an ordinary user mounts one: it lives as long as a process of its namespace, and is reached
    by way of that one. CannotRunError where none can be mounted."""
    mount_point.mkdir(parents=True)
    script = f'mount -t tmpfs -o size={size_mb}m,mode=755 edges "$0" && echo mounted && exec cat'
    holder = subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, str(mount_point)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stderr is not None
    try:
        if holder.stdout.readline() != "mounted\n":
            raise CannotRunError(
                f"no file system can be mounted in a user namespace here: {holder.stderr.read().strip()}"
            )
        yield Path(f"/proc/{holder.pid}/root{mount_point.resolve()}")
    finally:
        for stream in (holder.stdin, holder.stdout, holder.stderr):
            stream.close()
        holder.wait(10)


def free_mb(folder: Path) -> float:
    return os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize / (1 << 20)


def full_disk(run: EdgeRun) -> None:
    """Sends until refused; reading goes on; space is freed by deleting; sends are taken again, and a restart keeps all."""
    with small_file_system(run.directory / "small") as folder:
        _fill_and_free(run, folder)


def _fill_and_free(run: EdgeRun, folder: Path) -> None:
    flush = run.random.choice(["ASYNC_FLUSH", "SYNC_FLUSH"])
    # RocketMQ's rule for a full disk would remove what the account still asks for
    settings = {"flushDiskType": flush, "cleanFileForciblyEnable": "false"}
    server = run.start(folder=folder, preload=False, **settings)
    for topic in ("ballast", "orders"):
        server.create_topic(topic, 2)
    with server.client() as client:
        _fill(run, client, folder)
        # A check maps files, and a hole of a file system in memory that is full has no page to show.
        run.stop(server, sound=False)
    server = run.start(folder=folder, preload=False, **settings)
    with server.client() as client:
        before = len(run.account.deliveries)
        for topic in ("ballast", "orders"):
            for queue in (0, 1):
                run.traffic.read(client, topic, queue)
        run.say(f"read {len(run.account.deliveries) - before} messages from the full disk after a restart")
        offset = {"consumerGroup": "readers", "topic": "orders", "queueId": "0", "commitOffset": "1"}
        answer = client.call(RequestCode.UPDATE_CONSUMER_OFFSET, offset)
        run.expect(answer.code == ResponseCode.SUCCESS, f"consuming on the full disk: {answer.code} {answer.remark}")
        server.create_topic("made-on-the-full-disk", 1)
        run.expect(not run.account.missing(), "not everything could be read from the full disk")
        _free(run, server, client, folder)
        if run.findings:
            return
        codes = run.traffic.send(client, "orders", (0, 1), count=50, size=1_000)
        run.expect(set(codes) == {0}, f"sends after space was freed: {set(codes)}")
    run.stop(server)
    again = run.start(folder=folder, preload=False, **settings)
    with again.client() as client:
        for queue in (0, 1):
            run.traffic.read(client, "orders", queue)
    run.stop(again)


def _fill(run: EdgeRun, client: RawClient, folder: Path) -> None:
    """First what is deleted later, then what has to outlive it, until the disk is full and a while beyond."""
    refused = 0
    while refused < 3:
        topic = "ballast" if free_mb(folder) > SIZE_MB / 3 else "orders"
        codes = run.traffic.send(client, topic, (0, 1), count=32, size=run.random.choice([2_000, 30_000, 60_000]))
        refused += codes.count(0) == 0
    run.say(f"full with {len(run.account.fates)} sends, {free_mb(folder):.1f} MB left")


def _free(run: EdgeRun, server: ServedProcess, client: RawClient, folder: Path) -> None:
    """Delete what is old: the files of the ballast. How soon is a send taken then?"""
    files = sorted((server.data / "commitlog").iterdir())
    before = free_mb(folder)
    old = time.time() - 100 * 3_600
    for path in files[: len(files) // 2]:
        os.utime(path, (old, old))
    asked = time.monotonic()
    answer = client.call(RequestCode.DELETE_EXPIRED_COMMITLOG)
    run.account.answered("delete expired", answer.code)
    run.expect(answer.code == ResponseCode.SUCCESS, f"deleting expired files: {answer.code} {answer.remark}")
    until(lambda: free_mb(folder) > before + 8, what="space being freed")
    freed = time.monotonic()
    taken = None
    while taken is None and time.monotonic() < freed + RESUMED_WITHIN_S + 2 * SLACK_S:
        if run.traffic.send(client, "orders", (0,), size=1_000) == [ResponseCode.SUCCESS]:
            taken = time.monotonic()
        else:
            time.sleep(0.02)
    waited = "never" if taken is None else f"{taken - freed:.2f} s"
    run.say(f"{free_mb(folder) - before:.0f} MB freed in {freed - asked:.2f} s; first SEND_OK after: {waited}")
    run.expect(
        taken is not None and taken - freed <= RESUMED_WITHIN_S + SLACK_S,
        f"the first send was taken {waited} after space was freed, {RESUMED_WITHIN_S} s are promised",
    )
