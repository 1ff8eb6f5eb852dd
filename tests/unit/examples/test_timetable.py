"""When what happens in the demo."""

from __future__ import annotations

import pytest
from examples.order_timeout_spark.timetable import (
    ALLOWED_MS,
    IN_TIME_PERCENT,
    LEAD_MS,
    TOO_LATE_PERCENT,
    Timetable,
    allowed_ms,
    timetable_for,
)


def test_the_first_departure_is_due_first_and_the_last_one_at_the_end_of_the_spread() -> None:
    timetable = Timetable(first_minute=300, last_minute=1_300, first_due_ms=1_000, spread_ms=10_000)
    assert [timetable.due_ms(minute) for minute in (300, 301, 800, 1_300)] == [1_000, 1_010, 6_000, 11_000]


def test_a_table_of_one_departure_has_its_time_too() -> None:
    assert Timetable(first_minute=300, last_minute=300, first_due_ms=1_000, spread_ms=10_000).due_ms(300) == 1_000


def test_nothing_happens_before_the_schedule_can_be_ready_or_after_the_end() -> None:
    timetable = timetable_for(5_000_000, 20_000, 0, 1_000)
    placed_first = timetable.due_ms(0) + max(ALLOWED_MS) * (IN_TIME_PERCENT - 100) // 100
    paid_last = timetable.due_ms(1_000) + max(ALLOWED_MS) * (TOO_LATE_PERCENT - 100) // 100
    assert 5_000_000 + LEAD_MS < timetable.opens_ms <= placed_first
    assert paid_last == timetable.ends_ms


def test_about_a_minute_for_twenty_thousand_and_less_than_four_for_all() -> None:
    def seconds(order_count: int) -> float:
        timetable = timetable_for(0, order_count, 0, 1_000)
        return timetable.ends_ms / 1000

    assert 55 <= seconds(20_000) <= 75
    assert seconds(336_776) < 190
    assert seconds(500) < 30


@pytest.mark.parametrize(
    ("miles", "allowed"), [(80, 2_000), (500, 2_000), (501, 3_000), (1_500, 4_000), (4_983, 6_000)]
)
def test_long_flights_have_longer_to_pay(miles: float, allowed: int) -> None:
    assert allowed_ms(miles) == allowed


def test_payments_are_well_apart_from_the_end_of_the_time() -> None:
    for allowed in ALLOWED_MS:
        assert allowed * (100 - IN_TIME_PERCENT) // 100 >= 1_000
        assert allowed * (TOO_LATE_PERCENT - 100) // 100 >= 1_000
