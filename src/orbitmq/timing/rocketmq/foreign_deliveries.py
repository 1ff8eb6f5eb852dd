"""Which timers RocketMQ delivered, or let hop, before it crashed: its records name no source.

Rules of this file
1. A delivery is known by unique key, topic and queue, a hop by unique key and slot time, and only where these are unique: a repeat
   is better than a loss.
2. Only a record that says in which slot it waited is either: a copy that its sender stored again, too late to wait, says none.

Source: RocketMQ timer store, delivered record, roll.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import decode_record
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.reading import is_sound, store_timestamp_of

Address = tuple[str, str, str]
"""Unique key, topic, queue id; in the timer topic its slot time stands for the queue."""


def delivered_by_rocketmq(log: CommitLog, sources: Mapping[int, bool], later: Iterable[Dispatched]) -> list[int]:
    """Which of the timer records at these log positions one of the records in `later` delivers; or puts into the timer topic again,
    for those whose value is true."""
    addresses: dict[Address, list[int]] = {}
    for physical, is_roll in sources.items():
        view = log.record(physical)
        if view is None or not is_sound(view, physical):
            continue
        properties = decode_properties(decode_record(view, body=False).properties)
        key, topic = properties.get(Property.UNIQ_KEY), properties.get(Property.REAL_TOPIC)
        queue_id = properties.get(Property.REAL_QID)
        if key and topic and queue_id:
            address = (
                (key, TIMER_TOPIC, properties.get(Property.TIMER_OUT_MS, "")) if is_roll else (key, topic, queue_id)
            )
            addresses.setdefault(address, []).append(physical)
    keys = {key for key, _, _ in addresses}
    found: list[int] = []
    for entry in later:
        if entry.unique_key not in keys or entry.prepared_transaction_offset:
            continue
        properties = decode_properties(entry.properties)
        slot = properties.get(Property.TIMER_OUT_MS, "")
        if not slot or Property.TIMER_DEL_UNIQKEY in properties:  # a cancel record has the key of what it cancels
            continue
        place = slot if entry.topic == TIMER_TOPIC else str(entry.queue_id)
        known = addresses.get((entry.unique_key or "", entry.topic, place))
        if known is not None and len(known) == 1 and known[0] < entry.physical_offset:
            found.append(known[0])
            known.append(-1)
    return found


def position_at(log: CommitLog, time_ms: int) -> int:
    """A log position that no record stored at or after `time_ms` lies below: the beginning of a file."""
    for segment in reversed(log.sequence.segments):
        view = log.record(segment.base)
        if view is not None and is_sound(view, segment.base) and store_timestamp_of(view) < time_ms:
            return segment.base
    return log.start
