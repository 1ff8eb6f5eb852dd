"""Giving new messages their places in the log: position, queue offset, store timestamp.

Rules of this file
1. A message that was given its place is in the log after the next write, or not at all: see `MessageStore.commit`.
2. The messages of a batch lie side by side, in one file. One file of the log, one store timestamp.
3. Records that come encoded are changed where they lie: their bytes belong to the log from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from orbitmq.clock import Clock
from orbitmq.errors import RecordError, StoreUnwritableError
from orbitmq.protocol.checksum import crc32
from orbitmq.protocol.records import QUEUE_OFFSET_AT, STORE_TIMESTAMP_AT, encode_stored, stored_size
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.message import EncodedMessage, NewMessage, checked_size
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.writability import Writability

CRC_MASK: Final = 0x7FFFFFFF

_PLACE: Final = Struct(">qq").pack_into
"""Queue offset and log position."""
_TIME: Final = Struct(">q").pack_into

Appended = Dispatched
"""What `append` answers: where the record is going to be."""


class Placing:
    """Owned by one open store and used on its thread."""

    __slots__ = ("_clock", "_failed", "_log", "_queues", "_topic_bytes", "_writability", "body_bytes_max", "entries")

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        clock: Clock,
        writability: Writability,
        *,
        body_bytes_max: int,
        failed: Callable[[OSError], None],
    ) -> None:
        """`failed(error)` is called when no file could be made for a message."""
        self._log = log
        self._queues = queues
        self._clock = clock
        self._writability = writability
        self.body_bytes_max = body_bytes_max
        self._failed = failed
        self._topic_bytes: dict[str, bytes] = {}
        self.entries: list[Dispatched] = []
        """What has a place and is not written, in log order."""

    def append(self, message: NewMessage, *, accepted: bool = False, now_ms: int | None = None) -> Appended:
        """Give the message its place. It is written by the next `commit`. With `accepted` the size limits that apply
        to new messages do not: it was taken in before, under limits that may have changed since. `now_ms`: wall time, where the caller has
        just read it.

        Raises StoreUnwritableError when the store takes no messages, RecordError when the message fits no record.
        Cost: about 4 us and a copy of the body.
        """
        writability = self._writability
        if writability.stops or (writability.withheld and not accepted):
            raise StoreUnwritableError(writability.reason)
        topic = self._topic_bytes.get(message.topic) or self._encode_topic(message.topic)
        if accepted:
            size = stored_size(topic, len(message.body), len(message.properties), message.sys_flag)
        else:
            size = checked_size(topic, message, self.body_bytes_max)
        log = self._log
        try:
            at = log.place(size)
        except OSError as error:
            raise self._unplaced(error) from error
        return self._append_at(at, topic, message, log.stamp(self._clock.now_ms() if now_ms is None else now_ms))

    def append_batch(self, messages: Sequence[NewMessage]) -> list[Appended]:
        """Append messages side by side in one file, with consecutive queue offsets and one store timestamp."""
        if not self._writability.is_open:
            raise StoreUnwritableError(self._writability.reason)
        topics = [self._encode_topic(message.topic) for message in messages]
        limit = self.body_bytes_max
        sizes = [checked_size(topic, message, limit) for topic, message in zip(topics, messages, strict=True)]
        at = self._place(sum(sizes))
        stamp = self._log.stamp(self._clock.now_ms())
        placed = []
        for topic, size, message in zip(topics, sizes, messages, strict=True):
            placed.append(self._append_at(at, topic, message, stamp))
            at += size
        return placed

    def append_encoded(self, messages: Sequence[EncodedMessage]) -> list[Appended]:
        """`append` of messages that were taken in before and are encoded already: the first of them, and those behind it that fit
        the same file. Raises as `append` does, for the first. Cost: about 0.8 us each."""
        if self._writability.stops:
            raise StoreUnwritableError(self._writability.reason)
        self._place(len(messages[0][0]))
        placed = place_encoded(self._log, self._queues, messages, self._log.stamp(self._clock.now_ms()))
        self.entries += placed
        return placed

    def _encode_topic(self, topic: str) -> bytes:
        known = self._topic_bytes.get(topic)
        if known is None:
            if "\0" in topic:
                raise RecordError("a topic contains no zero character: recovery would take the record for a torn one")
            known = self._topic_bytes[topic] = topic.encode()
        return known

    def _place(self, size: int) -> int:
        try:
            return self._log.place(size)
        except OSError as error:
            raise self._unplaced(error) from error

    def _unplaced(self, error: OSError) -> StoreUnwritableError:
        self._failed(error)
        return StoreUnwritableError(self._writability.reason)

    def _append_at(self, at: int, topic: bytes, message: NewMessage, stamp: int) -> Appended:
        queues, name, queue_id = self._queues, message.topic, message.queue_id
        queue = queues.known.get((name, queue_id)) or queues.for_append(name, queue_id)
        queue_offset = queue.next_offset
        crc = message.body_crc
        record = encode_stored(
            topic,
            queue_id,
            message.flag,
            queue_offset,
            at,
            message.sys_flag,
            message.born_timestamp,
            message.born_host,
            stamp,
            message.store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            message.body,
            message.properties,
            crc32(message.body) & CRC_MASK if crc is None else crc,
        )
        self._log.add(record)
        queue.next_offset = queue_offset + 1
        entry = Dispatched(
            at,
            len(record),
            name,
            queue_id,
            queue_offset,
            message.tags_code,
            stamp,
            message.unique_key,
            message.keys,
            message.sys_flag,
            message.prepared_transaction_offset,
            message.properties,
        )
        self.entries.append(entry)
        return entry

    def take(self) -> list[Dispatched]:
        """What has a place and is not written; forgotten here."""
        entries, self.entries = self.entries, []
        return entries


def place_encoded(
    log: CommitLog, queues: ConsumeQueues, messages: Sequence[EncodedMessage], stamp: int
) -> list[Dispatched]:
    """Gather messages for the place that `log.place` has just returned and those behind it, as many as fit that file. 0.8 us each."""
    known, at, room = queues.known, log.end, log.gathered_room
    records: list[bytearray] = []
    placed: list[Dispatched] = []
    for record, topic, queue_id, code, unique_key, keys, flags, prepared, properties in messages:
        size = len(record)
        if size > room:
            break
        room -= size
        queue = known.get((topic, queue_id)) or queues.for_append(topic, queue_id)
        number = queue.next_offset
        _PLACE(record, QUEUE_OFFSET_AT, number, at)
        _TIME(record, STORE_TIMESTAMP_AT, stamp)
        queue.next_offset = number + 1
        records.append(record)
        placed.append(
            Dispatched(at, size, topic, queue_id, number, code, stamp, unique_key, keys, flags, prepared, properties)
        )
        at += size
    log.add_many(records)
    return placed
