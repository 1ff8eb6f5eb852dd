"""Reading the book of recurring messages from the log, at a start and while a broker runs.

At a start the records of the recurring topic are read from the oldest definition that holds up to where the recovery mark ends. What
lies behind that comes with `apply`, in recovery's scan of the log as in a running broker. What this process appended stands in the
book already (it is *noted*); everything else is read, whoever appended it. A turn writes its runs and the record of the progress at
once, so they come together. Only the end of a log that was torn off may hold runs without such a record: they are found by
their properties, and they are progress all the same. `unsettled` are the messages whose progress is still to be written because
of that; until then every start scans from the first of those runs on.

Rules of this file
1. Records and runs are taken in the order of the log, each once. A change of our own that lies behind a record of somebody else
   was made without knowing it: it is taken back, and read again when its turn comes.
2. A record that cannot be read is reported and left where it is. What it said is lost for this start, the others are not.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec

from orbitmq.errors import ConfigurationError, RecordError
from orbitmq.protocol.names import RECURRING_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import decode_record
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.queues import ConsumeQueues
from orbitmq.timing.recurrence.book import RecurrenceBook
from orbitmq.timing.recurrence.records import decode
from orbitmq.timing.recurrence.state import RecurringState, RunPlace, RunProgress

logger = logging.getLogger("orbitmq.timing")

_RUN_MARK: Final = Property.RUN.encode() + b"\x01"

NOTHING: Final[AbstractSet[str]] = frozenset()


class BookReading:
    """Keeps a book as the log says."""

    def __init__(self, book: RecurrenceBook) -> None:
        self._book = book
        self._log: CommitLog | None = None
        self.unsettled: dict[str, int] = {}
        """Name -> log position of its first run that no record of progress follows."""
        self.unreadable_count = 0

    def state(self) -> dict[str, int]:
        """What the recovery mark keeps: where to read from."""
        oldest = self._book.oldest()
        state = {"first": self._book.next_offset if oldest is None else oldest.queue_offset}
        if self.unsettled:
            state["unsettled_from"] = min(self.unsettled.values())
        return state

    def restore(self, log: CommitLog, queues: ConsumeQueues, state: object, position: int | None) -> int:
        """As `Recoverable.restore`. Costs about 25 us for each record of the recurring topic that is read.

        Without a mark of ours all of them are read, and the log from the last one on is needed: runs without a record of
        their progress can only be there.
        """
        self._log = log
        queue = queues.get(RECURRING_TOPIC, 0)
        if position is None:
            if queue is None or not queue.max_offset:
                return log.end_of_files
            newest = 0
            for offset, (physical, size, _) in enumerate(
                queue.scan(queue.min_offset, queue.max_offset), queue.min_offset
            ):
                self._read(offset, physical, size)
                newest = physical
            self._book.confirm(log.end_of_files)
            return newest if len(self._book) else log.end_of_files
        saved: dict[str, Any] = state if isinstance(state, dict) else {}
        needed = int(saved.get("unsettled_from", position))
        first = self._book.next_offset = int(saved.get("first", 0))
        if queue is not None:
            if first < queue.min_offset:
                logger.error("%d records of recurring messages are gone", queue.min_offset - first)
                first = queue.min_offset
            for offset, (physical, size, _) in enumerate(queue.scan(first, queue.max_offset), first):
                if physical >= needed:
                    break
                self._read(offset, physical, size)
            self._book.confirm(needed)
        return needed

    def apply(self, entries: Sequence[Dispatched]) -> AbstractSet[str]:
        """Entries of the log in its order, of which some may have been given before. Answers about which messages they said
        something new. Costs a comparison for an entry of something else, and where messages recur a look at its properties."""
        book = self._book
        if book.is_blank:
            for entry in entries:
                if entry.topic == RECURRING_TOPIC:
                    break
            else:
                return NOTHING
        changed: set[str] = set()
        for entry in entries:
            if entry.topic == RECURRING_TOPIC:
                book.confirm(entry.physical_offset)
                if book.first_noted == entry.physical_offset:
                    self.unsettled.pop(book.first_name, None)  # what it says was in the book, now it is in the log
                    continue
                changed.update(book.take_back(entry.physical_offset))
                if entry.queue_offset >= book.next_offset:
                    changed.add(self._read(entry.queue_offset, entry.physical_offset, entry.size))
            elif len(book) and entry.properties.rfind(_RUN_MARK) >= 0:
                self._found_run(entry, changed)
        if entries:
            book.confirm(entries[-1].end_offset)
        changed.discard("")
        return changed

    def _read(self, queue_offset: int, physical_offset: int, size: int) -> str:
        """Take in a record; answers whose it is, nothing where it cannot be read."""
        assert self._log is not None
        view = self._log.sound_record(physical_offset)
        try:
            if view is None:
                raise RecordError("the record in the commit log is damaged or gone")
            record = decode(bytes(decode_record(view).body), f"log position {physical_offset}")
        except RecordError as error:
            self.unreadable_count += 1
            self._book.next_offset = queue_offset + 1
            logger.error("record %d of the recurring messages, at %d: %s", queue_offset, physical_offset, error)
            return ""
        name = self._book.note(record, queue_offset, physical_offset, size)
        self.unsettled.pop(name, None)
        return name

    def _found_run(self, entry: Dispatched, changed: set[str]) -> None:
        """A run is in the log. If it is one that its message does not know of, it is progress."""
        values = decode_properties(entry.properties)
        state = self._book.get(values.get(Property.RECURRING, ""))
        planned_ms = _number(values.get(Property.PLANNED_MS))
        if state is None or planned_ms is None or planned_ms <= state.progress.settled_ms:
            return
        if not _is_run_of(state, planned_ms, entry, _number(values.get(Property.RUN))):
            return
        progress = RunProgress(
            settled_ms=planned_ms,
            stored_count=state.progress.stored_count + 1,
            last=RunPlace(entry.queue_id, entry.queue_offset),
        )
        self._book.progress(msgspec.structs.replace(state, progress=progress), entry.physical_offset)
        self.unsettled.setdefault(state.name, entry.physical_offset)
        changed.add(state.name)


def _is_run_of(state: RecurringState, planned_ms: int, entry: Dispatched, generation: int | None) -> bool:
    if generation != state.generation or entry.topic != state.message.topic:
        return False
    try:
        return state.schedule().id_at(planned_ms) == entry.unique_key
    except ConfigurationError:  # a rule that is not usable any more has no runs; its owner shows that
        return False


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
