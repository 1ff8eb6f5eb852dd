"""What becomes of a message that failed.

In a group that shares its messages it is sent back; in order, its queue waits and begins again with it; in a broadcasting group it is
counted and left behind.

Rules of this file
1. A message leaves its queue only when a broker has it or nobody is ever to have it again.
2. When no broker takes it back it is delivered here again after `CONSUMER_LOCAL_RETRY_MS`, or later if it is to wait longer, counted as
   an attempt. Its queue commits nothing past it meanwhile, and flow control bounds what piles up behind it.
3. In order, an attempt that fails is followed by `suspend_ms` of silence of its queue, or the time that was asked for, however
   often; with a maximum of attempts the message then goes to the retry topic, from where a broker makes it a dead letter.
"""

from __future__ import annotations

from typing import Final, Protocol

from orbitmq.client._async.consuming.delivery import ReceivedMessage
from orbitmq.client._async.consuming.feed import AnyFeed, OrderedFeed
from orbitmq.client._async.consuming.owned_queue import OwnedQueue
from orbitmq.client._async.consuming.send_back import DEAD_LETTER_LEVEL, send_back, send_copy, send_later
from orbitmq.client._async.parts import Member
from orbitmq.client._async.runtime import Seldom, log, sleep_ms
from orbitmq.limits.client import CONSUMER_LOCAL_RETRY_MS

STUCK_LEVEL: Final = 3
"""Delay level of a message that was not settled in time."""


class FailureRule(Protocol):
    """The rule of one consumer."""

    sends_back: bool
    """Whether what is in hand when the consumer fails is sent back; else it is released."""

    async def failed(
        self, owned: OwnedQueue, message: ReceivedMessage, delay_level: int, after_ms: int | None = None
    ) -> bool:
        """Held by `owned`. True when it will come again, `after_ms` later if given, or is a dead letter."""
        ...

    async def stuck(self, message: ReceivedMessage, timeout_ms: int) -> None:
        """Not settled in time."""
        ...


class SendBack:
    """For groups that share their messages."""

    sends_back = True

    def __init__(self, consumer: Member, feed: AnyFeed) -> None:
        self._consumer = consumer
        self._feed = feed
        self._troubles = Seldom()

    async def failed(
        self, owned: OwnedQueue, message: ReceivedMessage, delay_level: int, after_ms: int | None = None
    ) -> bool:
        consumer = self._consumer
        maximum = consumer.options.max_retries_count
        if after_ms is None:
            taken = await send_back(consumer.client, consumer.group, message, delay_level, maximum, self._troubles)
        else:
            taken = await send_later(consumer.client, consumer.group, message, after_ms, maximum, self._troubles)
        if taken:
            return owned.fail(message)
        again = message.again()
        if owned.messages.replace(message, again):
            pause_ms = max(CONSUMER_LOCAL_RETRY_MS, after_ms or 0)
            consumer.tasks.spawn(self._deliver_later(owned, again, pause_ms), f"retry {message.message_id} here")
        return True

    async def stuck(self, message: ReceivedMessage, timeout_ms: int) -> None:
        log.warning("%r was not settled within %d ms; it is sent back", message, timeout_ms)
        await message.retry(STUCK_LEVEL)

    async def _deliver_later(self, owned: OwnedQueue, message: ReceivedMessage, pause_ms: int) -> None:
        await sleep_ms(pause_ms)
        if owned.messages.holds(message):
            self._feed.add(owned, [message])


class BeginAgain:
    """For consumers in order."""

    sends_back = False

    def __init__(self, consumer: Member, feed: OrderedFeed) -> None:
        self._consumer = consumer
        self._feed = feed
        self._troubles = Seldom()

    async def failed(
        self, owned: OwnedQueue, message: ReceivedMessage, delay_level: int, after_ms: int | None = None
    ) -> bool:
        consumer = self._consumer
        options = consumer.options
        maximum = options.max_retries_count
        if delay_level == DEAD_LETTER_LEVEL:
            if await send_back(consumer.client, consumer.group, message, delay_level, maximum, self._troubles):
                return owned.fail(message)
        elif not options.broadcasting and maximum is not None and message.reconsume_times >= maximum:
            log.warning("%r failed %d times; group %s gives it up", message, maximum + 1, consumer.group)
            if await send_copy(consumer.client, consumer.group, message, delay_level, maximum, self._troubles):
                return owned.fail(message)
        if owned.messages.replace(message, message.again()):
            owned.statistics.failed(0)
            if not owned.suspended:
                pause_ms = options.suspend_ms if after_ms is None else after_ms
                consumer.tasks.spawn(self._resume_later(owned, pause_ms), f"suspend {owned.name}")
            self._feed.suspend(owned)
            return True
        return False

    async def stuck(self, message: ReceivedMessage, timeout_ms: int) -> None:
        log.warning("%r has not been settled for %d ms; its queue waits for it", message, timeout_ms)

    async def _resume_later(self, owned: OwnedQueue, pause_ms: int) -> None:
        await sleep_ms(pause_ms)
        if not owned.messages.dropped:
            self._feed.resume(owned)


class LeaveBehind:
    """For broadcasting groups: nobody else is to try, so a failed message is lost to this member."""

    sends_back = False

    def __init__(self, consumer: Member) -> None:
        self._consumer = consumer
        self._left_behind = Seldom()

    async def failed(
        self, owned: OwnedQueue, message: ReceivedMessage, delay_level: int, after_ms: int | None = None
    ) -> bool:
        unlogged = self._left_behind.due()
        if unlogged is not None:
            log.warning(
                "%r failed in broadcasting group %s; it does not come again%s",
                message,
                self._consumer.group,
                f", nor do {unlogged} before it that were not logged" if unlogged else "",
            )
        owned.fail(message)
        return False

    async def stuck(self, message: ReceivedMessage, timeout_ms: int) -> None:
        log.warning("%r was not settled within %d ms; it is left behind", message, timeout_ms)
        await message.retry()
