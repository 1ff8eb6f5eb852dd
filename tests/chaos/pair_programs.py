"""Programs of users at a pair, over the client: timers, some of them recalled, a recurring message, and groups that read.

Rules of this file
1. A call that fails is made again until it is answered; `once` names the message, so that nothing is stored twice.
2. What was answered and what came is written into the ledger, and nothing is judged.
3. Those who read are new programs after each `read_again`: they begin where the broker says that their group is.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections.abc import Callable
from typing import Final

from tests.chaos.pair_ledger import Ledger, Recall, Timer

import orbitmq

TIMERS, TICKS = "pair-timers", "pair-ticks"
SENDERS: Final = 3
PAUSE_S: Final = 0.25
AGAIN_AFTER_S: Final = 0.1
DUE_S: Final = (0.3, 4.5)
RECALLED: Final = 0.4
"""Of all timers."""
NAME: Final = re.compile(rb"<\d+-\d+-\d+>")

CLIENT: Final = orbitmq.ClientOptions(route_refresh_ms=500, offset_persist_ms=200, close_timeout_ms=300)
PRODUCER: Final = orbitmq.ProducerOptions(attempt_timeout_ms=1_500)
FROM_FIRST: Final = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
VERDICTS: Final = {
    orbitmq.TimerVerdict.RECALLED: Recall.RECALLED,
    orbitmq.TimerVerdict.ALREADY_RECALLED: Recall.RECALLED,
    orbitmq.TimerVerdict.ALREADY_DELIVERED: Recall.DELIVERED,
    orbitmq.TimerVerdict.NOT_FOUND: Recall.UNKNOWN,
}


def now_ms() -> float:
    return time.time() * 1_000


class Programs:
    def __init__(self, name_server: str, ledger: Ledger, seed: int, plain_topic: str) -> None:
        """`plain_topic`: what others send there is read by a group as well."""
        self._name_server = name_server
        self._ledger = ledger
        self._seed = seed
        self._chance = random.Random(seed + 77)
        self._plain_topic = plain_topic
        self._sends = asyncio.Event()
        self._is_open = True
        self._number = 0
        self._writing: list[asyncio.Task[None]] = []
        self._recalls: set[asyncio.Task[None]] = set()
        self._reading: list[asyncio.Task[None]] = []
        self._mq: orbitmq.Client | None = None
        self._stack = contextlib.AsyncExitStack()

    async def begin(self) -> None:
        """The topics are there. The recurring message is on both brokers when this returns."""
        self._mq = await self._stack.enter_async_context(orbitmq.connect(self._name_server, options=CLIENT))
        producer = await self._stack.enter_async_context(self._mq.producer("pair", options=PRODUCER))
        while True:
            with contextlib.suppress(orbitmq.ClientError):
                change = await self._mq.recurring.put("tick", TICKS, b"tick", every=1, catch_up="all")
                if change.send_status is orbitmq.SendStatus.SEND_OK:
                    break
            await asyncio.sleep(AGAIN_AFTER_S)
        self._writing = [asyncio.create_task(self._send_all(producer)) for _ in range(SENDERS)]
        await self.read_again()
        self._sends.set()

    def pause(self) -> None:
        self._sends.clear()

    def go_on(self) -> None:
        self._sends.set()

    async def finish(self, limit_s: float) -> None:
        """No more timers. Until every call is answered and everything came, or for so long."""
        self._is_open = False
        self._sends.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await asyncio.gather(*self._writing)
                await asyncio.gather(*self._recalls)
                while True:
                    await asyncio.sleep(AGAIN_AFTER_S)
                    if not self._ledger.missing():
                        break

    async def close(self) -> None:
        await self.stop_reading()
        for task in (*self._writing, *self._recalls):
            task.cancel()
        results = await asyncio.gather(*self._writing, *self._recalls, return_exceptions=True)
        await self._stack.aclose()
        for result in results:
            if isinstance(result, Exception):
                raise result

    # --- timers ---------------------------------------------------------------------------------------------------

    async def _send_all(self, producer: orbitmq.Producer) -> None:
        while self._is_open:
            await self._sends.wait()
            self._number += 1
            name = b"<%d-9-%d>" % (self._seed, self._number)
            lead_s = self._chance.uniform(*DUE_S)
            recalled_after_s = lead_s * self._chance.uniform(0.1, 1.05) if self._chance.random() < RECALLED else None
            timer = self._ledger.timers[name] = Timer(float(round(now_ms() + lead_s * 1_000)))
            began = time.monotonic()
            receipt = await self._sent(producer, name, timer)
            if recalled_after_s is not None:
                wait_s = recalled_after_s - (time.monotonic() - began)
                task = asyncio.create_task(self._recall(receipt, timer, wait_s))
                self._recalls.add(task)
                task.add_done_callback(self._recalls.discard)
            await asyncio.sleep(PAUSE_S)

    async def _sent(self, producer: orbitmq.Producer, name: bytes, timer: Timer) -> orbitmq.SendReceipt:
        once = orbitmq.Once("pair", 1, name.decode())
        while True:
            try:
                receipt = await producer.send(TIMERS, name, at=int(timer.due_ms), once=once)
            except orbitmq.ClientError:
                await asyncio.sleep(AGAIN_AFTER_S)
                continue
            timer.is_copied = receipt.send_status is orbitmq.SendStatus.SEND_OK
            return receipt

    async def _recall(self, receipt: orbitmq.SendReceipt, timer: Timer, wait_s: float) -> None:
        await asyncio.sleep(max(wait_s, 0))
        while timer.recall is None:
            with contextlib.suppress(orbitmq.ClientError):
                outcome = await receipt.recall()
                if outcome.send_status is orbitmq.SendStatus.SEND_OK:  # else the master alone knows it
                    timer.recall = VERDICTS.get(outcome.verdict)
            if timer.recall is None:  # it is being delivered at this moment, is on one broker only, or nobody answered
                await asyncio.sleep(AGAIN_AFTER_S)

    # --- groups that read -----------------------------------------------------------------------------------------

    async def stop_reading(self) -> None:
        """As programs that end together with the master: what they had read last is recorded as it was."""
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        self._reading = []

    async def read_again(self) -> None:
        """New programs of the same groups."""
        await self.stop_reading()
        reads: tuple[tuple[str, Callable[[orbitmq.ReceivedMessage], bytes]], ...] = (
            (TIMERS, lambda message: message.body),
            (TICKS, self._tick),
            (self._plain_topic, lambda message: found[0] if (found := NAME.match(message.body)) else b""),
        )
        self._reading = [asyncio.create_task(self._read(topic, name_of)) for topic, name_of in reads]

    def _tick(self, message: orbitmq.ReceivedMessage) -> bytes:
        planned_ms = message.properties["ORBITMQ_PLANNED_MS"]
        self._ledger.early_ticks += now_ms() < float(planned_ms)
        return planned_ms.encode()

    async def _read(self, topic: str, name_of: Callable[[orbitmq.ReceivedMessage], bytes]) -> None:
        group = f"{topic}-readers"
        while True:
            try:
                async with (
                    orbitmq.connect(self._name_server, options=CLIENT) as mq,
                    mq.consumer(group, topic, options=FROM_FIRST) as consumer,
                ):
                    async for message in consumer:
                        self._ledger.came(group, name_of(message), now_ms())
                        await message.ack()
            except orbitmq.ClientError:
                await asyncio.sleep(AGAIN_AFTER_S)
