"""Consuming with our client: rate and CPU of the client process per message, as a push consumer.

usage: client_consume.py [--name-server HOST:PORT] [--topic NAME] [--count 100000] [--body-bytes 1024] [--queues 8]
                         [--style run|iterate|batches|orderly] [--uvloop] [--profile FILE]

It needs a running broker, orbitmq's or RocketMQ's. The topic is filled with `--count` messages first, unless it holds as many
already; then a new group reads them all. One JSON line: rate (messages per second), cpu_us (user and system time of this process for
one message), and the resident memory of the process at its largest, in MB. The first tenth is not counted. Set it beside a client of
another language in the same run; alone a rate says nothing about a shared machine.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import resource
import sys
import time
from typing import Final

import orbitmq
from client_memory import highest_resident_mb

BATCH_BYTES: Final = 512 * 1024
BATCHES_AT_ONCE: Final = 8


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def fill(mq: orbitmq.Client, arguments: argparse.Namespace) -> None:
    """Make the topic hold `count` messages at least."""
    if arguments.topic not in await mq.admin.topics():
        await mq.admin.create_topic(arguments.topic, queues_count=arguments.queues)
    held = sum(each.max_offset - each.min_offset for each in (await mq.admin.topic_stats(arguments.topic)).values())
    body = b"x" * arguments.body_bytes
    size = max(1, BATCH_BYTES // (arguments.body_bytes + 100))
    batch = [orbitmq.Message(body, tag="a")] * size
    while held < arguments.count:
        await asyncio.gather(*(mq.send_batch(arguments.topic, batch) for _ in range(BATCHES_AT_ONCE)))
        held += size * BATCHES_AT_ONCE


class Meter:
    """Counts messages and notes time and CPU when the measured part begins."""

    def __init__(self, consumer: orbitmq.Consumer, count: int) -> None:
        self._consumer = consumer
        self._warm_count = count // 10
        self._count = count
        self.seen_count = 0
        self.begun: tuple[float, float] = (0.0, 0.0)
        self.ended: tuple[float, float] = (0.0, 0.0)

    def saw(self, count: int) -> None:
        before, self.seen_count = self.seen_count, self.seen_count + count
        if before < self._warm_count <= self.seen_count:
            self.begun = (time.perf_counter(), cpu_s())
            self._warm_count = self.seen_count
        if before < self._count <= self.seen_count:
            self.ended = (time.perf_counter(), cpu_s())
            self._consumer.stop()

    def result(self) -> dict[str, float]:
        measured = self.seen_count - self._warm_count
        seconds, cpu = (end - begin for begin, end in zip(self.begun, self.ended, strict=True))
        return {
            "rate": round(measured / seconds),
            "cpu_us": round(cpu / measured * 1e6, 2),
            "rss_mb": round(highest_resident_mb()),
        }


async def measure(arguments: argparse.Namespace) -> dict[str, float]:
    group = f"client-consume-{time.time_ns()}"
    options = orbitmq.ConsumerOptions(
        consume_from=orbitmq.ConsumeFrom.FIRST,
        orderly=arguments.style == "orderly",
        batch_messages_count=32 if arguments.style == "batches" else 1,
    )
    async with orbitmq.connect(arguments.name_server) as mq:
        if not arguments.no_fill:
            await fill(mq, arguments)
        async with mq.consumer(group, arguments.topic, tags=arguments.tags, options=options) as consumer:
            meter = Meter(consumer, arguments.count)

            async def one(message: orbitmq.ReceivedMessage) -> None:
                meter.saw(1)

            async def several(messages: list[orbitmq.ReceivedMessage]) -> None:
                meter.saw(len(messages))

            if arguments.style == "batches":
                await consumer.run_batches(several)
            elif arguments.style == "iterate":
                async for message in consumer:
                    meter.saw(1)
                    await message.ack()
            else:
                await consumer.run(one)
        return meter.result()


def main() -> int:
    parser = argparse.ArgumentParser(description="rate and CPU of consuming with the Python client")
    parser.add_argument("--name-server", default="localhost:9876")
    parser.add_argument("--topic", default="client-consume-benchmark")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--tags", default="*", help="tag expression of the consumer; the messages have the tag a")
    parser.add_argument("--style", choices=["run", "iterate", "batches", "orderly"], default="run")
    parser.add_argument("--no-fill", action="store_true", help="somebody else fills the topic")
    parser.add_argument("--uvloop", action="store_true", help="run on uvloop instead of asyncio's own loop")
    parser.add_argument("--profile", help="write a profile of the process to this file")
    arguments = parser.parse_args()
    if arguments.profile:
        with cProfile.Profile() as profile:
            result = asyncio.run(measure(arguments))
        profile.dump_stats(arguments.profile)
    elif arguments.uvloop:
        import uvloop

        result = uvloop.run(measure(arguments))
    else:
        result = asyncio.run(measure(arguments))
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
