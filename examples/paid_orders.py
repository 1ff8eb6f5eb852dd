"""Announce an order exactly when it is booked, whatever happens in between.

    orbitmq serve --data /tmp/orbitmq &
    python examples/paid_orders.py [name-server]

A transaction stores the message before the booking, and consumers see it when the booking is done. A program that dies after its booking
has told nobody; the broker asks another member of its group, which looks into the bookings. With the broker's defaults it asks after six
seconds.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys

import orbitmq

TOPIC = "OrdersPaid"
GROUP = "order-desk"


class Bookings:
    """The program's own database."""

    def __init__(self) -> None:
        self._rows = sqlite3.connect(":memory:")
        self._rows.execute("create table bookings (order_name text, message_id text)")

    def add(self, order: str, message_id: str) -> None:
        if order == "coffee":
            raise ValueError("sold out")
        with self._rows:
            self._rows.execute("insert into bookings values (?, ?)", (order, message_id))

    def has(self, message_id: str) -> bool:
        found = self._rows.execute("select 1 from bookings where message_id = ?", (message_id,))
        return found.fetchone() is not None


async def book(producer: orbitmq.Producer, bookings: Bookings, order: str) -> None:
    try:
        async with producer.transaction(TOPIC, order.encode()) as tx:
            bookings.add(order, tx.message_id)
    except ValueError:
        print(f"{order}: not booked, not announced")
    else:
        print(f"{order}: booked and announced")


async def book_and_die(name_server: str, bookings: Bookings, order: str) -> None:
    """What a program does that is killed between its booking and the end of the block."""
    async with orbitmq.connect(name_server) as mq, mq.producer(GROUP) as producer:
        tx = await producer.transaction(TOPIC, order.encode()).__aenter__()
        bookings.add(order, tx.message_id)
    print(f"{order}: booked, and the program died")


async def main(name_server: str) -> None:
    bookings = Bookings()

    async def was_booked(message: orbitmq.StoredMessage) -> bool:
        print(f"asked about {message.body.decode()}")
        return bookings.has(message.message_id)

    options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
    async with orbitmq.connect(name_server) as mq, mq.producer(GROUP) as producer:
        producer.check_transactions(was_booked)
        await book(producer, bookings, "tea")
        await book(producer, bookings, "coffee")
        await book_and_die(name_server, bookings, "gold")
        announced: set[str] = set()
        async with mq.consumer("warehouse", TOPIC, options=options) as consumer:
            async for message in consumer:
                announced.add(message.body.decode())
                await message.ack()
                if len(announced) == 2:
                    break
        print("announced:", ", ".join(sorted(announced)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"))
