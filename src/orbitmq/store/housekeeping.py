"""Removing what has expired, and refusing sends while the disk is too full.

Once per interval the facts are gathered on the worker, `retention` decides, and the decision is carried out: segments
leave the sequences here, files are removed on the worker.

Rules of this file
1. What anybody still needs (`pins`) stays; nothing is decided here, see `retention`.
2. A file goes only after everything that replaced its records, deliveries as well as records put again, is on the disk and confirmed:
   what the copies lack could be cut off, and its file would be all there is.
3. A failure to look or to remove is reported and tried again at the next round. A request is forgotten only when there is
   nothing left to do for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from orbitmq.clock import Clock
from orbitmq.limits.store import DISK_LOOK_SOON_FREE_BYTES, HOUSEKEEPING_SOON_MS
from orbitmq.store.files import DiskUsage, Files
from orbitmq.store.retention import RetainedFile, Retention, WaitingRecords, decide, reserve_bytes, used_percent
from orbitmq.store.store import MessageStore
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.store")

WAKEUP = "retention"
REFUSAL = "disk"


Pin = Callable[[], int | None]
"""Answers the lowest log position that its owner still needs, None when there is none."""


class Rewriter(Protocol):
    """Puts pending records again at the tail of the log."""

    @property
    def is_busy(self) -> bool:
        """Whether it puts records again already, or may not put any: where another broker's log is copied, that broker does."""
        ...

    @property
    def rewritten_count(self) -> int:
        """Records put again since the start of the process."""
        ...

    def lowest_pending(self) -> int | None:
        """Log position of the oldest pending record; None when nothing is pending."""
        ...

    def bytes_below(self, position: int) -> int:
        """About how many bytes of pending records lie below a log position."""
        ...

    def rewrite_below(self, position: int, ended: Callable[[bool], None]) -> None:
        """Put the pending records below `position` again, a few in each turn; `ended` is told whether none is left there."""
        ...


Facts = tuple[list[RetainedFile], list[DiskUsage]]


