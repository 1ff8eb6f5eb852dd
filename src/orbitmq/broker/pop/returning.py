"""Messages whose invisible time has passed: each is stored again, in the retry topic of its group, and then settled.

Rules of this file
1. The copy is stored before the original settles. Until then the original holds the offset that may be committed, so a crash in between
   delivers the message twice and never loses it.
2. A copy names its source as everything does that is put again: position + 1, in `preparedTransactionOffset`.
3. A message that is acknowledged while its copy is being made is not copied, unless the copy is in the log already.
4. What cannot be stored now is tried again. While the store takes nothing it is asked once in `POP_RETRY_MS`, whatever waits. What the
   store has no more is settled, and counted.
5. A message goes to a retry topic of the group that popped it: who pops of the retry topic of another group adds nothing to that.

Source: RocketMQ broker, POP: revive.
"""

from __future__ import annotations

import logging
from functools import partial

from orbitmq.broker.admission import Admission
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.idempotence.identity import without_identity
from orbitmq.broker.message_properties import facts_of
from orbitmq.broker.pop.figures import PopFigures
from orbitmq.broker.pop.in_flight import Popped, PopQueue
from orbitmq.broker.pop.progress import PopProgress
from orbitmq.broker.pop.taking import single_records
from orbitmq.broker.refusal import Refusal
from orbitmq.errors import RecordError, StoreUnwritableError
from orbitmq.limits.pop import POP_RETRY_MS, POP_RETURNED_AT_ONCE_MAX, POP_SLEEP_MS_MAX
from orbitmq.protocol.names import RETRY_PREFIX, retry_topic
from orbitmq.protocol.pop_receipts import PopSource, pop_retry_topic
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record, decode_record
from orbitmq.protocol.sysflag import TRANSACTION_MASK, with_hosts
from orbitmq.store.durability import PutStatus
from orbitmq.store.message import NewMessage
from orbitmq.store.reading import GetResult, GetStatus
from orbitmq.store.reads import ReadProblem
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.broker")

RETURNS = "popped messages"
"""Name of the wake-up at which messages reappear."""


