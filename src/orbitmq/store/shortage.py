"""A full disk, and whatever else the machine runs short of: when messages are refused for it, and when they are taken again.

Rules of this file
1. Messages are refused from the first write that found no room, and from the moment that what was set aside is in use.
2. They are taken again by themselves, when everything that could not be written was, the space is set aside anew, and some more
   is free.
"""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.limits.store import SPACE_CHECK_INTERVAL_MS, SPACE_RESUMED_BYTES
from orbitmq.store.files import NotReadError
from orbitmq.store.reserve import Reserve, is_no_room
from orbitmq.store.writability import SPACE, Writability
from orbitmq.units import NS_PER_MS


class Shortage:
    """Owned by one open store and used on its thread."""

    def __init__(
        self,
        reserve: Reserve,
        writability: Writability,
        clock: Clock,
        deadlines: Deadlines,
        catch_up: Callable[[], bool],
    ) -> None:
        """`catch_up()` writes what could not be written before, and says whether it could."""
        self._reserve = reserve
        self._writability = writability
        self._clock = clock
        self._deadlines = deadlines
        self._catch_up = catch_up
        self.when_changed: Callable[[], None] = lambda: None
        """Told when messages begin to be refused, and when they are taken again: whoever can make room, or refuses for want of it as well,
        need not find out by himself."""
        deadlines.define(SPACE, self._look)

    def met(self, error: Exception) -> None:
        """Something could not be written for now, or not be read that is needed for it."""
        trouble = "the machine is short of means"
        if isinstance(error, NotReadError):
            trouble = "what is needed to go on cannot be read"
        elif is_no_room(error):
            trouble = "the disk is full"
        self._stop(f"{trouble}: {error}")

    def reserve_spent(self) -> None:
        """The last space is left to what has to be written."""
        if not self._reserve.is_whole:
            self._stop(f"the disk is full: what is set aside, {self._reserve.size_bytes >> 10} KiB, is in use")

    @property
    def is_near(self) -> bool:
        """Whether messages are refused, or would be soon. Asks the file system."""
        if SPACE in self._writability.stops:
            return True
        try:
            return self._reserve.free_bytes < SPACE_RESUMED_BYTES
        except OSError:
            return False

    def _stop(self, reason: str) -> None:
        if SPACE not in self._writability.stops:
            self.when_changed()
        self._writability.stop(SPACE, reason)
        self._look_later()

    def _look_later(self) -> None:
        self._deadlines.arm(SPACE, self._clock.monotonic_ns() + SPACE_CHECK_INTERVAL_MS * NS_PER_MS)

    def _look(self) -> None:
        if self._writability.is_over or not self._catch_up():
            return
        if self._reserve.restore() and self._reserve.free_bytes >= SPACE_RESUMED_BYTES:
            self._writability.allow(SPACE)
            self.when_changed()
        else:
            self._look_later()
