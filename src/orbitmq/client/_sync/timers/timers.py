"""Timer messages that wait: recalling, rescheduling, listing and counting them.

Rules of this file
1. A broker that can know is asked; several that can know are asked at the same time, and their answers are one.
2. A change that may concern several timer messages and was not allowed to (`all`) changes none, on however many brokers they are.
3. What a broker lacks is said with its name. The one thing that RocketMQ's broker can do as well, a recall by handle, is done.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/timers/timers.py: change that file and run `make generate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from orbitmq.client._async.timers import timers as source
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.client.timers import HasTimer, TimerCounts, TimerMessage, TimerOutcome, TimerView
from orbitmq.protocol.remoting import timer_bodies as wire


class Timers:
    """What waits for its due time on the brokers. See `Client.timers`."""

    def __init__(self, twin: source.Timers, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.Timers = twin

    def recall(
        self,
        timer: HasTimer | str | None = None,
        *,
        topic: str | None = None,
        message_id: str | None = None,
        key: str | None = None,
        all: bool = False,
    ) -> TimerOutcome:
        """Cancel a timer message that has not been delivered yet.

        timer: the receipt of its send, a `TimerView`, or a recall handle. Without it: topic and message_id, or topic and key. A key that
        several have recalls none of them without `all`. The verdict is the truth when the call returns, and a recall is then as durable
        as the broker's flush mode asks. Calling again after a lost connection is harmless.

        RocketMQ's broker takes recalls by handle only, from 5.3.2 on with `recallMessageEnable=true`, and does not tell whether they
        take effect: `TimerVerdict.ASKED`.
        """
        return self._loop.run(self._twin.recall(timer, topic=topic, message_id=message_id, key=key, all=all))

    def reschedule(
        self,
        timer: HasTimer | str | None = None,
        *,
        topic: str | None = None,
        message_id: str | None = None,
        key: str | None = None,
        all: bool = False,
        at: datetime | int | None = None,
        after: timedelta | float | None = None,
    ) -> TimerOutcome:
        """Give a timer message that has not been delivered yet another due time, earlier or later.

        The message is named as in `recall`. at: a datetime with time zone, or ms since 1970; one that has passed delivers at once.
        after: from now on by the broker's clock, a timedelta or seconds. A crash leaves the old time or the new one, and one message.
        """
        return self._loop.run(
            self._twin.reschedule(timer, topic=topic, message_id=message_id, key=key, all=all, at=at, after=after)
        )

    def status(
        self,
        timer: HasTimer | str | None = None,
        *,
        topic: str | None = None,
        message_id: str | None = None,
        key: str | None = None,
    ) -> TimerOutcome:
        """What has become of a timer message, named as in `recall`; of all that have a key."""
        return self._loop.run(self._twin.status(timer, topic=topic, message_id=message_id, key=key))

    def get(
        self,
        timer: HasTimer | str | None = None,
        *,
        topic: str | None = None,
        message_id: str | None = None,
        key: str | None = None,
    ) -> TimerMessage | None:
        """A pending timer message in full, named as in `recall`; None when none is pending. `ClientError` when a key names several."""
        return self._loop.run(self._twin.get(timer, topic=topic, message_id=message_id, key=key))

    def list(
        self,
        *,
        topic: str | None = None,
        due_from: datetime | int | None = None,
        due_until: datetime | int | None = None,
        key: str | None = None,
        key_prefix: str | None = None,
        page_count: int = 100,
        on_left_out: Callable[[str, int], None] | None = None,
    ) -> Iterator[TimerView]:
        """What is pending on all brokers, earliest due first, fetched page by page as it is asked for.

        due_from is included, due_until is not. key, key_prefix: with a topic; one of the two. page_count: how many a broker is asked
        for at a time. What is sent, recalled or delivered meanwhile may or may not be among them.
        on_left_out: called with the name of a broker and a number when up to so many messages wait there within these times that
        cannot be listed, because files of its far tier are damaged; without it a warning is logged.
        """
        return self._loop.iterate(
            self._twin.list(
                topic=topic,
                due_from=due_from,
                due_until=due_until,
                key=key,
                key_prefix=key_prefix,
                page_count=page_count,
                on_left_out=on_left_out,
            )
        )

    def counts(
        self,
        *,
        topic: str | None = None,
        due_from: datetime | int | None = None,
        due_until: datetime | int | None = None,
        bucket: timedelta | float | None = None,
    ) -> TimerCounts:
        """How many are pending on all brokers together; with `bucket`, the width of a span of due times, also how many in each."""
        return self._loop.run(self._twin.counts(topic=topic, due_from=due_from, due_until=due_until, bucket=bucket))

    def far_tier(self, action: wire.FarTierAction = wire.FarTierAction.STATUS) -> dict[str, wire.FarTierState]:
        """How the far tier of every broker does, by the broker's name; with an action, what it begins to do."""
        return self._loop.run(self._twin.far_tier(action))
