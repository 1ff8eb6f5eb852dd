"""A second look for messages that are overdue and that nobody has.

Units and slots have no checksums. Where damage breaks a chain, opening notices; a unit that leads to another record, or a
slot that has lost its number, breaks nothing, and the message would wait until the files are made again. The index of pending
timers knows when each is due without looking at units. So every ten seconds it is asked, once, what is pending and has been overdue
for ten seconds, provided that what is held has caught up: then there is nothing, unless something was damaged.

Rules of this file
1. Suspects only: who relinks them asks the log whether they are pending, and who takes them which unit comes first.
2. What a whole look has found empty is not looked at again: a look costs one page of the index, a millisecond or two.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from orbitmq.errors import TimerIndexIncompleteError

logger = logging.getLogger("orbitmq.timing")

AUDIT_MS: Final = 10_000
"""From one look to the next."""

GRACE_MS: Final = 10_000
"""How long something is overdue before it is missed. A message whose unit is damaged is at most this and `AUDIT_MS` late, longer
while others that are held are overdue as well, or while the index is being made ready."""

FindOverdue = Callable[[int, int, str | None], tuple[list[int], str | None]]
"""Of pending messages due from one time to before another, some queue offsets, and the cursor for more; None when that is all.
Raises TimerIndexIncompleteError."""


class Audit:
    """Of the timers of one store."""

    def __init__(self) -> None:
        self.find: FindOverdue | None = None
        """None where there is no index; then nothing is looked for."""
        self.found_count = 0
        """Messages that were linked again."""
        self._clean_ms = 0
        """Nothing that is due before this is missing."""
        self._looked_ms: int | None = None
        self._until_ms = 0
        self._cursor: str | None = None
        self._is_clean = True

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time for a look, or to go on with one."""
        if self.find is None:
            return False
        looked_ms = self._looked_ms
        return self._cursor is not None or looked_ms is None or not 0 <= now_ms - looked_ms < AUDIT_MS

    def look(self, now_ms: int, first_held_ms: int | None) -> list[int]:
        """Queue offsets of what may be lost. `first_held_ms`: when the first of all that are held is due."""
        assert self.find is not None
        if self._cursor is None:
            self._until_ms = now_ms - GRACE_MS
            self._is_clean = True
        self._looked_ms = now_ms
        if first_held_ms is not None and first_held_ms <= self._until_ms:  # those that wait in order are late as well
            self._cursor = None
            return []
        if self._until_ms < self._clean_ms:  # the clock was set back
            self._clean_ms = 0
        try:
            suspects, self._cursor = self.find(self._clean_ms, self._until_ms, self._cursor)
        except TimerIndexIncompleteError:
            self._cursor = None
            return []
        if suspects:
            self._is_clean = False
        elif self._cursor is None and self._is_clean:
            self._clean_ms = self._until_ms
        return suspects
