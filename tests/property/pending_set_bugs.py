"""Bugs to plant into the pending set: a model that does not catch them checks nothing.

Each is a context manager that breaks one rule while it is active. Some are planted into crashes of a whole store as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from unittest import mock

from tests.crash.planted import (
    entries_of_lost_records_kept,
    finished_timers_forgotten,
    runs_listed_before_they_are_synced,
    timers_believed_without_their_log,
)
from tests.property.timer_bugs import Plant

from orbitmq.timing.index.counting import Counting
from orbitmq.timing.index.parts import Gathered, Missing, Parts
from orbitmq.timing.index.run import Run
from orbitmq.timing.timers.ledger import TimerLedger
from orbitmq.timing.timers.pending_records import PendingRecords


@contextmanager
def entry_skipped_at_a_page_border() -> Iterator[None]:
    """Reading on in a run begins one entry too late."""
    correct = Run._behind

    def behind(self: Run, after: tuple[int, int]) -> int:
        return correct(self, after) + (after[0] >= self.base_due)

    with mock.patch.object(Run, "_behind", behind):
        yield


@contextmanager
def cursors_name_a_time_alone() -> Iterator[None]:
    """Reading on in a run begins with the first message of the time at which it ended."""
    with mock.patch.object(Run, "_behind", lambda self, after: self._first_due(after[0])):
        yield


@contextmanager
def recalls_lost_with_a_shorter_journal() -> Iterator[None]:
    """What is finished while the journal of what is pending is made shorter is noted nowhere."""
    correct = TimerLedger.datasync

    def datasync(self: TimerLedger) -> None:
        is_shortening = self._snapshot is not None
        correct(self)
        if is_shortening:
            self._finished.clear()

    with mock.patch.object(TimerLedger, "datasync", datasync):
        yield


@contextmanager
def pin_behind_the_first() -> Iterator[None]:
    """Retention is told of the second pending record instead of the first."""

    def lowest_needed(self: PendingRecords) -> int | None:
        for queue_offset in islice(self._ledger.pending.offsets(), 1, 2):
            unit = self.unit(queue_offset)
            return None if unit is None else unit[0]
        return None

    with mock.patch.object(PendingRecords, "lowest_needed", lowest_needed):
        yield


@contextmanager
def gaps_not_noticed() -> Iterator[None]:
    """What the index does not know is not collected from the log."""
    with mock.patch.object(Missing, "add"):
        yield


@contextmanager
def what_goes_not_counted() -> Iterator[None]:
    with mock.patch.object(Counting, "finished"):
        yield


@contextmanager
def late_ones_taken_for_gone() -> Iterator[None]:
    """A run is past as soon as somebody looks."""

    def skip_gone(self: Run, is_pending: object, limit: int) -> None:
        self.first = len(self)

    with mock.patch.object(Run, "skip_gone", skip_gone):
        yield


@contextmanager
def run_added_twice() -> Iterator[None]:
    """What is sealed stands in two runs."""

    def sealed(self: Parts, gathered: Gathered, path: Path) -> None:
        self._add_run(path)
        self._add_run(path)
        self.closed.remove(gathered)

    with mock.patch.object(Parts, "sealed", sealed):
        yield


@contextmanager
def runs_left_out() -> Iterator[None]:
    """Only what is in memory is searched and falls due."""
    with mock.patch.object(Parts, "sources", lambda self: [one.gathering for one in self.gathered()]):
        yield


PLANTS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        entry_skipped_at_a_page_border,
        cursors_name_a_time_alone,
        recalls_lost_with_a_shorter_journal,
        pin_behind_the_first,
        gaps_not_noticed,
        what_goes_not_counted,
        late_ones_taken_for_gone,
        run_added_twice,
        runs_left_out,
        runs_listed_before_they_are_synced,
        finished_timers_forgotten,
        entries_of_lost_records_kept,
        timers_believed_without_their_log,
    )
}
