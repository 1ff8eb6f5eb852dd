"""Where queues go on whose messages are all gone, as a recorded table: a slave that begins with the oldest byte that is left gets no record
of such a queue. Once it leads, it would number its next message 0, and consumers, which are further, would pass it by.

Rules of this file
1. A queue is in the table while the log has none of its messages. Its end is recorded before retention takes the file of the last one.
2. A queue with messages on their way into the log is in no table: these say where it goes on.
3. What the log says of a queue never counts where the queue has a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import msgspec

from orbitmq.broker.table_records.changes import KeyChanges
from orbitmq.broker.table_records.word_reading import WordReading
from orbitmq.protocol.names import TABLES_TOPIC
from orbitmq.protocol.remoting.bodies import DataVersion
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.queues import ConsumeQueues


class RecordedQueueEnds:
    """A key is `topic/queue id`; its value the number of the next message."""

    record_name: ClassVar[str] = "queueEnds"
    is_gathered: ClassVar[bool] = False

    def __init__(self, reading: WordReading, queues: ConsumeQueues) -> None:
        self._reading = reading
        self._queues = queues
        self._below = 0
        """Records below this log position are gone, or about to go."""
        self._taken: dict[str, int] = {}
        """What the log said since the last `settle`."""
        self.version = DataVersion()
        self.changes = KeyChanges()

    def recorded_keys(self) -> Iterable[str]:
        return [_key(queue) for queue in self._gone()]

    def recorded_value(self, key: str) -> bytes | None:
        queue = self._queues.get(*_queue_of(key))
        return msgspec.json.encode(queue.max_offset) if queue is not None and self._gone([queue]) else None

    def _gone(self, queues: Iterable[ConsumeQueue] | None = None) -> list[ConsumeQueue]:
        """Of these queues, or all, those that had messages, of which the log has none any more."""
        below = max(self._below, self._reading.log_start)
        return [
            queue
            for queue in (self._queues if queues is None else queues)
            if queue.max_physical <= below and 0 < queue.max_offset == queue.next_offset and queue.topic != TABLES_TOPIC
        ]

    def take(self, values: Mapping[str, bytes | None], version: DataVersion | None) -> None:
        """It counts with `settle`: what is dispatched together may end the topic."""
        for key, value in values.items():
            if value is None:
                self._taken.pop(key, None)
            else:
                _queue_of(key)
                self._taken[key] = msgspec.json.decode(value, type=int)
        self.changes.discard(values)

    def settle(self) -> None:
        """Queues without a message go on where the log says."""
        if self._taken:
            for key, end in self._taken.items():
                self._queues.for_append(*_queue_of(key), end)
            self._taken = {}

    def differs(self, key: str, value: bytes | None) -> bool:
        return value is not None and self._queues.get(*_queue_of(key)) is None

    def is_newer_than(self, version: DataVersion | None) -> bool:
        return False

    def say_again(self) -> None:
        """Its places in the log say what is said."""

    def unsaid_below(self, position: int) -> list[str]:
        """As `OutlivingTable.unsaid_below`. Looks at all queues."""
        self._below = max(self._below, position)
        recorded_at, name = self._reading.recorded_at, self.record_name
        return [key for queue in self._gone() if recorded_at(name, key := _key(queue)) < queue.max_physical]


def _key(queue: ConsumeQueue) -> str:
    return f"{queue.topic}/{queue.queue_id}"


def _queue_of(key: str) -> tuple[str, int]:
    """Raises ValueError for what is no key."""
    topic, _, queue_id = key.rpartition("/")
    if not topic:
        raise ValueError(f"{key!r} names no queue")
    return topic, int(queue_id)
