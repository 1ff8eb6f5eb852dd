"""A second look for messages that are overdue and that nobody has.

Units and slots have no checksums. Where damage breaks a chain, opening notices; a unit that leads to another record, or a
slot that has lost its number, breaks nothing, and the message would wait until the files are made again. The index of pending
timers knows when each is due without looking at units. So every ten seconds it is asked, once, what is pending and has been overdue
for ten seconds, at a moment when nothing that is held is due: then there is nothing, unless something was damaged.

Rules of this file
1. Suspects only: who relinks them asks the log whether they are pending, and who takes them which unit comes first.
2. What a whole look has found empty is not looked at again: a look costs one page of the index, a millisecond or two.
3. What was linked late, or moved, when it was due already is held as due at once. So as long as anything held is due nobody is missed.
4. A look is reported in one line, however many pages it takes.
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
        self._unreported = 0

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time for a look, or to go on with one."""
        if self.find is None:
            return False
        looked_ms = self._looked_ms
        return self._cursor is not None or looked_ms is None or not 0 <= now_ms - looked_ms < AUDIT_MS

    def look(self, now_ms: int, first_held_ms: int | None) -> list[int]:
        """Queue offsets of what may be lost; none while something that is held is due, which ends nothing: ask again then.
        `first_held_ms`: when the first is due of all that are held and have not been taken."""
        assert self.find is not None
        if (
            first_held_ms is not None and first_held_ms <= now_ms + 1
        ):  # a closed slot says a millisecond after its beginning
            return []
        if self._cursor is None:
            self._until_ms = now_ms - GRACE_MS
            self._is_clean = True
        self._looked_ms = now_ms
        if self._until_ms < self._clean_ms:  # the clock was set back
            self._clean_ms = 0
        try:
            suspects, self._cursor = self.find(self._clean_ms, self._until_ms, self._cursor)
        except TimerIndexIncompleteError:
            self._cursor = None
            self._report()
            return []
        if suspects:
            self._is_clean = False
        elif self._cursor is None and self._is_clean:
            self._clean_ms = self._until_ms
        if not suspects:
            self._report()
        return suspects

    def linked_again(self, count: int) -> None:
        """So many of the suspects were lost, and have a unit again."""
        self.found_count += count
        self._unreported += count
        self._report()

    def _report(self) -> None:
        if self._cursor is None and self._unreported:
            logger.error(
                "%d timer messages were overdue and in no slot, because timer files are damaged; they are linked again",
                self._unreported,
            )
            self._unreported = 0
