"""Cancel records that RocketMQ or its clients wrote: they name a message of their slot, and no source.

Cancellations of ours take effect when they are written. Of the others the timers learn when they arrive, and once more when
their slot is opened: whoever they name and is still pending when its time comes is cancelled then.

Rules of this file
1. A slot gives nothing before its cancel records have been read. One that cannot be read is reported and names nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from orbitmq.errors import RecordError
from orbitmq.protocol.records import decode_record
from orbitmq.store.store import MessageStore
from orbitmq.timing.release import Data, left_out, read_cold
from orbitmq.timing.timers.facts import facts_of_record
from orbitmq.timing.timers.known_cancels import KnownCancels
from orbitmq.timing.timers.slots import OpenSlot

logger = logging.getLogger("orbitmq.timing")


class Cancels:
    """Reads what the cancel records of a slot say."""

    def __init__(self, known: KnownCancels, precision_ms: int, changed: Callable[[bool], None]) -> None:
        """`known` gets what they say. `changed` is called when a slot has been read (true), or nothing could be read."""
        self._known = known
        self._precision_ms = precision_ms
        self._changed = changed
        self._reading: OpenSlot | None = None

    def read(self, store: MessageStore, slot: OpenSlot) -> None:
        """Empty `slot.unread`, at once or with the help of the worker."""
        if self._reading is not None:
            return
        cold: list[tuple[int, int]] = []
        for physical_offset, size in slot.unread:
            data = store.log.read_now(physical_offset, size) if physical_offset >= store.warm_from else None
            if data is None:
                cold.append((physical_offset, size))
            else:
                self._take_up(slot, physical_offset, data)
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
                self._take_up(slot, physical_offset, data)
            unread = set(left_out([physical_offset for physical_offset, _ in cold], found))
            slot.unread = [unit for unit in cold if unit[0] in unread]
            self._changed(not unread)

        read_cold(store, cold, done)

    def _take_up(self, slot: OpenSlot, physical_offset: int, data: Data | bytearray) -> None:
        try:
            facts = None if data is None else facts_of_record(decode_record(data, body=False), self._precision_ms)
        except RecordError:
            facts = None
        if facts is not None and facts.is_cancel:
            self._known.add(facts, is_open=True)
        else:
            logger.error(
                "the cancel record at %d of the slot %d says nothing and is passed over", physical_offset, slot.slot_ms
            )
