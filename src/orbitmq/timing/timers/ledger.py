"""What is pending, and how a store remembers it: the bitmap, its journal, and the cancel records that wait.

All are caches of the commit log. `Timers` passes on what `apply` brought (`add`, `skip`, `finish`, then `took`); the store says when to
save; after a start `TimerRecovery` fills the ledger.

Rules of this file
1. The journal may lag behind the log; it never leads.
2. A store that never saw a timer has no file.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from orbitmq.clock import Clock
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import Files
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.saving import is_passing_trouble
from orbitmq.timing.timers.known_cancels import KnownCancels
from orbitmq.timing.timers.pending import PendingTimers
from orbitmq.timing.timers.pending_journal import (
    JOURNAL_FILE,
    JournalPosition,
    PendingJournal,
    boot_mark,
    encode_finished,
    encode_position,
    encode_run,
    encode_snapshot,
)

logger = logging.getLogger("orbitmq.timing")

SHORTEN_FROM_BYTES: Final = 4 << 20
"""The journal is made shorter when it has grown to twice its shortest size and this much."""

POSITION_STEP_BYTES: Final = 1 << 20
"""Log written since the last position block at which another one is due without any timer: what a start after a crash reads once
more because of this file."""


class TimerLedger:
    """The pending timers of one store."""

    def __init__(
        self,
        files: Files,
        root: Path,
        clock: Clock,
        *,
        shorten_from_bytes: int = SHORTEN_FROM_BYTES,
    ) -> None:
        self.pending = PendingTimers()
        self.cancels = KnownCancels(clock)
        self.journal = PendingJournal(files, root)
        self.clock = clock
        self.log: CommitLog | None = None
        self.queues: ConsumeQueues | None = None
        self.position = 0
        """Everything below was taken in."""
        self.witness = (-1, 0)
        """Log position and store timestamp of the last record below `position`."""
        self.synced_offset = 0
        """Queue offset up to which records were taken in and are durable."""
        self.boot = boot_mark(files.boot_id())
        self.shorten_from_bytes = shorten_from_bytes
        self._finished: list[int] = []
        self._gaps: list[bytes] = []
        self._noted: JournalPosition | None = None
        self._snapshot: list[bytes] | None = None
        """While the journal is made shorter, what it will say; nothing is appended meanwhile."""
        self._sync_at: JournalPosition | None = None
        """What the next `datasync` makes durable."""

    # --- what the log says --------------------------------------------------------------------------------------------

    def add(self, queue_offset: int) -> bool:
        """A record came into the timer topic and is pending; False when that was known. 0.4 us."""
        self._note_gap(queue_offset)
        return self.pending.add(queue_offset)

    def add_all(self, first: int, end: int) -> None:
        """As `add` for each queue offset from `first` to `end`. Some microseconds."""
        self._note_gap(first)
        self.pending.add_range(first, end)

    def skip(self, queue_offset: int) -> bool:
        """A record came into the timer topic that is never pending itself, a cancellation; False when that was known."""
        if queue_offset < self.pending.next_offset:
            return False
        self._note_gap(queue_offset)
        self._finished.append(queue_offset)
        self.pending.skip(queue_offset)
        return True

    def _note_gap(self, queue_offset: int) -> None:
        if queue_offset > self.pending.next_offset:
            self._gaps.append(encode_run(self.pending.next_offset, queue_offset))

    def finish_many(self, queue_offsets: Sequence[int]) -> list[bool]:
        """`finish` of each in turn. 0.3 us."""
        answers = self.pending.finish_many(queue_offsets)
        self._finished += [offset for offset, was_pending in zip(queue_offsets, answers, strict=True) if was_pending]
        return answers

    def finish(self, queue_offset: int) -> bool:
        """A record is pending no longer; False when it was not. 0.5 us."""
        if not self.pending.finish(queue_offset):
            return False
        self._finished.append(queue_offset)
        return True

    def took(self, last: Dispatched) -> None:
        """All entries up to this one were taken in."""
        if last.end_offset > self.position:
            self.position = last.end_offset
            self.witness = (last.physical_offset, last.store_timestamp)

    # --- where records lie ----------------------------------------------------------------------------------------------

    @property
    def queue(self) -> ConsumeQueue | None:
        """Consume queue of the timer topic; None while there is none."""
        return None if self.queues is None else self.queues.get(TIMER_TOPIC, 0)

    def offset_of_source(self, physical_offset: int) -> int | None:
        """Queue offset of the timer record at a log position; None when no record of the timer topic is or was there."""
        queue = self.queue
        return None if queue is None else queue.offset_of(physical_offset)

    def newest_record(self) -> tuple[int, int] | None:
        """Log position and size of the last record of the timer topic that was taken in; None where it is not kept."""
        queue = self.queue
        unit = None if queue is None else queue.unit(self.pending.next_offset - 1)
        return None if unit is None else (unit[0], unit[1])

    # --- saving (Derived) ---------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Put what changed into the page cache. Raises OSError."""
        if self._snapshot is None and self._has_news(POSITION_STEP_BYTES):
            self._append()

    def _has_news(self, step_bytes: int) -> bool:
        noted = self._noted
        if self._finished or self._gaps:
            return True
        if noted is None:
            return self.pending.next_offset > 0 or self.journal.exists
        return self.position - noted.position >= step_bytes or self.pending.next_offset != noted.next_offset

    def _append(self) -> None:
        at = self._at(synced=False)
        blocks = [*self._gaps]
        if self._finished:
            blocks.append(encode_finished(self._finished))
        self.journal.append([*blocks, encode_position(at)])
        self._gaps.clear()
        self._finished.clear()
        self._noted = at

    def _at(self, *, synced: bool) -> JournalPosition:
        return JournalPosition(self.position, *self.witness, self.pending.next_offset, self.boot, synced)

    def noted(self, at: JournalPosition) -> None:
        """The journal ends in this position block."""
        self._noted = at

    def rewrite(self) -> None:
        """After a recovery that changed more than the log says: write a journal that says everything, durably. Raises OSError."""
        self._finished.clear()
        self._gaps.clear()
        if self.pending.next_offset:
            at = self._at(synced=False)
            self.journal.shorten(encode_snapshot(self.pending), at)
            self._noted = at
        elif self.journal.exists:
            self.journal.cut(0)

    def begin_sync(self) -> None:
        self._snapshot = None  # of a save that was begun and never ran
        self.write()
        if self._has_news(1):
            self._append()
        self._sync_at = self._at(synced=True)
        if self.journal.size_bytes > 2 * self.journal.shortened_bytes + self.shorten_from_bytes:
            self._snapshot = encode_snapshot(self.pending)

    def datasync(self) -> None:
        """The log was synced before, up to everything that is spoken of here. Blocks. Raises OSError."""
        at = self._sync_at
        if at is None:
            return
        if self._snapshot is None:
            self.journal.datasync()
        else:
            try:
                self.journal.shorten(self._snapshot, at)
            except OSError as error:
                if not is_passing_trouble(error):
                    raise
                logger.warning("%s was not made shorter, it is tried again: %s", JOURNAL_FILE, error)
                self.journal.datasync()
            finally:
                self._snapshot = None
        self.synced_offset = at.next_offset

    def state(self) -> object:
        """What the recovery mark keeps; None for a store without timers."""
        return {"journal": True, "cancels": self.cancels.state()} if self.journal.exists else None

    def close(self) -> None:
        self.journal.close()
