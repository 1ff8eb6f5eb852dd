"""Cancel records that RocketMQ or its clients wrote: they name a message of their slot, and no source.

Cancellations of ours take effect when they are written. Of the others a slot learns when it is opened, or when they arrive
later: whoever they name and is still pending when its time comes is cancelled then.

Rules of this file
1. A slot gives nothing before its cancel records have been read. One that cannot be read is reported and names nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from orbitmq.errors import RecordError
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record, decode_record
from orbitmq.store.store import MessageStore
from orbitmq.timing.release import Data, read_cold
from orbitmq.timing.timer_times import cancel_key
from orbitmq.timing.timers.slots import OpenSlot

logger = logging.getLogger("orbitmq.timing")


class Cancels:
    """Reads what the cancel records of a slot say."""

    def __init__(self, changed: Callable[[bool], None]) -> None:
        """`changed` is called when a slot has been read (true), or nothing could be read."""
        self._changed = changed
        self._reading: OpenSlot | None = None

    def read(self, store: MessageStore, slot: OpenSlot) -> None:
        """Empty `slot.unread`, at once or with the help of the worker."""
        if self._reading is not None:
            return
        cold = [unit for unit in slot.unread if unit[0] < store.warm_from]
        for physical_offset, size in slot.unread:
            if physical_offset >= store.warm_from:
                _take_up(slot, physical_offset, store.log.view(physical_offset, size))
        slot.unread = cold
        if not cold:
            return
        self._reading = slot

        def done(found: list[tuple[int, bytes | None]] | BaseException) -> None:
            self._reading = None
            if isinstance(found, BaseException):
                logger.error("cancel records of the slot %d could not be read, trying again: %s", slot.slot_ms, found)
                self._changed(False)
                return
            for physical_offset, data in found:
                _take_up(slot, physical_offset, data)
            slot.unread = []
            self._changed(True)

        read_cold(store, cold, done)


def _take_up(slot: OpenSlot, physical_offset: int, data: Data) -> None:
    try:
        record = None if data is None else decode_record(data, body=False)
    except RecordError:
        record = None
    key = None if record is None else decode_properties(record.properties).get(Property.TIMER_DEL_UNIQKEY)
    if key:
        slot.cancel_keys.add(key)
    else:
        logger.error(
            "the cancel record at %d of the slot %d says nothing and is passed over", physical_offset, slot.slot_ms
        )


def is_cancelled(record: Record, cancel_keys: set[str]) -> bool:
    """Whether the cancel records of its slot name this message: by topic and unique key, or as RocketMQ up to 5.3.1 did by its
    unique key alone."""
    values = decode_properties(record.properties)
    unique_key = values.get(Property.UNIQ_KEY)
    if not unique_key:
        return False
    return unique_key in cancel_keys or cancel_key(values.get(Property.REAL_TOPIC, ""), unique_key) in cancel_keys
