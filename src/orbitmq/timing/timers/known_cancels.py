"""Whom the cancel records name that name no source, wherever they and their messages wait.

A cancel record of RocketMQ or its clients names topic and unique key, and its own slot time says which message of that key. Both wait
in the slot of that time, or in nearer ones from which they hop. After a stop, or a step of the clock, the message may be overdue
where it is, and leave before its cancellation is met. So these are remembered from the moment they are in the log.

Rules of this file
1. Effective is what names topic and unique key, or the key alone as up to 5.3.1, together with the same slot time.
2. One is forgotten when everything has left that was linked up to its slot time, and up to when it became known.
3. Bounded: beyond it one counts from when its slot is opened, as in RocketMQ.
4. The recovery mark keeps them: behind it they are found in the log once more.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from heapq import heappop, heappush

from orbitmq.clock import Clock
from orbitmq.limits.timers import TIMER_KNOWN_CANCELS_MAX
from orbitmq.protocol.properties import Property
from orbitmq.timing.due_time import cancel_key
from orbitmq.timing.timers.facts import TimerFacts

logger = logging.getLogger("orbitmq.timing")


class KnownCancels:
    """Of one store."""

    def __init__(self, clock: Clock, precision_ms: int, count_max: int = TIMER_KNOWN_CANCELS_MAX) -> None:
        self._clock = clock
        self._precision_ms = precision_ms
        self._count_max = count_max
        self._count = 0
        self._slots: dict[int, set[tuple[int, str]]] = {}
        """By slot: slot time as the record says it, and key."""
        self._until: dict[int, int] = {}
        """Slot -> the slot up to which everything has to have left before it is forgotten."""
        self._order: list[tuple[int, int]] = []
        """(until, slot) as a heap; entries that are no longer true are passed over."""
        self._is_told = False

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        return self._count >= self._count_max

    def add(self, facts: TimerFacts | None, *, is_open: bool = False) -> None:
        """Of whatever record; a slot that is open is not bounded. 2 us for a cancel record."""
        if facts is not None and facts.cancel_key:
            self._add(facts.slot_ms, facts.cancel_key, is_open=is_open)

    def add_named(self, out_ms: int, key: str) -> None:
        """Topic and key, or the key alone, that a cancel record of that slot time names."""
        self._add(out_ms, key, is_open=False)

    def _add(self, out_ms: int, key: str, *, is_open: bool) -> None:
        slot_ms = self._floor(out_ms)
        known = self._slots.get(slot_ms)
        if known is not None and (out_ms, key) in known:
            return
        if self.is_full and not is_open:
            if not self._is_told:
                self._is_told = True
                logger.warning(
                    "more than %d cancel records wait: others count in their own slots only", self._count_max
                )
            return
        if known is None:
            known = self._slots[slot_ms] = set()
        known.add((out_ms, key))
        self._count += 1
        until_ms = max(slot_ms, self._floor(self._clock.now_ms()))
        if until_ms > self._until.get(slot_ms, -1):
            self._until[slot_ms] = until_ms
            heappush(self._order, (until_ms, slot_ms))

    def may_name(self, slot_ms: int, due_ms: int) -> bool:
        """Whether a message that waits in a slot, or is due at a time, may be cancelled. 0.2 us."""
        slots = self._slots
        return bool(slots) and (slot_ms in slots or self._floor(due_ms - 1) in slots)

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
        """Everything that was linked in slots before this one has left."""
        order = self._order
        while order and order[0][0] < before_ms:
            until_ms, slot_ms = heappop(order)
            if self._until.get(slot_ms) == until_ms:
                del self._until[slot_ms]
                self._count -= len(self._slots.pop(slot_ms))
        if not self._count:
            self._is_told = False

    # --- the recovery mark --------------------------------------------------------------------------------------------

    def state(self) -> list[tuple[int, str]]:
        """Slot time and key of each that may still count."""
        return [one for known in self._slots.values() for one in known]

    def restore(self, state: object) -> None:
        """What `state` said; whatever else it is says nothing."""
        for one in state if isinstance(state, list) else ():
            if isinstance(one, (list, tuple)) and len(one) == 2 and isinstance(one[0], int) and isinstance(one[1], str):
                self._add(one[0], one[1], is_open=False)

    def _floor(self, time_ms: int) -> int:
        return time_ms // self._precision_ms * self._precision_ms
