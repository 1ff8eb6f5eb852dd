"""Figures of the transactions that one broker has ended since its start."""

from __future__ import annotations

from collections import Counter
from typing import Final

from orbitmq.broker.transactions.records import Ending
from orbitmq.histogram import Histogram

LATENCY_BOUNDS_S: Final = (5, 60, 600, 3_600, 43_200, 86_400)
"""RocketMQ's buckets."""


class TransactionFigures:
    """Decisions by topic. Only topics that exist are counted, so there are no more of them than topics."""

    def __init__(self) -> None:
        self.committed: Counter[str] = Counter()
        self.rolled_back: Counter[str] = Counter()
        self.latency_s: dict[str, Histogram] = {}
        """From the first half message to the decision."""

    def ended(self, topic: str, ending: Ending, after_ms: int) -> None:
        (self.committed if ending is Ending.COMMITTED else self.rolled_back)[topic] += 1
        if topic not in self.latency_s:
            self.latency_s[topic] = Histogram(LATENCY_BOUNDS_S)
        self.latency_s[topic].observe(max(after_ms, 0) // 1_000)
