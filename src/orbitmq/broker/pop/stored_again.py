"""At a start: which messages beyond the committed offsets were stored again already, in the retry topic of their group.

The offset of a group is saved now and then. A message that was stored again just before a crash may lie beyond the saved one, or in a
checkpoint without its acknowledgement; it would be delivered twice. Its copy names its source, so the ends of the retry topics tell.

Rules of this file
1. A message whose copy is in the retry topic is settled, unless it was popped anew behind that: its group was reset.
2. What is not in flight is passed over while its copy waits to be delivered. When that is acknowledged the message may be wanted once more,
   because its group was reset; after a crash it comes again like whatever was acknowledged beyond the saved offset.
3. Copies count that are no older than the saved offsets may lag behind. Their number is bounded; beyond it messages are delivered twice.

Source: RocketMQ broker, POP: revive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from orbitmq.broker.core import BrokerCore
from orbitmq.broker.pop.in_flight import PopQueue
from orbitmq.broker.pop.progress import PopProgress
from orbitmq.limits.pop import POP_COPIES_READ_MAX, POP_COPIES_SPARE_MS
from orbitmq.protocol.pop_receipts import RETRY_SOURCES, pop_retry_topic
from orbitmq.protocol.records import Record, sound_record


class _Copy(NamedTuple):
    """A message that was stored again, and when."""

    source: int
    """Its log position."""
    stored_ms: int
    waits: bool
    """It will be delivered: the copy, or what was stored again of it in turn."""


class StoredAgain:
    def __init__(self, core: BrokerCore, progress: PopProgress) -> None:
        self._store = core.store
        self._offsets = core.offsets
        self._in_flight = progress.in_flight
        settings = core.settings
        self._span_ms = (
            settings.pop_ck_stay_buffer_time_ms + settings.flush_consumer_offset_interval_ms + POP_COPIES_SPARE_MS
        )

    def settle(self) -> None:
        """Settle what was stored again, and pass over it. Some 30 us a copy. Raises OSError."""
        left = POP_COPIES_READ_MAX
        for group, topic in self._offsets.pairs():
            for source in RETRY_SOURCES:
                for copy in self._copies(group, pop_retry_topic(group, topic, source)):
                    self._settle(group, copy)
                    left -= 1
                    if not left:
                        return

    def _copies(self, group: str, retry_topic: str) -> Iterator[_Copy]:
        """The newest copies in a retry topic, of each queue the latest first."""
        since_ms = self._store.log.last_store_timestamp - self._span_ms
        for queue_id in self._store.queue_ids(retry_topic):
            queue = self._store.queues.get(retry_topic, queue_id)
            assert queue is not None, "it was listed"
            committed = self._offsets.query(group, retry_topic, queue_id) or 0
            in_flight = self._in_flight.queues.get(PopQueue(retry_topic, group, queue_id))
            waiting: set[int] = set()
            for offset in range(queue.max_offset - 1, queue.min_offset - 1, -1):
                unit = queue.unit(offset)
                record = None if unit is None else self._record(unit[0])
                if record is None or record.store_timestamp < since_ms:
                    break
                source = record.prepared_transaction_offset - 1
                if source < 0:
                    continue
                is_in_flight = in_flight is not None and in_flight.find(offset) is not None
                waits = offset >= committed or is_in_flight or record.physical_offset in waiting
                if waits:
                    waiting.add(source)
                yield _Copy(source, record.store_timestamp, waits)

    def _settle(self, group: str, copy: _Copy) -> None:
        record = self._record(copy.source)
        if record is None:
            return
        key, offset = PopQueue(record.topic, group, record.queue_id), record.queue_offset
        committed = self._offsets.query(group, key.topic, key.queue_id)
        stored_in = self._store.queues.get(key.topic, key.queue_id)
        unit = None if stored_in is None else stored_in.unit(offset)
        if committed is None or unit is None or unit[0] != copy.source:
            return  # the topic or the group is gone, and others have their names
        queue = self._in_flight.open(key, committed)
        popped = queue.find(offset)
        if popped is None:
            if copy.waits:
                queue.pass_over(offset)
        elif popped.popped_ms <= copy.stored_ms:
            queue.settle(offset, popped.popped_ms)

    def _record(self, physical_offset: int) -> Record | None:
        data = self._store.log.record(physical_offset)
        return None if data is None else sound_record(data, physical_offset)
