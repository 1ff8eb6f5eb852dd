"""How many timers are pending: in all, per topic, per bucket of due times, and in the slots that admission asks about.

The counts are made once from the index after a start, which takes a second for some millions of timers, in steps, and then changed with
every timer that comes and goes. What comes meanwhile is added at once; what goes meanwhile is taken away at the end, because the walk may
or may not have met it. A bucket is a minute wide. Where a topic has so many that minutes take too much memory its buckets become hours,
then days.

Rules of this file
1. Counts are exact: what is added under a topic and a due time is taken away under the same.
2. Adding and taking away cost the same whatever is pending: 0.5 us.
3. A bucket never tells of less than its width: a question about a finer width is answered in the width that there is.
4. There are no counts while the index lacks anything, nor before the walk has ended.
5. Counts that contradict themselves are made again, and that is reported.
6. A slot that is asked about for the first time is counted one by one. Where it is not known from which slot something went, all slots
   are forgotten and counted anew.
7. Records that POP keeps among the timers are nobody's messages: answers leave them out.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Final, NamedTuple

from orbitmq.errors import StoreDamagedError
from orbitmq.limits.timers import TIMER_COUNT_BUCKETS_MAX
from orbitmq.protocol.names import REVIVE_TOPIC_PREFIX
from orbitmq.timing.index.parts import Parts
from orbitmq.timing.index.run import Run
from orbitmq.timing.timers.facts import TimerFacts

WIDTHS_MS: Final = (60_000, 3_600_000, 86_400_000, 30 * 86_400_000)
"""From a minute on, each a multiple of the one before."""


class Counted(NamedTuple):
    """An answer. `pending` and `by_topic` count everything, `buckets` the range that was asked for."""

    pending: int
    by_topic: dict[str, int]
    buckets: list[tuple[int, int]]
    """(first instant, how many fall due from it on before the next multiple of `width_ms`), in order, without empty ones."""
    width_ms: int


class _Buckets:
    """The due times of one topic."""

    __slots__ = ("counts", "total", "width_index")

    def __init__(self) -> None:
        self.total = 0
        self.width_index = 0
        self.counts: dict[int, int] = {}
        """Number of the bucket -> how many."""

    def change(self, due_ms: int, by: int) -> int:
        """By how many the number of buckets grew."""
        bucket = due_ms // WIDTHS_MS[self.width_index]
        counts = self.counts
        before = len(counts)
        count = counts.get(bucket, 0) + by
        if count:
            counts[bucket] = count
        else:
            counts.pop(bucket, None)
        self.total += by
        return len(counts) - before

    def widen(self) -> None:
        factor = WIDTHS_MS[self.width_index + 1] // WIDTHS_MS[self.width_index]
        wide: dict[int, int] = {}
        for bucket, count in self.counts.items():
            wide[bucket // factor] = wide.get(bucket // factor, 0) + count
        self.counts = wide
        self.width_index += 1


class PendingCounts:
    """How many timers of one store are pending, by topic and due time."""

    __slots__ = ("_bucket_count", "_buckets_max", "_topics")

    def __init__(self, buckets_max: int = TIMER_COUNT_BUCKETS_MAX) -> None:
        self._topics: dict[str, _Buckets] = {}
        self._bucket_count = 0
        self._buckets_max = buckets_max

    def add(self, topic: str, deliver_ms: int) -> None:
        buckets = self._topics.get(topic)
        if buckets is None:
            buckets = self._topics[topic] = _Buckets()
        self._bucket_count += buckets.change(deliver_ms, 1)
        if self._bucket_count > self._buckets_max:
            self._widen()

    def add_all(self, topic: str, dues: Sequence[int]) -> None:
        """As `add` for each, at a fifth of the cost."""
        if not dues:
            return
        buckets = self._topics.get(topic)
        if buckets is None:
            buckets = self._topics[topic] = _Buckets()
        width = WIDTHS_MS[buckets.width_index]
        before = len(buckets.counts)
        for bucket, count in Counter([due // width for due in dues]).items():
            buckets.counts[bucket] = buckets.counts.get(bucket, 0) + count
        buckets.total += len(dues)
        self._bucket_count += len(buckets.counts) - before
        if self._bucket_count > self._buckets_max:
            self._widen()

    def take_away(self, topic: str, deliver_ms: int, count: int = 1) -> bool:
        """Uncount timers that were added before; False, and nothing changed, when there are not so many such timers."""
        buckets = self._topics.get(topic)
        if buckets is None or buckets.counts.get(deliver_ms // WIDTHS_MS[buckets.width_index], 0) < count:
            return False
        self._bucket_count += buckets.change(deliver_ms, -count)
        if not buckets.total:
            del self._topics[topic]
        return True

    def _widen(self) -> None:
        """Make the buckets of the topic with the most of them wider, where that is still possible."""
        candidates = [one for one in self._topics.values() if one.width_index + 1 < len(WIDTHS_MS)]
        if candidates:
            largest = max(candidates, key=lambda one: len(one.counts))
            before = len(largest.counts)
            largest.widen()
            self._bucket_count += len(largest.counts) - before

    @property
    def pending(self) -> int:
        return sum(buckets.total for buckets in self._topics.values())

    def of_topic(self, topic: str) -> int:
        buckets = self._topics.get(topic)
        return buckets.total if buckets is not None else 0

    def by_topic(self) -> dict[str, int]:
        return {topic: buckets.total for topic, buckets in sorted(self._topics.items())}

    def count(
        self, topic: str | None = None, from_ms: int | None = None, until_ms: int | None = None, bucket_ms: int = 0
    ) -> Counted:
        """Pending timers of one topic, or of all, with buckets of `bucket_ms` (0: none).

        The width is rounded up to a multiple of the widest bucket in use, and the range widened to whole buckets.
        Cost: 0.1 us a bucket in memory.
        """
        names = self._topics if topic is None else [topic] if topic in self._topics else []
        chosen = {name: self._topics[name] for name in names if not name.startswith(REVIVE_TOPIC_PREFIX)}
        totals = {name: buckets.total for name, buckets in sorted(chosen.items())}
        if not bucket_ms:
            return Counted(sum(totals.values()), totals, [], 0)
        step = WIDTHS_MS[max((buckets.width_index for buckets in chosen.values()), default=0)]
        width = -(-bucket_ms // step) * step
        found: dict[int, int] = {}
        for buckets in chosen.values():
            own = WIDTHS_MS[buckets.width_index]
            for number, count in buckets.counts.items():
                bucket = number * own // width
                found[bucket] = found.get(bucket, 0) + count
        low = from_ms // width if from_ms is not None else None
        high = -(-until_ms // width) if until_ms is not None else None
        in_range = [
            (bucket * width, count)
            for bucket, count in sorted(found.items())
            if (low is None or bucket >= low) and (high is None or bucket < high)
        ]
        return Counted(sum(totals.values()), totals, in_range, width)


logger = logging.getLogger("orbitmq.timing")


class Counting:
    """The counts of one index."""

    __slots__ = ("_bound", "_counts", "_is_pending", "_left", "_new", "_parts", "is_done")

    def __init__(self, parts: Parts, is_pending: Callable[[int], bool]) -> None:
        self._parts = parts
        self._is_pending = is_pending
        self._counts: PendingCounts | None = None
        """None: nothing is counted, and the walk has not begun."""
        self._bound = 0
        """Where the walk ends: timers from this queue offset on are added when they come."""
        self._left: dict[int, tuple[str, int]] = {}
        """Queue offset -> (topic, due time) of those that went during the walk."""
        self._new: dict[str, list[int]] = {}
        """Topic -> due times of new timers that are not added yet: together they cost less."""
        self.is_done = False

    @property
    def counts(self) -> PendingCounts | None:
        """None while they are being made."""
        if not self.is_done or self._counts is None:
            return None
        self._add_new(self._counts)
        return self._counts

    @property
    def is_idle(self) -> bool:
        """Whether it is of no interest what comes and goes."""
        return self._counts is None

    def saved(self) -> None:
        """Now and then: add what is new, so that it does not pile up."""
        if self._counts is not None:
            self._add_new(self._counts)

    def taken_in(self, batch: Sequence[TimerFacts]) -> None:
        if self._counts is None:
            return
        all_new = self._new
        for one in batch:
            new = all_new.get(one.topic)
            if new is None:
                new = all_new[one.topic] = []
            new.append(one.deliver_ms)

    def _add_new(self, counts: PendingCounts) -> None:
        for topic, dues in self._new.items():
            counts.add_all(topic, dues)
        self._new = {}

    def finished(self, gone: Sequence[tuple[int, str, int]]) -> None:
        """(queue offset, topic, due time) of timers that are pending no longer."""
        counts = self._counts
        if counts is None:
            return
        self._add_new(counts)
        if not self.is_done:
            for queue_offset, topic, deliver_ms in gone:
                if queue_offset < self._bound:
                    self._left[queue_offset] = topic, deliver_ms
            gone = [one for one in gone if one[0] >= self._bound]
        for (topic, deliver_ms), count in Counter([one[1:] for one in gone]).items():
            if not counts.take_away(topic, deliver_ms, count):
                logger.error("a timer of %s due at %d was not counted: counting all of them again", topic, deliver_ms)
                self.again()
                return

    def again(self) -> None:
        """Forget the counts; the next walk makes them."""
        self._counts = None
        self.is_done = False
        self._left = {}
        self._new = {}

    def walk(self) -> Generator[None, None, None]:
        """Make the counts, in steps of about a millisecond. A damaged run is forgotten; then there are none yet."""
        counts = self._counts = PendingCounts()
        self._bound = bound = self._parts.next_offset
        is_pending, left = self._is_pending, self._left
        for part in self._parts.contents():
            try:
                for topic, piece in part.all_found():
                    counts.add_all(
                        topic,
                        [due for due, offset in piece if offset < bound and (is_pending(offset) or offset in left)],
                    )
                    yield
                    if self._counts is not counts:
                        return
            except StoreDamagedError as error:
                assert isinstance(part, Run)
                self.again()
                if part in self._parts.runs:
                    self._parts.forget_run(part, str(error))
                return
        self.is_done = True
        self._add_new(counts)
        for topic, due_ms in left.values():
            if not counts.take_away(topic, due_ms):
                logger.error("a timer of %s due at %d was not counted: counting all of them again", topic, due_ms)
                self.again()
                return
        self._left = {}


SLOTS_MAX: Final = 10_000
"""Slots whose counts are kept; beyond it they are counted anew."""


class SlotCounts:
    """Slot time -> pending messages."""

    def __init__(self, count: Callable[[int], int]) -> None:
        """`count` counts the pending messages of the slot at a time."""
        self._count = count
        self._known: dict[int, int] = {}

    @property
    def is_asked(self) -> bool:
        """Whether the count of any slot is kept."""
        return bool(self._known)

    def of(self, slot_ms: int) -> int:
        known = self._known.get(slot_ms)
        if known is None:
            if len(self._known) >= SLOTS_MAX:
                self._known.clear()
            known = self._known[slot_ms] = self._count(slot_ms)
        return known

    def came(self, slot_ms: int) -> None:
        """A message of the slot began to wait."""
        if slot_ms in self._known:
            self._known[slot_ms] += 1

    def went(self, slot_ms: int | None) -> None:
        """A message of the slot is pending no longer; None when its slot is not known."""
        if slot_ms is None:
            self._known.clear()
        elif slot_ms in self._known:
            self._known[slot_ms] -= 1
