"""What is read from the properties of a timer record, in whatever order they stand."""

from __future__ import annotations

import itertools

import pytest

from orbitmq.protocol.checksum import crc32
from orbitmq.protocol.properties import encode_properties
from orbitmq.protocol.records import encode_stored
from orbitmq.store.dispatch import Dispatched
from orbitmq.timing.timers.delivered_records import stored_due_ms
from orbitmq.timing.timers.facts import TimerFacts, all_facts, property_value, timer_facts

PLACE = {"TIMER_OUT_MS": "5000", "REAL_TOPIC": "Topic", "REAL_QID": "3", "ORBITMQ_DUE_MS": "5250"}


def entry(properties: bytes, *, source: int = 0, unique_key: str | None = "u1") -> Dispatched:
    return Dispatched(7_000, 300, "rmq_sys_wheel_timer", 0, 12, 0, 4_000, unique_key, "k1 k2", 0, source, properties)


def record_bytes(
    values: dict[str, str], *, body: bytes = b"x", born_host: bytes = bytes(8), sys_flag: int = 0
) -> bytes:
    return encode_stored(
        b"rmq_sys_wheel_timer", 0, 0, 12, 7_000, sys_flag, 1, born_host, 4_000, bytes(8), 0, 0, body,
        encode_properties(values), crc32(body) & 0x7FFF_FFFF,
    )  # fmt: skip


def facts(values: dict[str, str], *, source: int = 0, precision_ms: int = 1_000) -> TimerFacts | None:
    found = timer_facts(entry(encode_properties(values), source=source), precision_ms)
    assert all_facts([entry(encode_properties(values), source=source)], precision_ms) == [found]
    return found


def test_a_record_as_admission_writes_it() -> None:
    assert facts({"colour": "red", **PLACE}, source=101) == TimerFacts(
        12, 7_000, 300, 5_000, 5_250, "Topic", "u1", "k1 k2", False, "", 100, 4_000, 3
    )


@pytest.mark.parametrize("order", list(itertools.permutations(PLACE)))
def test_any_order_says_the_same(order: tuple[str, ...]) -> None:
    assert facts({"colour": "red", **{name: PLACE[name] for name in order}}) == facts({"colour": "red", **PLACE})
    assert facts({name: PLACE[name] for name in order}) == facts(PLACE)


def test_of_two_properties_with_one_name_the_last_counts() -> None:
    twice = encode_properties({"colour": "red", **PLACE}) + encode_properties({"REAL_TOPIC": "Other"})
    found = timer_facts(entry(twice), 1_000)
    assert found is not None
    assert found.topic == "Other"


def test_a_name_inside_another_one_is_not_taken_for_it() -> None:
    assert property_value(b"MY_REAL_TOPIC\x01x\x02", b"\x02REAL_TOPIC\x01") is None
    assert property_value(b"REAL_TOPIC\x01x", b"\x02REAL_TOPIC\x01") == b"x"


@pytest.mark.parametrize(
    "missing",
    [
        {"TIMER_OUT_MS": ""},
        {"TIMER_OUT_MS": "soon"},
        {"TIMER_OUT_MS": "-5"},
        {"TIMER_OUT_MS": "1" * 19},
        {"REAL_TOPIC": ""},
    ],
)
def test_a_record_without_time_or_topic_has_no_facts(missing: dict[str, str]) -> None:
    values = {name: value for name, value in (PLACE | missing).items() if value}
    assert facts(values) is None


@pytest.mark.parametrize(
    ("due", "expected"), [("5001", 5_001), ("6000", 6_000), ("5000", 6_000), ("6776", 6_000), ("x", 6_000)]
)
def test_a_due_time_that_its_slot_contradicts_is_the_end_of_the_slot(due: str, expected: int) -> None:
    found = facts(PLACE | {"ORBITMQ_DUE_MS": due})
    assert found is not None
    assert found.deliver_ms == expected


def test_numbers_that_fit_no_field_are_no_times() -> None:
    huge = 10**40
    assert facts({"colour": "red", **PLACE, "TIMER_OUT_MS": str(huge), "ORBITMQ_DUE_MS": str(huge + 1)}) is None
    found = facts({"colour": "red", **PLACE, "REAL_QID": str(huge)})
    assert found is not None
    assert found.queue_id == 0


def test_a_record_of_rocketmq_is_due_when_its_sender_said() -> None:
    values = {"TIMER_DELIVER_MS": "5700", "TIMER_OUT_MS": "5000", "REAL_TOPIC": "Topic", "REAL_QID": "0"}
    found = facts(values)
    assert found is not None
    assert found.deliver_ms == 5_700


STATED = {"TIMER_DELIVER_MS": "5250", **{name: PLACE[name] for name in list(PLACE)[:3]}}


@pytest.mark.parametrize("before", [{}, {"colour": "red"}])
def test_the_time_that_the_sender_stated_needs_no_second_one(before: dict[str, str]) -> None:
    assert facts(before | STATED) == facts(PLACE)
    assert facts(before | STATED | {"TIMER_DELIVER_MS": "0005250"}) == facts(PLACE)
    assert facts(before | {"TIMER_DELIVER_MS": "5999"} | PLACE) == facts(PLACE), "ours counts where it stands"
    assert facts(before | {"ORBITMQ_DUE_MS": "5250"} | STATED | {"TIMER_DELIVER_MS": "5999"}) == facts(PLACE), (
        "wherever"
    )


