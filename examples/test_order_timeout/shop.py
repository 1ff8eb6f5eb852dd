"""A shop that cancels orders which are not paid within half an hour. Its tests are in test_shop.py."""

from __future__ import annotations

import logging
from datetime import timedelta

import orbitmq

TIME_OUT = timedelta(minutes=30)
REMINDER = timedelta(minutes=20)
WORKERS = "shop-timeouts"
ORDERS, REMINDERS = "order-timeouts", "order-reminders"

logger = logging.getLogger("shop")


class Shop:
    """Orders by number. The state of an order is "open", "paid" or "cancelled"."""

    def __init__(self, mq: orbitmq.Client) -> None:
        self._mq = mq
        self.orders: dict[str, str] = {}
        self.reminded: list[str] = []
        self.mail_server_is_up = True

    async def place(self, number: str) -> None:
        """Take an order; its customer has half an hour, and is reminded after twenty minutes."""
        self.orders[number] = "open"
        await self._mq.send(REMINDERS, number.encode(), key=number, after=REMINDER)
        await self._mq.send(ORDERS, number.encode(), key=number, after=TIME_OUT)

    def pay(self, number: str) -> None:
        if self.orders[number] != "open":
            raise ValueError(f"order {number} is {self.orders[number]}")
        self.orders[number] = "paid"

    async def run(self) -> None:
        """Work until cancelled."""
        topics = {ORDERS: "*", REMINDERS: "*"}
        options = orbitmq.ConsumerOptions(max_retries_count=2)
        async with self._mq.consumer(WORKERS, topics, options=options) as consumer:
            await consumer.run(self._handle)

    async def _handle(self, message: orbitmq.ReceivedMessage) -> None:
        number = message.body.decode()
        if self.orders[number] != "open":
            return
        if message.topic == REMINDERS:
            if not self.mail_server_is_up:
                raise ConnectionError("the mail server is down")  # comes again after 10 s, then after 30 s
            self.reminded.append(number)
        else:
            self.orders[number] = "cancelled"
            logger.info("order %s was not paid in time", number)
