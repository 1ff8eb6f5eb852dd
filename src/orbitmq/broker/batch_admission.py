"""Admission of batches: many messages for one queue in one request, stored one by one side by side.

Rules of this file
1. All of a batch is admitted or nothing.
2. What a message does not say itself it takes from the batch, except the batch's own identity (UNIQ_KEY, ONCE_KEY).
3. Messages of a batch have neither delay levels nor transactions. RocketMQ overlooks a delay level and a time inside a
   batch and delivers at once; here a level is refused, because a message must not come before its time.
4. Each message with a due time is a timer message of its own; a time that has passed is no time. Mixed times are a mistake of who
   batches without looking at times, and refused, unless the batch says that they are meant (OWN_TIMES).
5. A batch that may be repeated is decided message by message: after a crash a part of it may be in the log, and its repeat
   stores what is missing.

Source: RocketMQ broker, batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from orbitmq.broker.admission import (
    BATCH_BITS,
    Admission,
    check_attributes,
    level_of,
    topic_too_long,
)
from orbitmq.broker.message_properties import NEEDS_THOUGHT, TIMERS, is_true, waits_for_flush
from orbitmq.broker.once.identity import ONCE_NAMES, Once, SendReader, is_copy, sort_out
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sending import BatchPlacement, Origin, Sending
from orbitmq.broker.timers.intake import (
    PLACE_NAMES,
    TIME_NAMES,
    TimerIntake,
    place_bytes,
    real_place,
    waiting_bytes,
    waiting_values,
)
from orbitmq.errors import RecordError
from orbitmq.limits.wire import BATCH_MESSAGES_MAX, PROPERTIES_BYTES_MAX, TOPIC_BYTES_MAX
from orbitmq.protocol.batches import BatchRow, batch_rows
from orbitmq.protocol.filters import tags_code
from orbitmq.protocol.names import RETRY_PREFIX, TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties, encode_properties
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.store.message import NewMessage
from orbitmq.timing.timer_times import TimerKind, TimerTime, is_stated, slot_time

IDENTITIES = frozenset({Property.UNIQ_KEY, Property.ONCE_KEY})
"""What a batch does not share with its messages."""

PLAINLY_TIMED = (NEEDS_THOUGHT - TIMERS) | frozenset(PLACE_NAMES) | {Property.TIMER_DEL_UNIQKEY}
"""A message of a timed batch with none of these is stored as sent, with the broker's own properties and its place behind."""