class Housekeeping:
    """The periodic clean-up of one open store."""

    def __init__(
        self,
        store: MessageStore,
        root: Path,
        files: Files,
        clock: Clock,
        pins: Sequence[Pin] = (),
        rewriter: Rewriter | None = None,
        say_below: Callable[[int], bool] = lambda position: True,
    ) -> None:
        """`pins` answer for what must stay where it is, `rewriter` for what may be moved out of the way. `say_below(position)`: whether the
        log says again by now what records below that position alone say; it is asked until it does before they go."""
        self._store = store
        self._root = root
        self._files = files
        self._clock = clock
        self._pins = list(pins)
        self._rewriter = rewriter
        self._say_below = say_below
        self._busy = False
        """A look or a removal is on its way."""
        self._manual = False
        """Somebody asked for the removal of expired files, and some may be left."""
        self._announced = 0
        """Log position below which pending records were last asked to move."""
        self.disk_use: dict[str, float] = {}
        """Path -> used share of its disk, as of the last round."""
        self.disk_free_bytes: int | None = None
        """Free bytes of the fuller disk, as of the last round."""
        self.room: tuple[int, int] | None = None
        """Total and free bytes of the fullest disk, as of the last round."""
        self.overdue_below = 0
        """See `Retention.overdue_below`, as of the last round."""
        self.removed_files = 0
        self.out_of_room: Callable[[int], None] = lambda lowest_pending: None
        """Told in each round in which nothing can go, and nothing be put again, for the record at that log position."""
        store.deadlines.define(WAKEUP, self.look)
        store.deadlines.arm(WAKEUP, clock.monotonic_ns())

    @property
    def rewritten_count(self) -> int:
        """Pending records that were put again so that their files could go."""
        return 0 if self._rewriter is None else self._rewriter.rewritten_count

    def request(self) -> None:
        """Remove expired files now, whatever the hour, and go on until none is left that can go."""
        self._manual = True
        self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns())

    def look(self) -> None:
        """One round; ends on the worker's answer."""
        interval = self._store.settings.clean_resource_interval_ms
        self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + interval * NS_PER_MS)
        if self._busy:
            return
        self._busy = True
        segments = [(segment.path, segment.base, segment.end) for segment in self._store.log.sequence]
        directories = [self._store.log.sequence.directory, self._root / "consumequeue"]

        def gather() -> Facts:
            files = [RetainedFile(base, end, self._files.modified_ms(path)) for path, base, end in segments]
            present = [path if self._files.exists(path) else self._root for path in directories]
            return files, [self._files.disk_usage(path) for path in present]

        self._store.run_blocking(gather, self._gathered)

    def _gathered(self, facts: Facts | BaseException) -> None:
        self._busy = False
        if isinstance(facts, BaseException):
            logger.error("disk use and file ages cannot be read: %s", facts)
            return
        files, disks = facts
        self.disk_use = {str(self._root): max(used_percent(usage) for usage in disks) / 100}
        self.disk_free_bytes = min(usage.free_bytes for usage in disks)
        fullest = max(disks, key=used_percent)
        self.room = (fullest.total_bytes, fullest.free_bytes)
        needed = [position for pin in self._pins if (position := pin()) is not None]
        decision = decide(
            files,
            now_ms=self._clock.now_ms(),
            settings=self._store.settings,
            disks=disks,
            lowest_needed=min(needed, default=None),
            pending=self._pending(),
            manual=self._manual,
        )
        self._manual = self._manual and (bool(decision.remove) or decision.rewrite_below is not None)
        self._carry_out(decision)

    def _pending(self) -> WaitingRecords | None:
        lowest = None if self._rewriter is None else self._rewriter.lowest_pending()
        if self._rewriter is None or lowest is None:
            return None
        free = self.disk_free_bytes
        if free is not None and free < reserve_bytes(self._store.settings) + DISK_LOOK_SOON_FREE_BYTES:
            self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + HOUSEKEEPING_SOON_MS * NS_PER_MS)
        return WaitingRecords(lowest, self._rewriter.bytes_below)

    def _carry_out(self, decision: Retention) -> None:
        self.overdue_below = decision.overdue_below
        if decision.refuse_sends:
            self._store.refuse(REFUSAL, decision.reason)
            self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + HOUSEKEEPING_SOON_MS * NS_PER_MS)
        else:
            self._store.allow(REFUSAL)
        if decision.remove:
            self._remove(decision.remove)
        lowest = None if self._rewriter is None else self._rewriter.lowest_pending()
        if decision.is_stuck and lowest is not None:
            self.out_of_room(lowest)
        below = decision.rewrite_below
        if below is None or self._rewriter is None or self._rewriter.is_busy:
            return
        if below != self._announced:  # said once, however many rounds an owner needs
            self._announced = below
            logger.info("putting pending messages below offset %d again, so that their files can go", below)

        def ended(complete: bool) -> None:
            if complete:
                self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns())

        self._rewriter.rewrite_below(below, ended)

    def _remove(self, files: Sequence[RetainedFile]) -> None:
        """Remove the oldest files once what replaced their records is durable, and a saved state that knows it."""
        if not self._is_said(files):
            return
        self._busy = True
        replaced_below = self._store.log.written_end

        def saved(durable: bool) -> None:
            self._busy = False
            store = self._store
            if (not durable and store.log.synced_end < replaced_below) or store.confirm_offset < replaced_below:
                lacks = "durable" if store.confirm_offset >= replaced_below else "confirmed by the copies"
                logger.warning(
                    "%d commit log files stay: what replaced their messages is not %s yet", len(files), lacks
                )
                return
            if not self._is_said(files):  # the first copy may have come meanwhile
                return
            paths = store.drop_first_segments(len(files))
            logger.info("removing %d commit log files up to offset %d", len(files), files[-1].end)
            self.removed_files += len(files)
            store.remove_paths(paths)
            if self._manual:  # a round takes a few files only
                self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns())

        self._store.save_durably(saved)

    def _is_said(self, files: Sequence[RetainedFile]) -> bool:
        """Whether nothing is lost with these files that only they say; else they are looked at again soon."""
        is_said = self._say_below(files[-1].end)
        if not is_said:
            self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + HOUSEKEEPING_SOON_MS * NS_PER_MS)
        return is_said
