"""When a timer message falls due, and in which slot RocketMQ would have it wait.

A message asks for its time by one of three properties. From it comes the exact due time `deliver_ms`, and the slot time:
the last multiple of the precision before the due time. RocketMQ fires a slot when its span is over, so its
delivery comes at the due time or up to one precision later; ours comes at the due time.

Rules of this file
1. Pure functions: the clock, chance and settings are arguments.
2. Never early: a clock rounds down to the millisecond, so a delay counts from the next one. A clock that is moved by
   hand does not.
3. Nothing is clamped and nothing is guessed. A time that cannot be read or is out of range is refused with a remark that
   names the property and the limit; a time that has passed means now.
4. `slot + precision >= deliver_ms > slot`, always: a RocketMQ broker that reads our slots is never early either.

Source: RocketMQ timer store, rules at put time; roll; congestion of a slot.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from orbitmq.limits.timers import TIMER_DELIVER_MS_MAX, TIMER_PRECISION_MS_MAX
from orbitmq.protocol.properties import Property

PRECEDENCE: Final = (Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS)
"""The properties that ask for a time; where a message has several, the first of these counts."""

_DELAYS: Final = {Property.TIMER_DELAY_SEC: 1000, Property.TIMER_DELAY_MS: 1}
"""The properties that count from when the message was accepted, and what they count in ms."""

USUAL_PRECISION_MS: Final = 1000
"""RocketMQ's default."""

WINDOW_SLOTS_MIN: Final = 2
WINDOW_SLOTS_MAX: Final = 7 * 86_400 - 60
"""The widest roll window, in slots: half the wheel, less a minute."""

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_PLAIN_DIGITS: Final = 19
"""A text of fewer decimal digits is a 64-bit number without a closer look."""
_SHOWN_CHARS: Final = 32


class TimerKind(enum.Enum):
    NOT_TIMED = "not timed"
    """An ordinary message, or one that carries its slot time already: it has been delivered by a timer."""
    LEVEL = "level"
    """Its delay level counts; the three timer properties are to be removed."""
    NOW = "now"
    """Its time has passed: it is stored in its own topic, as it is."""
    LATER = "later"
    REFUSED = "refused"


class TimerRefusal(enum.Enum):
    DISABLED = "disabled"
    ILLEGAL = "illegal"
    CONGESTED = "congested"
    """The slot is crowded; the same message may be accepted a moment later."""


class DueTime(NamedTuple):
    """What a message asks for. `deliver_ms` and `slot_ms` are those of LATER, `refusal` and `remark` of REFUSED."""

    kind: TimerKind
    deliver_ms: int = 0
    slot_ms: int = 0
    is_cancel: bool = False
    """Not a message but the cancellation of one in the same slot."""
    refusal: TimerRefusal | None = None
    remark: str = ""


class TimerRules(NamedTuple):
    precision_ms: int = 1000
    max_delay_ms: int | None = None
    """None: any time up to `TIMER_DELIVER_MS_MAX`."""
    enabled: bool = True
    clock_rounding_ms: int = 1
    """What a reading of the clock may lag behind the true time; 0 for a clock that is moved by hand."""


NOT_TIMED: Final = DueTime(TimerKind.NOT_TIMED)
_LEVEL: Final = DueTime(TimerKind.LEVEL)


def slot_time(deliver_ms: int, precision_ms: int) -> int:
    """The last multiple of the precision before a due time."""
    return (deliver_ms - 1) // precision_ms * precision_ms


def due_time_of(properties: Mapping[str, str], level: int, now_ms: int, rules: TimerRules) -> DueTime:
    """What the timer properties of a message mean at `now_ms`, read after its frame had arrived.

    `level` is its delay level, 0 for none. Cancellations need a time in the future.
    """
    for name in PRECEDENCE:
        if name in properties:
            break
    else:
        return NOT_TIMED
    if level > 0:
        return _LEVEL
    if Property.TIMER_OUT_MS in properties:
        return NOT_TIMED
    is_cancel = Property.TIMER_DEL_UNIQKEY in properties
    if not rules.enabled:
        return _refused(TimerRefusal.DISABLED, f"this broker takes no timer messages (timerWheelEnable=false): {name}")
    text = properties[name]
    if not (len(text) < _PLAIN_DIGITS and text.isascii() and text.isdigit()) and (
        not _NUMBER.fullmatch(text) or not -(1 << 63) <= int(text) < 1 << 63
    ):
        shown = text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."
        return _refused(TimerRefusal.ILLEGAL, f"{name} is {shown!r}, which is no 64-bit decimal number")
    rounding_ms = 0 if name == Property.TIMER_DELIVER_MS else rules.clock_rounding_ms
    deliver_ms = _due(name, int(text), now_ms, rounding_ms)
    if deliver_ms <= now_ms:
        if is_cancel:
            return _refused(
                TimerRefusal.ILLEGAL, f"{name}={text} has passed: a cancellation needs the time of a pending message"
            )
        return DueTime(TimerKind.NOW)
    max_delay_ms = rules.max_delay_ms
    if max_delay_ms is not None and deliver_ms - now_ms > max_delay_ms + rounding_ms:
        return _refused(
            TimerRefusal.ILLEGAL,
            f"{name}={text} is too far: the limit is {max_delay_ms} ms from now (timerMaxDelaySec)",
        )
    if deliver_ms > TIMER_DELIVER_MS_MAX:
        return _refused(
            TimerRefusal.ILLEGAL,
            f"{name}={text} is too far: the latest time is {TIMER_DELIVER_MS_MAX} ms since 1970, the end of the year 9999",
        )
    return DueTime(TimerKind.LATER, deliver_ms, slot_time(deliver_ms, rules.precision_ms), is_cancel)


