"""How many messages of which size came for each topic.

Rules of this file
1. Counting is on the path of every message: a look-up, two additions, no allocation.
2. The buckets are RocketMQ's. Their bounds are powers of two, so the length of a size in bits names its bucket.
3. Names are bounded; further ones share one entry (`OTHERS`).
"""

from __future__ import annotations

from typing import Final

from orbitmq.broker.counting.traffic import OTHERS
from orbitmq.histogram import Buckets
from orbitmq.limits.broker import STATISTIC_NAMES_MAX

SIZE_BOUNDS: Final = (1 << 10, 1 << 12, 1 << 19, 1 << 20, 1 << 21, 1 << 22)
"""1 KiB, 4 KiB, 512 KiB, 1 MiB, 2 MiB, 4 MiB: the largest size of each bucket."""

BUCKET_OF_BITS: Final = bytes(sum(bits >= bound.bit_length() for bound in SIZE_BOUNDS) for bits in range(65))
"""Bucket of a size `n` by the bit length of `n - 1`."""


class Sizes:
    """The messages of one topic."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SIZE_BOUNDS) + 1)
        self.total = 0
        """Sum of their record bytes."""

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, count: int, total: int) -> None:
        """`count` messages of `total` bytes together; those of a batch count with their mean size."""
        mean = total if count == 1 else -(-total // count)
        self.counts[BUCKET_OF_BITS[(mean - 1).bit_length()]] += count
        self.total += total

    def buckets(self) -> Buckets:
        return Buckets(SIZE_BOUNDS, tuple(self.counts), self.total)


class SizeTable:
    """Sizes by topic."""

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: dict[str, Sizes] = {}

    def add(self, topic: str, count: int, total: int) -> None:
        """See `Sizes.add`."""
        self.of(topic).add(count, total)

    def of(self, topic: str) -> Sizes:
        """The sizes of a topic, made when it is new and there is room."""
        return self._topics.get(topic) or self._new(topic)

    def drop(self, topic: str) -> None:
        """Forget a deleted topic."""
        self._topics.pop(topic, None)

    def entries(self) -> list[tuple[str, Sizes]]:
        return list(self._topics.items())

    def _new(self, topic: str) -> Sizes:
        if len(self._topics) >= STATISTIC_NAMES_MAX:
            topic = OTHERS
        return self._topics.setdefault(topic, Sizes())
