"""Taking messages for one pop: of one queue or of all, and of the retry topics.

Rules of this file
1. What is taken is in flight before the answer leaves. Messages that the group does not want are passed over for good.
2. While a queue is read from the disk no other pop takes of it; its messages count as rest.
3. Messages of a retry topic leave under their first topic's name and carry their receipt; others leave as they are stored.
4. What was taken is delivered, whatever becomes of the other queues.
5. An ordered pop begins at the committed offset, and gets nothing of a queue whose earlier messages are in flight (`ordering`).

Source: RocketMQ broker, POP: reading.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from orbitmq.broker.attributes import PRIORITY_FACTOR
from orbitmq.broker.choosing.subscriptions import EVERYTHING
from orbitmq.broker.choosing.wanted import WantedMessages, choose, get_wanted
from orbitmq.broker.cold_pulls import AnswerReader, ColdPulls
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.message_types import taken_type
from orbitmq.broker.pop.in_flight import PopQueue, QueueInFlight
from orbitmq.broker.pop.ordering import GivenBefore
from orbitmq.broker.pop.progress import PopProgress
from orbitmq.errors import JobRefusedError
from orbitmq.limits.pop import POP_READS_MAX
from orbitmq.protocol.message_types import MessageType
from orbitmq.protocol.pop_receipts import PoppedQueue, PopReceipt, PopSource, pop_retry_topic
from orbitmq.protocol.properties import Property
from orbitmq.protocol.records import QUEUE_OFFSET_AT, decode_record, encode_record
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.remoting.frame import Buffer
from orbitmq.store.reading import GetResult, GetStatus
from orbitmq.store.reads import ReadProblem

ALL_QUEUES: Final = -1
"""Queue id of a pop that takes of every queue."""

REVIVE_QUEUE: Final = 0
"""What receipts name as revive queue: there is one place for what is in flight."""

PERCENT: Final = 100

PASSED: Final = frozenset({GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING, GetStatus.OFFSET_FOUND_NULL})
"""Nothing was found for the group up to where the read ended."""

BEYOND: Final = frozenset({GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.NO_MESSAGE_IN_QUEUE})
"""The read began beyond the end of the queue, or at the beginning of an empty one."""


class PopEnd(enum.Enum):
    """How a pop ended."""

    FOUND = "found"
    NOTHING = "nothing until its time was over"
    FULL = "nothing, and too many wait"
    FAILED = "failed"


class Pop(msgspec.Struct, eq=False):
    """One pop, or one look without taking: what is wished, whom to tell, and what its checks found out."""

    peer: AnswerReader
    told: Callable[[Pop, PopTaken, PopEnd], None]
    group: str
    topic: str
    queue_id: int
    max_count: int
    invisible_ms: int = 0
    from_end: bool = False
    wanted: WantedMessages = EVERYTHING
    is_ordered: bool = False
    attempt_id: str | None = None
    """Names one try of an ordered pop: the same again is given the same messages."""
    deadline_ns: int = 0
    """Until when it may wait for a message."""
    hides: bool = True
    """False: it only looks."""
    checked: tuple[TopicConfig, SubscriptionGroupConfig] | None = None
    """Its topic and its group as they were when it was checked."""


class PopTaken(msgspec.Struct):
    """What a pop has got."""

    popped_ms: int
    queues: list[PoppedQueue] = []
    records: list[Buffer] = []
    count: int = 0
    size: int = 0
    given_before: list[GivenBefore] = []
    """Of an ordered pop, for each of its `queues`: how often what it got was given out before."""
    rest_count: int = 0
    """Messages of the queues that it looked at, and did not take."""
    has_passed: bool = False
    """Messages were passed over that the group does not want: there may be others behind them."""
    lacks_place: bool = False
    """Nothing could be read from the disk for this connection now."""
    problem: str | None = None
    """Why it failed."""


Done = Callable[[Pop, PopTaken], None]


class PopTaker:
    """Takes for all pops of a broker."""

    def __init__(self, core: BrokerCore, progress: PopProgress, run_again: Callable[[Pop], None]) -> None:
        """`run_again` begins a pop anew that waited for its turn to read from the disk."""
        self.store = core.store
        self.progress = progress
        self.cold: ColdPulls[Pop] = ColdPulls(run_again)
        self.reading: set[PopQueue] = set()
        """Queues that are being read from the disk."""
        self.bytes_max = core.store.settings.max_transfer_bytes_on_message_in_memory
        self.broker_name = core.settings.broker_name
        self._topics = core.topics
        self.settings = core.settings
        self._groups = core.groups
        self._random_below = core.facilities.random_below

    def take(self, pop: Pop, done: Done) -> None:
        """Take what there is, and call `done` with it: at once, or when the worker has read it."""
        _PopRun(self, pop, done, [*self.queues_of(pop)]).go_on()

    def is_checked(self, pop: Pop) -> bool:
        """Whether the topic and the group of a pop are configured as they were when it was checked."""
        return pop.checked in (None, (self._topics.get(pop.topic), self._groups.known(pop.group)))

    def queues_of(self, pop: Pop) -> Iterator[tuple[PopSource, PopQueue]]:
        """The queues that a pop takes of, in its order: the retry topics' first or last, by chance."""
        settings = self.settings
        by_priority = self._reads_by_priority(pop)
        normal = [
            (PopSource.NORMAL, PopQueue(pop.topic, pop.group, queue_id))
            for queue_id in self._queue_ids(pop, by_priority=by_priority)
        ]
        if pop.is_ordered:
            return iter(normal)
        sources = [PopSource.RETRY_V2 if settings.enable_retry_topic_v2 else PopSource.RETRY_V1]
        if settings.enable_retry_topic_v2 and settings.retrieve_message_from_pop_retry_topic_v1:
            sources.append(PopSource.RETRY_V1)
        retried = []
        for source in sources:
            topic = pop_retry_topic(pop.group, pop.topic, source)
            config = self._topics.get(topic)
            if config is not None:
                numbers = self._in_order(config.read_queue_nums, by_priority=by_priority)
                retried += [(source, PopQueue(topic, pop.group, number)) for number in numbers]
        probability = (
            settings.pop_from_retry_probability_for_priority if by_priority else settings.pop_from_retry_probability
        )
        if self._random_below(PERCENT) < probability:
            return iter(retried + normal)
        return iter(normal + retried)

    def _queue_ids(self, pop: Pop, *, by_priority: bool) -> Sequence[int]:
        if pop.queue_id != ALL_QUEUES:
            return [pop.queue_id]
        config = self._topics.get(pop.topic)
        return self._in_order(0 if config is None else config.read_queue_nums, by_priority=by_priority)

    def _reads_by_priority(self, pop: Pop) -> bool:
        """Whether this pop reads the queue of the highest priority first: of a topic of type PRIORITY, as often as the group says."""
        config, group = self._topics.get(pop.topic), self._groups.known(pop.group)
        if pop.is_ordered or config is None or group is None or taken_type(config.attributes) != MessageType.PRIORITY:
            return False
        factor = group.attributes.get(PRIORITY_FACTOR, "")
        return self._random_below(PERCENT) < (int(factor) if factor.isdecimal() else PERCENT)

    def _in_order(self, count: int, *, by_priority: bool) -> Sequence[int]:
        """The numbers of `count` queues: by priority, or from any one on."""
        if by_priority:
            return range(count)[::-1] if self.settings.priority_order_asc else range(count)
        first = self._random_below(count) if count else 0
        return [*range(first, count), *range(first)]


