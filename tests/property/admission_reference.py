"""The reference for admission: every message by dictionaries, one rule after another, nothing kept and nothing remembered.

It shares with `Admission` the checks that look at topics and transactions, and what times and levels mean; not how a message is read,
how its stored properties are written, and which checks a usual message is spared.
"""

from __future__ import annotations

import msgspec

from orbitmq.broker.admission import (
    BATCH_BITS,
    MAX_RECONSUME_TIMES_SINCE,
    Admission,
    check_attributes,
    level_of,
    topic_too_long,
)
from orbitmq.broker.idempotence.identity import STAMPS, is_copy, read_identity, without_identity
from orbitmq.broker.message_properties import DELAYS, DROPPED, TIMERS, is_true, priority_of, waits_for_flush
from orbitmq.broker.message_types import check_lite
from orbitmq.broker.refusal import Refusal, group_missing
from orbitmq.broker.sending import Origin, Placement, Sending
from orbitmq.errors import RecordError
from orbitmq.limits.wire import PROPERTIES_BYTES_MAX, PROPERTIES_ROOM_BYTES, RETRY_TOPIC_BYTES_MAX, TOPIC_BYTES_MAX
from orbitmq.protocol.filtering.tags import tags_code
from orbitmq.protocol.names import DLQ_PREFIX, FAR_TIMER_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties, encode_properties
from orbitmq.protocol.recall_handles import encode_handle
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.sysflag import TRANSACTION_MASK
from orbitmq.store.message import NewMessage
from orbitmq.timing.due_time import TimerKind, due_time_of

OWN = {Property.MSG_REGION: "DefaultRegion", Property.TRACE_ON: "true", Property.CLUSTER: "DefaultCluster"}


def admitted(admission: Admission, sending: Sending, origin: Origin, now_ms: int) -> Placement:
    """Where a message goes. Raises `Refusal`. Like the one that is judged it creates topics that are not there."""
    topic = sending.topic
    config = admission.topic_of(sending, now_ms)
    queue_id = admission.queue_of(config, sending.queue_id)
    values = decode_properties(sending.properties)
    if priority_of(values) >= 0:
        if not is_true(values.get(Property.TRAN_MSG)) and not values.keys() & {
            Property.DELAY, *TIMERS, Property.SHARDING_KEY
        }:  # fmt: skip
            queue_id = min(priority_of(values), config.write_queue_nums - 1)
        else:
            del values[Property.PRIORITY]
    stored_queue = queue_id
    if topic.startswith(RETRY_PREFIX):
        group_name = topic[len(RETRY_PREFIX) :]
        group = admission._groups.get(group_name)
        if group is None:
            raise group_missing(group_name)
        limit = group.retry_max_times
        if sending.max_reconsume_times is not None and origin.version >= MAX_RECONSUME_TIMES_SINCE:
            limit = sending.max_reconsume_times
        if sending.reconsume_times > limit:
            config = admission._topics.ensure_dead_letter(group_name)
            topic, stored_queue = config.topic_name, 0
            values = {name: value for name, value in values.items() if name not in TIMERS} | {Property.DELAY: "0"}
    if not sending.body:
        raise Refusal(ResponseCode.SYSTEM_ERROR, "the message has no body")
    if not sending.topic.startswith(RETRY_PREFIX):
        check_attributes(config, values)
    is_delayed_retry = sending.reconsume_times > 0 and level_of(values) > 0
    if not is_delayed_retry:
        admission.is_half(sending.sys_flag, values)
    if len(topic) > (RETRY_TOPIC_BYTES_MAX if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_BYTES_MAX):
        raise topic_too_long(topic, TOPIC_BYTES_MAX)
    if sending.sys_flag & BATCH_BITS or Property.INNER_NUM in values:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "an inner batch")
    check_lite(values)
    wait, once = waits_for_flush(values), None
    if is_copy(topic, values) or not STAMPS.isdisjoint(values):
        values = without_identity(values)
    else:
        once = read_identity(topic, values)
    unique_key = values.setdefault(Property.UNIQ_KEY, admission.next_unique_key())
    sys_flag = admission.sys_flag_of(sending.sys_flag, config, origin.host) & ~TRANSACTION_MASK
    message, handle = _placed(admission, sending, origin, topic, stored_queue, values, sys_flag, now_ms)
    return Placement(
        message, queue_id, unique_key, wait, once, None if sending.topic.startswith(RETRY_PREFIX) else handle
    )


