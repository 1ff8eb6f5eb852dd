"""Look at what a topic brought lately, without a consumer group noticing.

    orbitmq serve --data /tmp/orbitmq &
    python examples/replay.py TOPIC [--minutes 60] [--name-server localhost:9876]

Every queue is read from the first message of the time span to where it ended when the program began. Nothing is committed, so the
next run sees the same again and the consumers of the topic go on as they were.
"""

from __future__ import annotations

import argparse
import asyncio
import time

import orbitmq

OPTIONS = orbitmq.LiteConsumerOptions(auto_commit=False)


async def replay(name_server: str, topic: str, minutes: float) -> int:
    """Print the messages; their number."""
    since_ms = int((time.time() - 60 * minutes) * 1000)
    count = 0
    async with orbitmq.connect(name_server) as mq, mq.lite_consumer("replay-example", OPTIONS) as consumer:
        queues = await consumer.fetch_queues(topic)
        await consumer.assign(queues)
        async with mq.pull_consumer("replay-example") as bounds:
            ends = {queue: await bounds.max_offset(queue) for queue in queues}
        for queue in queues:
            await consumer.seek_to_time(queue, since_ms)
        while any(consumer.position(queue) < end for queue, end in ends.items()):
            for message in await consumer.poll(1_000):
                if message.queue_offset < ends[message.queue]:
                    count += 1
                    stored_at = time.strftime("%H:%M:%S", time.localtime(message.store_timestamp / 1000))
                    print(stored_at, message.message_id, message.tag or "-", message.body.decode(errors="replace"))
    return count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="print what a topic brought lately")
    parser.add_argument("topic")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--name-server", default="localhost:9876")
    arguments = parser.parse_args()
    total = asyncio.run(replay(arguments.name_server, arguments.topic, arguments.minutes))
    print(f"{total} messages")
