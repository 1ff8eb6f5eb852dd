"""What is pending, and how a store remembers it: the bitmap, its journal and the timer files, moved in step.

All three are caches of the commit log. The engine tells what `apply` brought (`add`, `skip`, `finish`, `link`, then `took`); the
store says when to save; after a start `TimerRecovery` fills the ledger.

Rules of this file
1. The journal may lag behind the log; it never leads. Its position blocks name the end of the timer log to which they belong.
2. Order of a durable save: units, slots, timer checkpoint, journal; the commit log was synced before, the recovery mark comes
   after.
3. A store that never saw a timer has no file.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from orbitmq.clock import Clock
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import Files
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.saving import is_passing_trouble
from orbitmq.timing.timer_files.link import Link
from orbitmq.timing.timer_files.log import FILE_BYTES
from orbitmq.timing.timer_files.unit import TimerUnit
from orbitmq.timing.timer_files.wheel import SLOT_COUNT
from orbitmq.timing.timers.files import TimerFiles
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

NO_PRECISION: Final = 0
"""In a position block: the timer files are incomplete, and to be made again."""

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
        precision_ms: int,
        *,
        log_file_bytes: int = FILE_BYTES,
        slot_count: int = SLOT_COUNT,
        shorten_from_bytes: int = SHORTEN_FROM_BYTES,
    ) -> None:
        self.files = TimerFiles(files, root, precision_ms, log_file_bytes, slot_count)
        self.pending = PendingTimers()
        self.cancels = KnownCancels(clock, precision_ms)
        self.journal = PendingJournal(files, root)
        self.clock = clock
        self.log: CommitLog | None = None
        self.queues: ConsumeQueues | None = None
        self.position = 0
        """Everything below was taken in."""
        self.witness = (-1, 0)
        """Log position and store timestamp of the last record below `position`."""
        self.links_wait = False
        """During recovery, when records are linked at its end only."""
        self.is_starting = True
        """Until recovery has finished. What fell due while nobody ran is linked in its own slot then, so that it leaves in order."""
        self.unlinked_from: int | None = None
        """While records are linked anew, the queue offset of the first that has no unit."""
        self.made_again: list[str] = []
        """What the last start could not believe and made again, and why."""
        self.boot = boot_mark(files.boot_id())
        self._slot_count = slot_count
        self.shorten_from_bytes = shorten_from_bytes
        self._finished: list[int] = []
        self._gaps: list[bytes] = []
        self._noted: JournalPosition | None = None
        self._snapshot: list[bytes] | None = None
        """While the journal is made shorter, what it will say; nothing is appended meanwhile."""
        self._snapshot_at: JournalPosition | None = None

    # --- what the log says --------------------------------------------------------------------------------------------

    def add(self, queue_offset: int) -> bool:
        """A record came into the timer topic and is pending; False when that was known. 0.4 us."""
        pending = self.pending
        if queue_offset > pending.next_offset:
            self._gaps.append(encode_run(pending.next_offset, queue_offset))
        return pending.add(queue_offset)

    def add_all(self, first: int, end: int) -> None:
        """As `add` for each queue offset from `first` to `end`. Some microseconds."""
        pending = self.pending
        if first > pending.next_offset:
            self._gaps.append(encode_run(pending.next_offset, first))
        pending.add_range(first, end)

    def skip(self, queue_offset: int) -> bool:
        """A record came into the timer topic that is never pending itself, a cancellation; False when that was known."""
        pending = self.pending
        if queue_offset < pending.next_offset:
            return False
        if queue_offset > pending.next_offset:
            self._gaps.append(encode_run(pending.next_offset, queue_offset))
        self._finished.append(queue_offset)
        pending.skip(queue_offset)
        return True

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

    def link(self, links: Sequence[Link | tuple[int, ...]]) -> list[int]:
        """Give records of the timer topic, in log order, their units. Returns the slot of each, `NO_POSITION` for one that was
        linked before or will be at the end of recovery. Raises OSError."""
        if self.links_wait:
            return []
        now_ms = self.clock.now_ms()
        if self.is_starting:
            now_ms = self._start_ms(now_ms, links)
        return self.files.link(now_ms, links)

    def _start_ms(self, now_ms: int, links: Sequence[Sequence[int]]) -> int:
        """The write clock of a start: what fell due since then has its own slot still."""
        if self.files.read_ms:
            return min(self.files.read_ms, now_ms)
        earliest_ms = now_ms - self._slot_count // 4 * self.files.precision_ms
        return min((link[0] for link in links if earliest_ms <= link[0] < now_ms), default=now_ms)

    def link_again(self, records: Sequence[tuple[int, int, int]]) -> int:
        """See `TimerFiles.link_again`."""
        newest = self._newest_record()
        assert newest is not None
        return self.files.link_again(self.clock.now_ms(), records, newest)

    def took(self, last: Dispatched) -> None:
        """All entries up to this one have been told."""
        if last.end_offset > self.position:
            self.position = last.end_offset
            self.witness = (last.physical_offset, last.store_timestamp)

    def offset_of_source(self, physical_offset: int) -> int | None:
        """Queue offset of the timer record at a log position; None when no record of the timer topic is or was there."""
        assert self.queues is not None
        queue = self.queues.get(TIMER_TOPIC, 0)
        return None if queue is None else queue.offset_of(physical_offset)

    # --- saving (Derived) ---------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Put what changed into the page cache. Raises OSError."""
        self.files.write()
        if self._snapshot is None and self._has_news(POSITION_STEP_BYTES):
            self._append()

    def _has_news(self, step_bytes: int) -> bool:
        noted = self._noted
        if self._finished or self._gaps:
            return True
        if noted is None:
            return self.pending.next_offset > 0 or self.journal.exists
        return (
            self.position - noted.position >= step_bytes
            or self._precision_ms() != noted.precision_ms
            or self.pending.next_offset != noted.next_offset
            or self.files.at().log_end != noted.log_end
        )

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
        return JournalPosition(
            self.position,
            *self.witness,
            self.pending.next_offset,
            *self.files.at(),
            self._precision_ms(),
            self.boot,
            synced,
        )

    def _precision_ms(self) -> int:
        return self.files.precision_ms if self.unlinked_from is None else NO_PRECISION

    def noted(self, at: JournalPosition) -> None:
        """The journal ends in this position block."""
        self._noted = at

    def rewrite(self) -> None:
        """After a recovery that changed more than the log says: write a journal that says everything. Raises OSError."""
        self.files.write()
        if self.journal.exists:
            self.journal.cut(0)
        self._finished.clear()
        self._gaps.clear()
        if self.pending.next_offset:
            at = self._at(synced=False)
            self.journal.append([*encode_snapshot(self.pending), encode_position(at)])
            self._noted = at

    def begin_sync(self) -> None:
        if self._snapshot is not None:  # a save that was begun and never ran
            self._snapshot = None
        self.write()
        if not self.journal.exists:
            return
        assert self.log is not None
        linked = self.pending.next_offset if self.unlinked_from is None else self.unlinked_from
        self.files.begin_sync(linked, self.clock.now_ms(), self.log.start)
        if self._has_news(1):
            self._append()
        if self.journal.size_bytes > 2 * self.journal.shortened_bytes + self.shorten_from_bytes:
            self._snapshot = encode_snapshot(self.pending)
            self._snapshot_at = self._at(synced=True)

    def datasync(self) -> None:
        """The log was synced before, up to everything that is spoken of here. Blocks. Raises OSError."""
        self.files.datasync()
        snapshot, at = self._snapshot, self._snapshot_at
        if snapshot is None or at is None:
            self.journal.datasync()
            return
        try:
            self.journal.shorten(snapshot, at)
        except OSError as error:
            if not is_passing_trouble(error):
                raise
            logger.warning("%s was not made shorter, it is tried again: %s", JOURNAL_FILE, error)
            self.journal.datasync()
        finally:
            self._snapshot = None

    def state(self) -> object:
        """What the recovery mark keeps; None for a store without timers."""
        if not self.journal.exists:
            return None
        closed_files = {str(base): above for base, above in self.files.closed_files.items()}
        return {"journal": True, "files": closed_files, "cancels": self.cancels.state()}

    # --- the end ------------------------------------------------------------------------------------------------------

    def hand_over(self, *, is_all: bool) -> None:
        """Before the save of an orderly stop: leave the files so that a RocketMQ broker can go on. Raises OSError.

        While records are linked anew they say too little, and RocketMQ goes on refusing the store; so it does unless `is_all`."""
        if self.files.is_open or self.pending.next_offset:
            self.files.hand_over(self.clock.now_ms(), self._is_pending_unit, self._newest_record())
            self.files.is_handed_over &= is_all and self.unlinked_from is None

    def _is_pending_unit(self, unit: TimerUnit) -> bool:
        offset = self.offset_of_source(unit.physical_offset)
        return offset is not None and self.pending.is_pending(offset)

    def _newest_record(self) -> tuple[int, int] | None:
        assert self.queues is not None
        queue = self.queues.get(TIMER_TOPIC, 0)
        unit = None if queue is None else queue.unit(self.pending.next_offset - 1)
        return None if unit is None else (unit[0], unit[1])

    def close(self) -> None:
        self.journal.close()
        self.files.close()

    def abandon(self) -> None:
        self.journal.close()
        self.files.abandon()
