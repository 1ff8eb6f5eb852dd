"""How many messages are pending in a slot, for admission: exact, and counted only for slots that somebody asks about.

Rules of this file
1. A slot that is asked about for the first time is counted one by one; from then on what comes and goes is counted.
2. Where it is not known from which slot something went, nothing is guessed: everything is forgotten and counted anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SLOTS_MAX: Final = 10_000
"""Slots whose counts are kept; beyond it they are counted anew."""


class SlotCounts:
    """Slot time -> pending messages."""

    def __init__(self, count: Callable[[int], int]) -> None:
        """`count` counts the pending messages of the slot at a time."""
        self._count = count
        self._known: dict[int, int] = {}

    @property
    def is_asked(self) -> bool:
        """Whether the count of any slot is kept."""
        return bool(self._known)

    def of(self, slot_ms: int) -> int:
        known = self._known.get(slot_ms)
        if known is None:
            if len(self._known) >= SLOTS_MAX:
                self._known.clear()
            known = self._known[slot_ms] = self._count(slot_ms)
        return known

    def came(self, slot_ms: int) -> None:
        """A message of the slot began to wait."""
        if slot_ms in self._known:
            self._known[slot_ms] += 1

    def went(self, slot_ms: int | None) -> None:
        """A message of the slot is pending no longer; None when its slot is not known."""
        if slot_ms is None:
            self._known.clear()
        elif slot_ms in self._known:
            self._known[slot_ms] -= 1
