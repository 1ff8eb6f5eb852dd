"""Send the rows of a file once, however often the job is run.

    orbitmq serve --data /tmp/orbitmq &
    python examples/nightly_import.py [name-server]

Every send says who counts (scope), in which run of the work (epoch: the day), and which row it is (key). A job that broke off is simply run
again: orbitmq's broker answers for rows that it has with the receipt of the first send. A job of the day before yesterday that wakes up
late is refused.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import orbitmq

TOPIC = "ImportedRows"
SCOPE = "nightly-import"
ROWS = tuple(f"row {number}" for number in range(20))


async def send_rows(mq: orbitmq.Client, rows: Sequence[str], day: int) -> None:
    for row in rows:
        await mq.send(TOPIC, row.encode(), once=orbitmq.Once(SCOPE, day, key=row))


async def stored_count(mq: orbitmq.Client) -> int:
    bounds = (await mq.admin.topic_stats(TOPIC)).values()
    return sum(each.max_offset - each.min_offset for each in bounds)


async def main(name_server: str) -> None:
    async with orbitmq.connect(name_server) as mq:
        await send_rows(mq, ROWS[:12], day=20261121)
        print(f"broke off with {await stored_count(mq)} rows stored")
        await send_rows(mq, ROWS, day=20261121)
        print(f"run again: {await stored_count(mq)} rows stored")
        await send_rows(mq, ROWS[:1], day=20261122)
        print(f"the next day: {await stored_count(mq)} rows stored")
        try:
            await send_rows(mq, ROWS[:1], day=20261119)
        except orbitmq.StaleEpochError:
            print("an old job is refused")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"))
