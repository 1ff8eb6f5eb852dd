"""Cancel records of RocketMQ and its clients that wait for the messages they name.

Such a record names its message by topic and unique key; its slot time says which message of that key it means. It may have come before
that message, so it is remembered from the moment it is in the log, and a message that it names is cancelled when its time comes. Cancel
records of ours name the source instead, take effect when they are written, and are not kept here.

Rules of this file
1. Effective is what names topic and unique key, or the key alone as up to 5.3.1, together with the same slot time.
2. One is forgotten when everything has left that is due up to its slot time, and up to when it became known.
3. Bounded: beyond it admission refuses more, and those that RocketMQ left behind are reported.
4. The recovery mark keeps them: behind it they are found in the log once more.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Final

from orbitmq.clock import Clock
from orbitmq.limits.timers import TIMER_CANCEL_STRETCH_MS, TIMER_KNOWN_CANCELS_MAX
from orbitmq.protocol.properties import Property
from orbitmq.timing.due_time import cancel_key
from orbitmq.timing.timers.facts import TimerFacts

Place = tuple[int, int]
"""Log position and size of a record."""
NO_PLACE: Final = (-1, 0)

logger = logging.getLogger("orbitmq.timing")


class KnownCancels:
    """The cancel records that wait in one store, by slot time and key."""

    def __init__(self, clock: Clock, count_max: int = TIMER_KNOWN_CANCELS_MAX) -> None:
        self._clock = clock
        self._count_max = count_max
        self._count = 0
        self._slots: dict[int, dict[tuple[int, str], Place]] = {}
        """By stretch of time: slot time as the record says it, and key; and where the record lies."""
        self._until: dict[int, int] = {}
        """Stretch -> the one up to which everything has to have left before it is forgotten."""
        self._order: list[tuple[int, int]] = []
        """(until, slot) as a heap; entries that are no longer true are passed over."""
        self._is_told = False

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        return self._count >= self._count_max

    def add(self, facts: TimerFacts | None) -> None:
        """Remember a cancel record; any other record is passed over. 2 us."""
        if facts is not None and facts.cancel_key:
            self._add(facts.slot_ms, facts.cancel_key, (facts.physical_offset, facts.size))

    def add_named(self, out_ms: int, key: str) -> None:
        """Topic and key, or the key alone, that a cancel record of that slot time names."""
        self._add(out_ms, key, NO_PLACE)

    def _add(self, out_ms: int, key: str, place: Place) -> None:
        slot_ms = self._floor(out_ms)
        known = self._slots.get(slot_ms)
        if known is not None and (out_ms, key) in known:
            return
        if self.is_full:
            if not self._is_told:
                self._is_told = True
                logger.warning("more than %d cancel records wait: others are not heeded", self._count_max)
            return
        if known is None:
            known = self._slots[slot_ms] = {}
        known[out_ms, key] = place
        self._count += 1
        until_ms = max(slot_ms, self._floor(self._clock.now_ms()))
        if until_ms > self._until.get(slot_ms, -1):
            self._until[slot_ms] = until_ms
            heappush(self._order, (until_ms, slot_ms))

    def may_name(self, due_ms: int) -> bool:
        """Whether a message that is due at a time may be cancelled. 0.2 us."""
        slots = self._slots
        if not slots:
            return False
        stretch_ms = self._floor(due_ms - 1)
        return stretch_ms in slots or stretch_ms - TIMER_CANCEL_STRETCH_MS in slots

    def name(self, values: Mapping[str, str]) -> bool:
        """Whether the message with these properties is cancelled."""
        out_text, unique_key = values.get(Property.TIMER_OUT_MS, ""), values.get(Property.UNIQ_KEY)
        if not unique_key or not (out_text.isascii() and out_text.isdigit()) or len(out_text) > 18:
            return False
        out_ms = int(out_text)
        known = self._slots.get(self._floor(out_ms), ())
        full_key = cancel_key(values.get(Property.REAL_TOPIC, ""), unique_key)
        return (out_ms, unique_key) in known or (out_ms, full_key) in known

    def forget(self, before_ms: int) -> None:
        """Everything that is due in slots before this one has left."""
        order = self._order
        while order and order[0][0] + 2 * TIMER_CANCEL_STRETCH_MS <= before_ms:
            until_ms, slot_ms = heappop(order)
            if self._until.get(slot_ms) == until_ms:
                del self._until[slot_ms]
                self._count -= len(self._slots.pop(slot_ms))
        if not self._count:
            self._is_told = False

    # --- the recovery mark --------------------------------------------------------------------------------------------

    def state(self) -> list[tuple[int, str, int, int]]:
        """Slot time and key of each that may still count, log position and size of its record."""
        return [(*one, *place) for known in self._slots.values() for one, place in known.items()]

    def waiting(self) -> list[tuple[int, int, int]]:
        """Slot time of each whose record is known, its log position and size."""
        return [(out_ms, at, size) for out_ms, _, at, size in self.state() if (at, size) != NO_PLACE]

    def restore(self, state: object) -> None:
        """What `state` said; whatever else it is says nothing."""
        for one in state if isinstance(state, list) else ():
            if (
                isinstance(one, (list, tuple))
                and len(one) in (2, 4)
                and isinstance(one[0], int)
                and isinstance(one[1], str)
            ):
                place = tuple(one[2:]) or NO_PLACE  # earlier versions did not keep it
                if all(isinstance(part, int) for part in place):
                    self._add(one[0], one[1], (place[0], place[1]))

    def _floor(self, time_ms: int) -> int:
        return time_ms // TIMER_CANCEL_STRETCH_MS * TIMER_CANCEL_STRETCH_MS
