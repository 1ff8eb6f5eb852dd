"""Bugs to plant: a checker that does not catch them checks nothing.

Each is a context manager that breaks one rule of the store while it is active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from queue import Full
from typing import Any
from unittest import mock

from tests.worlds.little_store import SteppedWorker

from orbitmq.broker.idempotence import idempotence
from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.idempotence.memory import KeyMemory
from orbitmq.broker.offsets import OffsetTable
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.records import check_record
from orbitmq.store import recovery
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import UNIT, ConsumeQueue
from orbitmq.store.durability import PutStatus
from orbitmq.store.flushing import Flushing, Synced
from orbitmq.store.index import IndexService
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.reserve import Reserve
from orbitmq.store.segments import SegmentSequence
from orbitmq.store.store import MessageStore
from orbitmq.store.unit_writing import UnitsWritten, UnitWriting
from orbitmq.timing.index.directory import IndexDirectory, Work
from orbitmq.timing.index.journal import IndexJournal
from orbitmq.timing.index.parts import Parts
from orbitmq.timing.levels.release import LevelRelease
from orbitmq.timing.timers import ledger
from orbitmq.timing.timers import recovery as timer_recovery
from orbitmq.timing.timers.pending_journal import encode_run
from orbitmq.timing.timers.recovery import TimerRecovery


@contextmanager
def progress_saved_before_fdatasync() -> Iterator[None]:
    """A durable save does not wait for the sync of the log."""

    def when_synced(self: Flushing, told: Synced) -> None:
        told(True)

    with mock.patch.object(Flushing, "when_synced", when_synced):
        yield


@contextmanager
def worker_flags_left_set() -> Iterator[None]:
    """A worker without a place raises, behind the notes of those who have just written down that their job runs."""
    correct = SteppedWorker.submit

    def submit(self: SteppedWorker, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        if self.is_full:
            raise Full
        correct(self, job, done)

    with mock.patch.object(SteppedWorker, "submit", submit):
        yield


@contextmanager
def nothing_set_aside() -> Iterator[None]:
    """What has to be written on a full disk finds no room either."""
    with mock.patch.object(Reserve, "spend"):
        yield


@contextmanager
def torn_write_not_undone() -> Iterator[None]:
    """What a failed write left behind the end stays there."""

    def mend(self: CommitLog) -> None:
        self._torn.clear()

    with mock.patch.object(CommitLog, "mend", mend):
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

    def datasync_some(self: ConsumeQueues, queues_max: int) -> bool:
        syncing, self._syncing = self._syncing, {}
        for queue in syncing:
            if queue.topic == TIMER_TOPIC:
                queue.datasync()
        return True

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
        mock.patch.object(ConsumeQueues, "datasync_some", datasync_some),
        mock.patch.object(ConsumeQueues, "state", return_value=None),
    ):
        yield


@contextmanager
def consume_queues_not_synced() -> Iterator[None]:
    """The mark speaks of units that were never synced."""
    with mock.patch.object(ConsumeQueues, "datasync_some", return_value=True):
        yield


@contextmanager
def units_noted_before_they_are_written() -> Iterator[None]:
    """A mark is noted although units of records below its position are in memory. The count of units, which would notice, is out of
    the way."""

    def below(self: UnitWriting, position: int, told: UnitsWritten) -> None:
        told(None)

    with (
        mock.patch.object(UnitWriting, "below", below),
        mock.patch.object(ConsumeQueues, "state", return_value=None),
    ):
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
    correct = KeyMemory.live_epochs

    def live_epochs(self: KeyMemory) -> frozenset[tuple[str, int]]:
        newest: dict[str, int] = {}
        for scope, epoch in correct(self):
            newest[scope] = max(epoch, newest.get(scope, 0))
        return frozenset(newest.items())

    with mock.patch.object(KeyMemory, "live_epochs", live_epochs):
        yield


@contextmanager
def offsets_not_cut() -> Iterator[None]:
    """Saved consumer offsets are believed, whatever became of the log."""
    with mock.patch.object(OffsetTable, "cut", return_value=[]):
        yield


@contextmanager
def offsets_of_a_deleted_topic_kept() -> Iterator[None]:
    """A deletion leaves the saved offsets to the next save."""
    correct = OffsetTable.drop_topic

    def drop_topic(self: OffsetTable, topic: str) -> None:
        correct(self, topic)
        self.dirty = False

    with mock.patch.object(OffsetTable, "drop_topic", drop_topic):
        yield


@contextmanager
def runs_listed_before_they_are_synced() -> Iterator[None]:
    """The manifest of the index names runs that a power failure may take."""
    correct = IndexDirectory.save

    def save(self: IndexDirectory, work: Work) -> None:
        correct(self, work._replace(sync=[]))

    with mock.patch.object(IndexDirectory, "save", save):
        yield


@contextmanager
def index_journals_not_synced() -> Iterator[None]:
    """What is in no run yet a power failure may take."""
    with mock.patch.object(IndexJournal, "datasync"):
        yield


@contextmanager
def finished_timers_forgotten() -> Iterator[None]:
    """The journal of pending timers does not say which are finished."""
    with mock.patch.object(ledger, "encode_finished", return_value=encode_run(0, 0)):
        yield


@contextmanager
def entries_of_lost_records_kept() -> Iterator[None]:
    """The index is believed whatever became of the log."""
    with mock.patch.object(Parts, "_take_back"):
        yield


@contextmanager
def timers_believed_without_their_log() -> Iterator[None]:
    """The journal of pending timers is believed to its end, whatever became of the log."""
    with (
        mock.patch.object(TimerRecovery, "_is_believed", return_value=True),
        mock.patch.object(timer_recovery, "_stands", return_value=True),
    ):
        yield


PLANTED: dict[str, Callable[[], AbstractContextManager[None]]] = {
    bug.__name__: bug
    for bug in (
        progress_saved_before_fdatasync,
        worker_flags_left_set,
        nothing_set_aside,
        torn_write_not_undone,
        acknowledged_before_written,
        delivered_marked_at_taking,
        torn_record_accepted,
        queue_offset_kept_after_a_failed_write,
        consume_queue_gap_closed_up,
        consume_queues_not_synced,
        units_noted_before_they_are_written,
        torn_end_not_zeroed,
        sources_forgotten,
        unsynced_files_trusted,
        keys_believed_without_their_log,
        keys_not_collected_from_the_log,
        keys_lost_with_a_shorter_journal,
        offsets_not_cut,
        offsets_of_a_deleted_topic_kept,
        runs_listed_before_they_are_synced,
        index_journals_not_synced,
        finished_timers_forgotten,
        entries_of_lost_records_kept,
        timers_believed_without_their_log,
    )
}


def planted(name: str | None) -> AbstractContextManager[None]:
    """The named bug; with None nothing is broken."""
    return nullcontext() if name is None else PLANTED[name]()
