"""Bugs to plant: a checker that does not catch them checks nothing.

Each is a context manager that breaks one rule of the store while it is active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest import mock

from orbitmq.broker.once import idempotence
from orbitmq.broker.once.idempotence import Idempotence
from orbitmq.broker.once.memory import OnceMemory
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.records import check_record
from orbitmq.store import recovery
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import UNIT, ConsumeQueue
from orbitmq.store.dispatch import Derived
from orbitmq.store.durability import PutStatus
from orbitmq.store.index import IndexService
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.saving import Saving
from orbitmq.store.segments import SegmentSequence
from orbitmq.store.store import MessageStore
from orbitmq.timing.levels.release import LevelRelease
from orbitmq.timing.timer_files.log import TimerLog
from orbitmq.timing.timers import ledger
from orbitmq.timing.timers.files import TimerFiles
from orbitmq.timing.timers.pending_journal import encode_run
from orbitmq.timing.timers.recovery import TimerRecovery


@contextmanager
def progress_saved_before_fdatasync() -> Iterator[None]:
    """The durable mark and the delay offsets are written first, the log is synced afterwards."""
    correct = Saving.synced_job

    def synced_job(
        self: Saving, derived: Sequence[Derived], log: CommitLog, confirmed: int
    ) -> Callable[[], None] | None:
        job = correct(self, derived, log, confirmed)
        if job is None:
            return None

        def early() -> None:
            with mock.patch.object(CommitLog, "datasync"):
                job()
            log.datasync()

        return early

    with mock.patch.object(Saving, "synced_job", synced_job):
        yield


@contextmanager
def acknowledged_before_written() -> Iterator[None]:
    """Senders are answered before the write."""
    correct = MessageStore.commit

    def commit(self: MessageStore) -> None:
        waiters, self._turn_waiters = self._turn_waiters, []
        for _, _, told in waiters:
            told(PutStatus.PUT_OK)
        correct(self)

    with mock.patch.object(MessageStore, "commit", commit):
        yield


@contextmanager
def delivered_marked_at_taking() -> Iterator[None]:
    """A delayed message counts as delivered when it is taken, not when its delivery is in the log."""
    correct = LevelRelease._take_due

    def take_due(self: LevelRelease, now_ms: int) -> list[tuple[int, int, int]]:
        taken = correct(self, now_ms)
        for physical, _, _ in taken:
            self._finish(physical)
        return taken

    with mock.patch.object(LevelRelease, "_take_due", take_due):
        yield


@contextmanager
def torn_record_accepted() -> Iterator[None]:
    """Recovery believes the sizes of a record and does not look whether all of it was written."""

    def check(buffer: Any, at: int, end: int, **options: Any) -> Any:
        with mock.patch("orbitmq.protocol.records._runs_out", return_value=False):
            return check_record(buffer, at, end, **options | {"crc": False})

    with (
        mock.patch.object(recovery, "check_record", check),
        mock.patch.object(recovery, "_has_lost_page", return_value=False),
    ):
        yield


@contextmanager
def queue_offset_kept_after_a_failed_write() -> Iterator[None]:
    """Messages whose write failed keep their places in their queues."""

    class Stuck(ConsumeQueue):
        __slots__ = ("_highest",)

        @property
        def next_offset(self) -> int:  # type: ignore[override]
            return self._highest

        @next_offset.setter
        def next_offset(self, value: int) -> None:
            if value >= getattr(self, "_highest", 0) or value == self.max_offset:
                self._highest = max(value, getattr(self, "_highest", 0))

    with mock.patch("orbitmq.store.queues.ConsumeQueue", Stuck):
        yield


@contextmanager
def consume_queue_gap_closed_up() -> Iterator[None]:
    """Consume queues are not synced before the mark speaks of them, and a unit that would leave a gap is put after the
    last one, as RocketMQ does.

    What would notice first is out of the way: the mark does not count the units (queues that lost their ends would be
    made again), and the timer queue is synced (the journal of pending timers would refuse a shorter one).
    """
    correct = ConsumeQueue.put

    def datasync(self: ConsumeQueues) -> None:
        syncing, self._syncing = self._syncing, {}
        for queue in syncing:
            if queue.topic == TIMER_TOPIC:
                queue.datasync()

    def put(self: ConsumeQueue, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> bool:
        if queue_offset > self.max_offset:
            self._tail += UNIT.pack(physical_offset, size, tags_code)
            self.max_offset += 1
            self.next_offset = max(self.next_offset, self.max_offset)
            self.max_physical = physical_offset + size
            return True
        return correct(self, queue_offset, physical_offset, size, tags_code)

    with (
        mock.patch.object(ConsumeQueue, "put", put),
        mock.patch.object(ConsumeQueues, "datasync", datasync),
        mock.patch.object(ConsumeQueues, "state", return_value=None),
    ):
        yield


@contextmanager
def consume_queues_not_synced() -> Iterator[None]:
    """The mark speaks of units that were never synced."""
    with mock.patch.object(ConsumeQueues, "datasync"):
        yield


@contextmanager
def torn_end_not_zeroed() -> Iterator[None]:
    """Cutting moves the end and leaves the old bytes behind it."""
    with mock.patch.object(SegmentSequence, "cut"):
        yield


@contextmanager
def sources_forgotten() -> Iterator[None]:
    """Recovery does not look which delayed messages the records in the log deliver."""
    correct = LevelRelease.apply

    def apply(self: LevelRelease, entries: Sequence[Any]) -> None:
        if self._store is not None:
            correct(self, entries)
        else:
            with mock.patch.object(LevelRelease, "_finish"):
                correct(self, entries)

    with mock.patch.object(LevelRelease, "apply", apply):
        yield


@contextmanager
def unsynced_files_trusted() -> Iterator[None]:
    """What a killed process wrote is taken for synced."""
    with mock.patch.object(SegmentSequence, "distrust_disk"), mock.patch.object(IndexService, "distrust_disk"):
        yield


@contextmanager
def keys_believed_without_their_log() -> Iterator[None]:
    """The journal of idempotent sends is believed to its end, whatever became of the log."""
    with mock.patch.object(idempotence, "_is_believed", return_value=True):
        yield


@contextmanager
def keys_not_collected_from_the_log() -> Iterator[None]:
    """A start knows the idempotent sends of the journal and none behind it."""
    with mock.patch.object(Idempotence, "_learn"):
        yield


@contextmanager
def keys_lost_with_a_shorter_journal() -> Iterator[None]:
    """Making the journal shorter keeps the current epochs only."""
    correct = OnceMemory.live_epochs

    def live_epochs(self: OnceMemory) -> frozenset[tuple[str, int]]:
        newest: dict[str, int] = {}
        for scope, epoch in correct(self):
            newest[scope] = max(epoch, newest.get(scope, 0))
        return frozenset(newest.items())

    with mock.patch.object(OnceMemory, "live_epochs", live_epochs):
        yield


@contextmanager
def timer_log_not_synced() -> Iterator[None]:
    """The journal speaks of units that were never synced."""
    with mock.patch.object(TimerLog, "datasync"):
        yield


@contextmanager
def timers_linked_twice() -> Iterator[None]:
    """A start does not know which records have a unit already."""
    correct = TimerFiles._restore

    def restore(self: TimerFiles, *arguments: Any) -> None:
        correct(self, *arguments)
        self.linked_until = 0

    with mock.patch.object(TimerFiles, "_restore", restore):
        yield


@contextmanager
def finished_timers_forgotten() -> Iterator[None]:
    """The journal of pending timers does not say which are finished."""
    with mock.patch.object(ledger, "encode_finished", return_value=encode_run(0, 0)):
        yield


@contextmanager
def units_of_lost_records_kept() -> Iterator[None]:
    """What the log lost stays linked."""
    with mock.patch.object(TimerFiles, "unlink_beyond", return_value=0):
        yield


@contextmanager
def timers_believed_without_their_log() -> Iterator[None]:
    """The journal of pending timers is believed to its end, whatever became of the log."""
    with mock.patch.object(TimerRecovery, "_is_believed", return_value=True):
        yield


PLANTED: dict[str, Callable[[], AbstractContextManager[None]]] = {
    bug.__name__: bug
    for bug in (
        progress_saved_before_fdatasync,
        acknowledged_before_written,
        delivered_marked_at_taking,
        torn_record_accepted,
        queue_offset_kept_after_a_failed_write,
        consume_queue_gap_closed_up,
        consume_queues_not_synced,
        torn_end_not_zeroed,
        sources_forgotten,
        unsynced_files_trusted,
        keys_believed_without_their_log,
        keys_not_collected_from_the_log,
        keys_lost_with_a_shorter_journal,
        timer_log_not_synced,
        timers_linked_twice,
        finished_timers_forgotten,
        units_of_lost_records_kept,
        timers_believed_without_their_log,
    )
}


def planted(name: str | None) -> AbstractContextManager[None]:
    """The named bug; with None nothing is broken."""
    return nullcontext() if name is None else PLANTED[name]()
