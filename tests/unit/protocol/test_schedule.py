"""Parsing of the delay level list."""

from __future__ import annotations

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.protocol.schedule import DEFAULT_LEVELS, DelayLevels


def test_the_default_levels() -> None:
    levels = DelayLevels.parse(DEFAULT_LEVELS)
    assert levels.max_level == 18
    assert [levels.delay_ms(level) for level in (1, 2, 3, 4, 5, 16, 17, 18)] == [
        1_000,
        5_000,
        10_000,
        30_000,
        60_000,
        1_800_000,
        3_600_000,
        7_200_000,
    ]


def test_days_and_other_lists() -> None:
    levels = DelayLevels.parse("0s 2d 05m")
    assert levels.delays_ms == (0, 172_800_000, 300_000)
    assert levels == DelayLevels.parse("0s 48h 300s")
    assert hash(levels) == hash(DelayLevels.parse("0s 48h 300s"))
    assert levels != DelayLevels.parse("1s")
    assert levels != "0s 2d 05m"
    assert repr(levels) == "DelayLevels.parse('0s 2d 05m')"


def test_clamp() -> None:
    levels = DelayLevels.parse()
    assert [levels.clamp(level) for level in (-3, 0, 1, 18, 19, 10**9)] == [0, 0, 1, 18, 18, 18]


@pytest.mark.parametrize("level", [-1, 0, 19])
def test_levels_that_do_not_exist(level: int) -> None:
    with pytest.raises(ValueError, match=r"outside 1\.\.18"):
        DelayLevels.parse().delay_ms(level)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", r"piece 1 '' is empty"),
        ("1s  5s", r"piece 2 '' is empty; .*exactly one space"),
        ("1s ", r"piece 2 '' is empty"),
        ("1s 5x", r"piece 2 '5x' ends in 'x'"),
        ("1s 5S", r"piece 2 '5S' ends in 'S'"),
        ("1s 10", r"piece 2 '10' ends in '0'"),
        ("s", r"piece 1 's' does not begin with a whole number"),
        ("-1s", r"piece 1 '-1s' does not begin"),
        ("1.5h", r"piece 1 '1.5h' does not begin"),
        ("١s", r"does not begin with a whole number"),
        ("1s\t5s", r"does not begin with a whole number"),
        ("36501d", r"piece 1 '36501d' is longer than a century"),
        ("9" * 5000 + "s", r"longer than a century"),
        (" ".join(["1s"] * 257), r"257 levels, at most 256"),
    ],
)
def test_a_bad_list_is_refused_with_its_piece(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        DelayLevels.parse(text)
