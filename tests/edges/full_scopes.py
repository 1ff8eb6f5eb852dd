"""Edge: one owner of idempotent sends has taken all the memory that it may have."""

from __future__ import annotations

from typing import Final

from tests.edges.run import EdgeRun
from tests.edges.traffic import WINDOW

from orbitmq.protocol.remoting.commands import ResponseCode

MEMORY_BYTES: Final = 1 << 20
"""Of `idempotenceMemoryMax`, as little as it may be."""

SENDS_MAX: Final = 20_000


def full_scopes(run: EdgeRun) -> None:
    """A job makes scopes until it is refused; a stream and a producer that come new are served, before and after a restart."""
    server = run.start(idempotenceMemoryMax=MEMORY_BYTES)
    server.create_topic("orders")
    keys_each = run.random.choice([1, 50])

    def of_the_job(number: int) -> dict[str, str]:
        scope = f"job/{number // keys_each}@broker-a"
        return {"ORBITMQ_SCOPE": scope, "ORBITMQ_EPOCH": "1", "ORBITMQ_ONCE_KEY": str(number)}

    refused = 0
    with server.client() as client:
        while not refused and len(run.account.fates) < SENDS_MAX:
            codes = run.traffic.send(client, "orders", count=WINDOW, more=of_the_job)
            refused = len(codes) - codes.count(ResponseCode.SUCCESS)
        run.say(f"a job with {keys_each} keys in a scope was refused after {len(run.account.fates)} sends")
        run.expect(refused > 0, "the job was never refused: nothing bounds what it takes")
        newcomers = {}
        for scope in ("stream/0@broker-a", "~producer"):
            properties = {
                "UNIQ_KEY": f"{len(newcomers):031X}A", "ORBITMQ_SCOPE": scope, "ORBITMQ_EPOCH": "1", "ORBITMQ_ONCE_KEY": "first",
            }  # fmt: skip
            number, answer = run.traffic.send_one(client, "orders", properties)
            run.expect(answer.code == 0, f"{scope}, which comes new, was answered {answer.code} {answer.remark}")
            newcomers[number] = (properties, answer)
    run.stop(server)
    again = run.start(idempotenceMemoryMax=MEMORY_BYTES)
    with again.client() as client:
        for number, (properties, first) in newcomers.items():
            answer = run.traffic.repeat(client, "orders", properties, number)
            run.account.answered("repeat", answer.code)
            run.expect(
                answer.fields.get("queueOffset") == first.fields.get("queueOffset"),
                f"the repeat of {properties['ORBITMQ_SCOPE']} was stored again",
            )
        run.traffic.read(client, "orders")
    run.stop(again)