class BatchAdmission:
    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def admit(self, sending: Sending, origin: Origin, now_ms: int) -> BatchPlacement | Refusal:
        """Decide about the batch that is the body of `sending`."""
        try:
            return self._admit(sending, origin, now_ms)
        except Refusal as refusal:
            return refusal

    def _admit(self, sending: Sending, origin: Origin, now_ms: int) -> BatchPlacement:
        admission, topic = self._admission, sending.topic
        config = admission.topic_of(sending, now_ms)
        queue_id = admission.queue_of(config, sending.queue_id)
        if topic.startswith(RETRY_PREFIX):
            raise _illegal(f"a batch cannot be sent to the retry topic {topic!r}")
        if len(topic) > TOPIC_BYTES_MAX:
            raise topic_too_long(topic, TOPIC_BYTES_MAX)
        common = decode_properties(sending.properties)
        check_attributes(config, common)
        admission.check_transaction(sending.sys_flag, common, is_delayed_retry=False)
        admission.check_writable()
        if sending.sys_flag & BATCH_BITS:
            raise _illegal("an inner batch cannot stand in a batch")
        _check_part(common)
        if len(sending.body) > admission.body_bytes_max:
            raise admission.body_too_large(len(sending.body), "batch")
        rows = _rows(sending.body)
        sys_flag = admission.sys_flag_of(sending.sys_flag, config, origin.host)
        may_differ = is_true(common.pop(Property.OWN_TIMES, None))
        shared = {name: value for name, value in common.items() if name not in IDENTITIES}
        own, shared_names = admission.own.encoded, shared.keys()
        times = self._times_of(rows, shared, now_ms, may_differ)
        waiting = None if times is None else Waiting(admission.timers, topic, queue_id, times, now_ms)
        no_thought = NEEDS_THOUGHT if waiting is None or not TIMERS.isdisjoint(shared) else PLAINLY_TIMED
        reader = SendReader(topic)
        messages: list[NewMessage] = []
        sends: list[Once] = []
        deliver_ms = None
        stored_topic, stored_queue = topic, queue_id
        for number, (flag, body, properties, values) in enumerate(rows):
            unique_key, once = None, None
            if waiting is not None:
                deliver_ms = waiting.times[number]
                stored_topic, stored_queue = (topic, queue_id) if deliver_ms is None else (waiting.topic(deliver_ms), 0)
            if values is not None and no_thought.isdisjoint(values) and shared_names <= values.keys():
                unique_key = values.get(Property.UNIQ_KEY)
                if not ONCE_NAMES.isdisjoint(values):
                    if is_copy(topic, values):
                        unique_key = None
                    else:
                        once = reader.read(values)
            if values is not None and unique_key is not None:
                properties += own if properties.endswith(b"\x02") else b"\x02" + own
                if waiting is not None and deliver_ms is not None:
                    properties += waiting.bytes_for(values, deliver_ms, stored_topic)
            else:
                values, once = self._complete(topic, properties, shared)
                unique_key = values[Property.UNIQ_KEY]
                values = admission.own.complete(values)
                if waiting is not None and deliver_ms is not None:
                    waiting_values(values, topic, queue_id, waiting.time(deliver_ms), stored_topic)
                properties = _encoded(values)
            if once is not None:
                sends.append(once)
            if len(properties) > PROPERTIES_BYTES_MAX:
                admission.check_sizes(body, properties)
            messages.append(
                NewMessage(
                    stored_topic,
                    stored_queue,
                    body,
                    properties,
                    flag,
                    sys_flag,
                    sending.born_timestamp,
                    origin.host,
                    admission.store_host,
                    sending.reconsume_times,
                    0,
                    tags_code(values.get(Property.TAGS)),
                    unique_key,
                    values.get(Property.KEYS),
                )
            )
        unique_key, wait = common.get(Property.UNIQ_KEY), waits_for_flush(common)
        if not sends:
            return BatchPlacement(messages, queue_id, unique_key, wait)
        _check_sends(sends, len(messages))
        earlier = admission.earlier_places(sends, now_ms)
        new = [place is None for place in earlier]
        return BatchPlacement(
            list(compress(messages, new)), queue_id, unique_key, wait, list(compress(sends, new)), earlier
        )

    def _times_of(
        self, rows: Sequence[BatchRow], shared: dict[str, str], now_ms: int, may_differ: bool
    ) -> list[int | None] | None:
        """When each message falls due, None for one that does not wait; None when all of them have no time. Raises `Refusal`."""
        if TIMERS.isdisjoint(shared) and not any(_may_be_timed(row) for row in rows):
            return None
        timers = self._admission.timers
        inherits = not TIME_NAMES.isdisjoint(shared)
        times: list[int | None] = []
        slots: dict[int, tuple[TimerTime, int]] = {}
        for _, _, properties, values in rows:
            said = decode_properties(properties) if values is None else values
            if inherits:
                said = shared | said
            deliver_ms = timers.stated_later(said, now_ms)
            if deliver_ms is None and (time := timers.judge(said, now_ms)) is not None:
                if time.is_cancel:
                    raise _illegal(f"a cancellation ({Property.TIMER_DEL_UNIQKEY}) cannot stand in a batch")
                deliver_ms = time.deliver_ms
                slots[time.slot_ms] = time, slots.get(time.slot_ms, (time, 0))[1] + 1
            times.append(deliver_ms)
            if not may_differ and deliver_ms != times[0]:
                raise _illegal(
                    "the messages of the batch fall due at different times: a batch has one due time, in all of its messages "
                    f"or in its own properties, or none; with {Property.OWN_TIMES}=true in its own properties each may have its own"
                )
        for time, count in slots.values():
            timers.make_room(time, count)  # with a limit on slots no time is usual, and all of them stand here
        return times

    def _complete(self, topic: str, properties: bytes, shared: dict[str, str]) -> tuple[dict[str, str], Once | None]:
        """What a message says, with what it takes from the batch and a unique key, and which send it is. Raises `Refusal`."""
        values = decode_properties(properties)
        _check_part(values)
        values, once = sort_out(topic, shared | values)
        if not values.get(Property.UNIQ_KEY):
            values = values | {Property.UNIQ_KEY: self._admission.next_unique_key()}
        return values, once