def _placed(
    admission: Admission,
    sending: Sending,
    origin: Origin,
    topic: str,
    queue_id: int,
    values: dict[str, str],
    sys_flag: int,
    now_ms: int,
) -> tuple[NewMessage, str | None]:
    values = {name: value for name, value in values.items() if name not in DROPPED} | OWN
    room = 0 if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else PROPERTIES_ROOM_BYTES
    level, levels = level_of(values), admission.levels
    code, handle = tags_code(values.get(Property.TAGS)), None
    stored_topic, stored_queue = topic, queue_id
    time = due_time_of(values, level, now_ms, admission.timers.rules)
    if level > 0:
        values = {name: value for name, value in values.items() if name not in TIMERS}
        if level > levels.max_level:
            level = levels.max_level
            values[Property.DELAY] = str(level)
        code = levels.due_ms(level, now_ms)
        values |= {Property.REAL_TOPIC: topic, Property.REAL_QID: str(queue_id), Property.DUE_MS: str(code)}
        stored_topic, stored_queue = SCHEDULE_TOPIC, level - 1
    elif time.kind is TimerKind.REFUSED:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR
            if time.refusal and time.refusal.value == "disabled"
            else ResponseCode.MESSAGE_ILLEGAL,
            time.remark,
        )
    elif time.kind is TimerKind.LATER:
        is_far = not time.is_cancel and admission.timers.is_far(time.deliver_ms, now_ms)
        values[Property.TIMER_OUT_MS] = str(time.slot_ms)
        values |= {Property.REAL_TOPIC: topic, Property.REAL_QID: str(queue_id)}
        is_stated = values.get(Property.TIMER_DELIVER_MS) == str(time.deliver_ms)
        if is_far or not is_stated or values.keys() & DELAYS:
            values[Property.DUE_MS] = str(time.deliver_ms)
        stored_topic, stored_queue = FAR_TIMER_TOPIC if is_far else TIMER_TOPIC, 0
        room += 2 * len(values[Property.UNIQ_KEY].encode("utf-8", "replace"))
        if not time.is_cancel:
            handle = encode_handle(topic, "broker-a", time.slot_ms, values[Property.UNIQ_KEY])
    try:
        properties = encode_properties(values)
    except RecordError as error:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
    if len(sending.body) > admission.body_bytes_max or len(properties) + room > PROPERTIES_BYTES_MAX:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "too large")
    message = NewMessage(
        stored_topic,
        stored_queue,
        sending.body,
        properties,
        sending.flag,
        sys_flag,
        sending.born_timestamp,
        origin.host,
        admission.store_host,
        sending.reconsume_times,
        0,
        code,
        values[Property.UNIQ_KEY],
        values.get(Property.KEYS),
    )
    return message, handle


def alike(one: Placement | Refusal, other: Placement | Refusal) -> bool:
    """Whether two decisions are the same: the place, the answer and what the properties say; of refusals the code."""
    if isinstance(one, Refusal) or isinstance(other, Refusal):
        return isinstance(one, Refusal) and isinstance(other, Refusal) and one.code == other.code
    bare = [
        msgspec.structs.replace(way, message=msgspec.structs.replace(way.message, properties=b""))
        for way in (one, other)
    ]
    said = [decode_properties(way.message.properties) for way in (one, other)]
    return bare[0] == bare[1] and said[0] == said[1]
