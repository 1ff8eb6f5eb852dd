"""What earlier processes left in flight, orbitmq's and RocketMQ's: checkpoints and acknowledgements that wait as timer messages, or stand
in the revive topic beyond the offset of RocketMQ's group for it.

The timers deliver these records into the revive topic, as RocketMQ's do. There they wait until every message of a checkpoint is
settled; then the offset of the group moves on.

Rules of this file
1. The state at a start is a function of these records: messages of checkpoints without acknowledgement are in flight, covered, and due at
   their time. What is acknowledged is left to the committed offset: the group may have been reset to read it once more. A checkpoint of a
   group without an offset is void, and acknowledged: the topic or the group was deleted, and the next of that name has other messages.
2. The group's offset is that of the last record which is done with, as RocketMQ keeps it.
3. A record that says nothing is counted, and goes to quarantine when it comes into the revive topic. The others go on.

Source: RocketMQ broker, POP: revive.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from orbitmq.broker.core import BrokerCore
from orbitmq.broker.pop.figures import PopFigures
from orbitmq.broker.pop.in_flight import Popped, PopQueue
from orbitmq.broker.pop.progress import PopProgress
from orbitmq.errors import ProtocolError, RecordError, StoreUnwritableError
from orbitmq.limits.pop import POP_RECORDS_AT_ONCE_MAX
from orbitmq.protocol.names import REVIVE_GROUP, REVIVE_TOPIC_PREFIX
from orbitmq.protocol.pop_records import PopAcks, PopCheckpoint, PopRecord, decode_pop_record
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record, sound_record
from orbitmq.timing.index.search import IndexQuery
from orbitmq.timing.restoring import quarantine_message
from orbitmq.timing.timers.timers import Timers

logger = logging.getLogger("orbitmq.broker")

NONE_DONE: Final = -1


class _Delivered(NamedTuple):
    """A checkpoint in the revive topic whose messages may be in flight."""

    revive_offset: int
    key: PopQueue
    popped_ms: int
    due_ms: int
    offsets: tuple[int, ...]


class ReviveBehind(NamedTuple):
    """How far a queue of the revive topic is behind."""

    queue_id: int
    records: int
    """Those that are not done with."""
    late_ms: int
    """How long ago the messages of the oldest of them should have come back."""


class ReviveTopic:
    def __init__(
        self,
        core: BrokerCore,
        progress: PopProgress,
        timers: Timers,
        figures: PopFigures,
        drop: Callable[[PopQueue, Iterator[Popped]], None],
    ) -> None:
        """`drop` acknowledges in the log what is forgotten of a queue."""
        self._figures = figures
        self._clock = core.clock
        self._store = core.store
        self._offsets = core.offsets
        self._progress = progress
        self._in_flight = progress.in_flight
        self._timers = timers
        self._drop = drop
        self._broker_name = core.settings.broker_name
        self._topic = REVIVE_TOPIC_PREFIX + core.settings.broker_cluster_name
        self._next = {queue_id: self._done(queue_id) + 1 for queue_id in {0, *core.store.queue_ids(self._topic)}}
        """By queue of the revive topic, the offset that is read next."""
        self._held: dict[int, deque[_Delivered]] = {queue_id: deque() for queue_id in self._next}
        self.unread_count = 0
        """Records that say nothing."""

    # --- at the start ---------------------------------------------------------------------------------------------

    def take_up(self) -> None:
        """Put in flight what the records say. Some 30 us a record. Raises OSError."""
        records = [*self._pending()]
        for queue_id in self._next:
            records += self._read(queue_id, self._store.max_offset(self._topic, queue_id))
        done: dict[tuple[PopQueue, int], set[int]] = {}
        for record in records:
            if isinstance(record, PopAcks):
                done.setdefault((_key(record), record.popped_ms), set()).update(record.offsets)
        for record in records:
            self._progress.pop_after(record.popped_ms)
            if isinstance(record, PopCheckpoint):
                self._take_up(record, done.get((_key(record), record.popped_ms), set()))

    def _take_up(self, checkpoint: PopCheckpoint, done: set[int]) -> None:
        key = _key(checkpoint)
        if checkpoint.broker_name not in ("", self._broker_name):
            return
        left = [offset for offset in checkpoint.offsets if offset not in done]
        committed = self._offsets.query(key.group, key.topic, key.queue_id)
        if committed is None:
            start, due_ms = checkpoint.start_offset, checkpoint.due_ms
            self._drop(key, iter([Popped(offset, checkpoint.popped_ms, start, due_ms) for offset in left]))
            return
        queue, end = self._in_flight.open(key, committed), self._store.max_offset(key.topic, key.queue_id)
        queue.take_up(
            [offset for offset in left if offset < end],
            checkpoint.popped_ms, checkpoint.start_offset, checkpoint.due_ms, suspended=checkpoint.suspended,
        )  # fmt: skip

    def _pending(self) -> Iterator[PopRecord]:
        """The records that wait as timer messages."""
        timers = self._timers
        if not timers.index.is_ready:
            timers.find_all()
        query: IndexQuery | None = IndexQuery(self._topic, limit=POP_RECORDS_AT_ONCE_MAX)
        while query is not None:
            page = timers.index.page(query)
            timers.will_read([one.queue_offset for one in page.candidates])
            for one in page.candidates:
                timer = timers.read(one.queue_offset)
                if timer is not None and timer.topic == self._topic:
                    said = self._said(timer.record)
                    if not isinstance(said, ProtocolError):  # else it is counted when it comes into the revive topic
                        yield said
            query = None if page.cursor is None else query._replace(cursor=page.cursor)

    # --- while the broker runs ------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Look at what came into the revive topic, and move on the offset where everything is done with. 1 us without POP."""
        for queue_id, held in self._held.items():
            queue = self._store.queues.get(self._topic, queue_id)
            if queue is not None and self._next[queue_id] < queue.max_offset:
                for _ in self._read(queue_id, queue.max_offset):
                    pass
            while held and not self._is_in_flight(held[0]):
                held.popleft()
            done = (held[0].revive_offset if held else self._next[queue_id]) - 1
            if done > self._done(queue_id):
                self._offsets.commit(REVIVE_GROUP, self._topic, queue_id, done)

    def behind(self) -> list[ReviveBehind]:
        """For each queue."""
        now_ms = self._clock.now_ms()
        return [
            ReviveBehind(
                queue_id,
                max(self._store.max_offset(self._topic, queue_id) - self._done(queue_id) - 1, 0),
                max(now_ms - held[0].due_ms, 0) if held else 0,
            )
            for queue_id, held in self._held.items()
        ]

    def _is_in_flight(self, checkpoint: _Delivered) -> bool:
        queue = self._in_flight.queues.get(checkpoint.key)
        return queue is not None and any(queue.has(at, checkpoint.popped_ms) for at in checkpoint.offsets)

    def _done(self, queue_id: int) -> int:
        done = self._offsets.query(REVIVE_GROUP, self._topic, queue_id)
        return NONE_DONE if done is None else done

    def _read(self, queue_id: int, end: int) -> Iterator[PopRecord]:
        """The records of the revive topic up to offset `end` that were not read yet."""
        self._next[queue_id] = max(self._next[queue_id], self._store.min_offset(self._topic, queue_id))
        queue = self._store.queues.get(self._topic, queue_id)
        while queue is not None and self._next[queue_id] < end:
            revive_offset = self._next[queue_id]
            self._next[queue_id] += 1
            unit = queue.unit(revive_offset)
            data = None if unit is None else self._store.log.record(unit[0])
            record = None if data is None or unit is None else sound_record(data, unit[0])
            said = ProtocolError("it cannot be read") if record is None else self._said(record)
            if isinstance(said, ProtocolError):
                self._quarantine(record, unit[0] if unit else 0, str(said))
                continue
            self._figures.count_read(said, queue_id)
            if isinstance(said, PopCheckpoint):
                self._held[queue_id].append(
                    _Delivered(revive_offset, _key(said), said.popped_ms, said.due_ms, said.offsets)
                )
            yield said

    def _said(self, record: Record) -> PopRecord | ProtocolError:
        try:
            return decode_pop_record(decode_properties(record.properties).get(Property.TAGS), bytes(record.body))
        except (ProtocolError, RecordError) as error:
            return ProtocolError(str(error))

    def _quarantine(self, record: Record | None, physical_offset: int, reason: str) -> None:
        self.unread_count += 1
        logger.error(
            "a record of %s at %d is no checkpoint or acknowledgement: %s", self._topic, physical_offset, reason
        )
        try:
            self._store.append(quarantine_message(record, physical_offset, reason), accepted=True)
        except (StoreUnwritableError, RecordError) as error:
            logger.error("it could not be put into quarantine: %s", error)


def _key(record: PopRecord) -> PopQueue:
    return PopQueue(record.topic, record.group, record.queue_id)
