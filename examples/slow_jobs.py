"""Share slow jobs among workers: one slow job holds up no other, however many workers there are.

    orbitmq serve --data /tmp/orbitmq &
    python examples/slow_jobs.py [name-server]

Three workers pop from one queue. With pulled queues one of them would have the queue, and the others nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter

import orbitmq

TOPIC = "Renderings"
GROUP = "renderers"
JOBS = 30
OPTIONS = orbitmq.PopOptions(consume_from=orbitmq.ConsumeFrom.FIRST, pop_messages_count=4, held_messages_max=4)


async def main(name_server: str) -> None:
    done: Counter[str] = Counter()
    workers: list[orbitmq.PopConsumer] = []

    async def work(name: str) -> None:
        # Every member of a group is a client of its own.
        async with orbitmq.connect(name_server) as mq, mq.pop_consumer(GROUP, TOPIC, options=OPTIONS) as worker:
            workers.append(worker)

            async def render(message: orbitmq.ReceivedMessage) -> None:
                number = int(message.body)
                await asyncio.sleep(0.4 if number % 10 == 0 else 0.02)
                if number == 7 and message.reconsume_times == 0:
                    await message.retry(after=1)  # another worker may have it then
                    return
                done[name] += 1
                if done.total() == JOBS:
                    for each in workers:
                        each.stop()

            await worker.run(render, concurrency=2)

    async with orbitmq.connect(name_server) as mq:
        await mq.admin.create_topic(TOPIC, queues_count=1)
        for number in range(JOBS):
            await mq.send(TOPIC, b"%d" % number)
    await asyncio.gather(*(work(f"worker-{number}") for number in (1, 2, 3)))
    print(f"{done.total()} jobs done by {len(done)} workers, out of one queue")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"))