class Waiting:
    """Where the messages of a timed batch wait, and what stands in their last properties meanwhile."""

    __slots__ = ("_now_ms", "_place", "_precision_ms", "_queue_id", "_some_far", "_timers", "_topic", "times")

    def __init__(
        self, timers: TimerIntake, topic: str, queue_id: int, times: Sequence[int | None], now_ms: int
    ) -> None:
        """times: by message, None for one that does not wait."""
        self.times = times
        self._timers = timers
        self._topic, self._queue_id = topic, queue_id
        self._place = real_place(topic, queue_id)
        self._precision_ms = timers.rules.precision_ms
        self._now_ms = now_ms
        last_ms = max((time for time in times if time is not None), default=0)
        self._some_far = timers.is_far(last_ms, now_ms)

    def topic(self, deliver_ms: int) -> str:
        """The topic in which a message waits until then."""
        return self._timers.topic_for(self.time(deliver_ms), self._now_ms) if self._some_far else TIMER_TOPIC

    def time(self, deliver_ms: int) -> TimerTime:
        return TimerTime(TimerKind.LATER, deliver_ms, slot_time(deliver_ms, self._precision_ms))

    def bytes_for(self, values: dict[str, str], deliver_ms: int, stored_topic: str) -> bytes:
        """`waiting_bytes` of a message with these properties."""
        if stored_topic == TIMER_TOPIC and is_stated(values, deliver_ms):
            return place_bytes(slot_time(deliver_ms, self._precision_ms), self._place)
        return waiting_bytes(values, self._topic, self._queue_id, self.time(deliver_ms), stored_topic)


def _check_sends(sends: Sequence[Once], message_count: int) -> None:
    """A batch is repeated as a whole: all of its messages are sends of one scope and epoch, and no two are the same."""
    if len(sends) < message_count or len({(once.scope, once.epoch) for once in sends}) > 1:
        raise _illegal(
            f"all messages of a batch have the same {Property.ONCE_SCOPE} and {Property.ONCE_EPOCH}, or none has them"
        )
    if len({once.digest for once in sends}) < message_count:
        raise _illegal(
            f"two messages of the batch have the same key ({Property.ONCE_KEY}, or else {Property.UNIQ_KEY})"
        )


def _rows(body: bytes) -> Sequence[BatchRow]:
    try:
        rows = batch_rows(body)
    except RecordError as error:
        raise _illegal(f"the batch cannot be read: {error}") from error
    if not rows:
        raise _illegal("the batch holds no message")
    if len(rows) > BATCH_MESSAGES_MAX:
        raise _illegal(f"the batch holds {len(rows)} messages; at most {BATCH_MESSAGES_MAX} are allowed")
    return rows


def _check_part(values: dict[str, str]) -> None:
    """What neither a batch as a whole nor one of its messages may ask for."""
    if level_of(values) > 0:
        raise _illegal("a batch cannot hold delayed messages (property DELAY)")
    if is_true(values.get(Property.TRAN_MSG)):
        raise _illegal("a batch cannot hold transactional messages (TRAN_MSG)")
    if Property.INNER_NUM in values:
        raise _illegal("an inner batch (INNER_NUM) cannot stand in a batch")


def _may_be_timed(row: BatchRow) -> bool:
    _, _, properties, values = row
    return b"TIMER_DEL" in properties if values is None else not TIMERS.isdisjoint(values)


def _encoded(values: dict[str, str]) -> bytes:
    try:
        return encode_properties(values)
    except RecordError as error:
        raise _illegal(f"the properties of a message cannot be stored: {error}") from error


def _illegal(remark: str) -> Refusal:
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
