"""How a consumer gets on, per topic: rates of the last minute, failures of the last hour.

Rules of this file
1. No clock: `sample` is called now and then with the time, and keeps what the totals were.
2. Counting is an addition or two per message. Memory is bounded: `_MINUTE_SAMPLES` and `_HOUR_SAMPLES` per topic.
3. A rate is taken over the samples of about the last minute; before there are two of them it is 0.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from orbitmq.limits.client import CONSUMER_SAMPLE_MS
from orbitmq.protocol.remoting.bodies import ConsumeStatus
from orbitmq.units import MINUTE_MS

_MINUTE_SAMPLES: Final = MINUTE_MS // CONSUMER_SAMPLE_MS + 1
_HOUR_SAMPLES: Final = 61


class _Totals(NamedTuple):
    at_ms: int
    ok_count: int
    failed_count: int
    consume_ms: int
    pulled_count: int
    pulls_count: int
    pull_ms: int


class TopicStatistics:
    """Totals since the start of a consumer for one topic, and samples of them."""

    __slots__ = (
        "_last_minute",
        "_minutes",
        "consume_ms",
        "failed_count",
        "ok_count",
        "pull_ms",
        "pulled_count",
        "pulls_count",
    )

    def __init__(self, now_ms: int) -> None:
        self.ok_count = 0
        self.failed_count = 0
        self.consume_ms = 0
        self.pulled_count = 0
        self.pulls_count = 0
        self.pull_ms = 0
        start = self._totals(now_ms)
        self._last_minute: deque[_Totals] = deque([start], _MINUTE_SAMPLES)
        self._minutes: deque[_Totals] = deque([start], _HOUR_SAMPLES)

    def succeeded(self, took_ms: int) -> None:
        self.ok_count += 1
        self.consume_ms += took_ms

    def failed(self, took_ms: int) -> None:
        self.failed_count += 1
        self.consume_ms += took_ms

    def pulled(self, messages_count: int, took_ms: int) -> None:
        self.pulled_count += messages_count
        self.pulls_count += 1
        self.pull_ms += took_ms

    def sample(self, now_ms: int) -> None:
        """Remember the totals, if it is time to."""
        if now_ms - self._last_minute[-1].at_ms >= CONSUMER_SAMPLE_MS:
            self._last_minute.append(self._totals(now_ms))
        if now_ms - self._minutes[-1].at_ms >= MINUTE_MS:
            self._minutes.append(self._totals(now_ms))

    def status(self, now_ms: int) -> ConsumeStatus:
        """Rates per second and mean times in ms."""
        now = self._totals(now_ms)
        since = next((old for old in self._last_minute if now_ms - old.at_ms <= MINUTE_MS + CONSUMER_SAMPLE_MS), now)
        seconds = (now.at_ms - since.at_ms) / 1000
        ok, failed = now.ok_count - since.ok_count, now.failed_count - since.failed_count
        hour_ago = next((old for old in self._minutes if now_ms - old.at_ms <= 60 * MINUTE_MS), now)
        return ConsumeStatus(
            pull_rt=_ratio(now.pull_ms - since.pull_ms, now.pulls_count - since.pulls_count),
            pull_tps=_ratio(now.pulled_count - since.pulled_count, seconds),
            consume_rt=_ratio(now.consume_ms - since.consume_ms, ok + failed),
            consume_ok_tps=_ratio(ok, seconds),
            consume_failed_tps=_ratio(failed, seconds),
            consume_failed_msgs=now.failed_count - hour_ago.failed_count,
        )

    def _totals(self, at_ms: int) -> _Totals:
        return _Totals(
            at_ms,
            self.ok_count,
            self.failed_count,
            self.consume_ms,
            self.pulled_count,
            self.pulls_count,
            self.pull_ms,
        )


def _ratio(amount: float, of: float) -> float:
    return amount / of if of > 0 else 0.0


class ConsumeStatistics:
    """Statistics of one consumer by topic."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicStatistics] = {}

    def of(self, topic: str, now_ms: int) -> TopicStatistics:
        statistics = self._topics.get(topic)
        if statistics is None:
            statistics = self._topics[topic] = TopicStatistics(now_ms)
        return statistics

    def sample(self, now_ms: int) -> None:
        for statistics in self._topics.values():
            statistics.sample(now_ms)

    def statuses(self, now_ms: int) -> dict[str, ConsumeStatus]:
        return {topic: statistics.status(now_ms) for topic, statistics in self._topics.items()}
