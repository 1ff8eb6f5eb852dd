"""Edges: readers of old messages, too many at once, and some that do not take what they asked for."""

from __future__ import annotations

import errno
import time
from collections import Counter
from typing import Final

from tests.edges.faults import Kind
from tests.edges.run import EdgeRun
from tests.system.server_process import RawClient, ServedProcess, many_clients, pull_fields, until

from orbitmq.protocol.remoting.commands import RequestCode
from orbitmq.protocol.remoting.frame import encode, request

ANONYMOUS_MB_MAX: Final = 128
"""What answers that nobody reads may take in all, with what the server needs besides."""

READERS: Final = 60
PULLS_EACH: Final = 48
"""About 12 MB of answers, three times what the kernel takes for a connection."""

PULLS_AT_ONCE: Final = 6

STILL_S: Final = 1.0
"""Memory that has not grown for so long grows no more."""

GROWING_S_MAX: Final = 8.0


def _server_with_cold_log(run: EdgeRun, *, messages: int, size: int, **settings: object) -> ServedProcess:
    """Started on a log that no read finds in memory."""
    first = run.start(**settings)
    first.create_topic("old", 1)
    first.create_topic("new", 1)
    with first.client() as client:
        run.traffic.send(client, "old", count=messages, size=size)
    run.stop(first)
    server = run.start(**settings)
    run.faults.fail(Kind.READ_NOWAIT, errno.EAGAIN, "/commitlog/")
    return server


def _ask(client: RawClient, offsets: list[int]) -> None:
    """Pulls without waiting for their answers."""
    frames = [
        encode(request(RequestCode.PULL_MESSAGE, pull_fields("old", 0, offset), opaque=client.next_opaque()))
        for offset in offsets
    ]
    client.write(b"".join(frames))


def idle_readers(run: EdgeRun) -> None:
    """Connections ask for old messages and read nothing: memory stays bounded, and others are served."""
    messages = 400
    server = _server_with_cold_log(run, messages=messages, size=60_000)
    with many_clients(server.port, READERS) as idle, server.client() as client:
        asked = 0
        most_mb, worst_s = server.rss_mb(), 0.0
        ends = time.monotonic() + GROWING_S_MAX
        grown = time.monotonic()
        while time.monotonic() < min(ends, grown + STILL_S):
            if asked < PULLS_EACH:
                for one in idle:
                    _ask(one, [run.random.randrange(messages - 8) for _ in range(PULLS_AT_ONCE)])
                asked += PULLS_AT_ONCE
            began = time.monotonic()
            codes = run.traffic.send(client, "new")
            run.expect(codes == [0], f"a send beside readers that do not read: {codes}")
            worst_s = max(worst_s, time.monotonic() - began)
            if (now_mb := server.rss_mb()) > most_mb + 1:
                most_mb, grown = now_mb, time.monotonic()
            time.sleep(0.02)
        run.traffic.read(client, "new")
        run.traffic.read(client, "old")
        most_mb = max(most_mb, server.rss_mb())
        run.say(
            f"{len(idle)} readers that do not read: {most_mb:.0f} MB; worst send beside them {worst_s * 1000:.0f} ms"
        )
        run.expect(most_mb <= ANONYMOUS_MB_MAX, f"{most_mb:.0f} MB of memory, {ANONYMOUS_MB_MAX} are the bound")
    run.stop(server)


def full_worker(run: EdgeRun) -> None:
    """Thousands of reads of a slow disk at once: sends beside them are answered, and syncing goes on after them."""
    flush = run.random.choice(["ASYNC_FLUSH", "SYNC_FLUSH"])
    messages = 300
    server = _server_with_cold_log(run, messages=messages, size=1_000, flushDiskType=flush, syncFlushTimeout=3_000)
    slow = run.faults.fail(Kind.READ, 0, "/commitlog/", delay_ms=1)
    with many_clients(server.port, 40) as readers, server.client() as client:
        for reader in readers:
            _ask(reader, [run.random.randrange(messages) for _ in range(60)])
        beside = Counter(run.traffic.send(client, "new", count=10))
        run.expect(set(beside) == {0}, f"sends beside cold pulls: {dict(beside)}")
        if run.findings:
            return
        run.faults.heal(slow)
        for reader in readers:
            for _ in range(60):
                run.account.answered("pull in the crowd", reader.read().code)
        synced = run.faults.count(Kind.SYNC)
        after = Counter(run.traffic.send(client, "new", count=10))
        run.say(
            f"{flush}, {len(readers) * 60} cold pulls at once: sends beside them {dict(beside)}, after them {dict(after)}"
        )
        run.expect(set(after) == {0}, f"sends after the crowd: {dict(after)}")
        if run.findings:
            return
        until(lambda: run.faults.count(Kind.SYNC) > synced, what="a sync after the crowd")
        run.traffic.read(client, "new")
        run.traffic.read(client, "old")
    run.stop(server)
