"""Linking everything that is pending anew, in slices beside the work of a broker.

Where the timer files cannot be used, or slots have another width, each pending record needs a new unit. With ten million
that is a minute or two, in which new messages are taken, linked and delivered as ever. What was pending is delivered as soon as it has
its unit, so what falls due meanwhile may be late by as long as this takes, but never comes twice: its record says whether it is
pending.

Rules of this file
1. Records are linked in the order of the timer topic, a slice a turn.
2. Until all are linked the files are incomplete. The journal says so with `NO_PRECISION`: the start after a crash begins anew, and
   knows what is pending. The checkpoint names the first record without a unit, so RocketMQ would link from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from orbitmq.store.dispatch import Dispatched
from orbitmq.timing.timer_files.link import Link
from orbitmq.timing.timers.ledger import TimerLedger

logger = logging.getLogger("orbitmq.timing")

SLICE_RECORDS: Final = 200
"""Records of the timer topic looked at in one turn: two milliseconds."""

Unlinked = Callable[[int, int], list[tuple[Dispatched, Link]]]
"""Of the records from one queue offset to before another, those that need a unit, and which."""


class Relinking:
    """Of one start of one store."""

    def __init__(self, ledger: TimerLedger, first: int, end: int, unlinked: Unlinked) -> None:
        self._ledger = ledger
        self._end = end
        self._unlinked = unlinked
        self._count = 0
        ledger.unlinked_from = first

    def step(self, place: Callable[[Dispatched, Link, int], None]) -> bool:
        """Link a slice; True when all are linked. `place` is told of each record, its link and its slot. Raises OSError; then
        the slice is linked by the next step."""
        ledger, first = self._ledger, self._ledger.unlinked_from
        assert first is not None
        end = min(first + SLICE_RECORDS, self._end)
        found = self._unlinked(first, end)
        slots = ledger.files.link(ledger.clock.now_ms(), [link for _, link in found], again=True)
        for (entry, link), slot_ms in zip(found, slots, strict=True):
            place(entry, link, slot_ms)
        self._count += len(found)
        ledger.unlinked_from = end if end < self._end else None
        if end < self._end:
            return False
        logger.warning("%d timers were linked again from the commit log", self._count)
        return True
