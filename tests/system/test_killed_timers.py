"""Timers sent, recalled and moved under load by real clients while the broker is killed again and again: the account is exact."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
from server_process import ServedProcess

import orbitmq
from orbitmq import TimerVerdict

ROUNDS = 3
SENDERS = 16
DELAYS_S = (0.05, 0.3, 1.0, 2.0, 4.0)


class Account:
    """What the broker has said of each message."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.stored: dict[str, orbitmq.SendReceipt] = {}
        self.verdicts: dict[str, TimerVerdict | None] = {}
        """The answer to the change of a message; None when none came."""

    async def load(self, mq: orbitmq.Client, prefix: str, ends: float) -> None:
        producer = mq.producer("load", orbitmq.ProducerOptions(send_timeout_ms=1_500, retries_count=0))

        async def sender(number: int) -> None:
            for count in range(1 << 30):
                if time.monotonic() >= ends:
                    return
                body = f"{prefix}-{number}-{count}"
                try:
                    receipt = await producer.send("T", body.encode(), after=self.rng.choice(DELAYS_S))
                    self.stored[body] = receipt
                    if count % 3 == 0:
                        await asyncio.sleep(self.rng.random() * 0.1)
                        self.verdicts[body] = None
                        recalls = self.rng.random() < 0.7
                        outcome = await (receipt.recall() if recalls else receipt.reschedule(after=self.rng.random()))
                        self.verdicts[body] = outcome.verdict
                except orbitmq.ClientError:
                    return  # the broker is dead

        await asyncio.gather(*(sender(number) for number in range(SENDERS)))

    def mistakes(self, found: Counter[str]) -> dict[str, str]:
        wrong = {body: f"{count} times" for body, count in found.items() if count > 1}
        for body in self.stored:
            verdict = self.verdicts.get(body, TimerVerdict.PENDING)
            if verdict is TimerVerdict.RECALLED and found[body]:
                wrong[body] = "recalled, and delivered"
            elif verdict not in (TimerVerdict.RECALLED, None) and not found[body]:
                wrong[body] = f"{verdict}, and not delivered"
        return wrong


async def everything(mq: orbitmq.Client) -> Counter[str]:
    """Bodies of what was delivered, when nothing is pending any more."""
    ends = time.monotonic() + 120
    while (await mq.timers.counts()).pending:
        assert time.monotonic() < ends, "messages stay pending"
        await asyncio.sleep(0.2)
    found: Counter[str] = Counter()
    async with mq.pull_consumer("account") as reader:
        for queue in await reader.queues("T"):
            offset = 0
            while offset < await reader.max_offset(queue):
                pulled = await reader.pull(queue, offset, max_messages=32)
                found.update(message.body.decode() for message in pulled.messages)
                offset = pulled.next_offset
    return found


@pytest.mark.slow
def test_a_killed_broker_neither_loses_nor_doubles_nor_revives_a_timer(serve: Callable[..., ServedProcess]) -> None:
    account = Account(seed=5)
    ports: tuple[int, int] | None = None
    for number in range(ROUNDS):
        server = serve(ports=ports)
        ports = server.name_port, server.port
        if number == 0:
            server.create_topic("T", 4)
        life_s = account.rng.uniform(1, 2)

        async def round_(
            address: str = f"127.0.0.1:{server.name_port}", number: int = number, life_s: float = life_s
        ) -> None:
            async with orbitmq.connect(address) as mq:
                await account.load(mq, str(number), time.monotonic() + life_s + 0.5)

        killer = threading.Timer(life_s, server.kill)
        killer.start()
        asyncio.run(round_())
        killer.join()

    async def count(address: str) -> Counter[str]:
        async with orbitmq.connect(address) as mq:
            found = await everything(mq)
            for body, verdict in account.verdicts.items():
                if verdict is TimerVerdict.RECALLED:
                    outcome = await mq.timers.recall(topic="T", message_id=account.stored[body].message_id)
                    assert outcome.verdict is TimerVerdict.ALREADY_RECALLED
                    break
            return found

    server = serve(ports=ports)
    found = asyncio.run(count(f"127.0.0.1:{server.name_port}"))
    server.stop()
    assert account.mistakes(found) == {}
    assert len(account.stored) > 200
    assert TimerVerdict.RECALLED in account.verdicts.values()


def test_the_account_finds_what_is_lost_doubled_or_revived() -> None:
    account = Account(seed=0)
    account.stored = dict.fromkeys(("lost", "doubled", "revived", "unsure", "fine"))  # type: ignore[arg-type]
    account.verdicts = {"revived": TimerVerdict.RECALLED, "unsure": None, "fine": TimerVerdict.RESCHEDULED}
    found = Counter({"doubled": 2, "revived": 1, "fine": 1})
    assert set(account.mistakes(found)) == {"lost", "doubled", "revived"}
