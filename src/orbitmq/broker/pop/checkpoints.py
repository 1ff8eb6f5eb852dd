"""Storing what is in flight, in RocketMQ's records: a checkpoint of a pop that lasts, an acknowledgement of what a checkpoint covers.

Most messages are acknowledged soon, and nothing is stored of them. A pop that outlives `popCkStayBufferTime` gets one checkpoint, which is
a timer message for RocketMQ's revive topic. When that is durable, its messages do not hold the committed offset of their group any more:
who starts next, orbitmq or RocketMQ, finds them in the checkpoint. What is settled of them from then on is said in acknowledgements.

Rules of this file
1. A checkpoint counts when the log is synced and confirmed behind it, whatever the flush mode.
2. A covered message is renewed by a checkpoint of the new pop and an acknowledgement of the old one, in this order. It is covered by
   one of them wherever the log is cut off.
3. What is settled while its checkpoint is on the way to the disk is acknowledged when that has arrived.
4. An acknowledgement that cannot be stored is counted. After the next start its message is delivered again.
5. A step stores a bounded number of records; what else is due follows in the next turns. While the store takes nothing it is asked once in
   `POP_RETRY_MS`.

Source: RocketMQ broker, POP: checkpoint and ack records.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from orbitmq.broker.core import BrokerCore
from orbitmq.broker.pop.figures import PopFigures
from orbitmq.broker.pop.in_flight import LEAVING, InFlight, Popped, PopQueue, QueueInFlight
from orbitmq.errors import RecordError, StoreUnwritableError
from orbitmq.limits.pop import POP_RETRY_MS, POP_STORED_AT_ONCE_MAX, POP_STORED_PAUSE_MS, POP_UNSTORED_MAX
from orbitmq.protocol.filtering.tags import tags_code
from orbitmq.protocol.names import REVIVE_TOPIC_PREFIX, TIMER_TOPIC
from orbitmq.protocol.pop_records import (
    ACK_TAG,
    CHECKPOINT_LEAD_MS,
    CHECKPOINT_TAG,
    PopAcks,
    PopCheckpoint,
    PopRecord,
)
from orbitmq.protocol.properties import Property, encode_properties
from orbitmq.protocol.sysflag import with_hosts
from orbitmq.store.durability import PutStatus
from orbitmq.store.message import NewMessage
from orbitmq.timing.due_time import slot_time
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.broker")

CHECKPOINTS: Final = "checkpoints of pops"
"""Name of the wake-up at which pops are stored that last."""


class _Unstored(NamedTuple):
    """A pop of one queue without a checkpoint: messages in a range of offsets, and since when it waits for one (monotonic)."""

    key: PopQueue
    first: int
    end: int
    popped_ms: int
    start_offset: int
    since_ns: int


class _Written(NamedTuple):
    """A checkpoint in the log, which ends there."""

    end_offset: int
    key: PopQueue
    checkpoint: PopCheckpoint


class PopCheckpoints:
    def __init__(
        self, core: BrokerCore, in_flight: InFlight, finish: Callable[[PopQueue], None], figures: PopFigures
    ) -> None:
        """`finish` commits what has become settled or covered of a queue."""
        self._store = core.store
        self._clock = core.clock
        self._deadlines = core.deadlines
        self._settings = core.settings
        self._store_host = core.facilities.store_host
        self._in_flight = in_flight
        self._finish = finish
        self._figures = figures
        self._topic = REVIVE_TOPIC_PREFIX + core.settings.broker_cluster_name
        self._unstored: deque[_Unstored] = deque()
        self._written: deque[_Written] = deque()
        self._dropped: deque[tuple[PopQueue, Iterator[Popped]]] = deque()
        """By queue, covered messages that were forgotten and are not acknowledged in the log yet."""
        self._refused_until_ns = 0
        """The store took nothing a moment ago: it is asked again then."""
        self.stored_count = 0
        """Checkpoints that were stored."""
        self.lost_ack_count = 0
        """Acknowledgements that could not be stored."""
        in_flight.popped = self._popped
        in_flight.covered_settled = self._settled
        in_flight.covered_dropped = self.drop
        core.deadlines.define(CHECKPOINTS, self.run)

    # --- what lasts -----------------------------------------------------------------------------------------------

    def _popped(self, key: PopQueue, first: int, end: int, popped_ms: int, start_offset: int) -> None:
        now_ns = self._clock.monotonic_ns()
        if len(self._unstored) >= POP_UNSTORED_MAX and now_ns >= self._refused_until_ns:
            self._store_pop(self._unstored.popleft())
        self._unstored.append(_Unstored(key, first, end, popped_ms, start_offset, now_ns))

    def arm(self) -> None:
        """Wake when the oldest pop has lasted long enough; several share a wake-up."""
        if not (self._written or self._unstored or self._dropped):
            self._deadlines.disarm(CHECKPOINTS)
            return
        self._trust_durable(POP_STORED_AT_ONCE_MAX)
        now_ns, pause_ns = self._clock.monotonic_ns(), POP_STORED_PAUSE_MS * NS_PER_MS
        if self._dropped or (self._written and self._is_durable(self._written[0])):
            self._deadlines.move(CHECKPOINTS, now_ns)
        elif self._unstored:
            at_ns = -(-(self._unstored[0].since_ns + self._stay_ns) // pause_ns) * pause_ns
            self._deadlines.move(CHECKPOINTS, max(at_ns, self._refused_until_ns))
        elif self._written:
            self._deadlines.move(CHECKPOINTS, now_ns + pause_ns)
        else:
            self._deadlines.disarm(CHECKPOINTS)

    def run(self) -> None:
        """Store what has lasted long enough and what was forgotten, as much of it as a step takes."""
        began_ns = self._clock.monotonic_ns()
        self._say_dropped(POP_STORED_AT_ONCE_MAX)
        for _ in range(min(len(self._unstored), POP_STORED_AT_ONCE_MAX)):
            if self._unstored[0].since_ns > began_ns - self._stay_ns or began_ns < self._refused_until_ns:
                break
            self._store_pop(self._unstored.popleft())
        self._figures.storing_ms.observe((self._clock.monotonic_ns() - began_ns) // NS_PER_MS)

    def forget_all(self) -> None:
        """Store nothing of what was in flight until now."""
        self._unstored.clear()
        self._written.clear()
        self._dropped.clear()
        self._deadlines.disarm(CHECKPOINTS)

    @property
    def unstored_count(self) -> int:
        """Pops without a checkpoint."""
        return len(self._unstored)

    def store_all(self) -> None:
        """Before an orderly stop: store what is in flight, durably. Blocks. Raises OSError."""
        self._store.sync()  # copies of this turn settle their originals
        self._say_dropped()
        for _ in range(len(self._unstored)):
            self._store_pop(self._unstored.popleft())
        self._store.sync()
        self._trust_durable(len(self._written))

    @property
    def _stay_ns(self) -> int:
        return self._settings.pop_ck_stay_buffer_time_ms * NS_PER_MS

    def _store_pop(self, pop: _Unstored) -> None:
        queue = self._in_flight.queues.get(pop.key)
        if queue is None:
            return
        left = list(queue.not_covered(pop.first, pop.end, pop.popped_ms, pop.start_offset))
        if not left:
            return
        due_ms = self._time_of(min(left, key=lambda one: one.due_ms))
        offsets = tuple(one.offset for one in left)
        checkpoint = self._checkpoint(
            pop.key, pop.popped_ms, pop.start_offset, due_ms, offsets, suspended=left[0].suspended
        )
        try:
            end = self._append(checkpoint, due_ms)
        except (StoreUnwritableError, RecordError) as error:
            self._was_refused(pop, error)
            return
        written, forgotten_count = _Written(end, pop.key, checkpoint), self._in_flight.forgotten_count
        self._store.wait_durable(end, True, partial(self._was_written, pop, written, forgotten_count))

    def _time_of(self, popped: Popped) -> int:
        """When a message reappears; now, while it is being stored again."""
        return self._clock.now_ms() if popped.due_ms == LEAVING else popped.due_ms

    def _was_written(self, pop: _Unstored, written: _Written, forgotten_count: int, status: PutStatus) -> None:
        if forgotten_count != self._in_flight.forgotten_count:
            return
        if status is PutStatus.SERVICE_NOT_AVAILABLE:
            self._was_refused(pop, status.name)
        else:
            self._written.append(written)

    def _was_refused(self, pop: _Unstored, reason: object) -> None:
        """The store takes nothing now: this pop waits once more."""
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._refused_until_ns:
            logger.warning(
                "pops cannot be stored now, that of %s by group %s and %d others that wait: %s",
                pop.key.topic, pop.key.group, len(self._unstored), reason,
            )  # fmt: skip
            self._refused_until_ns = now_ns + POP_RETRY_MS * NS_PER_MS
        self._unstored.append(pop._replace(since_ns=now_ns))

    def _is_durable(self, written: _Written) -> bool:
        return written.end_offset <= min(self._store.log.synced_end, self._store.confirm_offset)

    def _trust_durable(self, limit: int) -> None:
        for _ in range(min(limit, len(self._written))):
            if not self._is_durable(self._written[0]):
                break
            _, key, checkpoint = self._written.popleft()
            self.stored_count += 1
            queue, popped_ms = self._in_flight.queues.get(key), checkpoint.popped_ms
            for offset in checkpoint.offsets:
                if queue is None or not queue.has(offset, popped_ms):  # it was settled meanwhile
                    self._settled(key, Popped(offset, popped_ms, checkpoint.start_offset, checkpoint.due_ms))
            if queue is not None:
                queue.cover(checkpoint.offsets, popped_ms)
                self._finish(key)

    # --- what becomes of covered messages -------------------------------------------------------------------------

    def renew(
        self,
        queue: QueueInFlight,
        offset: int,
        popped_ms: int,
        new_popped_ms: int,
        due_ms: int,
        *,
        suspended: bool = False,
    ) -> bool:
        """As `QueueInFlight.renew`.

        Raises StoreUnwritableError, and changes nothing, when it is covered and that cannot be stored."""
        covered = queue.covered(offset, popped_ms)
        if covered is None:
            return queue.renew(offset, popped_ms, new_popped_ms, due_ms, suspended=suspended)
        checkpoint = self._checkpoint(queue.key, new_popped_ms, offset, due_ms, (offset,), suspended=suspended)
        self._append(checkpoint, due_ms)
        self._settled(queue.key, covered)
        return queue.renew(offset, popped_ms, new_popped_ms, due_ms, suspended=suspended)

    def drop(self, key: PopQueue, covered: Iterator[Popped]) -> None:
        """These messages of a queue are forgotten: acknowledge them in the log, the first at once and the others in steps."""
        self._dropped.append((key, covered))
        self._say_dropped(POP_STORED_AT_ONCE_MAX)

    def _say_dropped(self, limit: int | None = None) -> None:
        while self._dropped and limit != 0:
            key, covered = self._dropped[0]
            count = 0
            for popped in islice(covered, limit):
                self._settled(key, popped)
                count += 1
            if limit is None or count < limit:
                self._dropped.popleft()
            limit = None if limit is None else limit - count

    def _settled(self, key: PopQueue, popped: Popped) -> None:
        acks = PopAcks(
            key.topic,
            key.group,
            key.queue_id,
            popped.start_offset,
            popped.popped_ms,
            self._settings.broker_name,
            (popped.offset,),
        )
        try:
            self._append(acks, self._time_of(popped))
        except (StoreUnwritableError, RecordError):
            self.lost_ack_count += 1

    def _checkpoint(
        self,
        key: PopQueue,
        popped_ms: int,
        start_offset: int,
        due_ms: int,
        offsets: tuple[int, ...],
        *,
        suspended: bool,
    ) -> PopCheckpoint:
        return PopCheckpoint(
            key.topic,
            key.group,
            key.queue_id,
            start_offset,
            popped_ms,
            due_ms,
            self._settings.broker_name,
            offsets,
            suspended,
        )

    def _append(self, record: PopRecord, due_ms: int) -> int:
        """Append a timer message for the revive topic; answers where it ends in the log. Raises StoreUnwritableError, RecordError."""
        is_checkpoint = isinstance(record, PopCheckpoint)
        tag = CHECKPOINT_TAG if is_checkpoint else ACK_TAG
        deliver_ms = due_ms - CHECKPOINT_LEAD_MS if is_checkpoint else due_ms
        unique_key = record.unique_key
        properties = {
            Property.TIMER_DELIVER_MS: str(deliver_ms),
            Property.UNIQ_KEY: unique_key,
            Property.TAGS: tag,
            Property.TIMER_OUT_MS: str(slot_time(deliver_ms, self._settings.timer_precision_ms)),
            Property.REAL_TOPIC: self._topic,
            Property.REAL_QID: "0",
        }
        message = NewMessage(
            TIMER_TOPIC,
            0,
            record.encode(),
            encode_properties(properties),
            0,
            with_hosts(0, self._store_host, self._store_host),
            self._clock.now_ms(),
            self._store_host,
            self._store_host,
            tags_code=tags_code(tag),
            unique_key=unique_key,
        )
        try:
            end = self._store.append(message, accepted=True).end_offset
        except (StoreUnwritableError, RecordError):
            self._figures.count_stored(record, PutStatus.SERVICE_NOT_AVAILABLE.value)
            raise
        self._figures.count_stored(record, PutStatus.PUT_OK.value)
        return end
