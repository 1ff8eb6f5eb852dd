"""Put-time rules of timer messages: which property counts, when, and in which slot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.limits.timers import TIMER_DELIVER_MS_MAX
from orbitmq.timing.due_time import (
    WINDOW_SLOTS_MAX,
    TimerKind,
    TimerRefusal,
    TimerRules,
    cancel_key,
    due_time_of,
    is_congested,
    roll_window,
    slot_time,
    slot_to_link,
    stored_due_time,
)

NOW = 1_795_228_412_345
RULES = TimerRules()
THREE_DAYS = TimerRules(max_delay_ms=259_200_000)


def ask(rules: TimerRules = RULES, level: int = 0, **properties: str) -> tuple[TimerKind, int, int]:
    time = due_time_of(properties, level, NOW, rules)
    assert (time.refusal is not None) == (time.kind is TimerKind.REFUSED) == bool(time.remark)
    return time.kind, time.deliver_ms, time.slot_ms


def test_no_timer_property_no_timer() -> None:
    assert ask(KEYS="a") == (TimerKind.NOT_TIMED, 0, 0)
    assert ask(TIMER_DEL_UNIQKEY="T+K") == (TimerKind.NOT_TIMED, 0, 0)


def test_an_absolute_time_is_kept_to_the_millisecond() -> None:
    assert ask(TIMER_DELIVER_MS="1795228420123") == (TimerKind.LATER, 1_795_228_420_123, 1_795_228_420_000)


def test_a_whole_second_waits_in_the_slot_before_it() -> None:
    assert ask(TIMER_DELIVER_MS="1795228420000") == (TimerKind.LATER, 1_795_228_420_000, 1_795_228_419_000)
    assert ask(TIMER_DELIVER_MS="1795228419001") == (TimerKind.LATER, 1_795_228_419_001, 1_795_228_419_000)


def test_a_delay_counts_from_the_next_millisecond() -> None:
    assert ask(TIMER_DELAY_MS="5")[1] == NOW + 6
    assert ask(TIMER_DELAY_SEC="5")[1] == NOW + 5001


def test_seconds_before_milliseconds_before_the_absolute_time() -> None:
    far = str(NOW + 9_000_000)
    assert ask(TIMER_DELIVER_MS=far, TIMER_DELAY_MS="7000", TIMER_DELAY_SEC="3")[1] == NOW + 3001
    assert ask(TIMER_DELIVER_MS=far, TIMER_DELAY_MS="7000")[1] == NOW + 7001
    assert ask(TIMER_DELIVER_MS="x", TIMER_DELAY_MS="7000")[0] is TimerKind.LATER


def test_a_delay_level_wins() -> None:
    assert ask(level=3, TIMER_DELAY_SEC="nonsense")[0] is TimerKind.LEVEL
    assert ask(level=3)[0] is TimerKind.NOT_TIMED


def test_what_a_timer_delivered_is_not_timed_again() -> None:
    assert ask(TIMER_DELAY_SEC="5", TIMER_OUT_MS="1795228420000")[0] is TimerKind.NOT_TIMED


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELIVER_MS": str(NOW)},
        {"TIMER_DELIVER_MS": "0"},
        {"TIMER_DELIVER_MS": "-9223372036854775808"},
        {"TIMER_DELAY_MS": "0"},
        {"TIMER_DELAY_SEC": "-5"},
        {"TIMER_DELAY_SEC": "+0"},
    ],
)
def test_a_time_that_has_passed_means_now(properties: dict[str, str]) -> None:
    assert ask(**properties) == (TimerKind.NOW, 0, 0)
    refused = due_time_of({**properties, "TIMER_DEL_UNIQKEY": "T+K"}, 0, NOW, RULES)
    assert refused.refusal is TimerRefusal.ILLEGAL
    assert "has passed" in refused.remark


@pytest.mark.parametrize(
    "text",
    ["", " 5", "5 ", "5s", "1e3", "0x10", "5_000", "\u0665", "9223372036854775808", "-9223372036854775809", "9" * 5000],
)
@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_what_is_no_number_is_refused_and_named(name: str, text: str) -> None:
    time = due_time_of({name: text}, 0, NOW, RULES)
    assert time.refusal is TimerRefusal.ILLEGAL
    assert name in time.remark
    assert len(time.remark) < 200


def test_the_limit_is_named_and_inclusive() -> None:
    assert ask(THREE_DAYS, TIMER_DELAY_SEC="259200")[0] is TimerKind.LATER
    assert ask(THREE_DAYS, TIMER_DELIVER_MS=str(NOW + 259_200_000))[0] is TimerKind.LATER
    for properties in ({"TIMER_DELAY_SEC": "259201"}, {"TIMER_DELIVER_MS": str(NOW + 259_200_001)}):
        time = due_time_of(properties, 0, NOW, THREE_DAYS)
        assert time.refusal is TimerRefusal.ILLEGAL
        assert "259200000 ms from now (timerMaxDelaySec)" in time.remark


def test_without_a_limit_the_year_9999_is_the_end() -> None:
    assert ask(TIMER_DELIVER_MS=str(TIMER_DELIVER_MS_MAX))[1] == TIMER_DELIVER_MS_MAX
    for properties in ({"TIMER_DELIVER_MS": str(TIMER_DELIVER_MS_MAX + 1)}, {"TIMER_DELAY_SEC": str((1 << 63) - 1)}):
        time = due_time_of(properties, 0, NOW, RULES)
        assert time.refusal is TimerRefusal.ILLEGAL
        assert "year 9999" in time.remark


def test_timers_that_are_off_are_refused_as_such() -> None:
    time = due_time_of({"TIMER_DELAY_SEC": "x"}, 0, NOW, TimerRules(enabled=False))
    assert time.refusal is TimerRefusal.DISABLED
    assert "timerWheelEnable=false" in time.remark


def test_a_cancellation_lands_in_the_slot_of_its_message() -> None:
    """A recall handle carries the slot time plus one millisecond."""
    for precision in (1, 100, 1000):
        rules = TimerRules(precision)
        message = due_time_of({"TIMER_DELAY_MS": "7777"}, 0, NOW, rules)
        handle = {"TIMER_DELIVER_MS": str(message.slot_ms + 1), "TIMER_DEL_UNIQKEY": cancel_key("T", "K")}
        cancel = due_time_of(handle, 0, NOW, rules)
        assert cancel.is_cancel
        assert cancel.slot_ms == message.slot_ms
    assert cancel_key("T", "K") == "T+K"


@given(now=st.integers(10**12, 10**13), delay=st.integers(1, 10**11), precision=st.integers(1, 1775))
def test_a_slot_never_ends_before_the_due_time_and_begins_before_it(now: int, delay: int, precision: int) -> None:
    rules = TimerRules(precision)
    for properties, least in (
        ({"TIMER_DELIVER_MS": str(now + delay)}, now + delay),
        ({"TIMER_DELAY_MS": str(delay)}, now + delay + 1),
    ):
        time = due_time_of(properties, 0, now, rules)
        assert time.deliver_ms == least
        assert time.slot_ms < time.deliver_ms <= time.slot_ms + precision
        assert time.slot_ms % precision == 0
        assert time.slot_ms == slot_time(time.deliver_ms, precision)


@given(
    properties=st.dictionaries(st.sampled_from(["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"]), st.text())
)
def test_any_text_is_answered(properties: dict[str, str]) -> None:
    time = due_time_of(properties, 0, NOW, RULES)
    if time.kind is TimerKind.LATER:
        assert NOW < time.deliver_ms <= TIMER_DELIVER_MS_MAX


# --- records of the timer topic ---------------------------------------------------------------------------------------

SLOT = 1_795_228_420_000


@pytest.mark.parametrize(
    ("properties", "stored_ms", "due_ms"),
    [
        ({"ORBITMQ_DUE_MS": str(SLOT + 17), "TIMER_DELAY_MS": "1"}, SLOT, SLOT + 17),
        ({"TIMER_DELIVER_MS": str(SLOT + 1000)}, SLOT - 9000, SLOT + 1000),
        ({"TIMER_DELIVER_MS": str(SLOT)}, SLOT - 9000, SLOT + 1000),
        ({"TIMER_DELAY_MS": "5000"}, SLOT - 4700, SLOT + 300),
        ({"TIMER_DELAY_SEC": "5"}, SLOT - 4700, SLOT + 300),
        ({"TIMER_DELAY_SEC": "5"}, SLOT - 3000, SLOT + 1000),  # rolled: stored again meanwhile
        ({"TIMER_DELAY_SEC": "x"}, SLOT, SLOT + 1000),
        ({"ORBITMQ_DUE_MS": "12", "TIMER_DELIVER_MS": str(SLOT + 5)}, SLOT, SLOT + 5),
        ({}, SLOT, SLOT + 1000),
    ],
)
def test_the_due_time_of_a_stored_record(properties: dict[str, str], stored_ms: int, due_ms: int) -> None:
    assert stored_due_time(properties, SLOT, stored_ms, 1000) == due_ms


@pytest.mark.parametrize("precision_ms", [100, 500, 1000])
def test_slots_that_were_wider_make_nothing_early(precision_ms: int) -> None:
    for properties, due_ms in (
        ({"ORBITMQ_DUE_MS": str(SLOT + 1700)}, SLOT + 1700),
        ({"TIMER_DELIVER_MS": str(SLOT + 1000)}, SLOT + 1000),
        ({"TIMER_DELAY_MS": "5000"}, SLOT + 990),
        ({"TIMER_DELAY_SEC": "7"}, SLOT + 1000),
    ):
        assert stored_due_time(properties, SLOT, SLOT - 4010, precision_ms) == due_ms


@given(
    accepted=st.integers(10**12, 10**13),
    put=st.integers(0, 5000),
    delay=st.integers(1, 10**9),
    precision=st.integers(1, 1775),
)
def test_a_record_of_rocketmq_is_never_taken_for_due_too_early(
    accepted: int, put: int, delay: int, precision: int
) -> None:
    due = accepted + delay
    slot = slot_time(due, precision)
    for properties in ({"TIMER_DELAY_MS": str(delay)}, {"TIMER_DELIVER_MS": str(due)}):
        assert due <= stored_due_time(properties, slot, accepted + put, precision) <= slot + max(precision, 1000)


# --- roll and congestion ----------------------------------------------------------------------------------------------


def test_within_the_window_nothing_rolls() -> None:
    assert slot_to_link(9_000, 0, 10, 1000) == (9_000, False)
    assert slot_to_link(10_000, 0, 10, 1000) == (5_000, True)
    assert slot_to_link(12_999, 0, 10, 1000) == (5_000, True)
    assert slot_to_link(13_000, 0, 10, 1000) == (10_000, True)
    assert slot_to_link(10**12, 1_000, 10, 1000) == (11_000, True)


@pytest.mark.parametrize(
    ("configured", "effective"),
    [(2, 2), (172_800, 172_800), (604_740, 604_740), (1, 604_740), (604_741, 604_740), (-1, 604_740)],
)
def test_windows_that_cannot_be_mean_the_widest(configured: int, effective: int) -> None:
    assert roll_window(configured) == effective


@given(
    write=st.integers(1, 10**9),
    ahead=st.integers(0, 10**8),
    window=st.integers(2, WINDOW_SLOTS_MAX),
    precision=st.integers(1, 1775),
)
def test_a_message_arrives_after_finitely_many_hops_and_never_passes_its_slot(
    write: int, ahead: int, window: int, precision: int
) -> None:
    write *= precision
    slot = write + ahead * precision
    hops = 0
    while True:
        target, rolls = slot_to_link(slot, write, window, precision)
        assert write <= target <= slot
        assert target % precision == 0
        assert target - write <= WINDOW_SLOTS_MAX * precision
        if not rolls:
            assert target == slot
            break
        assert target > write
        write = target
        hops += 1
        if hops > 20:  # each hop is half a window at least
            break
    assert hops <= 2 * ahead // max(window // 2, 1) + 1


def test_congestion_grows_with_the_slot() -> None:
    def share(pending: int) -> float:
        return sum(is_congested(pending, 100, draw / 1000) for draw in range(1000)) / 1000

    assert [share(pending) for pending in (0, 100, 101, 150, 199, 200, 10**9)] == [0, 0, 0.01, 0.5, 0.99, 1, 1]
    assert not is_congested(2**31 - 1, 2**31 - 1, 0.0)
