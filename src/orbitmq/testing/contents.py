"""What an embedded broker holds: visible messages, and those that wait for their time.

Rules of this file
1. Reading changes nothing: no offset, no counter, no clock.
2. Only what the broker would show or deliver is shown; a record that fails its check is an error, not a gap.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from orbitmq.client import StoredMessage
from orbitmq.errors import StoreDamagedError
from orbitmq.limits.wire import DECOMPRESSED_BYTES_MAX
from orbitmq.protocol.compression import decompress
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record, decode_record
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.sysflag import compression_of
from orbitmq.store.store import MessageStore
from orbitmq.testing.clock import as_datetime
from orbitmq.timing.release import DueWork
from orbitmq.timing.timers.changes import known_key


class PendingMessage(msgspec.Struct, frozen=True):
    """A message that waits for its time.

    topic: where it will be delivered. due: when, in UTC. level: its delay level; None for one with a time of its own.
    message_id: the id in the sender's receipt.
    """

    topic: str
    due: datetime
    level: int | None
    body: bytes
    tag: str | None
    keys: tuple[str, ...]
    message_id: str | None


def visible(store: MessageStore, topic: str, broker_name: str) -> list[StoredMessage]:
    """All messages of a topic in the order of storing, consumed or not."""
    found: list[tuple[int, int]] = []
    for queue_id in store.queue_ids(topic):
        queue = store.queues.get(topic, queue_id)
        if queue is not None:
            found += [(unit[0], queue_id) for unit in queue.scan(queue.min_offset, queue.max_offset)]
    messages = []
    for physical, queue_id in sorted(found):
        record = _record(store, physical)
        messages.append(StoredMessage(record, _body(record), None, MessageQueue(topic, broker_name, queue_id)))
    return messages


def waiting(store: MessageStore, works: Iterable[DueWork]) -> list[PendingMessage]:
    """All pending messages, by due time; equal times in the order of storing."""
    found = [unit for work in works for unit in work.pending_units()]
    found.sort(key=lambda unit: (unit[2], unit[1]))
    pending = []
    for level, physical, due_ms in found:
        record = _record(store, physical)
        properties = decode_properties(record.properties)
        pending.append(
            PendingMessage(
                properties.get(Property.REAL_TOPIC, record.topic),
                as_datetime(due_ms),
                level,
                _body(record),
                properties.get(Property.TAGS),
                tuple(properties.get(Property.KEYS, "").split()),
                known_key(properties) or None,
            )
        )
    return pending


def _record(store: MessageStore, physical: int) -> Record:
    view = store.log.record(physical)
    if view is None:
        raise StoreDamagedError(f"the record at {physical} is damaged or gone")
    return decode_record(bytes(view))


def _body(record: Record) -> bytes:
    compression = compression_of(record.sys_flag)
    return record.body if compression is None else decompress(record.body, compression, DECOMPRESSED_BYTES_MAX)
