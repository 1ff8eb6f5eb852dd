"""Waiting for a broker to have done what it has taken in.

RocketMQ's puts into its queues a moment after its answer what it has acknowledged, works off one-way commits by threads of their own, and
tells its name server of a topic later still: a question that comes soon after may be answered from before.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from orbitmq.errors import RouteNotFoundError

if TYPE_CHECKING:
    import orbitmq

DISPATCH_LIMIT_S = 120


async def until_dispatched(mq: orbitmq.Client, topic: str, count: int) -> None:
    """Wait until the queues of a topic hold `count` messages or more, those counted that have expired."""
    ends = time.monotonic() + DISPATCH_LIMIT_S
    while (held := sum(offset.max_offset for offset in (await mq.admin.topic_stats(topic)).values())) < count:
        assert time.monotonic() < ends, f"{topic} holds {held} of {count} messages after {DISPATCH_LIMIT_S} s"
        await asyncio.sleep(0.01)  # another process works


async def until_routed(mq: orbitmq.Client, topic: str) -> None:
    """Wait until the name server knows a topic. A client of RocketMQ's that subscribes before looks again after half a minute."""
    ends = time.monotonic() + DISPATCH_LIMIT_S
    while True:
        try:
            await mq.admin.topic_route(topic)
        except RouteNotFoundError:
            assert time.monotonic() < ends, f"the name server knows no {topic} after {DISPATCH_LIMIT_S} s"
            await asyncio.sleep(0.01)  # another process works
        else:
            return


async def create_topic(mq: orbitmq.Client, topic: str, *, queues_count: int) -> None:
    """Create a topic that every client finds from now on."""
    await mq.admin.create_topic(topic, queues_count=queues_count)
    await until_routed(mq, topic)


async def until_lag(mq: orbitmq.Client, group: str, topic: str, lag: int) -> None:
    """Wait until the offsets that a group has committed leave `lag` messages of a topic."""
    ends = time.monotonic() + DISPATCH_LIMIT_S
    while (found := await _lag(mq, group, topic)) != lag:
        assert time.monotonic() < ends, f"{group} is {found} behind after {DISPATCH_LIMIT_S} s, not {lag}"
        await asyncio.sleep(0.01)  # another process works


async def _lag(mq: orbitmq.Client, group: str, topic: str) -> int:
    queues = (await mq.admin.group_progress(group, topic)).values()
    return sum(queue.broker_offset - queue.consumer_offset for queue in queues)
