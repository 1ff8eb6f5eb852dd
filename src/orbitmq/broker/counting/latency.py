"""How long something takes: counts in steps of a quarter of an octave, and percentiles of the last minutes.

Rules of this file
1. A measurement is one addition to a list; the error of a percentile is below a fifth of it.
2. Percentiles speak of the last one to two minutes, the highest value and the distribution of all the time.
3. No clock is read here.
"""

from __future__ import annotations

from typing import Final

from orbitmq.limits.broker import LATENCY_SPAN_NS

_FINE: Final = 4
_BUCKETS: Final = 40 * _FINE
"""Up to 2^40 microseconds, a fortnight; what is longer counts there."""

RANGES: Final = (
    (1, "[<=0ms]"),
    (10, "[0~10ms]"),
    (50, "[10~50ms]"),
    (100, "[50~100ms]"),
    (200, "[100~200ms]"),
    (500, "[200~500ms]"),
    (1_000, "[500ms~1s]"),
    (2_000, "[1~2s]"),
    (3_000, "[2~3s]"),
    (4_000, "[3~4s]"),
    (5_000, "[4~5s]"),
    (10_000, "[5~10s]"),
)
"""Upper ends in milliseconds of the ranges under which RocketMQ reports a distribution."""
BEYOND: Final = "[10s~]"


class Latency:
    """Durations of one kind of work."""

    __slots__ = ("_before", "_begun_ns", "_now", "_ranges", "highest_ns")

    def __init__(self, now_ns: int) -> None:
        self._now = [0] * _BUCKETS
        self._before = [0] * _BUCKETS
        self._begun_ns = now_ns
        self._ranges = [0] * (len(RANGES) + 1)
        self.highest_ns = 0

    def took(self, duration_ns: int, now_ns: int) -> None:
        """Count one duration that ended at `now_ns`."""
        if now_ns - self._begun_ns >= LATENCY_SPAN_NS:
            self._turn(now_ns)
        self._now[_bucket(duration_ns // 1_000)] += 1
        if duration_ns > self.highest_ns:
            self.highest_ns = duration_ns
        ms = duration_ns // 1_000_000
        self._ranges[next((index for index, (end, _) in enumerate(RANGES) if ms < end), len(RANGES))] += 1

    def percentile_ms(self, share: float, now_ns: int) -> float:
        """The duration that `share` (0 to 1) of the recent ones did not exceed; 0.0 without any."""
        if now_ns - self._begun_ns >= LATENCY_SPAN_NS:
            self._turn(now_ns)
        counts = [now + before for now, before in zip(self._now, self._before, strict=True)]
        wanted = share * sum(counts)
        seen = 0
        for index, count in enumerate(counts):
            seen += count
            if count and seen >= wanted:
                return _upper_us(index) / 1_000
        return 0.0

    def distribution(self) -> str:
        """Counts by range, in RocketMQ's words."""
        names = [name for _, name in RANGES] + [BEYOND]
        return "".join(f"{name}:{count} " for name, count in zip(names, self._ranges, strict=True))

    def _turn(self, now_ns: int) -> None:
        recent = now_ns - self._begun_ns < 2 * LATENCY_SPAN_NS
        self._before = self._now if recent else [0] * _BUCKETS
        self._now = [0] * _BUCKETS
        self._begun_ns = now_ns


def _bucket(us: int) -> int:
    if us < _FINE:
        return max(us, 0)
    octave = us.bit_length() - 3
    return min((octave + 1) * _FINE + (us >> octave) - _FINE, _BUCKETS - 1)


def _upper_us(index: int) -> int:
    """The largest duration that falls into a bucket."""
    if index < _FINE:
        return index
    octave, part = divmod(index, _FINE)
    return ((part + _FINE + 1) << (octave - 1)) - 1
