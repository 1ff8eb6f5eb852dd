"""Tell every process to forget what it has cached.

    orbitmq serve --data /tmp/orbitmq &
    python examples/cache_invalidation.py [name-server]

A broadcasting consumer gets every message, however many members its group has. Two clients stand for two processes here; each has a name,
because their offsets are kept on this machine.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import orbitmq

TOPIC = "PriceChanged"
GROUP = "price-caches"


async def forget_changed(name_server: str, process: str, offsets: Path, ready: asyncio.Barrier) -> None:
    cache = {"tea": 3, "coffee": 4}
    own_name = orbitmq.ClientOptions(instance_name=process)
    everything = orbitmq.ConsumerOptions(broadcasting=True, offsets_folder=str(offsets))
    async with (
        orbitmq.connect(name_server, options=own_name) as mq,
        mq.consumer(GROUP, TOPIC, options=everything) as consumer,
    ):
        await ready.wait()
        async for message in consumer:
            cache.pop(message.body.decode(), None)
            await message.ack()
            print(f"{process} has {', '.join(cache)} left")
            break  # a service goes on


async def main(name_server: str) -> None:
    ready = asyncio.Barrier(3)
    with tempfile.TemporaryDirectory() as folder:  # a service leaves offsets_folder out: ~/.rocketmq_offsets
        async with orbitmq.connect(name_server) as mq, asyncio.TaskGroup() as processes:
            await mq.admin.create_topic(TOPIC, queues_count=1)
            for process in ("web-1", "web-2"):
                processes.create_task(forget_changed(name_server, process, Path(folder), ready))
            await ready.wait()
            await mq.send(TOPIC, b"tea")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"))
