"""What is pending in one delay level: runs of queue offsets whose due times do not decrease.

With a steady clock a level is one run, because its messages wait equally long. A clock that was set back, or another
level list, begins a new run, and every run is released on its own: a message is never held up by an earlier one that is
due later.

Rules of this file
1. Units of one run are taken and finished in order. Taking is a promise in memory; only finishing is remembered.
2. Nothing here reads a clock or a file; due times are asked of the caller, one per look at a run, and before anything changes: the
   caller may be unable to tell.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final

RUNS_MAX: Final = 100
"""Runs of one level. A clock that steps back more often than this makes messages late (counted), never early. All
levels together must fit in a slot of the recovery mark."""

DueAt = Callable[[int], int]
"""Queue offset of a unit in the level's queue -> its due time in milliseconds."""


class LevelRun:
    """Offsets `done` to `end` are pending; those below `taken` have been handed out."""

    __slots__ = ("done", "end", "head_due_ms", "last_due_ms", "start", "taken")

    def __init__(self, start: int, end: int, head_due_ms: int, last_due_ms: int) -> None:
        self.start = start
        self.done = start
        self.taken = start
        self.end = end
        self.head_due_ms = head_due_ms
        """Due time of the unit at `taken`; meaningless when everything is taken."""
        self.last_due_ms = last_due_ms


class LevelRuns:
    """The pending offsets of one level."""

    __slots__ = ("_due_at", "_runs", "next_offset", "squeezed_count")

    def __init__(self, due_at: DueAt) -> None:
        self._due_at = due_at
        self._runs: list[LevelRun] = []
        self.next_offset = 0
        """Offset after the newest unit that was added."""
        self.squeezed_count = 0
        """Units that joined a run out of order because there were too many runs."""

    # --- growing ----------------------------------------------------------------------------------------------------

    def add(self, offset: int, due_ms: int) -> None:
        """A new unit. One that is already known is ignored."""
        if offset < self.next_offset:
            return
        last = self._runs[-1] if self._runs else None
        if last is not None and last.end == offset and (due_ms >= last.last_due_ms or len(self._runs) >= RUNS_MAX):
            if due_ms < last.last_due_ms:
                self.squeezed_count += 1
            if last.taken == last.end:
                last.head_due_ms = due_ms
            last.end = offset + 1
            last.last_due_ms = max(last.last_due_ms, due_ms)
        else:
            self._runs.append(LevelRun(offset, offset + 1, due_ms, due_ms))
        self.next_offset = offset + 1

    def add_range(self, start: int, due_times: Iterator[int]) -> None:
        """Units `start`, `start + 1`, … with the given due times: what restoring does."""
        offset = max(start, self.next_offset)
        for due_ms in due_times:
            self.add(offset, due_ms)
            offset += 1
        self.next_offset = max(self.next_offset, offset)

    # --- releasing --------------------------------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        """Due time of the next unit to take; None when none is left."""
        return min((run.head_due_ms for run in self._runs if run.taken < run.end), default=None)

    @property
    def last_due_ms(self) -> int:
        """Latest due time of those that are pending, or one before; 0 when none is."""
        return max((run.last_due_ms for run in self._runs if run.done < run.end), default=0)

    def take_due(self, now_ms: int) -> int | None:
        """The offset of a unit that is due, earliest first; None when none is."""
        best: LevelRun | None = None
        for run in self._runs:
            if (
                run.taken < run.end
                and run.head_due_ms <= now_ms
                and (best is None or run.head_due_ms < best.head_due_ms)
            ):
                best = run
        if best is None:
            return None
        return self._take(best)

    def _take(self, run: LevelRun) -> int:
        offset = run.taken
        if offset + 1 < run.end:
            run.head_due_ms = self._due_at(offset + 1)
        run.taken = offset + 1
        return offset

    def take_below(self, before: int) -> tuple[int, int] | None:
        """The lowest offset below `before` that is pending and not taken, whatever its due time, and that; None when there is none."""
        for run in self._runs:
            if run.done >= before:
                break
            if run.taken < min(run.end, before):
                due_ms = run.head_due_ms
                return self._take(run), due_ms
        return None

    def count_below(self, before: int) -> int:
        """How many offsets below `before` are pending, taken ones too."""
        return sum(max(min(run.end, before) - run.done, 0) for run in self._runs)

    @property
    def run_count(self) -> int:
        return len(self._runs)

    def untake(self, offset: int, due_ms: int) -> None:
        """A unit that was taken, and those of its run taken after it, are to be taken again. Reads nothing."""
        run = self._find(offset)
        if run is not None and run.taken > offset:
            run.taken = offset
            run.head_due_ms = due_ms

    def finish(self, offset: int) -> bool:
        """The unit is delivered (or given up, or replaced). False when it was not pending."""
        run = self._find(offset)
        if run is None:
            return False
        rest: LevelRun | None = None
        if offset > run.done:  # finished out of order, by another program: split what is left
            rest = LevelRun(run.done, offset, self._due_at(run.done), self._due_at(offset - 1))
            rest.taken = min(run.taken, offset)
            if run.done < rest.taken < offset:
                rest.head_due_ms = self._due_at(rest.taken)
        if run.taken <= offset:
            if offset + 1 < run.end:
                run.head_due_ms = self._due_at(offset + 1)
            run.taken = offset + 1
        if rest is not None:
            self._runs.insert(self._runs.index(run), rest)
        run.start = run.done = offset + 1
        if run.done == run.end:
            self._runs.remove(run)
        return True

    def finish_below(self, before: int) -> int:
        """Every unit below `before` is delivered; how many were pending. One look at the unit that is next."""
        count = self.count_below(before)
        if not count:
            return 0
        for run in self._runs:
            if run.done < before < run.end:
                if run.taken < before:
                    run.head_due_ms = self._due_at(before)
                run.taken = max(run.taken, before)
                run.start = run.done = before
        self._runs = [run for run in self._runs if run.end > before]
        return count

    def _find(self, offset: int) -> LevelRun | None:
        """The run in which the unit is pending."""
        runs = self._runs
        if len(runs) == 1:  # the clock was steady
            run: LevelRun | None = runs[0]
        else:
            index = bisect_right(runs, offset, key=lambda run: run.start) - 1
            run = runs[index] if index >= 0 else None
        return run if run is not None and run.done <= offset < run.end else None

    def trim(self, end: int) -> None:
        """Forget units from `end` on: the log was cut there."""
        self._runs = [run for run in self._runs if run.done < end]
        if self._runs and self._runs[-1].end > end:
            last = self._runs[-1]
            last.end = end
            last.taken = min(last.taken, end)
            last.last_due_ms = self._due_at(end - 1)
        self.next_offset = min(self.next_offset, end)

    # --- state ------------------------------------------------------------------------------------------------------

    @property
    def first_pending(self) -> int | None:
        """The lowest offset that is not finished."""
        return self._runs[0].done if self._runs else None

    @property
    def pending_count(self) -> int:
        return sum(run.end - run.done for run in self._runs)

    def intervals(self, limit: int) -> list[tuple[int, int]]:
        """Pending offsets as at most `limit` pairs (first, end), ascending.

        Where there are more, which only deliveries by another program bring about, the newest are joined over the
        finished units between them: after a restart those come a second time.
        """
        pairs = [(run.done, run.end) for run in self._runs]
        return pairs if len(pairs) <= limit else [*pairs[: limit - 1], (pairs[limit - 1][0], pairs[-1][1])]

    def pending_offsets(self) -> Iterator[int]:
        for run in self._runs:
            yield from range(run.done, run.end)
