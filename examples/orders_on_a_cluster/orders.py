"""The orders, the customers, and what has to come out: computed without a broker and without Spark.

Rules of this file
1. The same number gives the same order, in each run and in each program.
2. What is bad is bad in one of several ways, and its reason is not ours to say.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

CUSTOMERS: Final = 500
DISCOUNTS: Final = (0, 5, 10, 20)
BAD_EVERY: Final = 50


class Priced(NamedTuple):
    """An order as it is written back."""

    number: int
    customer: int
    cents: int


def discount_percent(customer: int) -> int:
    return DISCOUNTS[customer * 7 % len(DISCOUNTS)]


def is_bad(number: int) -> bool:
    return number % BAD_EVERY == BAD_EVERY - 1


def body_of(number: int) -> bytes:
    """What the shop sends: an object of JSON, or what a careless program makes of it."""
    customer, cents = number * 31 % CUSTOMERS, 100 + number * 17 % 9_900
    text = json.dumps({"number": number, "customer": customer, "cents": cents, "note": "x" * (number % 400)})
    if not is_bad(number):
        return text.encode()
    kinds = (text[:-2], text.replace(str(cents), f'"{cents} cents"'), " ", text + text, "null null", "[1]", "\xff")
    return kinds[number // BAD_EVERY % len(kinds)].encode("latin-1")


def priced(numbers: Sequence[int]) -> list[Priced]:
    """What is to be written back of these orders, by their numbers."""
    found = []
    for number in numbers:
        if not is_bad(number):
            order = json.loads(body_of(number))
            cents = order["cents"] * (100 - discount_percent(order["customer"])) // 100
            found.append(Priced(number, order["customer"], cents))
    return found
