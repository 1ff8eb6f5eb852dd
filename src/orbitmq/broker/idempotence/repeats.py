"""What a repeat of a send is told: the first answer, as the first record says it.

The memory knows where the first send went. Its message id, its due time and the handle that recalls it are read from its record,
so they cost nothing before somebody asks.

Rules of this file
1. A repeat is one only while the first record counts. Where its queue does not hold it any more, its topic was deleted, by us or by
   a RocketMQ broker that had the store in between.
2. After a recall a late retry, which has the first message id, is told that it was recalled. A send with another id was made
   after it, and is a new message.
3. Of a record that has left the log nothing is known but its place.
4. A window is exact to the millisecond while the first record is in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from orbitmq.broker.idempotence.identity import WAITING_TOPICS
from orbitmq.broker.idempotence.memory import SentPlace
from orbitmq.protocol.names import FAR_TIMER_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import decode_record
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.store import MessageStore
from orbitmq.timing.due_time import stored_due_time
from orbitmq.timing.restoring import source_of


class FirstAnswer(NamedTuple):
    """What the sender of the first message was told. unique_key: None for a record that has left the log."""

    place: SentPlace
    unique_key: str | None
    handle: str | None = None
    deliver_ms: int | None = None
    recalled: bool = False


class FirstSends(Protocol):
    """The part of the memory of idempotent sends that is asked here."""

    def on_its_way(self, physical_offset: int) -> Dispatched | None: ...


class Repeats:
    def __init__(
        self,
        sends: FirstSends,
        store: MessageStore,
        *,
        precision_ms: int,
        handle_of: Callable[[str, int, str], str],
        is_recalled: Callable[[str, str, int, int | None], bool],
    ) -> None:
        """handle_of: what recalls the message of a topic, a slot and a unique key. is_recalled: whether the timer message of a topic
        with that unique key, due then, was; the last is its number in the far tier, if that has it."""
        self._sends = sends
        self._store = store
        self._precision_ms = precision_ms
        self._handle_of = handle_of
        self._is_recalled = is_recalled

    def first_answer(self, place: SentPlace, unique_key: str, now_ms: int = 0) -> FirstAnswer | None:
        """The answer to a repeat with that unique key; None when it is no repeat, but a new message. Cost: about 15 us, for a
        timer message a look into the key index more."""
        record = self._sends.on_its_way(place.physical_offset)
        if record is not None:
            topic, properties, stored_ms = record.topic, record.properties, record.store_timestamp
        else:
            data = self._store.record_at(place.physical_offset)
            if data is None:
                return FirstAnswer(place, None)
            stored = decode_record(data)
            queue = self._store.queues.get(stored.topic, stored.queue_id)
            unit = None if queue is None else queue.unit(place.queue_offset)
            if unit is None or unit[0] != place.physical_offset:
                return None
            topic, properties, stored_ms = stored.topic, stored.properties, stored.store_timestamp
        values = decode_properties(properties)
        window = values.get(Property.ONCE_WINDOW)
        if window is not None and stored_ms + int(window) <= now_ms:
            return None
        first_key = values.get(Property.UNIQ_KEY, unique_key)
        if topic not in WAITING_TOPICS:
            return FirstAnswer(place, first_key)
        real_topic, slot = values.get(Property.REAL_TOPIC, ""), values.get(Property.TIMER_OUT_MS, "")
        if topic == SCHEDULE_TOPIC:
            due = values.get(Property.DUE_MS, "")
            return FirstAnswer(place, first_key, None, int(due) if due.isdigit() else None)
        if not slot.isdigit() or real_topic.startswith(RETRY_PREFIX):
            return FirstAnswer(place, first_key)
        due_ms = stored_due_time(values, int(slot), stored_ms, self._precision_ms)
        far_source = source_of(place.physical_offset) if topic == FAR_TIMER_TOPIC else None
        recalled = record is None and self._is_recalled(real_topic, first_key, due_ms, far_source)
        if recalled and first_key != unique_key:
            return None
        return FirstAnswer(place, first_key, self._handle_of(real_topic, int(slot), first_key), due_ms, recalled)
