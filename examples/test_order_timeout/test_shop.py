"""The time-outs of the shop, tested without waiting: half an hour takes a few milliseconds.

pytest examples/test_order_timeout
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from shop import ORDERS, REMINDERS, TIME_OUT, WORKERS, Shop

from orbitmq.testing import EmbeddedBroker, SyncEmbeddedBroker

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


@asynccontextmanager
async def open_shop(broker: EmbeddedBroker) -> AsyncIterator[Shop]:
    async with broker.connect() as mq:
        shop = Shop(mq)
        working = asyncio.create_task(shop.run())
        try:
            yield shop
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


async def place_two(shop: Shop) -> None:
    await shop.place("41")
    await shop.place("42")


async def test_an_unpaid_order_is_cancelled_after_half_an_hour(orbitmq_async_broker: EmbeddedBroker) -> None:
    broker = orbitmq_async_broker
    async with open_shop(broker) as shop:
        await place_two(shop)
        await broker.advance(29 * MINUTE, groups=[WORKERS])
        shop.pay("41")
        await broker.advance(59 * SECOND, groups=[WORKERS])
        assert shop.orders == {"41": "paid", "42": "open"}
        await broker.advance(1 * SECOND, groups=[WORKERS])
        assert shop.orders == {"41": "paid", "42": "cancelled"}


async def test_customers_are_reminded_after_twenty_minutes(orbitmq_async_broker: EmbeddedBroker) -> None:
    broker = orbitmq_async_broker
    async with open_shop(broker) as shop:
        placed = broker.now
        await place_two(shop)
        shop.pay("41")
        await broker.run_until(lambda: bool(shop.reminded), groups=[WORKERS])
        assert shop.reminded == ["42"]
        assert broker.now - placed == 20 * MINUTE


async def test_a_reminder_is_tried_again_while_the_mail_server_is_down(orbitmq_async_broker: EmbeddedBroker) -> None:
    broker = orbitmq_async_broker
    async with open_shop(broker) as shop:
        shop.mail_server_is_up = False
        await shop.place("42")
        await broker.advance(20 * MINUTE, groups=[WORKERS])
        shop.mail_server_is_up = True
        await broker.advance(10 * SECOND, groups=[WORKERS])
        assert shop.reminded == ["42"]


async def test_a_reminder_that_never_leaves_is_a_dead_letter(orbitmq_async_broker: EmbeddedBroker) -> None:
    broker = orbitmq_async_broker
    async with open_shop(broker) as shop:
        shop.mail_server_is_up = False
        await shop.place("42")
        await broker.advance(60 * MINUTE, groups=[WORKERS])
        [dead] = await broker.dead_letters(WORKERS)
        assert (dead.body, dead.topic) == (b"42", REMINDERS)
        assert shop.orders == {"42": "cancelled"}, "the other time-out is not held up"


async def test_no_time_out_is_lost_when_the_broker_is_killed(orbitmq_async_broker: EmbeddedBroker) -> None:
    broker = orbitmq_async_broker
    async with broker.connect() as mq:
        await Shop(mq).place("42")
        await broker.crash(down=timedelta(hours=1))
        assert [message.body for message in await broker.messages(ORDERS)] == [b"42"]


def test_the_same_in_a_plain_test(orbitmq_broker: SyncEmbeddedBroker) -> None:
    with orbitmq_broker.connect() as mq:
        mq.send(ORDERS, b"42", key="42", after=TIME_OUT)
    [pending] = orbitmq_broker.pending(ORDERS)
    assert pending.due - orbitmq_broker.now == 30 * MINUTE
    orbitmq_broker.advance_to(pending.due)
    [message] = orbitmq_broker.messages(ORDERS)
    assert message.keys == ("42",)
