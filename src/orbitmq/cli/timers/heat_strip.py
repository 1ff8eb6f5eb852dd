"""A heat strip: how many fall due in each of many short spans of time, one character for each.

Rules of this file
1. Pure: spans and counts in, text out. A character says how full a span is beside the fullest one; one message is never invisible.
2. Spans begin at multiples of their width, so that a strip drawn a minute later shows the same spans.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

HEATS: Final = "▁▂▃▄▅▆▇█"
NOTHING: Final = "·"
WIDTHS_MS: Final = tuple(
    1_000 * seconds
    for seconds in (
        1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000,
        31_536_000,
    )
)  # fmt: skip
"""Widths that people reckon in."""


class Strip(NamedTuple):
    """Counts of spans of `width_ms` that follow each other, the first at `begin_ms`."""

    begin_ms: int
    width_ms: int
    counts: tuple[int, ...]

    @property
    def end_ms(self) -> int:
        return self.begin_ms + self.width_ms * len(self.counts)

    def drawn(self) -> str:
        """One character for each span."""
        most = max(self.counts, default=0)
        return "".join(HEATS[max(1, -(-count * len(HEATS) // most)) - 1] if count else NOTHING for count in self.counts)


def width_for(length_ms: int, spans_max: int) -> int:
    """The smallest width in which people reckon that needs at most `spans_max` spans; beyond those, as wide as it takes."""
    for width_ms in WIDTHS_MS:
        if -(-length_ms // width_ms) < spans_max:
            return width_ms
    return -(-length_ms // (spans_max - 1))


def strip(begin_ms: int, end_ms: int, width_ms: int, counts: Iterable[tuple[int, int]]) -> Strip:
    """A strip from the span with `begin_ms` to the one before `end_ms`. counts: some instant of a span, and how many fall due in it."""
    first = begin_ms // width_ms
    slots = [0] * max(1, -(-end_ms // width_ms) - first)
    for at_ms, count in counts:
        number = at_ms // width_ms - first
        if 0 <= number < len(slots):
            slots[number] += count
    return Strip(first * width_ms, width_ms, tuple(slots))
