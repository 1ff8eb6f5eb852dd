"""Edges: single calls of the operating system that fail, and the syncs that an acknowledgement stands for."""

from __future__ import annotations

import errno

from tests.edges.faults import Kind
from tests.edges.run import EdgeRun
from tests.system.server_process import until

from orbitmq.protocol.remoting.commands import ResponseCode


def failing_reads(run: EdgeRun) -> None:
    """Reads of the log fail now and then, by a bad sector or for want of descriptors; no consumer is sent past a message."""
    chance = run.random
    first = run.start()
    first.create_topic("orders", 2)
    with first.client() as client:
        run.traffic.send(client, "orders", (0, 1), count=100, size=900)
    run.stop(first)
    server = run.start()
    run.faults.fail(Kind.READ_NOWAIT, errno.EAGAIN, "/commitlog/")
    with server.client() as client:
        for error, queue in ((errno.EIO, 0), (errno.EMFILE, 1)):
            sector = chance.randrange(20) * 4096
            rule = run.faults.fail(
                Kind.READ, error, "/commitlog/", times=chance.randint(1, 3), begin=sector, end=sector + 8192
            )
            run.traffic.read(client, "orders", queue)
            run.say(f"{errno.errorcode[error]} at {sector}: {run.faults.hits(rule)} reads there")
            run.expect(run.faults.hits(rule) > 0, "no read was failed: this run shows nothing")
            run.faults.heal(rule)
    run.stop(server)


def failing_writes(run: EdgeRun) -> None:
    """A disk that is full for some calls, and the end of descriptors: refused, then taken again, nothing lost."""
    chance = run.random
    server = run.start(flushDiskType=chance.choice(["ASYNC_FLUSH", "SYNC_FLUSH"]))
    server.create_topic("orders", 4)
    faults = [
        (Kind.WRITE, errno.ENOSPC, "/commitlog/"),
        (Kind.ALLOCATE, errno.ENOSPC, "/commitlog/"),
        (Kind.WRITE, errno.ENOSPC, "/consumequeue/"),
        (Kind.OPEN, errno.EMFILE, "/commitlog/"),
        (Kind.OPEN, errno.EMFILE, "/consumequeue/"),
    ]
    with server.client() as client:
        for kind, error, part in faults:
            rule = run.faults.fail(kind, error, part, skip=chance.randrange(3), times=chance.randint(1, 5))
            codes = run.traffic.send(client, "orders", range(4), count=300, size=4_000)
            refused = len(codes) - codes.count(0)
            run.say(f"{kind.name} {errno.errorcode[error]} {part}: {run.faults.hits(rule)} calls, {refused} refused")
            run.faults.heal(rule)
            until(
                lambda: run.traffic.send(client, "orders", (0,)) == [ResponseCode.SUCCESS],
                what="sends being taken again",
            )
        for queue in range(4):
            run.traffic.read(client, "orders", queue)
    run.stop(server)
    again = run.start()
    with again.client() as client:
        for queue in range(4):
            run.traffic.read(client, "orders", queue)
    run.stop(again)
