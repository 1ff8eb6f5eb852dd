"""Taking timer messages in: what a message's time means at this broker, and the topic in which it waits.

Admission asks here for every message with a timer property. The rules of time are those of `timing.due_time`; what is
added is what only a broker knows: how crowded a slot is, and how far the far tier begins.

Rules of this file
1. Nothing is stored and nothing is remembered but the messages of a slot that are on their way into the log.
2. A refusal has RocketMQ's code and a remark that names the property, its value and the limit.
3. A message waits in a system topic. Where it goes stands in its last properties, always in one order: slot, topic, queue, and the due
   time where it is needed.
4. A due time that stands in the sender's own property is written a second time only for the far tier, which reads ours.

Source: RocketMQ timer store, rules at put time, congestion.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from orbitmq.broker.message_properties import CANCEL, DELAYED, LEVEL, PLACED, STATED, TIMED, SendFacts, level_of
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.settings import BrokerSettings
from orbitmq.limits.broker import TIMER_TOPIC_NAMES_MAX
from orbitmq.limits.timers import TIMER_KNOWN_CANCELS_MAX
from orbitmq.protocol.names import FAR_TIMER_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import Property
from orbitmq.protocol.recall_handles import encode_handle, handle_beginning, handle_behind
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.timing.due_time import (
    TimerKind,
    TimerRefusal,
    TimerRules,
    due_time_of,
    is_congested,
    slot_time,
)
from orbitmq.timing.far.far_timers import FarTimers
from orbitmq.timing.timers.timers import Timers

SLOT_LIMIT_NONE: Final = 2**31 - 1
"""`timerCongestNumEachSlot` at its default: no slot is ever crowded."""

USUAL_DIGITS: Final = 13
"""Length of a time in milliseconds from 2001 to 2286."""

TIME_MARKS: Final = TIMED | LEVEL | CANCEL | PLACED
"""Marks of everything in a message that changes what its time means; without TIMED it has no time."""

CODES: Final = {
    TimerRefusal.DISABLED: ResponseCode.SYSTEM_ERROR,
    TimerRefusal.ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    TimerRefusal.CONGESTED: ResponseCode.SYSTEM_ERROR,
}


def timer_rules(settings: BrokerSettings, *, served: bool, clock_rounding_ms: int) -> TimerRules:
    """The rules that the settings make; `served` says whether this broker has timers at all."""
    limit_ms = settings.timer_max_delay_sec * 1_000
    return TimerRules(
        settings.timer_precision_ms, limit_ms or None, served and settings.timer_wheel_enable, clock_rounding_ms
    )


class TimerIntake:
    """Without `slots` the broker serves no timers, and messages with timer properties are refused."""

    def __init__(
        self,
        settings: BrokerSettings,
        slots: Timers | None,
        far: FarTimers | None = None,
        *,
        clock_rounding_ms: int = 1,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """`draw()` is a random number from [0, 1)."""
        self.rules: Final = timer_rules(settings, served=slots is not None, clock_rounding_ms=clock_rounding_ms)
        self.far = far
        self.congested_count = 0
        """Messages refused because their slot was crowded."""
        self._is_usual = (
            self.rules.enabled
            and self.rules.max_delay_ms is None
            and settings.timer_congest_num_each_slot >= SLOT_LIMIT_NONE
        )
        """Whether any later time is good, and so needs no judgement."""
        self.has_slot_limit: Final = settings.timer_congest_num_each_slot < SLOT_LIMIT_NONE
        self._slots = slots
        self._slot_limit = settings.timer_congest_num_each_slot
        self._broker_name = settings.broker_name
        self._on_the_way: Counter[int] = Counter()
        """By slot: messages of this turn, which the timers learn of when they are written."""
        self._draw = draw
        self._precision_ms = settings.timer_precision_ms
        self._names: dict[str, tuple[bytes, bytes]] = {}
        """By topic, what is written of it: the properties of a place, and the beginning of a handle."""

    def due_time(self, facts: SendFacts, now_ms: int, *, has_room: bool = False) -> int | None:
        """When a message is to fall due by its timer properties, with room made in its slot unless it `has_room`; None when they ask for
        nothing. Raises `Refusal`. 0.5 us for a stated time, 2 us otherwise."""
        marks = facts.marks
        if marks & CANCEL and self._slots is not None and not self._slots.has_cancel_room:
            raise Refusal(
                CODES[TimerRefusal.CONGESTED],
                f"{TIMER_KNOWN_CANCELS_MAX} cancel records that name a message by its key wait already, and no more are remembered; "
                "recall the message by its handle instead, which takes effect at once",
            )
        if marks & TIME_MARKS == STATED and self._is_usual:
            text = facts.values[Property.TIMER_DELIVER_MS]
            if len(text) == USUAL_DIGITS and text.isascii() and text.isdigit():
                due_ms = int(text)
                if due_ms > now_ms:
                    return due_ms
        if not marks & TIMED:
            return None
        time = due_time_of(facts.values, level_of(facts.values), now_ms, self.rules)
        if time.kind is TimerKind.REFUSED and time.refusal is not None:
            raise Refusal(CODES[time.refusal], time.remark)
        if time.kind is not TimerKind.LATER:
            return None
        if self.has_slot_limit and not (has_room or time.is_cancel):
            self.make_room(time.deliver_ms, 1)
        return time.deliver_ms

    def waiting_place(self, facts: SendFacts, due_ms: int, topic: str, queue_id: int, now_ms: int) -> tuple[str, bytes]:
        """The topic in which a message for a queue waits until its time, and the place that it goes to then as stored bytes. 0.9 us.

        A cancellation is near whatever its time: RocketMQ brokers read it there.
        """
        marks = facts.marks
        names = self._names.get(topic) or self._learn(topic)
        slot_ms = (due_ms - 1) // self._precision_ms * self._precision_ms  # slot_time
        place = b"TIMER_OUT_MS\x01%d\x02%b%d\x02" % (slot_ms, names[0], queue_id)
        far = None if marks & CANCEL else self.far
        is_far = far is not None and far.accepts(due_ms, now_ms)
        if is_far or marks & DELAYED or facts.values[Property.TIMER_DELIVER_MS] != str(due_ms):
            place += b"ORBITMQ_DUE_MS\x01%d\x02" % due_ms
        return FAR_TIMER_TOPIC if is_far else TIMER_TOPIC, place

    def recall_handle(self, due_ms: int, topic: str, unique_key: str) -> str:
        """The handle that recalls the message with this unique key, which waits until its time for `topic`. 0.4 us."""
        names = self._names.get(topic) or self._learn(topic)
        return handle_behind(names[1], slot_time(due_ms, self._precision_ms), unique_key)

    def _learn(self, topic: str) -> tuple[bytes, bytes]:
        if len(self._names) >= TIMER_TOPIC_NAMES_MAX:
            self._names.clear()
        real_topic = b"REAL_TOPIC\x01%b\x02REAL_QID\x01" % topic.encode()
        names = self._names[topic] = real_topic, handle_beginning(topic, self._broker_name)
        return names

    def by_slot(self, times: Iterable[int | None]) -> dict[int, int]:
        """How many messages fall due in each slot, by one of their times."""
        firsts: dict[int, int] = {}
        counts: Counter[int] = Counter()
        for due_ms in times:
            if due_ms is not None:
                counts[firsts.setdefault(slot_time(due_ms, self._precision_ms), due_ms)] += 1
        return counts

    def make_room(self, due_ms: int, count: int) -> None:
        """Raises `Refusal` when the slot is too crowded for `count` more messages, all or none. Cancellations need no room."""
        if not self.has_slot_limit:
            return
        assert self._slots is not None  # else the rules refuse every time
        limit, slot_ms = self._slot_limit, slot_time(due_ms, self._precision_ms)
        pending = self._slots.slot_count(slot_ms) + self._on_the_way[slot_ms]
        if is_congested(pending + count - 1, limit, self._draw()):
            self.congested_count += 1
            raise Refusal(
                CODES[TimerRefusal.CONGESTED],
                f"{pending} messages are pending in the slot {slot_ms} already: from {limit} to {2 * limit} messages are refused "
                f"at random, beyond {2 * limit} always (timerCongestNumEachSlot={limit}); ask for another time, or later",
            )
        self._on_the_way[slot_ms] += count

    def topic_for(self, due_ms: int, now_ms: int) -> str:
        """The topic in which a message waits until then."""
        return FAR_TIMER_TOPIC if self.is_far(due_ms, now_ms) else TIMER_TOPIC

    def is_far(self, deliver_ms: int, now_ms: int) -> bool:
        """Whether a message waits in the far tier until then. What is not far makes nothing far that is due earlier."""
        far = self.far
        return far is not None and far.accepts(deliver_ms, now_ms)

    def handle_of(self, topic: str, slot_ms: int, unique_key: str) -> str:
        """As `recall_handle`, of a message whose slot is known."""
        return encode_handle(topic, self._broker_name, slot_ms, unique_key)

    def turn_ended(self) -> None:
        """The log was written: what was on its way is counted by the timers from now on, or was not written."""
        if self._on_the_way:
            self._on_the_way.clear()
