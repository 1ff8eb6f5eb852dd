"""Producers and consumers that keep an account of what they do.

Rules of this file
1. Sends that fail are entered by what the error says and not repeated: the client's own retries are what is judged.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from itertools import count
from typing import Final

from account import Account, Fate, Place
from bodies import body_of, number_of

import orbitmq

AGAIN_AFTER: Final = 20
CALL_PAUSE_S: Final = 0.1


class Producing:
    """Sends numbered messages until told to stop; `pause_s` after each. Several tasks share one account and its numbers."""

    def __init__(self, account: Account, topic: str, *, size: int = 200, pause_s: float = 0.0) -> None:
        self.account = account
        self.topic = topic
        self.brokers_used: set[str] = set()
        self.errors: list[orbitmq.ClientError] = []
        self._size = size
        self._pause_s = pause_s
        self._numbers = count()
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self, producer: orbitmq.Producer) -> None:
        while not self._stopping:
            number = next(self._numbers)
            try:
                receipt = await producer.send(self.topic, body_of(number, self._size), key=str(number))
            except orbitmq.SendFailedError as error:
                self.errors.append(error)
                self.account.sent(number, Fate.PERHAPS if error.maybe_stored else Fate.REFUSED)
            except (orbitmq.ConnectionLostError, orbitmq.RequestTimeoutError, orbitmq.RouteNotFoundError) as error:
                self.errors.append(error)  # the route could not be learned, so no broker was asked
                self.account.sent(number, Fate.REFUSED)
            except orbitmq.RemoteError as error:
                self.errors.append(error)
                self.account.sent(number, Fate.PERHAPS)
            else:
                self.account.sent(number, Fate.STORED)
                self.brokers_used.add(receipt.queue.broker_name)
            if self._pause_s:
                await asyncio.sleep(self._pause_s)


async def call_again(producer: orbitmq.Producer, topic: str, account: Account, stop: asyncio.Event) -> None:
    """A caller of a service, whose messages have keys: each is sent until a receipt comes, and one that was sent a while ago again."""
    places: dict[int, object] = {}
    for number in count():
        if stop.is_set():
            return
        for each in (number, max(number - AGAIN_AFTER, 0)):
            place = await _stored(producer, topic, each)
            assert places.setdefault(each, place) == place, f"message {each} has two receipts"
        account.sent(number, Fate.STORED)
        await asyncio.sleep(CALL_PAUSE_S)


async def _stored(producer: orbitmq.Producer, topic: str, number: int) -> object:
    while True:
        with contextlib.suppress(orbitmq.ClientError):
            receipt = await producer.send(topic, body_of(number, 100), once=f"order-{number}")
            return receipt.queue, receipt.queue_offset
        await asyncio.sleep(CALL_PAUSE_S)


async def consume(consumer: orbitmq.Consumer, account: Account) -> None:
    """Enter what arrives and acknowledge it, until the consumer stops."""
    async for message in consumer:
        enter(account, message)
        await message.ack()


def enter(account: Account, message: orbitmq.StoredMessage) -> None:
    number = number_of(message.body)
    if number is None:
        account.strangers.append(message.body[:40])
    else:
        place = Place(message.queue.broker_name, message.queue.queue_id, message.queue_offset)
        account.delivered(number, place)


async def count_copies(account: Account, mq: orbitmq.Client, topic: str) -> dict[int, list[str]]:
    """Read every queue of the topic to its end and count the copies of each message; the brokers that have them."""
    found: dict[int, list[str]] = {}
    for queue, bounds in (await mq.admin.topic_stats(topic)).items():
        offset = bounds.min_offset
        while offset < bounds.max_offset:
            page = await mq.admin.peek(queue, offset, count=32)
            assert page.next_offset > offset, f"{queue} has nothing at {offset}, though it ends at {bounds.max_offset}"
            for message in page.messages:
                number = number_of(message.body)
                if number is None:
                    account.strangers.append(message.body[:40])
                else:
                    account.copies[number] += 1
                    found.setdefault(number, []).append(queue.broker_name)
            offset = page.next_offset
    return found


async def until(condition: Callable[[], object], what: Callable[[], str], limit_s: float = 120) -> None:
    """Wait for something that other tasks bring about."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + limit_s
    while not condition():
        if loop.time() > ends:
            raise AssertionError(f"not within {limit_s} s: {what()}")
        await asyncio.sleep(0.05)