def _due(name: str, value: int, now_ms: int, rounding_ms: int) -> int:
    if name == Property.TIMER_DELIVER_MS:
        return value
    if value <= 0:
        return now_ms
    return now_ms + rounding_ms + (value * 1000 if name == Property.TIMER_DELAY_SEC else value)


def _refused(refusal: TimerRefusal, remark: str) -> DueTime:
    return DueTime(TimerKind.REFUSED, refusal=refusal, remark=remark)


def stored_due_time(properties: Mapping[str, str], slot_ms: int, store_timestamp: int, precision_ms: int) -> int:
    """The due time of a record in the timer topic, later than `slot_ms`, and usually at most `slot_ms` + precision.

    Records of ours carry it, or an absolute time of the sender that is the same. For a delay that RocketMQ accepted, the clock
    it counted from is not recorded: the store time is the nearest known one that is not earlier. In doubt it is
    the end of the slot, which is when RocketMQ delivers. So the answer is never before the true due time, also when the record was
    stored with wider slots than there are now; of a delay as long as they were at most as wide as RocketMQ's are by default.
    """
    last = slot_ms + precision_ms
    for name in (Property.DUE_MS, *PRECEDENCE):
        text = properties.get(name)
        if text is None:
            continue
        if not _NUMBER.fullmatch(text):
            return last
        value = int(text)
        widest_ms = TIMER_PRECISION_MS_MAX
        if name in _DELAYS:
            value = store_timestamp + value * _DELAYS[name]
            widest_ms = max(precision_ms, USUAL_PRECISION_MS)
            value = min(value, slot_ms + widest_ms)
        if slot_ms < value <= slot_ms + widest_ms:
            return value
        if name != Property.DUE_MS:
            return last
    return last


# --- slots that are too far -------------------------------------------------------------------------------------------


def roll_window(configured_slots: int) -> int:
    """`timerRollWindowSlot` as it takes effect: what is out of range means the widest window."""
    return configured_slots if WINDOW_SLOTS_MIN <= configured_slots <= WINDOW_SLOTS_MAX else WINDOW_SLOTS_MAX


def slot_to_link(slot_ms: int, write_ms: int, window_slots: int, precision_ms: int) -> tuple[int, bool]:
    """(slot time to link at, whether the message rolls there), for a message whose own slot time is `slot_ms`.

    `write_ms` is the write clock, `window_slots` an effective window. A message beyond the window waits in a nearer slot and
    is put into the timer topic again from there. Half a window is taken where a whole one would leave less than a
    third for the next hop.
    """
    window_ms = window_slots * precision_ms
    beyond_ms = slot_ms - write_ms - window_ms
    if beyond_ms < 0:
        return slot_ms, False
    if beyond_ms < window_slots // 3 * precision_ms:
        return write_ms + window_slots // 2 * precision_ms, True
    return write_ms + window_ms, True


def is_congested(pending_count: int, slot_limit: int, draw: float) -> bool:
    """Whether one more message for a slot with `pending_count` is to be refused (`timerCongestNumEachSlot`).

    Up to the limit nothing is refused, from twice the limit everything, and in between the more the fuller the slot is;
    `draw` is a random number from [0, 1). RocketMQ's rule in between is the reverse: there the chance is greatest
    just above the limit.
    """
    return pending_count > slot_limit and draw * slot_limit < pending_count - slot_limit


# --- cancellations ----------------------------------------------------------------------------------------------------


def cancel_key(topic: str, unique_key: str) -> str:
    """What `TIMER_DEL_UNIQKEY` says to cancel the message with this unique key, which goes to `topic`."""
    return f"{topic}+{unique_key}"