@pytest.mark.parametrize(
    "others",
    [
        {"TIMER_DELIVER_MS": "6001"},
        {"TIMER_DELIVER_MS": "5000"},
        {"TIMER_DELIVER_MS": "x"},
        {"TIMER_DELIVER_MS": "1" * 40},
        {"TIMER_DELAY_SEC": "1"},
        {"TIMER_DELAY_MS": "1"},
        {"TIMER_DELAY_SEC": "x"},
    ],
)
def test_a_stated_time_that_does_not_count_is_not_believed(others: dict[str, str]) -> None:
    values = others | {name: value for name, value in STATED.items() if name not in others}
    found = facts(values)
    assert found is not None
    assert found.deliver_ms > 5_250


def test_a_record_that_ends_in_the_middle_of_its_place_is_read_alike_with_the_leaf() -> None:
    whole = encode_properties({"colour": "red", **STATED})
    for cut in range(1, 20):
        torn = entry(whole[:-cut])
        assert all_facts([torn], 1_000) == [timer_facts(torn, 1_000)]


@pytest.mark.parametrize("place", [PLACE, STATED])
def test_the_bytes_of_a_record_say_when_it_is_due(place: dict[str, str]) -> None:
    data = record_bytes({"colour": "red", **place})
    assert stored_due_ms(memoryview(data), 1_000) == 5_250


@pytest.mark.parametrize(
    "values",
    [
        STATED | {"TIMER_DELIVER_MS": "6001"},
        {"TIMER_DELAY_MS": "1", **STATED},
        {name: value for name, value in STATED.items() if name != "TIMER_DELIVER_MS"},
        {name: value for name, value in STATED.items() if name != "TIMER_OUT_MS"},
        {"ORBITMQ_DUE_MS": "5251", **STATED},
    ],
)
def test_where_only_the_facts_tell_the_bytes_say_nothing(values: dict[str, str]) -> None:
    assert stored_due_ms(record_bytes(values), 1_000) is None
    assert stored_due_ms(record_bytes(values, body=encode_properties(STATED)), 1_000) is None, "a body is no property"


def test_bytes_that_are_no_record_of_the_usual_form_say_nothing() -> None:
    good = record_bytes(STATED)
    for data in (b"", good[:90], good[:7] + b"\xab" + good[8:], good[:84] + b"\x7f" + good[85:]):
        assert stored_due_ms(data, 1_000) is None
    assert stored_due_ms(record_bytes(STATED, born_host=bytes(20), sys_flag=0x10), 1_000) is None


def test_a_cancel_record_of_somebody_else_names_whom_it_cancels() -> None:
    found = facts({"TIMER_DEL_UNIQKEY": "Topic+u1", **PLACE})
    assert found is not None
    assert (found.is_cancel, found.cancel_key) == (True, "Topic+u1")


@pytest.mark.parametrize(("due", "slot_ms"), [("5100", 5_000), ("5101", 5_100), ("5250", 5_200), ("6000", 5_900)])
def test_where_slots_were_wider_the_slot_is_that_of_the_due_time(due: str, slot_ms: int) -> None:
    found = facts(PLACE | {"ORBITMQ_DUE_MS": due}, precision_ms=100)
    assert found is not None
    assert (found.deliver_ms, found.slot_ms) == (int(due), slot_ms)


@pytest.mark.parametrize(("values", "source"), [({}, 101), ({"ORBITMQ_LEFT_MS": "4000"}, 0)])
def test_the_cancel_record_of_a_change_of_ours_names_nobody(values: dict[str, str], source: int) -> None:
    found = facts({"TIMER_DEL_UNIQKEY": "Topic+u1", **values, **PLACE}, source=source)
    assert found is not None
    assert (found.is_cancel, found.cancel_key) == (True, "")


def test_a_cancel_record_that_hops_still_names_whom_it_cancels() -> None:
    found = facts({"TIMER_DEL_UNIQKEY": "Topic+u1", "TIMER_ROLL_TIMES": "1", **PLACE}, source=101)
    assert found is not None
    assert found.cancel_key == "Topic+u1"


@pytest.mark.parametrize("source", [0, 101])
def test_a_cancel_record_of_a_reschedule_that_hops_names_what_may_have_hopped_with_it(source: int) -> None:
    values = {"TIMER_DEL_UNIQKEY": "Topic+u1", "ORBITMQ_LEFT_MS": "4000", "TIMER_ROLL_TIMES": "1"}
    found = facts({**values, **PLACE}, source=source)
    assert found is not None
    assert found.cancel_key == "Topic+u1"


def test_the_unique_key_is_the_one_the_sender_knows() -> None:
    found = facts({**PLACE, "UNIQ_KEY": "fresh", "ORBITMQ_UNIQ_KEY": "u1"})
    assert found is not None
    assert found.unique_key == "u1"


def test_text_that_is_no_text_has_no_facts() -> None:
    broken = encode_properties({"colour": "red", **PLACE}).replace(b"Topic", b"\xff\xfe\xfd")
    assert timer_facts(entry(broken), 1_000) is None


@pytest.mark.parametrize("name", ["TIMER_OUT_MS", "ORBITMQ_DUE_MS", "REAL_QID"])
def test_a_number_of_any_length_is_read_or_passed_over(name: str) -> None:
    """More digits than Python turns into a number."""
    facts({"colour": "red", **PLACE, name: "0" * 4_999 + "1"})
    facts({"colour": "red", **PLACE, name: "9" * 5_000})
