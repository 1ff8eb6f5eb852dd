"""Keeping the counts right: made once from the index after a start, then changed with every timer that comes and goes.

Making them takes a second for some millions of timers, in steps. What comes meanwhile is added at once; what goes meanwhile is
taken away at the end, because the walk may or may not have met it.

Rules of this file
1. There are no counts while the index lacks anything, nor before the walk has ended.
2. Counts that contradict themselves are made again, and that is reported.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Sequence

from orbitmq.errors import StoreDamagedError
from orbitmq.timing.index.counts import PendingCounts
from orbitmq.timing.index.parts import Parts
from orbitmq.timing.index.run import Run
from orbitmq.timing.timers.facts import TimerFacts

logger = logging.getLogger("orbitmq.timing")


class Counting:
    """The counts of one index."""

    __slots__ = ("_bound", "_counts", "_is_pending", "_left", "_new", "_parts", "is_done")

    def __init__(self, parts: Parts, is_pending: Callable[[int], bool]) -> None:
        self._parts = parts
        self._is_pending = is_pending
        self._counts: PendingCounts | None = None
        """None: nothing is counted, and the walk has not begun."""
        self._bound = 0
        """Where the walk ends: timers from this queue offset on are added when they come."""
        self._left: dict[int, tuple[str, int]] = {}
        """Queue offset -> (topic, due time) of those that went during the walk."""
        self._new: dict[str, list[int]] = {}
        """Topic -> due times of new timers that are not added yet: together they cost less."""
        self.is_done = False

    @property
    def counts(self) -> PendingCounts | None:
        """None while they are being made."""
        if not self.is_done or self._counts is None:
            return None
        self._add_new(self._counts)
        return self._counts

    @property
    def is_idle(self) -> bool:
        """Whether it is of no interest what comes and goes."""
        return self._counts is None

    def saved(self) -> None:
        """Now and then: add what is new, so that it does not pile up."""
        if self._counts is not None:
            self._add_new(self._counts)

    def taken_in(self, batch: Sequence[TimerFacts]) -> None:
        if self._counts is None:
            return
        all_new = self._new
        for one in batch:
            new = all_new.get(one.topic)
            if new is None:
                new = all_new[one.topic] = []
            new.append(one.deliver_ms)

    def _add_new(self, counts: PendingCounts) -> None:
        for topic, dues in self._new.items():
            counts.add_all(topic, dues)
        self._new = {}

    def finished(self, gone: Sequence[tuple[int, str, int]]) -> None:
        """(queue offset, topic, due time) of timers that are pending no longer."""
        counts = self._counts
        if counts is None:
            return
        self._add_new(counts)
        if not self.is_done:
            for queue_offset, topic, deliver_ms in gone:
                if queue_offset < self._bound:
                    self._left[queue_offset] = topic, deliver_ms
            gone = [one for one in gone if one[0] >= self._bound]
        for (topic, deliver_ms), count in Counter([one[1:] for one in gone]).items():
            if not counts.take_away(topic, deliver_ms, count):
                logger.error("a timer of %s due at %d was not counted: counting all of them again", topic, deliver_ms)
                self.again()
                return

    def again(self) -> None:
        """Forget the counts; the next walk makes them."""
        self._counts = None
        self.is_done = False
        self._left = {}
        self._new = {}

    def walk(self) -> Generator[None, None, None]:
        """Make the counts, in steps of about a millisecond. A damaged run is forgotten; then there are none yet."""
        counts = self._counts = PendingCounts()
        self._bound = bound = self._parts.next_offset
        is_pending, left = self._is_pending, self._left
        for part in self._parts.contents():
            try:
                for topic, piece in part.all_found():
                    counts.add_all(
                        topic,
                        [due for due, offset in piece if offset < bound and (is_pending(offset) or offset in left)],
                    )
                    yield
                    if self._counts is not counts:
                        return
            except StoreDamagedError as error:
                assert isinstance(part, Run)
                self.again()
                if part in self._parts.runs:
                    self._parts.forget_run(part, str(error))
                return
        self.is_done = True
        self._add_new(counts)
        for topic, due_ms in left.values():
            if not counts.take_away(topic, due_ms):
                logger.error("a timer of %s due at %d was not counted: counting all of them again", topic, due_ms)
                self.again()
                return
        self._left = {}
