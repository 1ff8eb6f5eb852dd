"""The books of the demo: what must become of an order, and that nothing which went wrong goes unseen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from examples.order_timeout.orders import State
from examples.order_timeout_spark.books import (
    Expected,
    Happened,
    Total,
    computed_by_hand,
    differences,
    minute_of,
    state_of,
    totals_by_hand,
)
from examples.order_timeout_spark.timetable import Timetable

TIMETABLE = Timetable(first_minute=300, last_minute=1_300, first_due_ms=1_000_000, spread_ms=10_000)


def flight(number: int, delay: str, *, distance: str = "1400", hour: str = "5", minute: str = "0") -> dict[str, str]:
    return {
        "year": "2013", "month": "1", "day": "1", "dep_delay": delay, "carrier": "UA", "flight": str(number),
        "origin": "EWR", "distance": distance, "hour": hour, "minute": minute,
    }  # fmt: skip


FLIGHTS = [
    flight(1, "2"),
    flight(2, "15", distance="200", hour="6", minute="30"),
    flight(3, "16", distance="2500.0"),
    flight(4, "NA"),
]


def right() -> tuple[dict[str, Expected], dict[str, Happened], dict[str, Total]]:
    """Books, what was archived and the running totals of a run in which all went well."""
    books = computed_by_hand(FLIGHTS, TIMETABLE)
    happened = {
        "UA1-0101-EWR": Happened([1_000_000], [0.0], [("paid", 19_000)]),
        "UA2-0101-EWR": Happened([1_000_900], [3.5], [("paid", 7_000)]),
        "UA3-0101-EWR": Happened([1_000_000], [1.0], [("refunded", 30_000), ("cancelled", 30_000)]),
        "UA4-0101-EWR": Happened([1_000_000], [2.0], [("cancelled", 19_000)]),
    }
    totals = {"paid": Total(2, 26_000), "cancelled": Total(2, 49_000), "refunded": Total(1, 30_000)}
    return books, happened, totals


def test_what_must_become_of_an_order_follows_from_its_flight() -> None:
    assert computed_by_hand(FLIGHTS, TIMETABLE) == {
        "UA1-0101-EWR": Expected(State.PAID, 19_000, 1_000_000),
        "UA2-0101-EWR": Expected(State.PAID, 7_000, 1_000_900),
        "UA3-0101-EWR": Expected(State.REFUNDED, 30_000, 1_000_000),
        "UA4-0101-EWR": Expected(State.CANCELLED, 19_000, 1_000_000),
    }


def test_minutes_count_from_the_beginning_of_the_year() -> None:
    assert minute_of(flight(1, "0")) == 300
    assert minute_of({**flight(1, "0"), "month": "12", "day": "31", "hour": "23", "minute": "59"}) == 365 * 1_440 - 1


def test_a_late_payment_counts_twice_in_the_totals_as_cancelled_and_as_refunded() -> None:
    books, _happened, totals = right()
    assert totals_by_hand(books) == totals


def test_when_all_went_well_nothing_is_different() -> None:
    assert differences(*right()) == []


@pytest.mark.parametrize(
    ("decisions", "state"),
    [
        ([], None),
        (["paid"], State.PAID),
        (["cancelled"], State.CANCELLED),
        (["refunded", "cancelled"], State.REFUNDED),
        (["refunded"], None),
        (["paid", "cancelled"], None),
        (["paid", "paid"], None),
        (["lost"], None),
    ],
)
def test_a_state_is_made_of_decisions(decisions: list[str], state: State | None) -> None:
    assert state_of(Happened(decisions=[(decision, 1) for decision in decisions])) is state


Change = Callable[[dict[str, Happened]], object]

PLANTED: dict[str, tuple[Change, str]] = {
    "a time-out is lost": (lambda orders: orders["UA2-0101-EWR"].due_ms.clear(), "time-outs that never came"),
    "an order is lost": (lambda orders: orders.pop("UA2-0101-EWR"), "time-outs that never came"),
    "a time-out comes twice": (
        lambda orders: orders["UA2-0101-EWR"].due_ms.append(1_000_900),
        "time-outs that came more than once",
    ),
    "a due time is a millisecond off": (
        lambda orders: orders["UA2-0101-EWR"].due_ms.__setitem__(0, 1_000_901),
        "time-outs due at another instant than computed",
    ),
    "a time-out is early": (
        lambda orders: orders["UA2-0101-EWR"].lateness_ms.__setitem__(0, -0.001),
        "time-outs that came early",
    ),
    "nothing is decided": (
        lambda orders: orders["UA2-0101-EWR"].decisions.clear(),
        "orders about which nothing was decided",
    ),
    "a decision is written twice": (
        lambda orders: orders["UA2-0101-EWR"].decisions.append(("paid", 7_000)),
        "orders about which something was decided twice",
    ),
    "a paid order is cancelled": (
        lambda orders: orders["UA2-0101-EWR"].decisions.__setitem__(0, ("cancelled", 7_000)),
        "orders that ended in another state than computed",
    ),
    "a paid order is cancelled as well": (
        lambda orders: orders["UA2-0101-EWR"].decisions.append(("cancelled", 7_000)),
        "orders that ended in another state than computed",
    ),
    "a cent is missing": (
        lambda orders: orders["UA2-0101-EWR"].decisions.__setitem__(0, ("paid", 6_999)),
        "orders decided with another amount than computed",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_is_found_and_names_its_order(name: str) -> None:
    books, happened, totals = right()
    change, what = PLANTED[name]
    change(happened)
    found = {difference.what: difference for difference in differences(books, happened, totals)}
    assert (found[what].count, found[what].examples) == (1, ("UA2-0101-EWR",))


def test_an_order_of_nobody_is_found() -> None:
    books, happened, totals = right()
    happened["UA9-0101-EWR"] = Happened([1_000_000], [0.0], [("paid", 19_000)])
    [found] = differences(books, happened, totals)
    assert (found.what, found.count, found.examples) == ("orders that are in no table", 1, ("UA9-0101-EWR",))


def test_orders_that_change_places_are_found_although_the_sums_are_right() -> None:
    books, happened, totals = right()
    happened["UA1-0101-EWR"], happened["UA4-0101-EWR"] = happened["UA4-0101-EWR"], happened["UA1-0101-EWR"]
    [found] = differences(books, happened, totals)
    assert (found.what, found.count) == ("orders that ended in another state than computed", 2)


@pytest.mark.parametrize(
    ("total", "says"),
    [
        (
            Total(1, 26_000),
            "1 too few in the running total of 'paid': 1 orders and 26,000 cents, computed 2 and 26,000",
        ),
        (
            Total(2, 26_001),
            "0 too many in the running total of 'paid': 2 orders and 26,001 cents, computed 2 and 26,000",
        ),
    ],
)
def test_a_wrong_running_total_is_found(total: Total, says: str) -> None:
    books, happened, totals = right()
    [found] = differences(books, happened, {**totals, "paid": total})
    assert str(found) == says


def test_a_running_total_that_is_missing_or_of_nothing_is_found() -> None:
    books, happened, totals = right()
    totals.pop("refunded")
    totals["lost"] = Total(1, 5)
    assert [difference.what.partition(":")[0] for difference in differences(books, happened, totals)] == [
        "too many in the running total of 'lost'",
        "too few in the running total of 'refunded'",
    ]


def test_a_difference_names_a_few_orders_only() -> None:
    books = computed_by_hand([flight(number, "0") for number in range(5)], TIMETABLE)
    found = differences(books, {}, totals_by_hand(books))
    assert str(found[0]) == "5 time-outs that never came (UA0-0101-EWR, UA1-0101-EWR, UA2-0101-EWR ...)"
    assert replace(found[0], examples=()).count == 5
