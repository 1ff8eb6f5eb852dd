"""All consume queues of a store, as one structure derived from the log.

Rules of this file
1. A queue exists from its first message, or from the moment somebody appends to it; asking does not create it.
2. Units wait in memory until they are written; together they never exceed `QUEUE_TAILS_BYTES_MAX`. Then those that wait longest go first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from orbitmq.errors import StoreDamagedError
from orbitmq.limits.store import QUEUE_TAILS_BYTES_MAX
from orbitmq.protocol.names import TABLES_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.store.consume_queue import UNIT, UNIT_BYTES, Blocks, ConsumeQueue
from orbitmq.store.deleted_topics import DeletedTopics
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import Files
from orbitmq.store.known_queues import Head, KnownQueue, KnownQueues, KnownTopic, write_known_queues
from orbitmq.store.queue_runs import QueueRun, queue_runs
from orbitmq.store.segments import Segment

logger = logging.getLogger("orbitmq.store")


_ENDED_MARK: Final = Property.ENDED_TOPIC.encode() + b"\x01"
_NO_RUNS: Final[tuple[None, None]] = None, None


class ConsumeQueues:
    """The directory `consumequeue/<topic>/<queue id>`."""

    name = "consume_queues"

    def __init__(self, files: Files, directory: Path, segment_bytes: int) -> None:
        self._files = files
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._blocks = Blocks()
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self.known: Final[Mapping[tuple[str, int], ConsumeQueue]] = self._queues
        """By topic and queue id; for looking."""
        self._with_tail: dict[ConsumeQueue, int] = {}
        """Queues with units in memory -> log position of the record of the first of these; in the order of the positions."""
        self._unsynced: dict[ConsumeQueue, None] = {}
        self._syncing: dict[ConsumeQueue, None] = {}
        self._waiting_bytes = 0
        self._unit_count = 0
        """Sum of the ends of all queues."""
        self.deleted: Final = DeletedTopics()
        self.removed_directory = directory.with_name(directory.name + ".removed")
        """Queues of deleted topics, until the worker has removed them."""
        self.after_crash = False
        """Some may have read more than is here, before a crash or in the log of another: the `recovered_end` of each queue says how
        much it had then."""
        self._runs: tuple[Sequence[Dispatched] | None, Sequence[QueueRun] | None] = _NO_RUNS
        """The entries that were looked at last, until they are applied, and their runs."""
        self._names_unsynced = False
        self._sync_names = False
        self._ended: list[ConsumeQueue] = []
        """Queues that went because the log says so; perhaps a worker is syncing them."""
        self._empty: list[ConsumeQueue] = []
        """Queues that begin empty, and perhaps some that did."""
        self.searched_count = 0
        """Queues that `load` had to look at."""

    # --- loading ----------------------------------------------------------------------------------------------------

    def load(self, log_end: int, known: KnownQueues | None = None) -> None:
        """Take up every queue on disk; units of records beyond `log_end` do not count. Changes nothing on disk.

        Cost: 10 us for each queue that is as it was when `known` was written, and 100 us or more for the others.
        """
        for topic in self._topics(known):
            told = known.topic(topic) if known is not None else None
            queues = {queue.queue_id: queue for queue in told.queues} if told is not None else {}
            for queue_id in self._queue_ids(topic, told):
                self.searched_count += self.for_append(topic, queue_id).load(log_end, queues.get(queue_id))
        self._count_units()

    def _topics(self, known: KnownQueues | None) -> list[str]:
        before = known.head.directory if known is not None else None
        if known is not None and before is not None and self._files.fingerprint(str(self._directory)) == before:
            return known.topics
        return self._files.list_dir(self._directory)

    def _queue_ids(self, topic: str, known: KnownTopic | None) -> list[int]:
        place = f"{self._directory}/{topic}"
        if known is not None and known.directory is not None and self._files.fingerprint(place) == known.directory:
            return [queue.queue_id for queue in known.queues]
        names = self._files.list_dir(Path(place))
        for name in names:
            if not (name.isascii() and name.isdigit()):
                raise StoreDamagedError(f"{place}/{name} is not the number of a queue")
        return [int(name) for name in names]

    def save_known(self, boot: str, serial: int, log_start: int) -> None:
        """Write down where the queues stand, for the next start; `Head` says what the arguments are. To be called while nobody writes to
        them. Failing is no more than reported: the next start looks at the queues. Cost: 10 us for each queue."""
        topics: dict[str, list[KnownQueue | None]] = {}
        for queue in self._queues.values():
            topics.setdefault(queue.topic, []).append(queue.known())
        fingerprint = self._files.fingerprint
        head = Head(boot, serial, log_start, len(topics), fingerprint(str(self._directory)))
        told = (
            KnownTopic(
                name, None if None in queues else fingerprint(f"{self._directory}/{name}"), [*filter(None, queues)]
            )
            for name, queues in topics.items()
        )
        try:
            write_known_queues(self._files, self._directory.parent, head, told)
        except OSError as error:
            logger.warning(
                "where the consume queues stand could not be written down, the next start takes longer: %s", error
            )

    def cut(self, log_end: int) -> None:
        for queue in self._queues.values():
            if queue.cut(log_end):
                self._unsynced[queue] = None
        self._count_units()

    def cut_unsound(self, since: int, is_record: Callable[[int, int], bool]) -> None:
        """In every queue, drop what follows the first unit behind log position `since` that points at no record."""
        for queue in self._queues.values():
            if queue.cut_unsound(since, is_record):
                self._unsynced[queue] = None
        self._count_units()

    def _count_units(self) -> None:
        self._unit_count = sum(queue.max_offset for queue in self._queues.values())

    def correct_min_offsets(self, log_start: int) -> None:
        for queue in self._queues.values():
            queue.correct_min_offset(log_start)

    # --- access -----------------------------------------------------------------------------------------------------

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.get((topic, queue_id))

    def for_append(self, topic: str, queue_id: int, begin: int = 0) -> ConsumeQueue:
        """The queue, made where there is none. `begin`: the log says that its next message has that number, where no message of it is left;
        that is to be said again after every start, until the queue has one."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            place = f"{self._directory}/{topic}/{queue_id}"
            queue = ConsumeQueue(self._files, place, self._segment_bytes, topic, queue_id, self._blocks)
            self._queues[topic, queue_id] = queue
            if self.after_crash:
                queue.recovered_end = 0
        if begin and queue.begin_empty_at(begin):
            self._empty.append(queue)
            self._unit_count += begin
        return queue

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._queues.values())

    def ids_of(self, topic: str) -> list[int]:
        return sorted(queue_id for name, queue_id in self._queues if name == topic)

    # --- Derived ----------------------------------------------------------------------------------------------------

    def apply(self, entries: Sequence[Dispatched]) -> None:
        if self.deleted and entries:
            entries = self.deleted.left_of(entries)
        runs = self.runs(entries)
        self._runs = _NO_RUNS
        if runs is None:
            for entry in entries:
                self._apply_one(entry)
        else:
            for topic, queue_id, first, units, begin, end in runs:
                queue = self._queues.get((topic, queue_id)) or self.for_append(topic, queue_id)
                if queue.put_run(first, units, begin, end):
                    self._unit_count += len(units) // UNIT_BYTES
                    self._wait(queue, begin, len(units))
                else:
                    for number, unit in enumerate(UNIT.iter_unpack(units), first):
                        self._put(queue, number, *unit)
        while self._waiting_bytes >= QUEUE_TAILS_BYTES_MAX and self._with_tail:
            self._write_first()

    def runs(self, entries: Sequence[Dispatched]) -> Sequence[QueueRun] | None:
        """See `queue_runs`. Those of one list are asked for before it is written and when it is applied, and made once."""
        known, runs = self._runs
        if known is not entries:
            runs = queue_runs(entries, TABLES_TOPIC)
            self._runs = entries, runs
        return runs

    def _apply_one(self, entry: Dispatched) -> None:
        if entry.topic == TABLES_TOPIC:
            self._end_topic_of(entry)
        if entry.has_queue_unit:
            queue = self._queues.get((entry.topic, entry.queue_id)) or self.for_append(entry.topic, entry.queue_id)
            self._put(queue, entry.queue_offset, entry.physical_offset, entry.size, entry.tags_code)

    def _put(self, queue: ConsumeQueue, number: int, position: int, size: int, tags_code: int) -> None:
        before = queue.max_offset
        if queue.put(number, position, size, tags_code):
            self._unit_count += queue.max_offset - before
            self._wait(queue, position, UNIT_BYTES)

    def _wait(self, queue: ConsumeQueue, position: int, size: int) -> None:
        """Units of records from that log position on wait to be written."""
        self._with_tail.setdefault(queue, position)
        self._waiting_bytes += size

    def _end_topic_of(self, entry: Dispatched) -> None:
        """Where the record says that a topic was deleted, and its queues are still there, they go: somebody else deleted it, or this
        process before a crash."""
        if _ENDED_MARK not in entry.properties:
            return
        topic = decode_properties(entry.properties).get(Property.ENDED_TOPIC, "")
        at = entry.physical_offset
        if any(
            name == topic and queue.max_offset and queue.max_physical <= at for (name, _), queue in self._queues.items()
        ):
            self._ended += self.forget_topic(topic, at)

    def write(self) -> None:
        while self._with_tail:
            self._write_first()

    def write_below(self, position: int, queues_max: int) -> bool:
        """Write units of at most so many queues, those that wait longest. False while units of records below log position `position`
        are left in memory. Raises OSError; they stay there then. Cost: 20-50 us for each queue, 150 us where its file is made."""
        for _ in range(queues_max):
            if self._is_written(position):
                return True
            self._write_first()
        return self._is_written(position)

    def _is_written(self, position: int) -> bool:
        return next(iter(self._with_tail.values()), position) >= position

    def _write_first(self) -> None:
        queue = next(iter(self._with_tail))
        before = queue.tail_bytes
        try:
            queue.write_tail()
        finally:  # after an OSError the queue stays the first one
            self._waiting_bytes -= before - queue.tail_bytes
        del self._with_tail[queue]
        self._unsynced[queue] = None
        if not self._with_tail:
            self._waiting_bytes = 0  # recovery drops units of a queue that began anew

    def distrust_disk(self, synced_end: int) -> None:
        """After a crash: what is younger than the last durable save was perhaps never synced; the next one covers it."""
        self.after_crash = True
        for queue in self._queues.values():
            if queue.distrust_disk(synced_end):
                self._unsynced[queue] = None

    def begin_sync(self) -> None:
        """Name the queues that the next `datasync` covers; called on the owner's thread, while none is running."""
        for queue in self._ended:
            queue.close()
        self._ended = []
        self._sync_names |= self._names_unsynced
        self._names_unsynced = False
        self._syncing |= self._unsynced
        self._unsynced = {}

    def datasync(self) -> None:
        while not self.datasync_some(len(self._syncing)):
            pass

    def datasync_some(self, queues_max: int) -> bool:
        """A part of `datasync`: at most so many queues. False while some are left."""
        for queue in list(islice(self._syncing, queues_max)):
            try:
                queue.datasync()
            except FileNotFoundError:
                if not queue.forgotten:
                    raise
            del self._syncing[queue]
        if self._syncing:
            return False
        if self._sync_names:  # a deleted topic must not come back with the old name
            for directory in (self._directory, self.removed_directory):
                if self._files.exists(directory):
                    self._files.sync_dir(directory)
            self._sync_names = False
        return True

    def state(self) -> object:
        """Enough to notice that files were removed."""
        self._empty = [queue for queue in self._empty if queue.begins_empty and not queue.forgotten]
        return {"units": self._unit_count - sum(queue.max_offset for queue in self._empty)}

    # --- removal ----------------------------------------------------------------------------------------------------

    def forget_topic(self, topic: str, log_end: int) -> list[ConsumeQueue]:
        """Drop the topic's queues; what was appended below `log_end` gets no place any more, what follows begins anew.

        The files move to `removed_directory`, so that new ones can take their names at once. Returns the queues for the
        caller to close, on the worker: it may be syncing them.
        """
        forgotten = []
        for queue_id in self.ids_of(topic):
            queue = self._queues.pop((topic, queue_id))
            if self._with_tail.pop(queue, None) is not None:
                self._waiting_bytes -= queue.tail_bytes
            self._unsynced.pop(queue, None)
            self._unit_count -= queue.max_offset
            queue.forgotten = True
            forgotten.append(queue)
        self.deleted.add(topic, log_end)
        directory = self._directory / topic
        if self._files.exists(directory):
            self._files.make_dirs(self.removed_directory)
            number = 0  # a crash may have left some
            while self._files.exists(place := self.removed_directory / f"{log_end}-{number}"):
                number += 1
            self._files.rename(directory, place)
            self._names_unsynced = True
        return forgotten

    def expired_segments(self, log_start: int) -> list[Segment]:
        expired: list[Segment] = []
        for queue in self._queues.values():
            queue.correct_min_offset(log_start)
            expired += queue.expired_segments(log_start)
        return expired

    def close(self) -> None:
        for queue in (*self._queues.values(), *self._ended):
            queue.close()


def highest_physical(queues: ConsumeQueues) -> int:
    """End of the last record that any queue points to."""
    return max((queue.max_physical for queue in queues), default=0)


def restore_units(queues: ConsumeQueues, entries: Iterable[Dispatched]) -> int:
    """Records were mended in the log: write their units where queues have lost them; how many. Raises OSError."""
    count = 0
    for entry in entries:
        queue = queues.get(entry.topic, entry.queue_id) if entry.has_queue_unit else None
        if queue is not None:
            count += queue.restore(entry.queue_offset, entry.physical_offset, entry.size, entry.tags_code)
    return count
