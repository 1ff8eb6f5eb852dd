"""Programs over the client that send and read in order while brokers fail, and what is wrong with what they saw.

Each lane is a queue: its numbers are sent one after the other, each until it is acknowledged. A group of two members reads them in order,
another one pops them. All run with the client's own settings, and each has a connection of its own: who only reads sends nothing.

Rules of this file
1. In order: of each queue the next message, or one that came before, and never one that leaves another one out.
2. At no moment two members of the ordered group are in the same queue.
3. In the end all that was acknowledged came to both groups, and stands in its queue once and in the order of its sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Final

import orbitmq

AGAIN_AFTER_S: Final = 0.1
PAUSE_S: Final = 0.03
HANDLED_S: Final = 0.005
MEMBERS: Final = ("one", "two")
PRODUCER: Final = orbitmq.ProducerOptions(attempt_timeout_ms=1_500)
IN_ORDER: Final = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST, orderly=True)
POPPED: Final = orbitmq.PopOptions(consume_from=orbitmq.ConsumeFrom.FIRST, invisible_ms=10_000)


class OrderedTraffic:
    """Of one topic, which has as many queues as there are lanes and holds nothing else.

    acknowledged: how many of each lane's numbers. came: by group, the lane and number of each message. silent_s: by group, how long nothing
    came at most, since it was cleared.
    """

    def __init__(self, name_server: str, topic: str, lanes: int) -> None:
        self._name_server = name_server
        self._topic = topic
        self._is_open = True
        self._tasks: list[asyncio.Task[None]] = []
        self._senders: list[asyncio.Task[None]] = []
        self._stack = contextlib.AsyncExitStack()
        self._inside: dict[int, str] = {}
        self._offsets: defaultdict[int, list[int]] = defaultdict(list)
        self._findings: list[str] = []
        self._last: dict[str, float] = {}
        self._numbers_at: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self.acknowledged = [0] * lanes
        self.came: dict[str, set[tuple[int, int]]] = {"ordered": set(), "popped": set()}
        self.silent_s: dict[str, float] = {}

    async def begin(self, limit_s: float) -> None:
        """The topic is there. Returns when both groups have got something, or after so long."""
        mq = await self._stack.enter_async_context(orbitmq.connect(self._name_server))
        producer = await self._stack.enter_async_context(mq.producer("in-order", options=PRODUCER))
        self._tasks = [asyncio.create_task(self._read(member)) for member in MEMBERS]
        self._tasks.append(asyncio.create_task(self._again(self._pop)))
        self._senders = [asyncio.create_task(self._send(producer, lane)) for lane in range(len(self.acknowledged))]
        await _until(lambda: all(self.came.values()), limit_s)
        self.clear()

    def clear(self) -> None:
        """A fault begins."""
        now = time.monotonic()
        self._last = dict.fromkeys(self.came, now)
        self.silent_s = dict.fromkeys(self.came, 0.0)

    async def go_on(self, limit_s: float) -> bool:
        """Whether what is sent from now on comes to both groups within that time."""
        before = {group: len(came) for group, came in self.came.items()}
        acknowledged = list(self.acknowledged)

        def is_so() -> bool:
            return all(count > old for count, old in zip(self.acknowledged, acknowledged, strict=True)) and all(
                len(came) > before[group] for group, came in self.came.items()
            )

        return await _until(is_so, limit_s)

    async def finish(self, limit_s: float) -> list[str]:
        """Nothing more is sent; all that is missing may come for so long. What was wrong."""
        self._is_open = False
        await asyncio.wait(self._senders, timeout=limit_s)
        wanted = {(lane, number) for lane, count in enumerate(self.acknowledged) for number in range(count)}
        await _until(lambda: all(wanted <= came for came in self.came.values()), limit_s)
        for group, came in self.came.items():
            if missing := wanted - came:
                self._findings.append(f"{len(missing)} messages never came to those who read {group}: {min(missing)}")
        for lane, numbers in self._numbers_at.items():
            stored = [numbers[offset] for offset in sorted(numbers)]
            if stored != list(range(len(stored))):
                self._findings.append(f"queue {lane} holds {stored[:5]}...{stored[-5:]}: not in the order of the sends")
        return self._findings

    async def close(self) -> None:
        tasks = [*self._senders, *self._tasks]
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await self._stack.aclose()
        for result in results:
            if isinstance(result, Exception):
                raise result

    # --- programs -------------------------------------------------------------------------------------------------------

    async def _send(self, producer: orbitmq.Producer, lane: int) -> None:
        while self._is_open:
            number = self.acknowledged[lane]
            once = orbitmq.Once(f"{self._topic}-{lane}", 1, str(number))
            queues = [queue for queue in await self._queues(producer) if queue.queue_id == lane]
            with contextlib.suppress(orbitmq.ClientError):
                receipt = await producer.send(self._topic, b"%d:%d" % (lane, number), queue=queues[0], once=once)
                if receipt.send_status is orbitmq.SendStatus.SEND_OK:
                    self.acknowledged[lane] += 1
                    await asyncio.sleep(PAUSE_S)
                    continue
            await asyncio.sleep(AGAIN_AFTER_S)

    async def _queues(self, producer: orbitmq.Producer) -> list[orbitmq.MessageQueue]:
        while True:
            with contextlib.suppress(orbitmq.ClientError):
                return await producer.queues(self._topic)
            await asyncio.sleep(AGAIN_AFTER_S)

    async def _again(self, program: Callable[[], Awaitable[None]]) -> None:
        """A program that ended with an error of the client is started again."""
        while True:
            with contextlib.suppress(orbitmq.ClientError):
                await program()
            await asyncio.sleep(AGAIN_AFTER_S)

    async def _read(self, member: str) -> None:
        async def handle(message: orbitmq.ReceivedMessage) -> None:
            lane = message.queue.queue_id
            if (other := self._inside.setdefault(lane, member)) != member:
                self._findings.append(f"{member} and {other} are in queue {lane} at the same time")
            self._note_order(lane, message.queue_offset)
            self._came("ordered", message)
            await asyncio.sleep(HANDLED_S)
            if self._inside.get(lane) == member:
                del self._inside[lane]

        async def program() -> None:
            async with (
                orbitmq.connect(self._name_server) as mq,
                mq.consumer("in-order", self._topic, options=IN_ORDER) as consumer,
            ):
                await consumer.run(handle)

        await self._again(program)

    async def _pop(self) -> None:
        async with (
            orbitmq.connect(self._name_server) as mq,
            mq.pop_consumer("popping", self._topic, options=POPPED) as consumer,
        ):
            async for message in consumer:
                self._came("popped", message)
                await message.ack()

    def _came(self, group: str, message: orbitmq.ReceivedMessage) -> None:
        now = time.monotonic()
        self.silent_s[group] = max(self.silent_s.get(group, 0.0), now - self._last.get(group, now))
        self._last[group] = now
        lane, number = map(int, message.body.split(b":"))
        self.came[group].add((lane, number))
        if group == "ordered":
            self._numbers_at[lane][message.queue_offset] = number

    def _note_order(self, lane: int, offset: int) -> None:
        seen = self._offsets[lane]
        if offset > (max(seen) if seen else -1) + 1:
            self._findings.append(f"{offset} of queue {lane} came after {seen[-3:]}: what lies between was left out")
        elif seen and offset != seen[-1] + 1 and offset not in seen:
            self._findings.append(f"{offset} of queue {lane} came after {seen[-3:]}: never before")
        seen.append(offset)


async def _until(condition: Callable[[], bool], limit_s: float) -> bool:
    ends = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > ends:
            return False
        await asyncio.sleep(AGAIN_AFTER_S)
    return True