class _PopRun:
    """One pop on its way through its queues."""

    def __init__(self, taker: PopTaker, pop: Pop, done: Done, queues: list[tuple[PopSource, PopQueue]]) -> None:
        self._taker = taker
        self._progress = taker.progress
        self._pop = pop
        self._done = done
        self._left = queues
        self._taken = PopTaken(taker.progress.pop_time_ms())

    def go_on(self) -> None:
        """Take of one queue after the other, until there is enough or the disk has to be asked."""
        taken, pop = self._taken, self._pop
        while (
            self._left and taken.count < pop.max_count and taken.size < self._taker.bytes_max and taken.problem is None
        ):
            source, key = self._left.pop(0)
            if key not in self._taker.reading and self._is_read_later(source, key):
                return
            taken.rest_count += self._progress.backlog(key)
        taken.rest_count += sum(self._progress.backlog(key) for _, key in self._left)
        self._done(pop, taken)

    def _is_read_later(self, source: PopSource, key: PopQueue) -> bool:
        """Take of one queue; True when the worker reads it first, and goes on then."""
        for _ in range(POP_READS_MAX):
            try:
                result = self._read(key)
            except OSError as error:
                self._taken.problem = str(error)
                return False
            if result is None:
                return False
            if result.cold is not None:
                if not self._taker.cold.begin(self._pop.peer):
                    self._taken.lacks_place = True
                    return False
                start = self._start(key)
                self._taker.reading.add(key)
                self._taker.store.read_cold(result, partial(self._was_read, source, key, start))
                return True
            if not self._took(source, key, self._start(key), result):
                return False
        return False

    def _start(self, key: PopQueue) -> int:
        if self._pop.is_ordered:
            return self._progress.first_unsettled(key, from_end=self._pop.from_end)
        return self._progress.next_offset(key, from_end=self._pop.from_end)

    def _limits(self, key: PopQueue) -> tuple[int, int]:
        """How many messages of a queue may be taken, and about how many bytes."""
        pop, taken = self._pop, self._taken
        count = pop.max_count - taken.count
        if pop.hides:
            queue = self._progress.begin(key, from_end=pop.from_end)
            if queue is None or (pop.is_ordered and not self._may_give(key)):
                count = 0
            elif not pop.is_ordered:
                count = min(count, queue.room) if self._is_below_threshold(queue) else 0
            self._progress.finish(key)
        return count, max(self._taker.bytes_max - taken.size, 1)

    def _read(self, key: PopQueue) -> GetResult | None:
        """The next messages of a queue; None when none may be taken. Raises OSError."""
        count, size = self._limits(key)
        if count <= 0:
            return None
        return get_wanted(self._taker.store, key.topic, key.queue_id, self._start(key), count, size, self._pop.wanted)

    def _was_read(self, source: PopSource, key: PopQueue, start: int, read: GetResult | ReadProblem) -> None:
        taker = self._taker
        taker.reading.discard(key)
        try:
            if self._pop.hides and not (self._progress.is_open and taker.is_checked(self._pop)):
                self._left.clear()
            elif isinstance(read, OSError | JobRefusedError):
                self._taken.problem = str(read)
            elif self._start(key) == start:  # else the group was reset meanwhile
                self._took(source, key, start, choose(read, *self._limits(key), self._pop.wanted))
            self._taken.rest_count += self._progress.backlog(key)
            self.go_on()
        finally:
            taker.cold.end(self._pop.peer)

    def _took(self, source: PopSource, key: PopQueue, start: int, result: GetResult) -> bool:
        """Take what a read from `start` on has found; True when another read may find more."""
        if result.status is GetStatus.FOUND:
            records = result.records if self._pop.is_ordered else self._free(key, result.records)
            offsets = [*queue_offsets(records)]
            if self._pop.hides:
                self._hide(key, offsets, result.next_offset)
            if self._pop.is_ordered:  # its place is the committed offset yet
                self._taken.rest_count -= result.next_offset - start
            if offsets:
                self._collect(source, key, start, offsets, records)
                return False
            self._taken.has_passed = True
            return self._pop.hides
        if not self._pop.hides:
            return False
        has_passed = result.status in PASSED and result.next_offset > start
        self._taken.has_passed |= has_passed
        if self._pop.is_ordered and (has_passed or result.status is GetStatus.OFFSET_TOO_SMALL):
            self._progress.begin_anew(key, result.next_offset)
            return True
        if has_passed:
            self._hide(key, [], result.next_offset)
            return True
        if result.status is GetStatus.OFFSET_TOO_SMALL:
            self._queue(key).settle_before(result.next_offset)
            self._progress.finish(key)
            return True
        if result.status in BEYOND and result.next_offset < start:
            self._progress.begin_anew(key, result.next_offset)
            return True
        return False

    def _queue(self, key: PopQueue) -> QueueInFlight:
        queue = self._progress.begin(key, from_end=self._pop.from_end)
        assert queue is not None, "it was begun before it was read"
        return queue

    def _free(self, key: PopQueue, records: Sequence[Buffer]) -> Sequence[Buffer]:
        """Those of the records that no pop before the last start took."""
        queue = self._progress.in_flight.queues.get(key)
        if queue is None or not queue.passed_over:
            return records
        return [one for one in single_records(records) if next(queue_offsets([one])) not in queue.passed_over]

    def _is_below_threshold(self, queue: QueueInFlight) -> bool:
        settings = self._taker.settings
        return not settings.enable_pop_message_threshold or queue.count <= settings.pop_inflight_message_threshold

    def _may_give(self, key: PopQueue) -> bool:
        """Whether an ordered pop may have messages of a queue."""
        orders = self._progress.orders
        return orders.has_room(key) and not orders.blocks(key, self._pop.attempt_id, self._taken.popped_ms)

    def _hide(self, key: PopQueue, offsets: Sequence[int], end: int) -> None:
        popped_ms = self._taken.popped_ms
        if self._pop.is_ordered:
            counts = self._progress.orders.give(key, offsets, popped_ms, self._pop.invisible_ms, self._pop.attempt_id)
            self._taken.given_before.append(GivenBefore(key.queue_id, offsets, counts))
            return
        self._queue(key).take(offsets, end, popped_ms, popped_ms + self._pop.invisible_ms)
        self._progress.finish(key)

    def _collect(
        self, source: PopSource, key: PopQueue, start: int, offsets: list[int], records: Sequence[Buffer]
    ) -> None:
        taken = self._taken
        taken.queues.append(PoppedQueue(source, key.queue_id, start, offsets))
        taken.count += len(offsets)
        taken.size += sum(len(record) for record in records)
        if source is PopSource.NORMAL or self._taker.settings.pop_response_return_actual_retry_topic:
            taken.records += records
            return
        receipt = PopReceipt(
            start,
            taken.popped_ms,
            self._pop.invisible_ms,
            REVIVE_QUEUE,
            source,
            self._taker.broker_name,
            key.queue_id,
            0,
        )
        for record in single_records(records):
            taken.records.append(_under_first_name(record, self._pop.topic, receipt))


def single_records(parts: Sequence[Buffer]) -> Iterator[memoryview]:
    """The records in parts of the log, each by itself."""
    for part in parts:
        view, at = memoryview(part), 0
        while at < len(view):
            size = int.from_bytes(view[at : at + 4])
            yield view[at : at + size]
            at += size


def queue_offsets(parts: Sequence[Buffer]) -> Iterator[int]:
    """The queue offsets of the records in parts of the log."""
    for record in single_records(parts):
        yield int.from_bytes(record[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + 8])


def _under_first_name(data: memoryview, topic: str, receipt: PopReceipt) -> bytes:
    """A record of a retry topic as its consumer sees it: of its first topic, with its receipt."""
    record = decode_record(data)
    text = msgspec.structs.replace(receipt, queue_offset=record.queue_offset).encode()
    properties = record.properties
    if properties and properties[-1] != 2:
        properties += b"\x02"
    record.properties = properties + f"{Property.POP_CK}\x01{text}\x02".encode()
    record.topic = topic
    return encode_record(record)
