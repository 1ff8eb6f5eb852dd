"""What was promised and what came: the part of the story without any broker.

Rules of this file
1. A promise begins with an answer: SEND_OK of an order, "recalled" of a payment. What was answered without a copy is counted apart.
2. All times are of one clock, in milliseconds. An order counts as placed when its first attempt began.
3. Receiving an order again is no broken promise: delivery is at least once.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

TICK_MS = 1_000
"""The recurring message comes once a second."""


class Payment(enum.Enum):
    RECALLED = "the order's message was recalled in time"
    TOO_LATE = "the order's message had been delivered"
    UNKNOWN = "the broker knows no such message"


@dataclass(slots=True)
class Order:
    number: int
    placed_ms: float
    allowed_ms: float
    answered_ms: float | None = None
    is_copied: bool = False
    """Answered SEND_OK: both brokers have it."""
    payment: Payment | None = None
    received_ms: list[float] = field(default_factory=list)
    places: set[tuple[int, int]] = field(default_factory=set)
    """Queue and offset of each delivered message that was received."""

    @property
    def due_ms(self) -> float:
        return self.placed_ms + self.allowed_ms

    @property
    def is_awaited(self) -> bool:
        """Whether a consumer must get it."""
        return self.answered_ms is not None and self.payment is not Payment.RECALLED

    @property
    def is_missing(self) -> bool:
        return self.is_awaited and not self.received_ms


@dataclass(frozen=True, slots=True)
class Tick:
    """One message of the recurring one."""

    planned_ms: float
    received_ms: float


@dataclass(frozen=True, slots=True)
class Fault:
    what: str
    at_ms: float


@dataclass(frozen=True, slots=True)
class Consequence:
    """What followed a fault, up to the next one. lost: answered SEND_OK and never received."""

    fault: Fault
    no_writing_ms: float
    no_reading_ms: float
    copied: int
    not_copied: int
    lost: int
    repeated: int


@dataclass(slots=True)
class Account:
    """`ends_ms`: when the last tick has to have come, but for one."""

    orders: dict[int, Order] = field(default_factory=dict)
    ticks: list[Tick] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    ends_ms: float = 0.0

    def consequences(self) -> list[Consequence]:
        ends = [*(fault.at_ms for fault in self.faults[1:]), float("inf")]
        return [self._consequence(fault, until_ms) for fault, until_ms in zip(self.faults, ends, strict=True)]

    def _consequence(self, fault: Fault, until_ms: float) -> Consequence:
        placed = [order for order in self.orders.values() if fault.at_ms <= order.placed_ms < until_ms]
        written = [(order.placed_ms, order.answered_ms) for order in self.orders.values() if order.answered_ms]
        read = [(order.due_ms, order.received_ms[0]) for order in self.orders.values() if order.received_ms]
        read += [(tick.planned_ms, tick.received_ms) for tick in self.ticks]
        again = [at_ms for order in self.orders.values() for at_ms in order.received_ms[1:]]
        return Consequence(
            fault,
            no_writing_ms=longest_wait(written, fault.at_ms, until_ms),
            no_reading_ms=longest_wait(read, fault.at_ms, until_ms),
            copied=sum(order.is_copied for order in placed),
            not_copied=sum(order.answered_ms is not None and not order.is_copied for order in placed),
            lost=sum(order.is_copied and order.is_missing for order in placed),
            repeated=sum(fault.at_ms <= at_ms < until_ms for at_ms in again),
        )

    def broken(self) -> list[str]:
        """Promises that were not kept, empty when all were."""
        orders = self.orders.values()
        due = sorted({tick.planned_ms for tick in self.ticks})
        holes = sum(round((after - before) / TICK_MS) - 1 for before, after in pairwise(due))
        counts = (
            (sum(order.is_copied and order.is_missing for order in orders), "acknowledged orders were lost"),
            (
                sum(order.payment is Payment.RECALLED and bool(order.received_ms) for order in orders),
                "recalled orders were delivered",
            ),
            (
                sum(order.is_copied and order.payment is Payment.UNKNOWN for order in orders),
                "acknowledged orders were unknown when they were paid",
            ),
            (sum(at_ms < order.due_ms for order in orders for at_ms in order.received_ms), "orders came early"),
            (sum(order.answered_ms is None for order in orders), "orders were never answered"),
            (sum(tick.received_ms < tick.planned_ms for tick in self.ticks), "ticks came early"),
            (holes, "ticks are missing"),
            (not due or due[-1] < self.ends_ms - 2 * TICK_MS, "recurring message ended"),
        )
        return [f"{count:,} {what}" for count, what in counts if count]

    def stored_twice(self) -> list[str]:
        """The same of idempotent sends: what is received again lies where it lay."""
        count = sum(len(order.places) > 1 for order in self.orders.values())
        return [f"{count:,} orders were stored twice"] if count else []

    def missing_without_copy(self) -> int:
        """Orders that were answered without a copy, so that nothing was promised, and are gone."""
        return sum(order.is_missing and not order.is_copied for order in self.orders.values())


def longest_wait(waits: Iterable[tuple[float, float]], from_ms: float, until_ms: float) -> float:
    """Longest time in which something was wanted and nothing came.

    waits: (wanted from then on, came then). What counts is what came in the window.
    """
    came = sorted((came_ms, wanted_ms) for wanted_ms, came_ms in waits if from_ms <= came_ms < until_ms)
    longest, wanted_ms = 0.0, float("inf")
    previous: Sequence[float] = [from_ms, *(at_ms for at_ms, _ in came)]
    for (came_ms, own_ms), before_ms in zip(reversed(came), reversed(previous[:-1]), strict=True):
        wanted_ms = min(wanted_ms, own_ms)
        longest = max(longest, came_ms - max(before_ms, wanted_ms))
    return longest
