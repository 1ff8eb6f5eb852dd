"""What every service that delivers at a time of the wall clock tells about itself.

Rules of this file
1. Nothing waits on these: a service wakes by its own deadlines. They are for whoever moves the clock, and for those who look.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class DueWork(Protocol):
    """Messages that wait for a time."""

    @property
    def next_due_ms(self) -> int | None:
        """Wall time at which the next message is due; None when none is pending."""
        ...

    @property
    def is_releasing(self) -> bool:
        """Whether something that was due is on its way and not visible yet."""
        ...

    def pending_units(self) -> Iterator[tuple[int | None, int, int]]:
        """(delay level or None, log position of the record, due time) of every pending message. For tests and tools: one look
        at an index each."""
        ...

    def clock_moved(self) -> None:
        """The wall clock was set: what is due by it is released with the next turns."""
        ...
