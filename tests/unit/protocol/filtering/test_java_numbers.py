"""Numbers in texts, as Java reads and orders them."""

from __future__ import annotations

import math
import time
from decimal import Decimal

import pytest

from orbitmq.protocol.filtering.java_numbers import compare, parse_double, parse_int, parse_long


@pytest.mark.parametrize(
    ("text", "value"), [("5", 5), ("+5", 5), ("-3", -3), ("007", 7), ("٣", 3), ("2147483647", 2**31 - 1)]
)
def test_integers(text: str, value: int) -> None:
    assert parse_int(text) == parse_long(text) == value


@pytest.mark.parametrize("text", ["", " 5", "5 ", "5.0", "1_000", "0x5", "five", "+", "\U0001d7d3", "9" * 5_000])
def test_no_integers(text: str) -> None:
    for parse in (parse_int, parse_long):
        with pytest.raises(ValueError, match=r"."):
            parse(text)


def test_ranges_of_integers() -> None:
    assert parse_long("2147483648") == 2**31
    assert parse_int("-2147483648") == -(2**31)
    for parse, text in ((parse_int, "2147483648"), (parse_long, "9223372036854775808")):
        with pytest.raises(ValueError, match="out of range"):
            parse(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5.0), (" 5.5\n", 5.5), (".5", 0.5), ("5.", 5.0), ("5d", 5.0), ("5.5F", 5.5), ("1e3", 1000.0), ("0x1p3", 8.0),
        ("-0x.8p1", -1.0), ("Infinity", math.inf), ("-Infinity", -math.inf), ("1e999", math.inf), ("-0x1p9999", -math.inf),
    ],
)  # fmt: skip
def test_doubles(text: str, value: float) -> None:
    assert parse_double(text) == value


@pytest.mark.parametrize("text", ["", "inf", "nan", "infinity", "1_0.0", "٣", "0x10", "5dd", "."])
def test_no_doubles(text: str) -> None:
    with pytest.raises(ValueError, match="no number"):
        parse_double(text)


@pytest.mark.parametrize(
    "text", ["1" * 32_000 + "x", "1" * 16_000 + "." + "1" * 16_000 + "x", "0x" + "1" * 32_000, "0" * 1_101]
)
def test_a_text_that_is_too_long_is_no_number_and_costs_nothing(text: str) -> None:
    before = time.process_time()
    for parse in (parse_int, parse_long, parse_double):
        with pytest.raises(ValueError, match="characters is no number"):
            parse(text)
    assert time.process_time() - before < 0.5


def test_the_longest_decimal_of_a_double_is_a_number() -> None:
    assert parse_double(format(Decimal.from_float(-5e-324), "f")) == -5e-324
    assert parse_int("0" * 1_000 + "7") == 7


def test_the_order_is_total() -> None:
    ascending = [-math.inf, -1.0, -0.0, 0.0, 0.5, math.inf, math.nan]
    for at, low in enumerate(ascending):
        assert compare(low, low) == 0
        for high in ascending[at + 1 :]:
            assert compare(low, high) < 0 < compare(high, low)
    assert compare(2**53 + 1, float(2**53)) == 0
    assert compare(2**53 + 1, 2**53) > 0
