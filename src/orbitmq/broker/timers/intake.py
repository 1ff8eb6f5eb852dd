"""Taking timer messages in: what a message's time means at this broker, and the topic in which it waits.

Admission asks here for every message with a timer property. The rules of time are those of `timing.timer_times`; what is
added is what only a broker knows: how crowded a slot is, and how far the far tier begins.

Rules of this file
1. Nothing is stored and nothing is remembered but the messages of a slot that are on their way into the log.
2. A refusal has RocketMQ's code and a remark that names the property, its value and the limit.
3. Who waits for a time does so in a system topic; where it goes stands in its last properties, always in one order.
4. A due time that the sender's own properties say is not written a second time, but in the far tier, which reads ours.

Source: RocketMQ timer store, rules at put time, congestion.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from orbitmq.broker.refusal import Refusal
from orbitmq.broker.settings import BrokerSettings
from orbitmq.protocol.names import FAR_TIMER_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import Property
from orbitmq.protocol.recall_handles import encode_handle, handle_beginning, handle_behind
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.timing.timer_times import (
    PRECEDENCE,
    TimerKind,
    TimerRefusal,
    TimerRules,
    TimerTime,
    is_congested,
    is_stated,
    slot_time,
    timer_time,
)

SLOT_LIMIT_NONE: Final = 2**31 - 1
"""`timerCongestNumEachSlot` at its default: no slot is ever crowded."""

PLACE_NAMES: Final = (Property.TIMER_OUT_MS, Property.REAL_TOPIC, Property.REAL_QID, Property.DUE_MS)
"""The properties that a waiting message gets, in this order, behind all others; the last one where it is needed."""

USUAL_DIGITS: Final = 13
"""Of a time in milliseconds from 2001 to 2286."""

TOPIC_NAMES_MAX: Final = 10_000
"""Topics whose bytes are remembered; beyond it they are made anew."""

TIME_NAMES: Final = frozenset({*PRECEDENCE, Property.DELAY, Property.TIMER_OUT_MS, Property.TIMER_DEL_UNIQKEY})
"""What a message may say of its time; without any of these it says nothing."""

_UNUSUAL: Final = TIME_NAMES - {Property.TIMER_DELIVER_MS}
"""Beside it each of these changes what the time means."""

CODES: Final = {
    TimerRefusal.DISABLED: ResponseCode.SYSTEM_ERROR,
    TimerRefusal.ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    TimerRefusal.CONGESTED: ResponseCode.SYSTEM_ERROR,
}


class TimerSlots(Protocol):
    """The part of the timers that admission asks."""

    def slot_count(self, slot_ms: int) -> int:
        """How many messages are pending in the slot, exactly."""
        ...


class FarTier(Protocol):
    """The part of the far tier that admission asks."""

    def accepts(self, deliver_ms: int, now_ms: int) -> bool:
        """Whether a message that is due then belongs into the far tier."""
        ...


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
        slots: TimerSlots | None,
        far: FarTier | None = None,
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
        """By topic, what `wait_until` writes of it: the properties of the place, and the beginning of the handle."""

    def time_of(self, values: dict[str, str], now_ms: int) -> TimerTime | None:
        """When a message with these properties (and no delay level) falls due; None when it is to be stored where it goes.
        Raises `Refusal`."""
        deliver_ms = self.stated_later(values, now_ms)
        if deliver_ms is not None:
            return TimerTime(TimerKind.LATER, deliver_ms, slot_time(deliver_ms, self._precision_ms))
        time = self.judge(values, now_ms)
        if time is not None and self.has_slot_limit:
            self.make_room(time, 1)
        return time

    def stated_later(self, values: dict[str, str], now_ms: int) -> int | None:
        """The due time of a message that states one in the usual way and waits for it; None where that takes more thought."""
        text = values.get(Property.TIMER_DELIVER_MS, "")
        if (
            len(text) == USUAL_DIGITS
            and self._is_usual
            and _UNUSUAL.isdisjoint(values)
            and text.isascii()
            and text.isdigit()
        ):
            deliver_ms = int(text)
            if deliver_ms > now_ms:
                return deliver_ms
        return None

    def wait_until(
        self, text: str, topic: str, queue_id: int, unique_key: str, now_ms: int
    ) -> tuple[bytes, str] | None:
        """Place in stored bytes (see `waiting_bytes`) and recall handle of a message that states the time `text`, asks for nothing
        else, and waits in the wheel; None where that takes more thought. 1.2 us."""
        if len(text) != USUAL_DIGITS or not (self._is_usual and text.isascii() and text.isdigit()) or text[0] == "0":
            return None
        deliver_ms = int(text)
        far = self.far
        if deliver_ms <= now_ms or (far is not None and far.accepts(deliver_ms, now_ms)):
            return None
        slot_ms = slot_time(deliver_ms, self._precision_ms)
        names = self._names.get(topic) or self._learn(topic)
        place = b"TIMER_OUT_MS\x01%d\x02%b%d\x02" % (slot_ms, names[0], queue_id)
        return place, handle_behind(names[1], slot_ms, unique_key)

    def _learn(self, topic: str) -> tuple[bytes, bytes]:
        if len(self._names) >= TOPIC_NAMES_MAX:
            self._names.clear()
        real_topic = b"REAL_TOPIC\x01%b\x02REAL_QID\x01" % topic.encode()
        names = self._names[topic] = real_topic, handle_beginning(topic, self._broker_name)
        return names

    def judge(self, values: dict[str, str], now_ms: int) -> TimerTime | None:
        """`time_of` without a look at how crowded the slot is."""
        time = timer_time(values, 0, now_ms, self.rules)
        if time.kind is TimerKind.LATER:
            return time
        if time.kind is TimerKind.REFUSED and time.refusal is not None:
            raise Refusal(CODES[time.refusal], time.remark)
        return None

    def make_room(self, time: TimerTime, count: int) -> None:
        """Raises `Refusal` when the slot is too crowded for `count` more messages, all or none."""
        if not self.has_slot_limit or time.is_cancel:
            return
        assert self._slots is not None  # else the rules refuse every time
        limit, slot_ms = self._slot_limit, time.slot_ms
        pending = self._slots.slot_count(slot_ms) + self._on_the_way[slot_ms]
        if is_congested(pending + count - 1, limit, self._draw()):
            self.congested_count += 1
            raise Refusal(
                CODES[TimerRefusal.CONGESTED],
                f"{pending} messages are pending in the slot {slot_ms} already: from {limit} to {2 * limit} messages are refused "
                f"at random, beyond {2 * limit} always (timerCongestNumEachSlot={limit}); ask for another time, or later",
            )
        self._on_the_way[slot_ms] += count

    def topic_for(self, time: TimerTime, now_ms: int) -> str:
        """The topic in which a message waits until then. A cancellation is for the wheel: RocketMQ brokers read it there."""
        return TIMER_TOPIC if time.is_cancel or not self.is_far(time.deliver_ms, now_ms) else FAR_TIMER_TOPIC

    def is_far(self, deliver_ms: int, now_ms: int) -> bool:
        """Whether a message waits in the far tier until then. What is not far makes nothing far that is due earlier."""
        far = self.far
        return far is not None and far.accepts(deliver_ms, now_ms)

    def handle_of(self, topic: str, slot_ms: int, unique_key: str) -> str:
        """What recalls the message with this unique key, which waits for `topic`."""
        return encode_handle(topic, self._broker_name, slot_ms, unique_key)

    def turn_ended(self) -> None:
        """The log was written: what was on its way is counted by the timers from now on, or was not written."""
        if self._on_the_way:
            self._on_the_way.clear()


def waiting_values(values: dict[str, str], topic: str, queue_id: int, time: TimerTime, stored_topic: str) -> None:
    """Write into `values` where the message goes and when, while it waits in `stored_topic`; what stood there under these names
    is gone."""
    for name in PLACE_NAMES:
        values.pop(name, None)
    values[Property.TIMER_OUT_MS] = str(time.slot_ms)
    values[Property.REAL_TOPIC] = topic
    values[Property.REAL_QID] = str(queue_id)
    if stored_topic == FAR_TIMER_TOPIC or not is_stated(values, time.deliver_ms):
        values[Property.DUE_MS] = str(time.deliver_ms)


def waiting_bytes(values: dict[str, str], topic: str, queue_id: int, time: TimerTime, stored_topic: str) -> bytes:
    """The same as stored bytes, to be put behind the properties `values`, which have none of these names."""
    place = place_bytes(time.slot_ms, real_place(topic, queue_id))
    if stored_topic != FAR_TIMER_TOPIC and is_stated(values, time.deliver_ms):
        return place
    return place + b"ORBITMQ_DUE_MS\x01%d\x02" % time.deliver_ms


def real_place(topic: str, queue_id: int) -> bytes:
    """Where a message goes, as the middle of its `waiting_bytes`: the same for all of a batch."""
    return b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % (topic.encode(), queue_id)


def place_bytes(slot_ms: int, place: bytes) -> bytes:
    """`waiting_bytes` of a message in the wheel whose sender stated its due time; `place` is its `real_place`."""
    return b"TIMER_OUT_MS\x01%d\x02%b" % (slot_ms, place)
