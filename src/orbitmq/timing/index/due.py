"""What falls due next, from all parts of the index: in order, in slices, and never the same message twice.

Rules of this file
1. A slice ends at a place (due time, queue offset), and the next one begins behind it. A message that arrives later and belongs before
   that place is not found by further slices: `Timers` adds it to `SoonTimers` itself.
2. Of each part little is read at a time, so that a slice over hundreds of parts stays a slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from orbitmq.errors import StoreDamagedError
from orbitmq.timing.index.gathering import Due, Found, Source
from orbitmq.timing.index.run import Run

SHARE_MIN: Final = 16
"""Entries read of one part at a time, however many parts there are."""


class DueSlice(NamedTuple):
    """Some messages in order."""

    entries: Sequence[Due]
    """Those that are over already among them."""
    end: Found
    """Everything up to here was read."""
    next_ms: int | None
    """A time at or before the due time of the first one behind them; None when there is none."""


class DamagedPartError(Exception):
    """A part that contradicts itself."""

    def __init__(self, part: Run, problem: str) -> None:
        super().__init__(problem)
        self.part = part


def due_slice(parts: Sequence[Source], after: Found, until_ms: int, limit: int) -> DueSlice:
    """At most `limit` entries behind `after` that are due before `until_ms`. 0.5 us an entry, 4 us a part. Raises DamagedPartError."""
    share = min(max(limit // max(len(parts), 1) * 2, SHARE_MIN), limit)
    found: list[Due] = []
    end, next_ms = (until_ms, -1), None
    for part in parts:
        try:
            entries, part_next_ms = part.due_after(after, until_ms, share)
        except StoreDamagedError as error:
            raise DamagedPartError(_run(part), str(error)) from error
        if entries and not after < entries[0][:2] <= entries[-1][:2]:
            raise DamagedPartError(_run(part), "its due times are not in order")
        found += entries
        if part_next_ms is not None:
            next_ms = part_next_ms if next_ms is None else min(next_ms, part_next_ms)
            if part_next_ms < until_ms:  # there is more of it in the range
                if not entries:
                    raise DamagedPartError(_run(part), "its due times are not in order")
                end = min(end, entries[-1][:2])
    if len(parts) > 1:
        found.sort()
    if len(found) > limit:
        end = min(end, found[limit - 1][:2])
    if end[0] < until_ms:
        found = [entry for entry in found if entry[:2] <= end]
        next_ms = end[0]
    return DueSlice(found, end, next_ms)


def _run(part: Source) -> Run:
    assert isinstance(part, Run), "what is in memory is not damaged"
    return part
