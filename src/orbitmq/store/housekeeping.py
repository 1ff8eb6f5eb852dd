"""Removing what has expired, and refusing sends while the disk is too full.

Once per interval the facts are gathered on the worker, `retention` decides, and the decision is carried out: segments
leave the sequences here, files are removed on the worker.

Rules of this file
1. What anybody still needs (`pins`) stays; nothing is decided here, see `retention`.
2. A file goes only after everything that replaced its records, deliveries as well as records put again, is on the disk and confirmed:
   what the copies lack could be cut off, and its file would be all there is.
3. After a removal, and when a write finds no room or room again, it is looked at once how much there is. Files go before their time again
   only when a look has shown some, or an interval later: a file system that gives space back late must not cost the whole log.
4. Files that go before their time are named, with what groups had not read of them.
5. A failure to look or to remove is reported and tried again at the next round. A request is forgotten only when there is
   nothing left to do for it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from orbitmq.clock import Clock
from orbitmq.limits.store import DISK_LOOK_SOON_FREE_BYTES, HOUSEKEEPING_SOON_MS, UNREAD_NAMED_MAX
from orbitmq.store.files import DiskUsage, Files
from orbitmq.store.retention import (
    RetainedFile,
    Retention,
    WaitingRecords,
    decide,
    reserve_bytes,
    use_text,
    used_percent,
)
from orbitmq.store.store import MessageStore
from orbitmq.units import HOUR_MS, NS_PER_MS

logger = logging.getLogger("orbitmq.store")

WAKEUP = "retention"
REFUSAL = "disk"

EXPIRED: Final = "expired"
"""Why a file was removed: its time was over."""
DISK: Final = "disk"
"""Likewise: the disk had too little room."""

Pin = Callable[[], int | None]
"""Answers the lowest log position that its owner still needs, None when there is none."""


class Unread(NamedTuple):
    """Messages of a topic that went before a group had read them."""

    group: str
    topic: str
    messages: int


GoingUnread = Callable[[], Callable[[], Sequence[Unread]]]
"""Called before files are removed from the log; what it returns, after that: what went unread, most first."""


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
        going_unread: GoingUnread = lambda: lambda: (),
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
        self._going_unread = going_unread
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
        self.removed: Counter[str] = Counter({EXPIRED: 0, DISK: 0})
        """Commit log files removed, by reason."""
        self.unread: Counter[str] = Counter({EXPIRED: 0, DISK: 0})
        """Messages that went with them before a group had read them, counted for each such group, by the same reason."""
        self._early_free: int | None = None
        """Free bytes when files last went before their time, until a look has shown more."""
        self._early_again_ns = 0
        """Monotonic time from which files go before their time again, whatever is free."""
        self.out_of_room: Callable[[int], None] = lambda lowest_pending: None
        """Told in each round in which nothing can go, and nothing be put again, for the record at that log position."""
        store.shortage.when_changed = self._look_now
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
            self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + HOUSEKEEPING_SOON_MS * NS_PER_MS)
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
        if self._early_free is not None and self.disk_free_bytes > self._early_free:
            self._early_free = None
        is_too_soon = self._early_free is not None and self._clock.monotonic_ns() < self._early_again_ns
        if decision.early and is_too_soon:
            decision = decision._replace(remove=decision.remove[: -decision.early], early=0)
        self._manual = self._manual and (bool(decision.remove) or decision.rewrite_below is not None)
        self._carry_out(decision, use_text(disks))

    def _pending(self) -> WaitingRecords | None:
        lowest = None if self._rewriter is None else self._rewriter.lowest_pending()
        if self._rewriter is None or lowest is None:
            return None
        free = self.disk_free_bytes
        if free is not None and free < reserve_bytes(self._store.settings) + DISK_LOOK_SOON_FREE_BYTES:
            self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + HOUSEKEEPING_SOON_MS * NS_PER_MS)
        return WaitingRecords(lowest, self._rewriter.bytes_below)

    def _carry_out(self, decision: Retention, use: str) -> None:
        self.overdue_below = decision.overdue_below
        if decision.refuse_sends:
            self._store.refuse(REFUSAL, decision.reason)
            self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + HOUSEKEEPING_SOON_MS * NS_PER_MS)
        else:
            self._store.allow(REFUSAL)
        if decision.remove:
            self._remove(decision, use)
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

    def _remove(self, decision: Retention, use: str) -> None:
        """Remove the oldest files once what replaced their records is durable, and a saved state that knows it."""
        files = decision.remove
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
            expired, early = files[: len(files) - decision.early], files[len(files) - decision.early :]
            paths = [*self._forget(expired, EXPIRED, use), *self._forget(early, DISK, use)]
            store.remove_paths(paths, self._look_now)

        self._store.save_durably(saved)

    def _forget(self, files: Sequence[RetainedFile], reason: str, use: str) -> list[Path]:
        """Take the oldest files out of the log, and say so. The paths to be removed."""
        if not files:
            return []
        store, went_unread = self._store, self._going_unread()
        names = [segment.path.name for segment in store.log.sequence.segments[: len(files)]]
        paths = store.drop_first_segments(len(files))
        unread = went_unread()
        self.removed[reason] += len(files)
        self.unread[reason] += sum(one.messages for one in unread)
        if reason == EXPIRED:
            logger.info("removing %d commit log files up to offset %d", len(files), files[-1].end)
            return paths
        self._early_free = self.disk_free_bytes
        self._early_again_ns = self._clock.monotonic_ns() + store.settings.clean_resource_interval_ms * NS_PER_MS
        now_ms = self._clock.now_ms()
        ages = ", ".join(
            f"{name} ({(now_ms - file.modified_ms) / HOUR_MS:.1f} h old)"
            for name, file in zip(names, files, strict=True)
        )
        logger.warning(
            "commit log files go before their time, for the disk has too little room (%s): %s; %s",
            use, ages, _unread_text(unread), extra={"event": "files_go_early"},
        )  # fmt: skip
        return paths

    def _look_now(self) -> None:
        """There may be more room than was seen, or less."""
        self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns())

    def _is_said(self, files: Sequence[RetainedFile]) -> bool:
        """Whether nothing is lost with these files that only they say; else they are looked at again soon."""
        is_said = self._say_below(files[-1].end)
        if not is_said:
            self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + HOUSEKEEPING_SOON_MS * NS_PER_MS)
        return is_said


def _unread_text(unread: Sequence[Unread]) -> str:
    if not unread:
        return "every group with an offset had read them"
    named = ", ".join(f"{one.group} on {one.topic} ({one.messages} messages)" for one in unread[:UNREAD_NAMED_MAX])
    more = f" and {len(unread) - UNREAD_NAMED_MAX} more" if len(unread) > UNREAD_NAMED_MAX else ""
    return f"not read by {named}{more}"
