"""Resident memory of a client process that sends many messages and consumes them again.

usage: client_memory.py [--client async|sync] [--name-server HOST:PORT] [--count 100000] [--body-bytes 1024] [--in-flight 16]

It needs a running broker, orbitmq's or RocketMQ's. The process has one client, one producer and one consumer; `in-flight` is the
number of sends that wait at the same time, in tasks or in threads. One JSON line: resident megabytes after the import, after sending
and after consuming, the highest ever, and user and system time in microseconds for one message that was sent or consumed. The
client keeps no message, so the figures should not depend on `count` once it is a few tens of thousands.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import orbitmq

PAGE_BYTES = resource.getpagesize()


def resident_mb() -> float:
    return round(int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES / 1e6, 1)


def highest_resident_mb() -> float:
    """Of this program. Not `ru_maxrss`: that begins with the memory of the process that started this one."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return round(int(line.split()[1]) * 1024 / 1e6, 1)
    raise OSError("/proc/self/status has no VmHWM")


def cpu_us() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1e6


class Figures:
    """Memory and processor time at the ends of the parts of a run."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._cpu_us = cpu_us()
        self.lines: dict[str, float] = {"imported_mb": resident_mb()}

    def part(self, name: str) -> None:
        now = cpu_us()
        self.lines[f"{name}_mb"] = resident_mb()
        self.lines[f"{name}_cpu_us"] = round((now - self._cpu_us) / self._count, 1)
        self._cpu_us = now


def consumer_options() -> orbitmq.ConsumerOptions:
    return orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)


async def with_tasks(arguments: argparse.Namespace, topic: str, figures: Figures) -> None:
    body, numbers = b"x" * arguments.body_bytes, iter(range(arguments.count))

    async def keep_sending(mq: orbitmq.Client) -> None:
        for _ in numbers:
            await mq.send(topic, body)

    async with orbitmq.connect(arguments.name_server) as mq:
        await asyncio.gather(*(keep_sending(mq) for _ in range(arguments.in_flight)))
        figures.part("sent")
        async with mq.consumer(topic, topic, options=consumer_options()) as consumer:
            left = arguments.count
            async for message in consumer:
                await message.ack()
                left -= 1
                if not left:
                    break
            figures.part("consumed")


def with_threads(arguments: argparse.Namespace, topic: str, figures: Figures) -> None:
    import orbitmq.sync

    body, numbers = b"x" * arguments.body_bytes, itertools.count()

    def keep_sending(mq: orbitmq.sync.Client) -> None:
        while next(numbers) < arguments.count:
            mq.send(topic, body)

    with orbitmq.sync.connect(arguments.name_server) as mq:
        together([lambda: keep_sending(mq)] * arguments.in_flight)
        figures.part("sent")
        with mq.consumer(topic, topic, options=consumer_options()) as consumer:
            for number, message in enumerate(consumer, 1):
                message.ack()
                if number == arguments.count:
                    break
            figures.part("consumed")


def together(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", choices=["async", "sync"], default="async")
    parser.add_argument("--name-server", default="localhost:9876")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--in-flight", type=int, default=16)
    arguments = parser.parse_args()
    topic = f"client-memory-{arguments.client}-{time.time_ns()}"
    figures = Figures(arguments.count)
    if arguments.client == "async":
        asyncio.run(with_tasks(arguments, topic, figures))
    else:
        with_threads(arguments, topic, figures)
    highest_mb = highest_resident_mb()
    print(json.dumps({"client": arguments.client, **figures.lines, "highest_mb": highest_mb}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
