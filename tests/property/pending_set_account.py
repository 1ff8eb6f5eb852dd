"""What is pending by the log: a sorted list that a model test holds against the pending set of the timers.

Rules of this file
1. Records are read as anybody would read them: topic, properties, and which record they name as their source. Nothing of the
   timers is asked.
2. Every record has to be one that was asked for. What was asked for and is not in the log did not happen.
3. A power failure may take the end of the log. The list is then what the rest of it says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.crash.readers import Broken

from orbitmq.protocol.names import QUARANTINE_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.store.dispatch import Dispatched
from orbitmq.timing.restoring import source_offset

NUMBER = "NUMBER"
"""Property by which a message is known here, whatever becomes of it."""


class Waiting(NamedTuple):
    """A pending message; they sort as they fall due."""

    due_ms: int
    queue_offset: int
    physical_offset: int
    number: str
    topic: str
    unique_key: str
    keys: str


class Asked:
    """What was asked for one message."""

    def __init__(self, topic: str, due_ms: int) -> None:
        self.topic = topic
        self.dues = {due_ms}
        self.is_recalled = False


class Account:
    """Of one life."""

    def __init__(self) -> None:
        self.asked: dict[str, Asked] = {}
        self.waiting: dict[int, Waiting] = {}
        """By log position."""
        self.read_to = 0
        self._came: list[Waiting] = []
        self._went: list[tuple[int, int]] = []
        """Log position of a record, and of the one it names as its source."""

    def in_order(self) -> list[Waiting]:
        return sorted(self.waiting.values())

    def follow(self, entries: Iterable[Dispatched], now_ms: int) -> list[Waiting]:
        """Read on in the log; answers what was delivered. Raises Broken."""
        left: list[Waiting] = []
        for entry in entries:
            self.read_to = entry.end_offset
            values = decode_properties(entry.properties)
            source = source_offset(entry)
            old = None
            if source is not None:
                old = self.waiting.pop(source, None)
                if old is None:
                    raise Broken(f"the record at {entry.physical_offset} names {source}, where nothing waits")
                self._went.append((entry.physical_offset, source))
            if entry.topic == TIMER_TOPIC and Property.TIMER_DEL_UNIQKEY not in values:
                self._take_in(entry, values, old)
            elif entry.topic == TIMER_TOPIC:
                if old is not None and not self.asked[old.number].is_recalled:
                    raise Broken(f"message {old.number} was recalled by nobody")
            elif entry.topic == QUARANTINE_TOPIC:
                raise Broken(f"message {values.get(NUMBER)} went to quarantine")
            elif old is not None:
                if (entry.topic, values.get(NUMBER)) != (old.topic, old.number):
                    raise Broken(f"{old} was delivered to {entry.topic} as {values}")
                if old.due_ms > now_ms:
                    raise Broken(f"{old} was delivered {old.due_ms - now_ms} ms early")
                left.append(old)
        return left

    def _take_in(self, entry: Dispatched, values: dict[str, str], old: Waiting | None) -> None:
        number = values[NUMBER]
        asked = self.asked[number]
        one = Waiting(
            int(values[Property.DUE_MS]),
            entry.queue_offset,
            entry.physical_offset,
            number,
            values[Property.REAL_TOPIC],
            values.get(Property.REAL_UNIQ_KEY) or values.get(Property.UNIQ_KEY, ""),
            values.get(Property.KEYS, ""),
        )
        if old is not None and one.number != old.number:
            raise Broken(f"{one} takes the place of {old}")
        if one.due_ms not in asked.dues or one.topic != asked.topic:
            raise Broken(f"{one} was never asked for")
        self.waiting[entry.physical_offset] = one
        self._came.append(one)

    def check_order(self, delivered: list[Waiting], known_below: int) -> None:
        """Of what stood below `known_below` when the turn began, a message leaves behind all of its topic that are due before it. Raises
        Broken."""
        left = [one for one in delivered if one.physical_offset < known_below]
        for topic in {one.topic for one in left}:
            mine = [one for one in left if one.topic == topic]
            if mine != sorted(mine):
                raise Broken(f"{mine} left in this order")
            stay = [one for one in self.waiting.values() if one.topic == topic and one.physical_offset < known_below]
            if stay and min(stay) < mine[-1]:
                raise Broken(f"{mine[-1]} left before {min(stay)}")

    def cut(self, end: int) -> None:
        """The log holds nothing behind this position any more."""
        self.read_to = min(self.read_to, end)
        self._came = [one for one in self._came if one.physical_offset < end]
        self._went = [one for one in self._went if one[0] < end]
        self.waiting = {one.physical_offset: one for one in self._came}
        for _, source in self._went:
            del self.waiting[source]
