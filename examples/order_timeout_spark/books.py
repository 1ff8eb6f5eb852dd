"""The books: what must become of every order by the table alone, and where what happened is different.

Rules of this file
1. Neither Spark nor a broker takes part: rows of the table, arithmetic, comparisons.
2. Every order is compared, not only sums; a difference names the first orders that it concerns.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Final, NamedTuple

from examples.order_timeout.orders import State, order_of
from examples.order_timeout_spark.timetable import MINUTES_A_DAY, Timetable

BASE_CENTS: Final = 5_000
MILE_CENTS: Final = 10
"""What a flight costs."""

PAID: Final = "paid"
CANCELLED: Final = "cancelled"
REFUNDED: Final = "refunded"
"""The decisions. An order is paid or cancelled; a payment that fits no order in time is refunded."""

DECISIONS_OF: Final = {
    State.PAID: frozenset({PAID}),
    State.CANCELLED: frozenset({CANCELLED}),
    State.REFUNDED: frozenset({CANCELLED, REFUNDED}),
}
"""What has to be decided about an order that ends in a state."""

EXAMPLES_MAX: Final = 3
"""Orders named with a difference."""


class Expected(NamedTuple):
    """What must become of an order."""

    state: State
    cents: int
    due_ms: int


@dataclass(slots=True)
class Happened:
    """What was archived about an order: each list in the order of the archive, and normally of one item."""

    due_ms: list[int] = field(default_factory=list)
    """The due times of its time-out, as the broker delivered it."""
    lateness_ms: list[float] = field(default_factory=list)
    decisions: list[tuple[str, int]] = field(default_factory=list)
    """What was decided, with the amount in cents."""


class Total(NamedTuple):
    """Of one decision: how many, and cents."""

    orders: int
    cents: int


@dataclass(frozen=True, slots=True)
class Difference:
    what: str
    count: int
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.count:,} {self.what}" + (f" ({', '.join(self.examples)} ...)" if self.examples else "")


# --- by hand ----------------------------------------------------------------------------------------------------------


def minute_of(flight: Mapping[str, str]) -> int:
    """The scheduled departure in minutes since the year began."""
    day = date(int(flight["year"]), int(flight["month"]), int(flight["day"]))
    return (day - date(2013, 1, 1)).days * MINUTES_A_DAY + int(flight["hour"]) * 60 + int(flight["minute"])


def computed_by_hand(flights: Iterable[dict[str, str]], timetable: Timetable) -> dict[str, Expected]:
    """What must become of each order, by its name."""
    books = {}
    for number, flight in enumerate(flights):
        order = order_of(number, flight)
        cents = BASE_CENTS + int(float(flight["distance"])) * MILE_CENTS
        books[order.flight] = Expected(order.outcome, cents, timetable.due_ms(minute_of(flight)))
    return books


def totals_by_hand(books: Mapping[str, Expected]) -> dict[str, Total]:
    """What the running totals must have come to."""
    orders: Counter[str] = Counter()
    cents: Counter[str] = Counter()
    for expected in books.values():
        for decision in DECISIONS_OF[expected.state]:
            orders[decision] += 1
            cents[decision] += expected.cents
    return {decision: Total(orders[decision], cents[decision]) for decision in orders}


def state_of(order: Happened) -> State | None:
    """The state that an order ended in; None when the decisions about it make no sense."""
    decided = sorted(decision for decision, _cents in order.decisions)
    return next((state for state, wanted in DECISIONS_OF.items() if sorted(wanted) == decided), None)


# --- the comparison ---------------------------------------------------------------------------------------------------


def differences(
    books: Mapping[str, Expected], happened: Mapping[str, Happened], totals: Mapping[str, Total]
) -> list[Difference]:
    """Everything in which the archive or the running totals differ from the books; empty when all is as computed."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, expected in books.items():
        for what in _wrong_with(expected, happened.get(name, Happened())):
            found[what].append(name)
    found["orders that are in no table"] += [name for name in happened if name not in books]
    listed = [Difference(what, len(names), tuple(names[:EXAMPLES_MAX])) for what, names in found.items() if names]
    return listed + _totals_apart(totals_by_hand(books), totals)


def _wrong_with(expected: Expected, order: Happened) -> Iterable[str]:
    if not order.due_ms:
        yield "time-outs that never came"
    if len(order.due_ms) > 1:
        yield "time-outs that came more than once"
    if any(due_ms != expected.due_ms for due_ms in order.due_ms):
        yield "time-outs due at another instant than computed"
    if any(lateness_ms < 0 for lateness_ms in order.lateness_ms):
        yield "time-outs that came early"
    if not order.decisions:
        yield "orders about which nothing was decided"
    elif len(set(order.decisions)) < len(order.decisions):
        yield "orders about which something was decided twice"
    elif state_of(order) is not expected.state:
        yield "orders that ended in another state than computed"
    if any(cents != expected.cents for _decision, cents in order.decisions):
        yield "orders decided with another amount than computed"


def _totals_apart(computed: Mapping[str, Total], totals: Mapping[str, Total]) -> list[Difference]:
    nothing = Total(0, 0)
    apart = []
    for decision in sorted({*computed, *totals}):
        wanted, counted = computed.get(decision, nothing), totals.get(decision, nothing)
        if wanted != counted:
            apart.append(
                Difference(
                    f"too {'many' if counted > wanted else 'few'} in the running total of {decision!r}: "
                    f"{counted.orders:,} orders and {counted.cents:,} cents, computed {wanted.orders:,} and {wanted.cents:,}",
                    abs(counted.orders - wanted.orders),
                )
            )
    return apart
