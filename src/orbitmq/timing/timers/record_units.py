"""The unit that a record of the timer topic gets: the slot it is linked in, and what the unit says of it.

Rules of this file
1. A record that lies further ahead than the roll window is linked at the window's end, to hop from there.
2. A cancel record whose effect is still to come says no due time: then it is read when its slot is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orbitmq.protocol.javahash import java_hash
from orbitmq.store.dispatch import Dispatched
from orbitmq.timing.due_time import slot_to_link
from orbitmq.timing.timer_files.link import Link
from orbitmq.timing.timer_files.unit import DEFAULT, DELETE, ROLL
from orbitmq.timing.timers.facts import TimerFacts

CANCEL: Final = DEFAULT | DELETE

TOPIC_HASHES_MAX: Final = 10_000
"""Topics whose hash is remembered; beyond it they are reckoned anew."""


class RecordUnits:
    """Of one store."""

    __slots__ = ("_hashes", "_precision_ms", "window_slots")

    def __init__(self, window_slots: int, precision_ms: int) -> None:
        self.window_slots = window_slots
        self._precision_ms = precision_ms
        self._hashes: dict[str, int] = {}

    def link_of(self, entry: Dispatched, facts: TimerFacts | None, write_ms: int) -> Link:
        """The unit of a record at the write clock `write_ms`; `facts` None for one that says no time."""
        if facts is None:  # its time is now, and then its place is in quarantine
            return Link(0, DEFAULT, entry.physical_offset, entry.size, 0, 0)
        slot_ms, magic, deliver_ms = facts.slot_ms, DEFAULT, facts.deliver_ms
        if facts.is_cancel:
            magic |= DELETE
            if facts.cancel_key:
                deliver_ms = 0
        if slot_ms - write_ms >= self.window_slots * self._precision_ms:
            slot_ms, _ = slot_to_link(slot_ms, write_ms, self.window_slots, self._precision_ms)
            magic |= ROLL
        return Link(slot_ms, magic, entry.physical_offset, entry.size, self.hash_of(facts.topic), deliver_ms)

    def links_of(
        self, entries: Sequence[Dispatched], every: Sequence[TimerFacts | None], write_ms: int
    ) -> tuple[Sequence[Link | tuple[int, ...]], bool]:
        """The units of many records, and whether all of them say what they are, and no cancel record among them has an effect to
        come or a hop before it. 0.3 us each then, 0.6 us where some lie further ahead than the window."""
        usual = [facts for facts in every if facts is not None and not facts.cancel_key]
        last_ms = write_ms + self.window_slots * self._precision_ms
        if len(usual) < len(every) or max([facts.slot_ms for facts in usual], default=write_ms) >= last_ms:
            are_messages = len(usual) == len(every) and not any(facts.is_cancel for facts in usual)
            return [
                self.link_of(entry, facts, write_ms) for entry, facts in zip(entries, every, strict=True)
            ], are_messages
        hash_of = self.hash_of
        return [
            (
                facts.slot_ms,
                CANCEL if facts.is_cancel else DEFAULT,
                facts.physical_offset,
                facts.size,
                hash_of(facts.topic),
                facts.deliver_ms,
            )
            for facts in usual
        ], True

    def hash_of(self, topic: str) -> int:
        """RocketMQ's hash of a topic, as units have it."""
        known = self._hashes.get(topic)
        if known is None:
            if len(self._hashes) >= TOPIC_HASHES_MAX:
                self._hashes.clear()
            known = self._hashes[topic] = java_hash(topic)
        return known
