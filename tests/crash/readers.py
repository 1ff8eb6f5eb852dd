"""A consumer group of the crash tests: it goes on from the offsets that the broker saved, before a crash and after it.

Rules of this file
1. What it was given is kept over all lives; so a message that it is never given was skipped.
2. It reads what a consumer may read, and commits behind that. The table is saved when the life says so, as in a broker.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.worlds.little_store import SteppedWorker

from orbitmq.broker.offsets import OffsetTable
from orbitmq.broker.settings import BrokerSettings
from orbitmq.clock import Clock
from orbitmq.errors import JobRefusedError
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import decode_record
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import Files
from orbitmq.store.store import MessageStore

GROUP = "readers"


class Broken(AssertionError):
    """A promise was not kept."""


class Readers:
    def __init__(
        self,
        root: Path,
        files: Files,
        clock: Clock,
        store: MessageStore,
        worker: SteppedWorker,
        known: Callable[[str, int], bool],
    ) -> None:
        """`known` says which queues the table of topics would have."""
        self._store = store
        self._worker = worker
        self._known = known
        self.table = OffsetTable(BrokerSettings(), ConfigFile(files, root / "config" / "consumerOffset.json"), clock)
        self.table.load()
        self.table.cut(self._end)

    def _end(self, topic: str, queue_id: int) -> int | None:
        queue = self._store.queues.get(topic, queue_id)
        if queue is not None:
            return queue.max_offset
        return 0 if self._known(topic, queue_id) else None

    def read(self, topic: str, queue_id: int, received: set[str]) -> None:
        """Take what is there and commit it."""
        offset = max(self.table.query(GROUP, topic, queue_id) or 0, self._store.min_offset(topic, queue_id))
        end = self._end(topic, queue_id) or 0
        if offset < end:
            received.update(key for key, _, _ in read_queue(self._store, self._worker, topic, queue_id, offset))
        if offset != end:  # one beyond the end is sent back, as a pull is
            self.table.commit(GROUP, topic, queue_id, end)

    def save(self) -> None:
        """As every few seconds in a broker: what is there now, on the worker."""
        if self.table.dirty:
            self._worker.submit(self.table.snapshot(), self._saved)

    def _saved(self, result: object) -> None:
        if isinstance(result, BaseException):
            self.table.dirty = True

    def check(self) -> None:
        """Raises Broken for an offset that speaks of messages that are not there."""
        for topic in self.table.topics_of(GROUP):
            for queue_id, offset in self.table.queues(GROUP, topic).items():
                if offset > (self._end(topic, queue_id) or 0):
                    raise Broken(f"the offset {offset} of {topic}/{queue_id} lies beyond the queue's end")


def read_queue(
    store: MessageStore, worker: SteppedWorker, topic: str, queue_id: int, offset: int
) -> Iterator[tuple[str, int, int]]:
    """(unique key, store timestamp, CRC-32 of the body) of every message from `offset` on."""
    queue = store.queues.get(topic, queue_id)
    while queue is not None and offset < queue.max_offset:
        result = store.get(topic, queue_id, offset, 32, 1 << 20)
        if result.cold:
            finished: list[object] = []
            store.read_cold(result, finished.append)
            worker.close()
            if isinstance(finished[0], JobRefusedError):
                return  # it is asked for again
            result = finished[0]  # type: ignore[assignment]
        if result.next_offset <= offset:
            raise Broken(f"reading {topic}/{queue_id} stands still at {offset}: {result.status}")
        position = offset
        data = b"".join(bytes(part) for part in result.records)
        at = 0
        while at < len(data):
            record = decode_record(data, at)
            at += record.total_size
            if record.queue_offset != position:
                raise Broken(f"{topic}/{queue_id}: unit {position} is message {record.queue_offset}")
            position += 1
            key = decode_properties(record.properties).get(Property.UNIQ_KEY, "")
            yield key, record.store_timestamp, zlib.crc32(record.body)
        if position != result.next_offset:
            raise Broken(f"{topic}/{queue_id}: a message between {position} and {result.next_offset} is missing")
        offset = result.next_offset
