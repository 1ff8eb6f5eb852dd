"""What went through the timers since the start: by topic, by minute, and how far ahead senders plan.

Rules of this file
1. A message is counted when it begins to wait and when it is delivered. What is moved, recalled or put again is neither.
2. An observer of the timers: the cost is half a microsecond a message, and nothing is kept but counters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from orbitmq.broker.counting.traffic import MINUTE, Traffic
from orbitmq.clock import Clock
from orbitmq.histogram import Histogram
from orbitmq.limits.broker import TRAFFIC_STEP_NS
from orbitmq.timing.timers.facts import FinishedTimer, TimerFacts
from orbitmq.timing.timers.timers import CHANGES

DELAY_BOUNDS_MS: Final = (60_000, 600_000, 3_600_000, 43_200_000, 86_400_000, 259_200_000)
"""RocketMQ's bounds of `rocketmq_delay_message_latency`: a minute to three days."""


class TimerTraffic:
    def __init__(self, clock: Clock) -> None:
        self.taken = Traffic()
        self.delivered = Traffic()
        self.asked_ms = Histogram(DELAY_BOUNDS_MS)
        """From the moment a message was stored to the time it is to be delivered."""
        self._clock = clock

    def taken_in(self, batch: Sequence[TimerFacts]) -> None:
        """Observer of `Timers.taken_in`."""
        new = [facts for facts in batch if not facts.is_cancel and facts.source is None]
        for facts in new:
            self.asked_ms.observe(max(facts.deliver_ms - facts.store_timestamp, 0))
        self._count(self.taken, Counter([facts.topic for facts in new]))

    def finished(self, batch: Sequence[FinishedTimer]) -> None:
        """Observer of `Timers.finished`."""
        self._count(self.delivered, Counter([one.topic for one in batch if one.topic not in CHANGES]))

    def _count(self, traffic: Traffic, topics: dict[str, int]) -> None:
        if topics:
            step = self._clock.monotonic_ns() // TRAFFIC_STEP_NS
            for topic, count in topics.items():
                traffic.add(topic, count, 0, step)

    def rate(self, traffic: Traffic) -> float:
        """Messages a second over the last minute."""
        now_ns = self._clock.monotonic_ns()
        sums = [counter.within(MINUTE, now_ns) for _, counter in traffic]
        return sum(one.count for one in sums) / max((one.seconds for one in sums), default=1.0)
