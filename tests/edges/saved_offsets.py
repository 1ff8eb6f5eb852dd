"""Edge: what was saved about the log is ahead of it when the power fails before the log was synced."""

from __future__ import annotations

import re

from tests.edges.run import EdgeRun
from tests.edges.traffic import GROUP
from tests.system.server_process import until

from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

NEVER_MS = 600_000


def saved_offsets(run: EdgeRun) -> None:
    """A group saves how far it has come; the log up to there is lost; the group gets every message sent afterwards."""
    run.faults.keep_what_is_synced()
    chance = run.random
    queues = range(chance.randint(2, 4))
    unsynced = {"flushIntervalCommitLog": NEVER_MS, "flushCommitLogThoroughInterval": NEVER_MS}
    first = run.start(flushConsumerOffsetInterval=1_000, **unsynced)
    first.create_topic("orders", len(queues))
    with first.client() as client:
        run.traffic.create_group(client)
        run.traffic.send(client, "orders", queues, count=chance.randint(5, 40))
        ends = [run.traffic.consume(client, "orders", queue) for queue in queues]
        lost = list(run.account.fates)
        table = first.data / "config" / "consumerOffset.json"
        saved = re.compile(
            rf'"orders@{GROUP}"\s*:\s*{{\s*"?0"?\s*:\s*{ends[0]}\b'
        )  # the digits alone may be those of a time
        until(lambda: table.exists() and saved.search(table.read_text()) is not None, what="saving the offsets")
    # Tables are saved one after the other: with this one, the name of the one before is synced as well.
    first.create_topic("later", 1)
    first.kill()
    run.faults.cut_power()
    run.account.excuse(lost)

    again = run.start(**unsynced)
    new = chance.randint(1, 4) * 3
    with again.client() as client:
        known = client.call(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"})
        kept = int(known.fields["offset"]) if known.code == ResponseCode.SUCCESS else 0
        if again.topic("orders") is None:
            again.create_topic("orders", len(queues))
        codes = run.traffic.send(client, "orders", queues, count=new)
        run.expect(set(codes) == {0}, f"sends after the restart: {set(codes)}")
        for queue in queues:
            run.traffic.consume(client, "orders", queue)
    run.say(f"{ends[0]} messages of queue 0 consumed, {kept} of them left by the power failure, {new} sent after it")
    run.stop(again)


def synced_sends(run: EdgeRun) -> None:
    """With synchronous flush a power failure takes nothing that was acknowledged."""
    run.faults.keep_what_is_synced()
    server = run.start(flushDiskType="SYNC_FLUSH")
    server.create_topic("orders", 2)
    for _ in range(2):
        with server.client() as client:
            codes = run.traffic.send(client, "orders", (0, 1), count=run.random.randint(40, 200), size=1_000)
        run.expect(set(codes) == {0}, f"sends: {set(codes)}")
        server.kill()
        run.faults.cut_power()
        server = run.start(flushDiskType="SYNC_FLUSH")
    with server.client() as client:
        for queue in (0, 1):
            run.traffic.read(client, "orders", queue)
    run.say(f"{len(run.account.fates)} acknowledged over two power failures")
    run.stop(server)
