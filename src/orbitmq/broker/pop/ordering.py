"""Ordered pops: what was given out last of each queue, and whether the next may be given (`config/consumerOrderInfo.json`).

A group that pops in order is given the next messages of a queue when those before are acknowledged, or their invisible time has passed:
then they are given again, from the first that is not acknowledged on.

Rules of this file
1. While a message of a queue is hidden and not acknowledged, nothing of the queue is given out, to nobody but the attempt that has it.
2. The offset to be committed is that of the first message that is not acknowledged. Acknowledgements behind it are kept until it is.
3. Only the last time a message was given out counts; acknowledgements of earlier ones change nothing.
4. A file counts as far as it fits the committed offsets: what lies before them is acknowledged.
5. No clock is read here. Times are wall clock milliseconds.

Source: RocketMQ broker, order pop; store formats, `consumerOrderInfo.json`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple

import msgspec

from orbitmq.broker.offsets import SEPARATOR, OffsetTable
from orbitmq.broker.pop.in_flight import PopQueue
from orbitmq.broker.table_records.changes import RecordedSavedTable
from orbitmq.broker.table_saving import TableFile, read_table
from orbitmq.clock import Clock
from orbitmq.errors import ProtocolError
from orbitmq.limits.pop import POP_MESSAGES_MAX, POP_ORDERED_QUEUES_MAX
from orbitmq.protocol.remoting.bodies import DataVersion

FILE: Final = "consumerOrderInfo.json"


class OrderedBatch(msgspec.Struct):
    """Messages of a queue that were given out together.

    visible_ms: until when each that is not acknowledged is hidden. counts: how often each was given out before, where it was.
    """

    attempt_id: str | None
    popped_ms: int
    invisible_ms: int
    visible_ms: dict[int, int]
    counts: dict[int, int]
    offsets: tuple[int, ...]

    @property
    def next_offset(self) -> int:
        """The offset that may be committed."""
        return min(self.visible_ms, default=self.offsets[-1] + 1)

    @property
    def free_ms(self) -> int:
        """When nothing of it is hidden any more."""
        return max(self.visible_ms.values(), default=0)

    def blocks(self, attempt_id: str | None, now_ms: int) -> bool:
        """Whether the queue may not be given to this attempt."""
        return now_ms < self.free_ms and (attempt_id is None or attempt_id != self.attempt_id)


class PopOrders(RecordedSavedTable):
    """The last batch of each queue that is popped in order, as long as it is not acknowledged as a whole."""

    record_name: ClassVar[str] = "poppedInOrder"
    is_gathered: ClassVar[bool] = True

    def __init__(self, file: TableFile, clock: Clock, queues_max: int = POP_ORDERED_QUEUES_MAX) -> None:
        super().__init__(file, clock)
        self._batches: dict[PopQueue, OrderedBatch] = {}
        self._queues_max = queues_max
        self._alarms: list[tuple[int, PopQueue]] = []
        """Heap of when queues are free; some of them are out of date."""

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[PopQueue]:
        return iter(self._batches)

    def load(self, offsets: OffsetTable) -> None:
        """Raises `StoreDamagedError` for an unusable file."""
        document = self._file.load()
        if document is None:
            return
        saved = read_table(document, _OrderFile, FILE, "what is popped in order")
        for name, queues in saved.table.items():
            topic, _, group = name.partition(SEPARATOR)
            for queue_id, entry in queues.items():
                committed = offsets.query(group, topic, queue_id)
                if committed is not None and entry.o:
                    self._put(PopQueue(topic, group, queue_id), entry.batch(committed))

    def _frozen(self) -> Callable[[], Mapping[str, object]]:
        batches = {
            key: msgspec.structs.replace(batch, visible_ms=batch.visible_ms.copy())
            for key, batch in self._batches.items()
        }
        now_ms = self._clock.now_ms()
        return lambda: _document(batches, now_ms)

    def recorded_keys(self) -> Iterable[str]:
        return [_text(key) for key in self._batches]

    def recorded_value(self, key: str) -> bytes | None:
        batch = self._batches.get(_queue(key))
        return None if batch is None else msgspec.json.encode(_entry(batch))

    def _take_one(self, key: str, value: bytes | None) -> None:
        queue = _queue(key)
        self._batches.pop(queue, None)
        entry = None if value is None else msgspec.json.decode(value, type=_OrderEntry, strict=False)
        if entry is not None and entry.o:
            self._put(queue, entry.batch(0))

    def is_newer_than(self, version: DataVersion | None) -> bool:
        """Never: RocketMQ gives the file no version."""
        return False

    def has_room(self, key: PopQueue) -> bool:
        """Whether another queue may be popped in order."""
        return key in self._batches or len(self._batches) < self._queues_max

    def blocks(self, key: PopQueue, attempt_id: str | None, now_ms: int) -> bool:
        """Whether an earlier message of the queue is hidden and not acknowledged."""
        batch = self._batches.get(key)
        return batch is not None and batch.blocks(attempt_id, now_ms)

    def give(
        self, key: PopQueue, offsets: Sequence[int], popped_ms: int, invisible_ms: int, attempt_id: str | None
    ) -> Mapping[int, int]:
        """These messages are given out, which begin at the committed offset; how often each was given out before, by offset."""
        before = self._batches.get(key)
        counts: dict[int, int] = {}
        if before is not None and attempt_id is not None and before.attempt_id == attempt_id:
            counts = before.counts
        elif before is not None:
            counts = {offset: before.counts.get(offset, 0) + 1 for offset in offsets if offset in before.offsets}
        visible_ms = dict.fromkeys(offsets, popped_ms + invisible_ms)
        self._put(key, OrderedBatch(attempt_id, popped_ms, invisible_ms, visible_ms, counts, tuple(offsets)))
        return counts

    def acknowledge(self, key: PopQueue, offset: int, popped_ms: int) -> int | None:
        """The offset to commit; None where the message was given out anew since. Raises ProtocolError for one that was not among them."""
        batch = self._batches.get(key)
        if batch is None or batch.popped_ms != popped_ms:
            return None
        if offset not in batch.offsets:
            raise ProtocolError(f"message {offset} of {key.topic}/{key.queue_id} was not given out by this pop")
        if batch.visible_ms.pop(offset, None) is not None:
            self._touched(key)
            self._set_alarm(key, batch)
        if not batch.visible_ms:
            del self._batches[key]
        return batch.next_offset

    def is_last(self, key: PopQueue, popped_ms: int) -> bool:
        """Whether what the last pop of a queue gave out, which is this one, is not acknowledged as a whole."""
        batch = self._batches.get(key)
        return batch is not None and batch.popped_ms == popped_ms

    def has(self, key: PopQueue, offset: int, popped_ms: int) -> bool:
        """Whether a message was given out by this pop, last of all, and is not acknowledged."""
        batch = self._batches.get(key)
        return batch is not None and batch.popped_ms == popped_ms and offset in batch.visible_ms

    def hide(self, key: PopQueue, offset: int, popped_ms: int, until_ms: int) -> bool:
        """Hide a message until another time; False when it is not hidden since this pop."""
        if not self.has(key, offset, popped_ms):
            return False
        batch = self._batches[key]
        batch.visible_ms[offset] = until_ms
        self._touched(key)
        self._set_alarm(key, batch)
        return True

    def forget(self, key: PopQueue) -> None:
        """The offset of a queue was changed by somebody else, or its topic or group has gone."""
        if self._batches.pop(key, None) is not None:
            self._touched(key)

    @property
    def next_free_ms(self) -> int | None:
        """No queue is free earlier; may be early."""
        return self._alarms[0][0] if self._alarms else None

    def take_free(self, now_ms: int) -> list[PopQueue]:
        """Queues that have become free because a time has passed, once each."""
        free = []
        while self._alarms and self._alarms[0][0] <= now_ms:
            at_ms, key = heapq.heappop(self._alarms)
            batch = self._batches.get(key)
            if batch is not None and batch.free_ms == at_ms:
                free.append(key)
        return free

    def _put(self, key: PopQueue, batch: OrderedBatch) -> None:
        if batch.visible_ms:
            self._batches[key] = batch
            self._touched(key)
            self._set_alarm(key, batch)

    def _touched(self, key: PopQueue) -> None:
        self.dirty = True
        if self.changes.is_on:
            self.changes.note(_text(key))

    def _set_alarm(self, key: PopQueue, batch: OrderedBatch) -> None:
        if len(self._alarms) > 2 * len(self._batches) + POP_MESSAGES_MAX:
            self._alarms = [(each.free_ms, known) for known, each in self._batches.items()]
            heapq.heapify(self._alarms)
        heapq.heappush(self._alarms, (batch.free_ms, key))


class _OrderEntry(msgspec.Struct):
    """A batch as RocketMQ writes it. `o`: the first offset, then distances from it. `cm`: bit i is set when the i-th is acknowledged."""

    o: list[int] = []
    a: str | None = None
    i: int | None = None
    popTime: int = 0
    cm: int = 0
    ot: dict[int, int] | None = None
    oc: dict[int, int] | None = None

    def batch(self, committed: int) -> OrderedBatch:
        offsets = [self.o[0], *(self.o[0] + distance for distance in self.o[1:])]
        invisible_ms = self.i or 0
        times = self.ot or {}
        visible_ms = {
            offset: times.get(offset, self.popTime + invisible_ms)
            for number, offset in enumerate(offsets)
            if offset >= committed and not self.cm >> number & 1
        }
        return OrderedBatch(self.a, self.popTime, invisible_ms, visible_ms, self.oc or {}, tuple(offsets))


class _OrderFile(msgspec.Struct):
    table: dict[str, dict[int, _OrderEntry]] = {}


class GivenBefore(NamedTuple):
    """How often the messages of one queue that an ordered pop brings were given out before: `counts`, by offset, where they were."""

    queue_id: int
    offsets: Sequence[int]
    counts: Mapping[int, int]


def order_count_info(given: GivenBefore) -> str:
    """Header field `orderCountInfo` of one queue: how often messages were given out before, where they were, and the least of these."""
    queue_id, offsets, counts = given
    each = [f"0 qo{queue_id}%{offset} {counts[offset]}" for offset in offsets if offset in counts]
    least = min((counts.get(offset, 0) for offset in offsets), default=0)
    return ";".join([*each, f"0 {queue_id} {least}"])


def _text(key: PopQueue) -> str:
    return f"{key.topic}{SEPARATOR}{key.group}{SEPARATOR}{key.queue_id}"


def _queue(text: str) -> PopQueue:
    """ValueError for a text that names none."""
    topic, group, queue_id = text.split(SEPARATOR)
    return PopQueue(topic, group, int(queue_id))


def _entry(batch: OrderedBatch) -> dict[str, object]:
    acknowledged = sum(1 << number for number, offset in enumerate(batch.offsets) if offset not in batch.visible_ms)
    entry: dict[str, object] = {
        "popTime": batch.popped_ms,
        "i": batch.invisible_ms,
        "o": [batch.offsets[0], *(offset - batch.offsets[0] for offset in batch.offsets[1:])],
        "ot": {str(offset): at_ms for offset, at_ms in batch.visible_ms.items()},
        "oc": {str(offset): count for offset, count in batch.counts.items()},
        "cm": acknowledged,
    }
    if batch.attempt_id is not None:
        entry["a"] = batch.attempt_id
    return entry


def _document(batches: Mapping[PopQueue, OrderedBatch], now_ms: int) -> Mapping[str, object]:
    table: dict[str, dict[str, object]] = {}
    for key, batch in batches.items():
        entry = {**_entry(batch), "l": now_ms}
        table.setdefault(f"{key.topic}{SEPARATOR}{key.group}", {})[str(key.queue_id)] = entry
    return {"table": table}
