"""RocketMQ's client and ours in one group, in order: the broker's locks keep them off each other's queues, and nothing is out of
order or lost while queues go back and forth. What happens next waits for messages that came, never for a time."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from rig.brokers import BrokerUnderTest
from rig.dispatched import create_topic
from rig.drivers import java_driver
from rig.toolchain import BROKER_VERSION, OLD_CLIENT_VERSION, java_build

import orbitmq

pytestmark = pytest.mark.java

WAIT_S = 180
QUEUES = 4
SHARE = 20
"""Messages that a member has to get before the other comes or goes."""


class Seen(NamedTuple):
    """One message as a member saw it, by the clock that both share."""

    at_ms: int
    offset: int
    member: str


async def until(condition: Callable[[], object], what: Callable[[], object]) -> None:
    ends = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < ends, f"not within {WAIT_S} s: {what()}"
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("version", [BROKER_VERSION, OLD_CLIENT_VERSION])
async def test_queues_go_back_and_forth_in_order(
    broker: BrokerUnderTest, version: str, tmp_path: Path, available: Callable[[Callable[[], object]], None]
) -> None:
    available(lambda: java_build(version))
    name = f"mixed-order-{time.time_ns() // 1_000_000}"
    ours: list[tuple[int, Seen]] = []
    options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST, orderly=True)
    quick = orbitmq.ClientOptions(offset_persist_ms=500)

    async def handle(message: orbitmq.ReceivedMessage) -> None:
        if message.queue.topic == name:
            ours.append((message.queue.queue_id, Seen(time.time_ns() // 1_000_000, message.queue_offset, "ours")))

    async with orbitmq.connect(broker.name_server, options=quick) as mq:
        await create_topic(mq, name, queues_count=QUEUES)
        await mq.admin.create_group(name)
        with java_driver(version, broker.name_server, tmp_path) as java:

            def theirs() -> list[tuple[int, Seen]]:
                return [
                    (event["queueId"], Seen(event["receivedAt"], event["queueOffset"], "theirs"))
                    for event in java.events("received", group=name)
                ]

            async def more_of(member: Callable[[], list[tuple[int, Seen]]]) -> None:
                wanted = len(member()) + SHARE
                await until(lambda: len(member()) >= wanted, lambda: (wanted, len(ours), len(theirs())))

            async def produce() -> None:
                while not is_over.is_set():
                    await mq.send(name, b"any")
                    await asyncio.sleep(0.03)

            is_over = asyncio.Event()
            await asyncio.to_thread(java.command, "consume", group=name, topic=name, orderly=1)
            producing = asyncio.create_task(produce())
            try:
                for _ in range(2):  # we join, share, and leave, while messages come
                    await more_of(theirs)
                    async with mq.consumer(name, name, options=options) as consumer:
                        working = asyncio.create_task(consumer.run(handle))
                        await until(
                            lambda: sum(queue.topic == name for queue in consumer.queues) == QUEUES // 2,
                            lambda: consumer.queues,
                        )
                        await more_of(lambda: ours)
                        await more_of(theirs)
                        consumer.stop()
                        await working
                await more_of(theirs)
            finally:
                is_over.set()
                await producing
            ends = {queue.queue_id: stats.max_offset for queue, stats in (await mq.admin.topic_stats(name)).items()}
            wanted = {(queue_id, offset) for queue_id, end in ends.items() for offset in range(end)}
            await until(
                lambda: wanted <= {(queue_id, seen.offset) for queue_id, seen in (*ours, *theirs())},
                lambda: (len(wanted), len(ours), len(theirs())),
            )
            everything = [*ours, *theirs()]

    by_queue: defaultdict[int, list[Seen]] = defaultdict(list)
    for queue_id, seen in everything:
        by_queue[queue_id].append(seen)
    for queue_id, seen in by_queue.items():
        seen.sort()
        assert not out_of_order(seen), (queue_id, seen)


def out_of_order(seen: list[Seen]) -> list[tuple[Seen, Seen]]:
    """Neighbours that must not be. Nothing is passed over; what a member had when it lost the queue may come once more, and then all
    that follows it: RocketMQ's client does not count a message that it handles at that moment."""
    return [
        (one, other)
        for one, other in pairwise([Seen(0, -1, ""), *seen])
        if other.offset not in (one.offset, one.offset + 1)
        and not (other.offset < one.offset and other.member != one.member)
    ]