class PopReturns:
    def __init__(self, core: BrokerCore, admission: Admission, progress: PopProgress, figures: PopFigures) -> None:
        self._core = core
        self._store = core.store
        self._clock = core.clock
        self._admission = admission
        self._progress = progress
        self._in_flight = progress.in_flight
        self._figures = figures
        self.returned_count = 0
        """Messages that were stored again."""
        self.gone_count = 0
        """Messages that retention took while they were in flight."""
        self._refused_until_ns = 0
        """The store took nothing a moment ago: it is asked again then."""
        self._untold_count = 0
        self._told_ns: int | None = None
        """When failures were logged last, and how many there were since."""
        core.deadlines.define(RETURNS, self.run_due)

    def arm(self) -> None:
        """Wake at the next due time, or before it so that a step of the wall clock is noticed."""
        due_ms = self._in_flight.next_due_ms
        if due_ms is None:
            self._core.deadlines.disarm(RETURNS)
            return
        wait_ns = min(max(due_ms * NS_PER_MS - self._clock.due_ns(), 0), POP_SLEEP_MS_MAX * NS_PER_MS)
        self._core.deadlines.move(RETURNS, max(self._clock.monotonic_ns() + wait_ns, self._refused_until_ns))

    def forget_all(self) -> None:
        """Nothing is in flight any more."""
        self._core.deadlines.disarm(RETURNS)

    def run_due(self) -> None:
        """Begin to store again what is due."""
        now_ms = self._clock.due_ns() // NS_PER_MS
        for key, offset, popped_ms in self._in_flight.take_due(now_ms, POP_RETURNED_AT_ONCE_MAX):
            self._return(key, offset, popped_ms)

    def _return(self, key: PopQueue, offset: int, popped_ms: int) -> None:
        if self._progress.find(key) is None:
            return
        try:
            result = self._store.get(key.topic, key.queue_id, offset, 1, 1)
        except OSError as error:
            self._try_later(key, offset, popped_ms, error)
            return
        if result.cold is None:
            self._was_read(key, offset, popped_ms, result)
        else:
            forgotten_count = self._in_flight.forgotten_count
            self._store.read_cold(result, partial(self._was_read_cold, forgotten_count, key, offset, popped_ms))

    def _was_read_cold(
        self, forgotten_count: int, key: PopQueue, offset: int, popped_ms: int, read: GetResult | ReadProblem
    ) -> None:
        if forgotten_count == self._in_flight.forgotten_count:
            self._was_read(key, offset, popped_ms, read)

    def _was_read(self, key: PopQueue, offset: int, popped_ms: int, read: GetResult | ReadProblem) -> None:
        queue = self._progress.find(key)
        popped = None if queue is None else queue.find(offset)
        if popped is None or popped.popped_ms != popped_ms:
            return
        if self._clock.monotonic_ns() < self._refused_until_ns:
            self._wait(key, offset, popped_ms)
            return
        if not isinstance(read, GetResult):
            self._try_later(key, offset, popped_ms, read)
            return
        records = [decode_record(data) for data in single_records(read.records)]
        if read.status is not GetStatus.FOUND or records[0].queue_offset != offset:
            self.gone_count += 1
            self._settle(key, offset, popped_ms)
            return
        try:
            message = self._copy(key, records[0], popped)
            appended = self._store.append(message)
        except (Refusal, RecordError, StoreUnwritableError) as error:
            if isinstance(error, StoreUnwritableError):
                self._refused_until_ns = self._clock.monotonic_ns() + POP_RETRY_MS * NS_PER_MS
            self._figures.count_returned(key, PutStatus.SERVICE_NOT_AVAILABLE.value)
            self._try_later(key, offset, popped_ms, error)
            return
        self._core.statistics.stored(message.topic, 1, appended.size)
        self._store.wait_durable(appended.end_offset, True, partial(self._stored, key, offset, popped_ms))

    def _copy(self, key: PopQueue, record: Record, popped: Popped) -> NewMessage:
        """The message for another attempt. Raises Refusal."""
        admission = self._admission
        values = decode_properties(record.properties)
        values.setdefault(Property.FIRST_POP_TIME, str(popped.popped_ms))
        values.pop(Property.DELAY, None)  # its time has come once; the names of a timer only tell when
        message = admission.place(
            *self._retry_queue(key),
            bytes(record.body),
            facts_of(without_identity(values)),
            None,
            self._clock.now_ms(),
            record.flag,
            with_hosts(record.sys_flag & ~TRANSACTION_MASK, record.born_host, admission.store_host),
            record.born_timestamp,
            record.born_host,
            record.reconsume_times + (0 if popped.suspended else 1),
        )
        message.prepared_transaction_offset = record.physical_offset + 1
        return message

    def _retry_queue(self, key: PopQueue) -> tuple[str, int]:
        """Topic and queue where messages of this queue go for another attempt; the topic is made or widened when it has to be."""
        settings, topics = self._core.settings, self._core.topics
        queue_id = key.queue_id if settings.use_separate_retry_queue else 0
        name, own = key.topic, retry_topic(key.group)
        if name != own and not name.startswith((f"{own}_", f"{own}+")):
            source = PopSource.RETRY_V2 if settings.enable_retry_topic_v2 else PopSource.RETRY_V1
            name = pop_retry_topic(key.group, key.topic, source)
        config = topics.get(key.topic) if settings.use_separate_retry_queue else None
        count = 1 if config is None else max(config.read_queue_nums, queue_id + 1)
        return topics.ensure_wide_retry(name.removeprefix(RETRY_PREFIX), count).topic_name, queue_id

    def _stored(self, key: PopQueue, offset: int, popped_ms: int, status: PutStatus) -> None:
        self._figures.count_returned(key, status.value)
        if status.satisfies_flush:
            self.returned_count += 1
            self._settle(key, offset, popped_ms)
        else:
            self._try_later(key, offset, popped_ms, status.name)

    def _settle(self, key: PopQueue, offset: int, popped_ms: int) -> None:
        queue = self._progress.find(key)
        if queue is not None and queue.settle(offset, popped_ms):
            self._progress.finish(key)

    def _try_later(self, key: PopQueue, offset: int, popped_ms: int, reason: object) -> None:
        now_ns = self._clock.monotonic_ns()
        if self._told_ns is None or now_ns - self._told_ns >= POP_RETRY_MS * NS_PER_MS:
            logger.warning(
                "message %d of %s/%d, popped by group %s and not acknowledged, cannot be stored again now, nor could %d others "
                "lately: %s", offset, key.topic, key.queue_id, key.group, self._untold_count, reason,
            )  # fmt: skip
            self._told_ns, self._untold_count = now_ns, 0
        else:
            self._untold_count += 1
        self._wait(key, offset, popped_ms)

    def _wait(self, key: PopQueue, offset: int, popped_ms: int) -> None:
        queue = self._progress.find(key)
        if queue is not None:
            queue.renew(offset, popped_ms, popped_ms, self._clock.now_ms() + POP_RETRY_MS)
