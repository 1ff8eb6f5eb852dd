"""Metrics of timer messages: RocketMQ's, and what it does not tell: how late, how many changed, how many in trouble.

Rules of this file
1. Everything is read from counters and from the index; nothing is walked for a scrape.
2. What needs the index is left out while the index is being made ready, and a gauge says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from orbitmq.broker.timers.service import TimerService
from orbitmq.clock import Clock
from orbitmq.errors import TimerIndexIncompleteError
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.remoting.timer_bodies import TIER_FAR, TIER_NEAR
from orbitmq.store.reads import RecordsNotInMemory
from orbitmq.store.store import MessageStore
from orbitmq.telemetry import catalogue
from orbitmq.telemetry.metric import Family, Sample, by_label, one
from orbitmq.timing.index.counting import Counted
from orbitmq.units import MINUTE_MS

SNAPSHOT_BOUNDS_S: Final = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)
"""RocketMQ's: due within so many seconds."""


class TimerCollector:
    """The collector of one broker's timers."""

    def __init__(self, service: TimerService, store: MessageStore, clock: Clock) -> None:
        self._service = service
        self._store = store
        self._clock = clock

    def __call__(self) -> Iterator[Family]:
        yield from self._rocketmqs()
        yield from self._ours()
        yield from self._counts()

    def _rocketmqs(self) -> Iterator[Family]:
        service, now_ms = self._service, self._clock.now_ms()
        timers, figures, traffic = service.timers, service.figures, service.traffic
        behind = figures.not_taken_in_count()
        oldest_ms = self._oldest_not_taken_in_ms() if behind else -1
        yield one(catalogue.TIMER_ENQUEUE_LAG, behind)
        yield one(catalogue.TIMER_ENQUEUE_LATENCY, max(now_ms - oldest_ms, 0) if oldest_ms > 0 else 0)
        yield one(catalogue.TIMER_DEQUEUE_LAG, timers.pending_count)
        yield one(catalogue.TIMER_DEQUEUE_LATENCY, figures.behind_ms())
        yield by_label(catalogue.TIMER_ENQUEUED, [(topic, counter.count) for topic, counter in traffic.taken])
        yield by_label(catalogue.TIMER_DEQUEUED, [(topic, counter.count) for topic, counter in traffic.delivered])
        yield Family(catalogue.TIMER_ASKED, [Sample((), traffic.asked_ms.buckets().scaled(1e-3))])

    def _oldest_not_taken_in_ms(self) -> int:
        """When the oldest message that was not taken in yet was stored; -1 when that is not known without the disk."""
        try:
            return self._store.store_time_at(TIMER_TOPIC, 0, self._service.timers.next_offset)
        except (RecordsNotInMemory, OSError):
            return -1

    def _ours(self) -> Iterator[Family]:
        service = self._service
        timers, changes = service.timers, service.changes
        far = 0 if service.far is None else service.far.counts().pending
        yield by_label(catalogue.TIMER_PENDING, [(TIER_NEAR, timers.pending_count), (TIER_FAR, far)])
        yield Family(catalogue.TIMER_LATENESS, [Sample((), timers.lateness_ms.buckets().scaled(1e-3))])
        yield one(catalogue.TIMER_QUARANTINED, timers.quarantined_count)
        yield one(catalogue.TIMER_RECALLED, changes.recalled_count)
        yield one(catalogue.TIMER_RESCHEDULED, changes.rescheduled_count)
        yield one(catalogue.TIMER_CROWDED, service.intake.congested_count)

    def _counts(self) -> Iterator[Family]:
        index, now_ms = self._service.index, self._clock.now_ms()
        if index is None:
            return
        try:
            until_ms = now_ms + SNAPSHOT_BOUNDS_S[-1] * 1_000
            counted = index.counts(None, None, until_ms, MINUTE_MS)
        except TimerIndexIncompleteError:
            yield one(catalogue.TIMER_INDEX_READY, 0)
            return
        yield one(catalogue.TIMER_INDEX_READY, 1)
        yield by_label(catalogue.TIMING_MESSAGES, list(counted.by_topic.items()))
        yield by_label(
            catalogue.TIMER_SNAPSHOT, [(str(bound), _within(counted, now_ms, bound)) for bound in SNAPSHOT_BOUNDS_S]
        )


def _within(counted: Counted, now_ms: int, bound_s: int) -> int:
    """How many fall due within so many seconds; a bucket counts when it begins by then."""
    end_ms = now_ms + bound_s * 1_000
    return sum(count for begin_ms, count in counted.buckets if begin_ms <= end_ms)
