"""Figures of the pops of one broker since its start, in RocketMQ's terms.

Rules of this file
1. Groups and topics are bounded; further ones share one entry (`OTHERS`).

Source: RocketMQ 5, metrics of POP.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from orbitmq.broker.counting.traffic import OTHERS
from orbitmq.broker.pop.in_flight import PopQueue
from orbitmq.histogram import Histogram
from orbitmq.limits.broker import STATISTIC_NAMES_MAX
from orbitmq.protocol.pop_records import PopCheckpoint, PopRecord

STORING_BOUNDS_MS: Final = (1, 10, 100, 1_000, 2_000, 3_000)
"""RocketMQ's buckets."""


class PopCount(NamedTuple):
    """What is counted: of a group and topic, and whatever tells it from the others of them."""

    group: str
    topic: str
    labels: tuple[str, ...]


class PopFigures:
    def __init__(self) -> None:
        self.stored: Final[Counter[PopCount]] = Counter()
        """Records that were put into the log for the revive topic, by kind and what became of them."""
        self.read: Final[Counter[PopCount]] = Counter()
        """Records that came into the revive topic, by its queue and by kind."""
        self.returned: Final[Counter[PopCount]] = Counter()
        """Messages that were stored again for another attempt, by what became of the copy."""
        self.renewed_count = 0
        """Messages that were hidden for longer for a client that asked for it once, when it received them."""
        self.not_renewed_count = 0
        """Messages that were to be and are not: of clients that are not known, and beyond the bounds."""
        self.given_up_count = 0
        """Messages that were hidden for as long as any is, or could not be hidden any longer."""
        self.client_gone_count = 0
        """Messages that were visible again at once because the client that had them went."""
        self.call_lost_count = 0
        """The same because the call that they were popped for was cancelled, lost or reset."""
        self.storing_ms: Final = Histogram(STORING_BOUNDS_MS)
        """How long it took to store the checkpoints of the pops that had lasted long enough."""

    def count_stored(self, record: PopRecord, status: str) -> None:
        self._count(self.stored, PopCount(record.group, record.topic, (_kind(record), status)))

    def count_read(self, record: PopRecord, queue_id: int) -> None:
        self._count(self.read, PopCount(record.group, record.topic, (str(queue_id), _kind(record))))

    def count_returned(self, key: PopQueue, status: str) -> None:
        self._count(self.returned, PopCount(key.group, key.topic, (status,)))

    def _count(self, counter: Counter[PopCount], counted: PopCount) -> None:
        if counted not in counter and len(counter) >= STATISTIC_NAMES_MAX:
            counted = PopCount(OTHERS, OTHERS, counted.labels)
        counter[counted] += 1


def _kind(record: PopRecord) -> str:
    return "CK" if isinstance(record, PopCheckpoint) else "ACK"
