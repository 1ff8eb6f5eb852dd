"""What went through the broker: counters, and rates over the last ten seconds, minute and ten minutes.

Rules of this file
1. Counting is an addition; nothing is sampled per message. Rates come from snapshots that the broker takes while it is
   busy, at most one every ten seconds; an idle broker takes none and is not woken for them.
2. Per-topic and per-group counters are bounded; beyond the bound further names share one entry.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from orbitmq.limits import STATISTIC_NAMES_MAX

SAMPLE_NS: Final = 10_000_000_000
WINDOWS_NS: Final = (10_000_000_000, 60_000_000_000, 600_000_000_000)
OTHERS: Final = "(others)"


class _Sample(NamedTuple):
    at_ns: int
    put: int
    found: int
    missed: int
    transferred: int


class Statistics:
    def __init__(self, now_ms: int, now_ns: int) -> None:
        self.started_ms = now_ms
        self.put_count = 0
        self.put_bytes = 0
        self.put_failed_count = 0
        self.found_count = 0
        self.missed_count = 0
        self.transferred_count = 0
        self.transferred_bytes = 0
        self.busy_count = 0
        self.dead_letter_count = 0
        self.unsupported_count = 0
        self.failed_handler_count = 0
        self.topic_put: dict[str, int] = {}
        self.group_got: dict[str, int] = {}
        self._samples: deque[_Sample] = deque([_Sample(now_ns, 0, 0, 0, 0)], maxlen=WINDOWS_NS[-1] // SAMPLE_NS + 2)

    def stored(self, topic: str, count: int, size: int) -> None:
        """`count` messages of `size` record bytes were appended for `topic` (the one the sender named)."""
        self.put_count += count
        self.put_bytes += size
        table = self.topic_put
        if topic in table:
            table[topic] += count
        else:
            _add(table, topic, count)

    def count_failed(self) -> None:
        self.put_failed_count += 1

    def pulled(self, topic: str, group: str, count: int, size: int) -> None:
        """A pull delivered `count` messages; 0 is a pull that found none."""
        if count:
            self.found_count += 1
            self.transferred_count += count
            self.transferred_bytes += size
            _add(self.group_got, f"{topic}@{group}", count)
        else:
            self.missed_count += 1

    def sample(self, now_ns: int) -> None:
        """Take a snapshot if the last one is old enough; call it at the end of busy loop turns."""
        if now_ns - self._samples[-1].at_ns >= SAMPLE_NS:
            self._samples.append(self._now(now_ns))

    def rates(self, now_ns: int) -> dict[str, str]:
        """`putTps`, `getFoundTps`, `getMissTps`, `getTotalTps`, `getTransferredTps`: three rates a second each, as text."""
        self.sample(now_ns)
        now = self._now(now_ns)
        windows = [self._oldest_within(now_ns, window_ns) for window_ns in WINDOWS_NS]
        seconds = [max((now_ns - then.at_ns) / 1e9, 1.0) for then in windows]

        def text(counts: list[int]) -> str:
            return " ".join(f"{count / duration:.4f}" for count, duration in zip(counts, seconds, strict=True))

        found = [now.found - then.found for then in windows]
        missed = [now.missed - then.missed for then in windows]
        return {
            "putTps": text([now.put - then.put for then in windows]),
            "getFoundTps": text(found),
            "getMissTps": text(missed),
            "getTotalTps": text([hit + miss for hit, miss in zip(found, missed, strict=True)]),
            "getTransferredTps": text([now.transferred - then.transferred for then in windows]),
        }

    def _now(self, now_ns: int) -> _Sample:
        return _Sample(now_ns, self.put_count, self.found_count, self.missed_count, self.transferred_count)

    def _oldest_within(self, now_ns: int, window_ns: int) -> _Sample:
        """The snapshot that begins a window: the youngest one at least as old as it, or the first of all."""
        chosen = self._samples[0]
        for sample in self._samples:
            if now_ns - sample.at_ns < window_ns:
                break
            chosen = sample
        return chosen


def _add(table: dict[str, int], name: str, count: int) -> None:
    if name not in table and len(table) >= STATISTIC_NAMES_MAX:
        name = OTHERS
    table[name] = table.get(name, 0) + count
