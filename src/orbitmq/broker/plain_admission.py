"""The short way through admission, for the messages that nearly all senders send.

A message takes it when its topic is an ordinary one that exists, its queue is there, and nothing in its flags or
properties asks for more than storing it, now, after one of the delay levels, or at a time. It then skips every check that cannot
fail for it. Whatever is not plain gets None here and goes through `Admission`, which is the reference: both place a plain
message alike.

Rules of this file
1. No refusal is made here and nothing is created: doubt means None.
2. What is remembered about topics is thrown away as soon as the topic table changes.
3. The sender's property text is kept as it is and ours put behind it.
"""

from __future__ import annotations

from orbitmq.broker.attributes import CLEANUP_POLICY, QUEUE_TYPE
from orbitmq.broker.message_properties import NEEDS_THOUGHT, TIMERS, BrokerProperties, is_true
from orbitmq.broker.once.identity import ONCE_NAMES, is_copy, read_once
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sending import Origin, Placement, Sending
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.timers.intake import PLACE_NAMES, TimerIntake, waiting_bytes
from orbitmq.broker.topics import MULTI_TAG, WRITE, TopicTable
from orbitmq.limits.wire import PROPERTIES_BYTES_MAX, TOPIC_BYTES_MAX
from orbitmq.protocol.filters import tags_code
from orbitmq.protocol.names import RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, is_send_forbidden
from orbitmq.protocol.properties import Property, exact_properties
from orbitmq.protocol.remoting.bodies import DataVersion
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.protocol.sysflag import COMPRESSION_MASK, SysFlag
from orbitmq.store.message import NewMessage

PLAIN_FLAGS = COMPRESSION_MASK | int(SysFlag.COMPRESSED)
"""Bits of the sender's flag that change nothing here; any other bit is not plain."""

NOT_PLAIN = NEEDS_THOUGHT - TIMERS - {Property.DELAY}

NOT_PLAINEST = NOT_PLAIN | TIMERS | ONCE_NAMES
"""One look for all: a message without any of these needs no question about its time or its send."""

NOT_PLAINLY_TIMED = frozenset({Property.DELAY, Property.TIMER_DEL_UNIQKEY, *PLACE_NAMES})
"""Beside a timer property each of these means something of its own, or is in the way of what is put behind."""

NOT_PLAINLY_STATED = (NOT_PLAINEST | NOT_PLAINLY_TIMED) - {Property.TIMER_DELIVER_MS}
"""A message with a stated time and without any of these asks for that time and for nothing else."""

IPV4_HOST_BYTES = 8


class PlainAdmission:
    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        levels: DelayLevels,
        own: BrokerProperties,
        timers: TimerIntake,
        store_host: bytes,
        body_bytes_max: int,
    ) -> None:
        self._topics = topics
        self._levels = levels
        self._level_of = {str(level): level for level in range(1, levels.max_level + 1)}
        self._own = own.encoded
        self._timers = timers
        self._store_host = store_host
        self._body_bytes_max = body_bytes_max
        self._writable = bool(settings.broker_permission & WRITE)
        self._enabled = not settings.start_accept_send_request_timestamp and len(store_host) == IPV4_HOST_BYTES
        self._queues: dict[str, int] = {}
        self._version: DataVersion | None = None

    def admit(self, sending: Sending, origin: Origin, now_ms: int) -> Placement | None:
        """Where a plain message goes; None for any other. Cost: about 2 us, with a time 4."""
        topic = sending.topic
        queues = self._queues.get(topic)
        if queues is None or self._version is not self._topics.version:
            queues = self._learn(topic)
        queue_id, sys_flag, body, host = sending.queue_id, sending.sys_flag, sending.body, origin.host
        if not 0 <= queue_id < queues or sys_flag & ~PLAIN_FLAGS or len(host) != IPV4_HOST_BYTES:
            return None
        if not 0 < len(body) <= self._body_bytes_max:
            return None
        text = sending.properties
        values = exact_properties(text)
        if values is None:
            return None
        unique_key = values.get(Property.UNIQ_KEY)
        if unique_key is None:
            return None
        once = time = handle = waiting = None
        stated = values.get(Property.TIMER_DELIVER_MS)
        if stated is not None and NOT_PLAINLY_STATED.isdisjoint(values):
            waiting = self._timers.wait_until(stated, topic, queue_id, unique_key, now_ms)
        if waiting is None and not NOT_PLAINEST.isdisjoint(values):
            if not NOT_PLAIN.isdisjoint(values):
                return None
            try:
                if not ONCE_NAMES.isdisjoint(values):
                    if is_copy(topic, values):
                        return None
                    once = read_once(topic, values)
                if not TIMERS.isdisjoint(values):
                    if not NOT_PLAINLY_TIMED.isdisjoint(values) or self._timers.has_slot_limit:
                        return None
                    time = self._timers.time_of(values, now_ms)
            except Refusal:
                return None
        properties = (text if text[-1] == "\x02" else text + "\x02").encode() + self._own
        if waiting is not None:
            place, handle = waiting
            stored_topic, stored_queue, code = TIMER_TOPIC, 0, tags_code(values.get(Property.TAGS))
            properties += place
        elif time is not None:
            stored_topic = self._timers.topic_for(time, now_ms)
            stored_queue, code = 0, tags_code(values.get(Property.TAGS))
            properties += waiting_bytes(values, topic, queue_id, time, stored_topic)
            handle = self._timers.handle_of(topic, time.slot_ms, unique_key)
        elif (delay := values.get(Property.DELAY)) is None:
            stored_topic, stored_queue, code = topic, queue_id, tags_code(values.get(Property.TAGS))
        else:
            level = self._level_of.get(delay)
            if level is None or Property.REAL_TOPIC in values or Property.REAL_QID in values:
                return None
            stored_topic, stored_queue, code = SCHEDULE_TOPIC, level - 1, self._levels.due_ms(level, now_ms)
            properties += b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02ORBITMQ_DUE_MS\x01%d\x02" % (
                topic.encode(),
                queue_id,
                code,
            )
        if len(properties) > PROPERTIES_BYTES_MAX:
            return None
        wait = values.get(Property.WAIT)
        message = NewMessage(
            stored_topic,
            stored_queue,
            body,
            properties,
            sending.flag,
            sys_flag,
            sending.born_timestamp,
            host,
            self._store_host,
            sending.reconsume_times,
            0,
            code,
            unique_key,
            values.get(Property.KEYS),
        )
        return Placement(message, queue_id, unique_key, wait is None or is_true(wait), once, handle)

    def _learn(self, topic: str) -> int:
        """How many queues a plain message to `topic` may choose from; 0 when the topic is not an ordinary one."""
        if self._version is not self._topics.version:
            self._version = self._topics.version
            self._queues.clear()
        config = self._topics.get(topic)
        if (
            config is None
            or not self._enabled
            or is_send_forbidden(topic)
            or topic.startswith(RETRY_PREFIX)
            or len(topic) > TOPIC_BYTES_MAX
            or config.topic_filter_type == MULTI_TAG
            or (config.order and not self._writable)
            or CLEANUP_POLICY in config.attributes
            or QUEUE_TYPE in config.attributes
        ):
            return 0
        queues = self._queues[topic] = max(config.write_queue_nums, config.read_queue_nums)
        return queues
