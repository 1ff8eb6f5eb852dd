"""Whether the clock of a member is off from its leader's, told when that has lasted: what is due would move by it when this member leads.

Rules of this file
1. One late heartbeat looks like a clock that is off. What counts has lasted for as long as several of them.
"""

from __future__ import annotations

import logging
from typing import Final

from orbitmq.limits.group import CLOCK_OFF_LASTS_MS, CLOCK_OFF_MS
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.replication")

REMEDY: Final = "look at the time service of both machines; this member leads last"


class ClockReport:
    """Of one member. `off_ms`: by how much, positive where its clock is ahead; 0 where it is right."""

    def __init__(self) -> None:
        self.off_ms = 0
        self._since_ns: int | None = None

    def look(self, off_ms: int, leader: str, now_ns: int) -> None:
        """It differs by this from that leader's at the moment."""
        if abs(off_ms) <= CLOCK_OFF_MS:
            if self.off_ms:
                logger.warning("the clock of this member is right again, as its leader's says")
            self.off_ms, self._since_ns = 0, None
            return
        if self._since_ns is None:
            self._since_ns = now_ns
        if self.off_ms or now_ns - self._since_ns >= CLOCK_OFF_LASTS_MS * NS_PER_MS:
            if not self.off_ms:
                logger.warning(
                    "the clock of this member is %d ms off from that of its leader %s: %s", off_ms, leader, REMEDY
                )
            self.off_ms = off_ms
