"""The two programs of a soak: one sends numbered messages at a rate, one consumes them with members that come and go.

    python soak_client.py produce NAME_SERVER --rate 2000 --seconds 60
    python soak_client.py consume NAME_SERVER

Rules of this file
1. Each is a process of its own, so that its memory and CPU are its own.
2. `produce` prints one line of JSON at its end. `consume` reads lines from standard input: `report N` prints what it has of the
   numbers below N as one line of JSON, and the end of the input ends it.
3. The sender is open loop: what could not be sent in time is sent as soon as possible, at most `WINDOW` at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

from bodies import body_of, number_of

import orbitmq

TOPIC = "soak"
GROUP = "soakers"
WINDOW = 64
DELAYED_EVERY = 20
DELAY_LEVEL = 2
DELAY_MS = 5_000
"""What level 2 means."""
CHURN_S = 7.0
"""A second member joins for so long, and stays away for as long."""


async def produce(address: str, rate: float, seconds: float, size: int, first: int) -> None:
    failed: list[int] = []
    unsent: list[str] = []
    async with orbitmq.connect(address) as mq, mq.producer("soak") as producer:
        room = asyncio.Semaphore(WINDOW)
        running: set[asyncio.Task[None]] = set()

        async def send(number: int) -> None:
            try:
                level = DELAY_LEVEL if number % DELAYED_EVERY == 0 else 0
                await producer.send(TOPIC, body_of(number, size), key=str(number), delay_level=level)
            except orbitmq.ClientError as error:
                failed.append(number)
                unsent.append(str(error))
            finally:
                room.release()

        began = time.monotonic()
        number = 0
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * rate) if rate else number + WINDOW
            while number < due:
                await room.acquire()
                task = asyncio.ensure_future(send(first + number))
                running.add(task)
                task.add_done_callback(running.discard)
                number += 1
                if time.monotonic() - began > seconds:
                    break
            await asyncio.sleep(0.002)
        while running:
            await asyncio.wait(running)
    used = time.process_time()
    print(
        json.dumps({"count": number, "failed": failed, "errors": unsent[:3], "cpu_us": used / max(number, 1) * 1e6}),
        flush=True,
    )


class Received:
    """Which numbers came, one bit each, and whether a delayed one came too early."""

    def __init__(self) -> None:
        self._bits = bytearray(1 << 16)
        self._distinct = 0
        self._total = 0
        self._strangers = 0
        self._early = 0

    async def handle(self, message: orbitmq.ReceivedMessage) -> None:
        number = number_of(message.body)
        if number is None:
            self._strangers += 1
            return
        at, bit = number >> 3, 1 << (number & 7)
        if at >= len(self._bits):
            self._bits.extend(bytes(at - len(self._bits) + 1))
        self._distinct += not self._bits[at] & bit
        self._bits[at] |= bit
        self._total += 1
        if number % DELAYED_EVERY == 0 and time.time() * 1000 < message.born_timestamp + DELAY_MS:
            self._early += 1

    def report(self, count: int) -> dict[str, object]:
        missing = count - self._distinct
        return {
            "missing": missing,
            "first_missing": [number for number in range(count) if not self._came(number)][:5] if missing < 100 else [],
            "repeats": self._total - self._distinct,
            "strangers": self._strangers,
            "early": self._early,
        }

    def _came(self, number: int) -> bool:
        at = number >> 3
        return at < len(self._bits) and bool(self._bits[at] >> (number & 7) & 1)


async def consume(address: str) -> None:
    received = Received()
    options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)

    async def churn() -> None:
        while True:
            await asyncio.sleep(CHURN_S)
            async with orbitmq.connect(address) as mq, mq.consumer(GROUP, TOPIC, options=options) as consumer:
                asyncio.get_running_loop().call_later(CHURN_S, consumer.stop)
                await consumer.run(received.handle)

    async with orbitmq.connect(address) as mq, mq.consumer(GROUP, TOPIC, options=options) as consumer:
        work = asyncio.ensure_future(consumer.run(received.handle))
        coming_and_going = asyncio.ensure_future(churn())
        print(json.dumps({"ready": True}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(received.report(int(line.split()[1]))), flush=True)
        coming_and_going.cancel()
        await asyncio.wait([coming_and_going])
        consumer.stop()
        await work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["produce", "consume"])
    parser.add_argument("address")
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second; 0 sends as fast as it can")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--first", type=int, default=0, help="number of the first message")
    given = parser.parse_args()
    if given.role == "produce":
        asyncio.run(produce(given.address, given.rate, given.seconds, given.size, given.first))
    else:
        asyncio.run(consume(given.address))


if __name__ == "__main__":
    main()
