"""Timer messages: what is pending, and releasing it at the exact millisecond.

Rules of this file
1. What is pending is a function of the log: timers learn of new, delivered and changed messages through `apply` alone, in a
   running broker as in recovery.
2. The identity of a pending message is the queue offset of its record in the timer topic.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from orbitmq.clock import Clock
from orbitmq.protocol.records import Record
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import PutStatus
from orbitmq.store.files import Files
from orbitmq.store.message import NewMessage
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.store import MessageStore
from orbitmq.timing.timers.facts import FinishedTimer, TimerFacts

WAKEUP: Final = "timers"


class TimerState(enum.Enum):
    """What can be done with a timer record now."""

    PENDING = "pending"
    LEAVING = "leaving"
    """Taken for delivery, or being changed, at this moment: it is too late for another change."""
    GONE = "gone"
    """Delivered, changed, moved, cancelled, or never there."""


class TimerRecord(NamedTuple):
    """A pending timer message, read and verified."""

    queue_offset: int
    physical_offset: int
    size: int
    deliver_ms: int
    topic: str
    """Where it goes, and `queue_id` there."""
    queue_id: int
    unique_key: str | None
    keys: str | None
    record: Record


class TimerSettings(msgspec.Struct, frozen=True):
    """Of one store."""

    precision_ms: int = 1_000
    roll_window_slots: int = 172_800
    log_file_bytes: int = 100 * 1024 * 1024


class Timers:
    """The timer messages of one store. Hand it to `open_store` as derived structure, then `attach` the store."""

    name = "timers"

    def __init__(self, files: Files, root: Path, clock: Clock, settings: TimerSettings) -> None:
        self.linked: list[Callable[[Sequence[TimerFacts]], None]] = []
        """Told from `apply` of every batch of records that came into the timer topic, cancellations among them."""
        self.finished: list[Callable[[Sequence[FinishedTimer]], None]] = []
        """Told from `apply`, after `linked`, of every batch of records that are pending no longer."""
        self.paused = False
        """While true nothing is released; due messages wait. For maintenance and tests."""

    # --- what the log says (Derived, Recoverable) ---------------------------------------------------------------------

    def apply(self, entries: Sequence[Dispatched]) -> None: ...

    def state(self) -> object: ...

    def write(self) -> None: ...

    def begin_sync(self) -> None: ...

    def datasync(self) -> None: ...

    def restore(self, log: CommitLog, queues: ConsumeQueues, state: object, position: int | None) -> int: ...

    def finish_restore(self) -> None: ...

    def attach(self, store: MessageStore) -> None:
        """Begin to release into `store`."""

    # --- what is pending ----------------------------------------------------------------------------------------------

    def state_of(self, queue_offset: int) -> TimerState:
        """Cost: less than a microsecond."""
        raise NotImplementedError

    def read(self, queue_offset: int) -> TimerRecord | None:
        """The pending record, read and verified; None when it is not pending, or damaged (the release quarantines it).
        May touch the disk for an old record."""
        raise NotImplementedError

    def change(
        self,
        source: TimerRecord,
        messages: Sequence[NewMessage],
        *,
        wait: bool,
        told: Callable[[PutStatus], None],
    ) -> None:
        """Append `messages`, the first of which names the source, as one change.

        From now on the source is LEAVING: it is not released. When the append fails it is pending again. `told` comes when the
        change is as durable as `wait` asks, from the end of this turn on. Raises ValueError when the source is not PENDING,
        StoreUnwritableError and RecordError when nothing was appended.
        """
        raise NotImplementedError

    def slot_count(self, slot_ms: int) -> int:
        """How many messages are pending in the slot, exactly. Asked at every send while `timerCongestNumEachSlot` is set."""
        raise NotImplementedError

    @property
    def pending_count(self) -> int:
        raise NotImplementedError

    @property
    def next_due_ms(self) -> int | None:
        """A time at or before the next due time and after everything released so far; None when nothing is pending."""
        raise NotImplementedError

    @property
    def is_releasing(self) -> bool:
        raise NotImplementedError

    def clock_moved(self) -> None:
        """The wall clock was set: look at once."""

    def pending_units(self) -> Iterator[tuple[None, int, int]]:
        """(None, log position, due time) of every pending message in the order of the timer topic. Reads every record."""
        raise NotImplementedError

    def pending_below(self, position: int, limit: int) -> Iterator[tuple[int, int]]:
        """(log position, size) of at most `limit` pending records that begin below a log position, in log order."""
        raise NotImplementedError

    def lowest_needed(self) -> int | None:
        """Log position of the oldest pending record; retention must not take its file. None when nothing is pending."""
        raise NotImplementedError
