"""All consume queues of a store, as one structure derived from the log.

Rules of this file
1. A queue exists from its first message, or from the moment somebody appends to it; asking does not create it.
2. Units wait in memory until `write`; together they never exceed `TAIL_TOTAL_BYTES_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from orbitmq.errors import StoreDamagedError
from orbitmq.store.consume_queue import UNIT_BYTES, ConsumeQueue
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import Files
from orbitmq.store.segments import Segment

TAIL_TOTAL_BYTES_MAX = 1024 * 1024
"""Units of all queues that may wait in memory; then they are written whether a save is due or not."""


class ConsumeQueues:
    """The directory `consumequeue/<topic>/<queue id>`."""

    name = "consume_queues"

    def __init__(self, files: Files, directory: Path, segment_bytes: int) -> None:
        self._files = files
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self.known: Final[Mapping[tuple[str, int], ConsumeQueue]] = self._queues
        """By topic and queue id; for looking."""
        self._with_tail: dict[ConsumeQueue, None] = {}  # ordered, as a seed must repeat a run
        self._unsynced: dict[ConsumeQueue, None] = {}
        self._syncing: dict[ConsumeQueue, None] = {}
        self._waiting_bytes = 0
        self._deleted: dict[str, int] = {}
        """Topic -> log position below which its messages count no more, until dispatch has passed it."""
        self.removed_directory = directory.with_name(directory.name + ".removed")
        """Queues of deleted topics, until the worker has removed them."""
        self._names_unsynced = False
        self._sync_names = False
        self.ignored_count = 0
        """Entries that were there already; only recovery meets any."""

    # --- loading ----------------------------------------------------------------------------------------------------

    def load(self, log_end: int) -> None:
        """Open every queue on disk; units of records beyond `log_end` do not count. Changes nothing on disk."""
        for topic in self._files.list_dir(self._directory):
            for name in self._files.list_dir(self._directory / topic):
                if not (name.isascii() and name.isdigit()):
                    raise StoreDamagedError(f"{self._directory / topic / name} is not the number of a queue")
                queue = self.for_append(topic, int(name))
                queue.load(log_end)

    def cut(self, log_end: int) -> None:
        for queue in self._queues.values():
            queue.cut(log_end)

    def cut_unsound(self, since: int, is_record: Callable[[int, int], bool]) -> None:
        """In every queue, drop what follows the first unit behind log position `since` that points at no record."""
        for queue in self._queues.values():
            queue.cut_unsound(since, is_record)

    def correct_min_offsets(self, log_start: int) -> None:
        for queue in self._queues.values():
            queue.correct_min_offset(log_start)

    # --- access -----------------------------------------------------------------------------------------------------

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.get((topic, queue_id))

    def for_append(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            directory = self._directory / topic / str(queue_id)
            queue = ConsumeQueue(self._files, directory, self._segment_bytes, topic, queue_id)
            self._queues[topic, queue_id] = queue
        return queue

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._queues.values())

    def ids_of(self, topic: str) -> list[int]:
        return sorted(queue_id for name, queue_id in self._queues if name == topic)

    def highest_physical(self) -> int:
        """End of the last record that any queue points to."""
        return max((queue.max_physical for queue in self._queues.values()), default=0)

    # --- Derived ----------------------------------------------------------------------------------------------------

    def apply(self, entries: Sequence[Dispatched]) -> None:
        queues, with_tail = self._queues, self._with_tail
        if self._deleted and entries:
            entries = self._without_deleted(entries)
        topic, queue_id, queue = "", -1, None
        for entry in entries:
            if queue is None or entry.queue_id != queue_id or entry.topic != topic:  # batches stay in one queue
                topic, queue_id = entry.topic, entry.queue_id
                queue = queues.get((topic, queue_id)) or self.for_append(topic, queue_id)
            if entry.sys_flag & 0xC and not entry.has_queue_unit:
                continue
            if queue.put(entry.queue_offset, entry.physical_offset, entry.size, entry.tags_code):
                with_tail[queue] = None
                self._waiting_bytes += UNIT_BYTES
            else:
                self.ignored_count += 1
        if self._waiting_bytes >= TAIL_TOTAL_BYTES_MAX:
            self.write()

    def _without_deleted(self, entries: Sequence[Dispatched]) -> list[Dispatched]:
        kept = [entry for entry in entries if entry.physical_offset >= self._deleted.get(entry.topic, 0)]
        if entries[-1].physical_offset >= max(self._deleted.values()):
            self._deleted.clear()
        return kept

    def write(self) -> None:
        while self._with_tail:
            queue = next(iter(self._with_tail))
            queue.write_tail()  # raises OSError: the queue stays in the set
            self._with_tail.pop(queue, None)
            self._unsynced[queue] = None
        self._waiting_bytes = 0

    def distrust_disk(self, synced_end: int) -> None:
        """After a crash: what is younger than the last durable save was perhaps never synced; the next one covers it."""
        for queue in self._queues.values():
            queue.distrust_disk(synced_end)
            self._unsynced[queue] = None

    def begin_sync(self) -> None:
        """Name the queues that the next `datasync` covers; called on the owner's thread."""
        self._sync_names |= self._names_unsynced
        self._names_unsynced = False
        self._syncing |= self._unsynced
        self._unsynced = {}

    def datasync(self) -> None:
        for queue in self._syncing:
            try:
                queue.datasync()
            except FileNotFoundError:
                if not queue.forgotten:
                    raise
        self._syncing = {}
        if self._sync_names:  # a deleted topic must not come back with the old name
            for directory in (self._directory, self.removed_directory):
                if self._files.exists(directory):
                    self._files.sync_dir(directory)
            self._sync_names = False

    def state(self) -> object:
        """Enough to notice that files were removed."""
        return {"units": sum(queue.max_offset for queue in self._queues.values())}

    # --- removal ----------------------------------------------------------------------------------------------------

    def forget_topic(self, topic: str, log_end: int) -> list[ConsumeQueue]:
        """Drop the topic's queues; what was appended below `log_end` gets no place any more, what follows begins anew.

        The files move to `removed_directory`, so that new ones can take their names at once. Returns the queues for the
        caller to close, on the worker: it may be syncing them.
        """
        forgotten = []
        for queue_id in self.ids_of(topic):
            queue = self._queues.pop((topic, queue_id))
            self._with_tail.pop(queue, None)
            self._unsynced.pop(queue, None)
            queue.forgotten = True
            forgotten.append(queue)
        self._deleted[topic] = log_end
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
        for queue in self._queues.values():
            queue.close()
