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
    topic_too_long,
)
from orbitmq.broker.idempotence.identity import SendIdentity, SendReader
from orbitmq.broker.message_properties import (
    CANCEL,
    LEVEL,
    MARKS,
    REFUSED,
    TIMED,
    TRANSACTIONAL,
    SendFacts,
    facts_of,
    is_true,
    level_of,
    row_facts,
    waits_for_flush,
)
from orbitmq.broker.message_types import check_lite
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sending import BatchPlacement, Origin, Sending
from orbitmq.errors import RecordError
from orbitmq.limits.wire import BATCH_MESSAGES_MAX, TOPIC_BYTES_MAX
from orbitmq.protocol.batches import BatchRow, batch_rows
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.store.message import NewMessage

IDENTITIES = frozenset({Property.UNIQ_KEY, Property.ONCE_KEY})
"""What a batch does not share with its messages."""


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
        admission.is_half(sending.sys_flag, common)
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
        parts = [_part(row, shared) for row in rows]
        for facts in parts:
            admission.check_type(config, facts, origin)
        times = self._times_of(parts, now_ms, may_differ)
        read = SendReader(topic).read
        messages: list[NewMessage] = []
        sends: list[SendIdentity] = []
        for (flag, body, _, _, _), facts, due_ms in zip(rows, parts, times, strict=True):
            facts, identity = admission.identity(topic, facts, read)
            if identity is not None:
                sends.append(identity)
            message = admission.place(
                topic, queue_id, body, facts, due_ms, now_ms,
                flag, sys_flag, sending.born_timestamp, origin.host, sending.reconsume_times,
            )  # fmt: skip
            messages.append(message)
        unique_key, wait = common.get(Property.UNIQ_KEY), waits_for_flush(common)
        if not sends:
            return BatchPlacement(messages, queue_id, unique_key, wait)
        _check_sends(sends, len(messages))
        earlier = admission.earlier_places(sends, topic, now_ms)
        new = [place is None for place in earlier]
        return BatchPlacement(
            list(compress(messages, new)), queue_id, unique_key, wait, list(compress(sends, new)), earlier
        )

    def _times_of(self, parts: Sequence[SendFacts], now_ms: int, may_differ: bool) -> Sequence[int | None]:
        """When each message falls due, None for one that does not wait. Raises `Refusal`."""
        if not any(facts.marks & TIMED for facts in parts):
            return [None] * len(parts)
        timers = self._admission.timers
        times: list[int | None] = []
        for facts in parts:
            due_ms = timers.due_time(facts, now_ms, has_room=True)
            if due_ms is not None and facts.marks & CANCEL:
                raise _illegal(f"a cancellation ({Property.TIMER_DEL_UNIQKEY}) cannot stand in a batch")
            times.append(due_ms)
            if not may_differ and due_ms != times[0]:
                raise _illegal(
                    "the messages of the batch fall due at different times: a batch has one due time, in all of its messages "
                    f"or in its own properties, or none; with {Property.OWN_TIMES}=true in its own properties each may have its own"
                )
        if timers.has_slot_limit:
            for due_ms, count in timers.by_slot(times).items():
                timers.make_room(due_ms, count)
        return times


def _part(row: BatchRow, shared: dict[str, str]) -> SendFacts:
    """What a message of a batch says, with what it takes from the batch. Raises `Refusal` for what it may not ask for."""
    facts = row_facts(row)
    if not shared.keys() <= facts.values.keys():
        facts = facts_of(shared | facts.values)
    if facts.marks & (LEVEL | REFUSED | TRANSACTIONAL):
        _check_part(facts.values)
    return facts


def _check_sends(sends: Sequence[SendIdentity], message_count: int) -> None:
    """A batch is repeated as a whole: all of its messages are sends of one scope and epoch, and no two are the same. Windows are for
    single messages: whether one is over is read in the record of the first send."""
    if any(identity.window_ms for identity in sends):
        raise _illegal(f"a batch cannot hold messages with {Property.ONCE_WINDOW}: send them one by one")
    if len(sends) < message_count or len({(identity.scope, identity.epoch) for identity in sends}) > 1:
        raise _illegal(
            f"all messages of a batch have the same {Property.ONCE_SCOPE} and {Property.ONCE_EPOCH}, or none has them"
        )
    if len({identity.digest for identity in sends}) < message_count:
        raise _illegal(
            f"two messages of the batch have the same key ({Property.ONCE_KEY}, or else {Property.UNIQ_KEY})"
        )


def _rows(body: bytes) -> Sequence[BatchRow]:
    try:
        rows = batch_rows(body, MARKS)
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
    check_lite(values)


def _illegal(remark: str) -> Refusal:
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
