"""When written saves happen, which are good for the end of the process: shortly after a change, and one at a time."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.limits.store import WRITTEN_SAVE_MS
from orbitmq.store.mark import Mark
from orbitmq.store.saving import SAVE_WRITTEN, SaveParts
from orbitmq.units import NS_PER_MS


class WrittenSaves:
    """Owned by one open store and used on its thread."""

    def __init__(
        self,
        parts: SaveParts,
        clock: Clock,
        deadlines: Deadlines,
        *,
        failed: Callable[[OSError], None],
    ) -> None:
        self._parts = parts
        self._clock = clock
        self._deadlines = deadlines
        self._failed = failed
        self._mark: Mark | None = None
        """Mark of the save that runs."""
        self._again = False
        """Another one was due while one ran."""
        deadlines.define(SAVE_WRITTEN, self.begin)

    def begin(self) -> None:
        """Save everything as it is now, in one turn or several."""
        if self._mark is not None:
            self._again = True
        elif self._parts.may_begin():
            end = self._parts.confirmed()
            try:
                mark = self._mark = self._parts.saving.written_mark(self._parts.queues, self._parts.others, end)
            except OSError as error:
                self._failed(error)
                return
            self._parts.units.below(end, lambda error: self._units_written(mark, error))

    def save_now(self) -> None:
        """Save everything before this returns. Cost: as `ConsumeQueues.write_below` for each queue that has units in memory."""
        self._mark = None  # a save that runs would note an older state
        try:
            self._parts.units.all_now()
        except OSError as error:
            self._failed(error)
            return
        self.begin()

    def _units_written(self, mark: Mark, error: OSError | None) -> None:
        if self._mark is not mark:
            return
        self._mark = None
        if error is None and self._parts.may_begin():
            try:
                self._parts.saving.note_written(mark, self._parts.confirmed())
            except OSError as failure:
                error = failure
        if error is not None:
            self._failed(error)
        if self._again:
            self._again = False
            self._deadlines.arm(SAVE_WRITTEN, self._clock.monotonic_ns() + WRITTEN_SAVE_MS * NS_PER_MS)
