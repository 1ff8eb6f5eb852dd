"""Recurring messages: defining them, looking at them, pausing, resuming and deleting.

A recurring message is kept by one broker. Which one is worked out of its name for a new one; afterwards all masters are asked, so that
it is found again when brokers were added. The name servers remember which brokers keep recurring messages (`KEEPERS`, written before the
first is), so that one that is away is missed.

Rules of this file
1. A name stands for one recurring message of the cluster. Before one is created every broker that could have it has answered: one that is
   away is a reason to refuse.
2. Twins, of times when rule 1 could not be kept, are shown. Pausing, resuming and deleting mean all of them; `merge` leaves one.
3. What a broker lacks is said with its name: RocketMQ's has no recurring messages.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/timers/recurring.py: change that file and run `make generate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from orbitmq.client._async.timers import recurring as source
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.client.recurring import RecurringChange, RecurringMessage, RecurringRun
from orbitmq.protocol.remoting import recurring_bodies as wire


class Recurring:
    """Messages that a broker sends again and again, by a cron expression or an interval. See `Client.recurring`."""

    def __init__(self, twin: source.Recurring, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.Recurring = twin

    def put(
        self,
        name: str,
        topic: str,
        body: bytes,
        *,
        cron: str | None = None,
        every: timedelta | float | None = None,
        zone: str = "UTC",
        start: datetime | int | None = None,
        end: datetime | int | None = None,
        count_max: int | None = None,
        jitter: timedelta | float = 0,
        overlap: wire.Overlap | str = wire.Overlap.ALLOW,
        overlap_group: str | None = None,
        catch_up: wire.CatchUp | str = wire.CatchUp.LATEST,
        catch_up_max: int | None = None,
        tag: str | None = None,
        key: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> RecurringChange:
        """Create the recurring message of this name, or replace it. With what it is already, nothing changes: a program may call
        this at every start. A replaced one that is paused stays paused.

        cron: `minute hour day-of-month month day-of-week`, or six fields with the second in front; local time in `zone`. every: an
        interval instead, at least a second, counted from `start` or from now on. start, end: no run is earlier than start or as late as
        end. count_max: the rule ends after so many messages. jitter: each run is put off by a time of its own up to this.
        overlap: with `skip` a run is left out while `overlap_group` has not consumed the message before. catch_up: which runs
        happen late that fell due while the broker was down: `none`, the `latest`, or `all` (the last `catch_up_max` of them).
        Times are a timedelta or seconds; instants a datetime with time zone or ms since 1970.

        When this returns the definition is as durable as the broker's flush mode asks. Every run is stored exactly once. Its message
        has the properties ORBITMQ_RECURRING (the name) and ORBITMQ_PLANNED_MS.
        """
        return self._loop.run(
            self._twin.put(
                name,
                topic,
                body,
                cron=cron,
                every=every,
                zone=zone,
                start=start,
                end=end,
                count_max=count_max,
                jitter=jitter,
                overlap=overlap,
                overlap_group=overlap_group,
                catch_up=catch_up,
                catch_up_max=catch_up_max,
                tag=tag,
                key=key,
                properties=properties,
            )
        )

    def pause(self, name: str) -> RecurringChange:
        """No run happens until `resume`. Pausing a paused one changes nothing. `NotFoundError`."""
        return self._loop.run(self._twin.pause(name))

    def resume(self, name: str) -> RecurringChange:
        """Runs happen again; those of the pause are not made up for. `NotFoundError`."""
        return self._loop.run(self._twin.resume(name))

    def delete(self, name: str) -> RecurringChange:
        """Forget a recurring message. What its runs have sent stays. `NotFoundError`."""
        return self._loop.run(self._twin.delete(name))

    def merge(self, name: str, *, keep: str | None = None) -> RecurringMessage:
        """Leave one recurring message of this name where several brokers keep one: that of broker `keep`, or the one defined last.
        The others are deleted; what their runs have sent stays. Changes nothing where there is one. `NotFoundError`.
        """
        return self._loop.run(self._twin.merge(name, keep=keep))

    def get(self, name: str) -> RecurringMessage | None:
        """The recurring message of this name, in full; None when no broker keeps one."""
        return self._loop.run(self._twin.get(name))

    def next_runs(self, name: str, count: int = 10) -> tuple[RecurringRun, ...]:
        """The next runs, at most `count`; those that a paused one would have if it was resumed now. `NotFoundError`."""
        return self._loop.run(self._twin.next_runs(name, count))

    def list(self, *, topic: str | None = None) -> Iterator[RecurringMessage]:
        """All recurring messages (of one topic), by broker and name, without their bodies; those of `brokers_away` are not among them.
        Held in memory until the last broker has answered, so that twins are known.
        """
        return self._loop.iterate(self._twin.list(topic=topic))

    def brokers_away(self) -> Sequence[str]:
        """Brokers that keep recurring messages and are not registered at the name servers, by name: what they keep is in no list, and
        runs when they are back.
        """
        return self._loop.run(self._twin.brokers_away())
