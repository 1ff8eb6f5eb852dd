"""The log of a member as the core of the group sees it: how long it is, how safe, who wrote it; growing, cutting, confirming.

Rules of this file
1. Nothing is confirmed that the core did not confirm: copies are waited for in either role.
2. Nobody appends but the leader's marker, and what a leader does after it serves. A follower's log grows by bytes of the leader's alone.
3. Who wrote the log is read from its markers. What was removed with the beginning of the log stands in the file of what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import Final

from orbitmq.clock import Clock
from orbitmq.errors import RecordError, StoreUnwritableError
from orbitmq.limits.replication import EPOCH_MARKS_MAX
from orbitmq.protocol.names import EPOCHS_TOPIC
from orbitmq.protocol.records import decode_record
from orbitmq.replication.epoch_marks import EpochMark, EpochMarks
from orbitmq.replication.epoch_records import decode_marker, encode_marker
from orbitmq.replication.replica_steps import LogIs
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.message import NewMessage
from orbitmq.store.store import MessageStore
from orbitmq.timing.appending import NOT_ATTACHED

QUEUE: Final = 0


class GroupLog:
    """Of one open store. From here on it copies, until somebody lets it lead."""

    def __init__(
        self,
        store: MessageStore,
        kept: Iterable[EpochMark],
        clock: Clock,
        why_not_from: Callable[[int], str] = lambda start: "",
    ) -> None:
        """`kept`: marks that were in the log when they were saved. `why_not_from(start)`: why an empty log may not begin there; empty where
        it may. Raises RecordError for a marker that cannot be read, OSError."""
        self.store: Final = store
        self._why_not_from = why_not_from
        self._clock = clock
        store.only_copy(NOT_ATTACHED)
        store.confirmation.hold_for_copies(store.confirm_offset)
        self._marks = self._marks_found(kept)

    # --- what it is -----------------------------------------------------------------------------------------------------

    def state(self) -> LogIs:
        log = self.store.log
        return LogIs(log.written_end, log.synced_end, self._marks, log.start)

    @property
    def marks(self) -> tuple[EpochMark, ...]:
        return self._marks

    def _marks_found(self, kept: Iterable[EpochMark]) -> tuple[EpochMark, ...]:
        store = self.store
        queue = store.queues.get(EPOCHS_TOPIC, QUEUE)
        places: list[int] = []
        if queue is not None:
            begin = max(queue.min_offset, queue.max_offset - EPOCH_MARKS_MAX)
            places = [physical for physical, _, _ in queue.scan(begin, queue.max_offset) if physical >= store.log.start]
        places += [entry.physical_offset for entry in store.confirmation.tail if entry.topic == EPOCHS_TOPIC]
        found = [self._mark_at(place) for place in places]
        before = takewhile(lambda mark: not found or mark.start < found[0].start, kept)
        removed = [mark for mark in before if mark.start < store.log.start]
        return EpochMarks([*removed, *found]).marks

    def _mark_at(self, position: int) -> EpochMark:
        log = self.store.log
        head = log.read_written(position, 4)
        data = None if head is None else log.read_written(position, int.from_bytes(head, "big"))
        if data is None:
            raise RecordError(f"the record of an epoch at {position} is not there")
        return decode_marker(bytes(decode_record(data).body), position)

    # --- growing and cutting --------------------------------------------------------------------------------------------

    def append_marker(self, epoch: int, claim: str) -> None:
        """Of the process that leads by this claim. Written on return. Raises StoreUnwritableError, RecordError."""
        store = self.store
        store.commit()
        start = store.log.end
        mark = EpochMark(epoch, start, claim)
        message = NewMessage(EPOCHS_TOPIC, QUEUE, encode_marker(mark), b"", born_timestamp=self._clock.now_ms())

        def append() -> None:
            store.append(message, accepted=True)
            store.commit()

        store.append_to_copy(append)
        if store.log.written_end <= start:
            raise StoreUnwritableError(f"the record of epoch {epoch} could not be written: {store.trouble}")
        self._marks = EpochMarks([*self._marks, mark]).marks

    def begin(self, start: int, marks: Iterable[EpochMark]) -> None:
        """An empty log is going to begin there, behind what these epochs wrote. RecordError where it may not."""
        if why_not := self._why_not_from(start):
            raise RecordError(why_not)
        self._marks = EpochMarks(marks).marks

    def begin_session(self) -> None:
        """What came of a record that is not whole is forgotten: the next bytes begin at the end of the log."""
        self.store.begin_raw()

    def append(self, position: int, data: bytes) -> None:
        """Bytes of the leader's log. Raises RecordError, StoreUnwritableError; what was whole before is there then."""
        store, before = self.store, self.store.log.end
        try:
            store.append_raw(position, data)
        finally:
            if new := [entry for entry in self._tail_from(before) if entry.topic == EPOCHS_TOPIC]:
                found = [self._mark_at(entry.physical_offset) for entry in reversed(new)]
                self._marks = EpochMarks([*self._marks, *found]).marks

    def _tail_from(self, position: int) -> Iterator[Dispatched]:
        """What was written there and behind, the newest first."""
        return takewhile(lambda entry: entry.physical_offset >= position, reversed(self.store.confirmation.tail))

    def cut(self, to: int) -> int:
        """How many records went. ValueError where one of them is confirmed, or `to` lies inside one."""
        count = self.store.truncate(to)
        self._marks = tuple(mark for mark in self._marks if mark.start < to)
        return count

    # --- confirming -----------------------------------------------------------------------------------------------------

    def confirm(self, end: int) -> None:
        self.store.confirmation.copies_have(end)

    def answer_unknown(self, end: int | None = None) -> None:
        """Who waits for what ends there or before, or for anything, is told that it is not known what becomes of it."""
        confirmation = self.store.confirmation
        if end is None:
            confirmation.give_up_waiting()
        else:
            confirmation.give_up_waiting(end)

    @property
    def dispatched_end(self) -> int | None:
        """Up to where everything that is confirmed was dispatched; None while something could not be."""
        return None if self.store.is_behind else self.store.confirm_offset
