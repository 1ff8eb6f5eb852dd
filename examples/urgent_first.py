"""Answer urgent tickets first: a priority is a queue, and consumers that pop read the highest one first.

    orbitmq serve --data /tmp/orbitmq &
    python examples/urgent_first.py [name-server]

Six tickets wait when the only agent begins, and one that is more urgent than what is left comes meanwhile.
"""

from __future__ import annotations

import asyncio
import sys

import orbitmq

TOPIC = "Tickets"
GROUP = "agents"
LOW, NORMAL, URGENT = range(3)
TICKETS = (
    ("a typo", LOW), ("no invoice", NORMAL), ("site is down", URGENT), ("a new logo", LOW), ("slow search", NORMAL),
    ("data is lost", URGENT),
)  # fmt: skip
# What an agent holds is his already: one ticket at a time, so that each is the most urgent of its moment.
OPTIONS = orbitmq.PopOptions(consume_from=orbitmq.ConsumeFrom.FIRST, pop_messages_count=1, held_messages_max=1)


async def main(name_server: str) -> None:
    answered: list[str] = []
    async with orbitmq.connect(name_server) as mq:
        await mq.admin.create_topic(TOPIC, queues_count=3, attributes={"message.type": "PRIORITY"})
        for text, priority in TICKETS:
            await mq.send(TOPIC, text.encode(), priority=priority)
        async with mq.pop_consumer(GROUP, TOPIC, options=OPTIONS) as agent:

            async def answer(ticket: orbitmq.ReceivedMessage) -> None:
                answered.append(ticket.body.decode())
                if ticket.body == b"no invoice":
                    await mq.send(TOPIC, b"payments fail", priority=URGENT)
                if len(answered) > len(TICKETS):
                    agent.stop()

            await agent.run(answer, concurrency=1)
    print(*answered, sep="\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"))
