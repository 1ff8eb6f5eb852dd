"""How many timers are pending: in all, per topic, and per bucket of due times.

A bucket is a minute wide. Where a topic has so many that minutes take too much memory its buckets become hours, then days.

Rules of this file
1. Counts are exact: what is added under a topic and a due time is taken away under the same.
2. Adding and taking away cost the same whatever is pending: 0.5 us.
3. A bucket never tells of less than its width: a question about a finer width is answered in the width that there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from orbitmq.limits.timers import TIMER_COUNT_BUCKETS_MAX

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
        chosen = self._topics if topic is None else {topic: self._topics[topic]} if topic in self._topics else {}
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
