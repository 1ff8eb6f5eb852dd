"""A range is read completely and once, whatever a broker chooses to give."""

from __future__ import annotations

import random

import pytest

from orbitmq.spark.reading.range_pull import Ask, Pace, RangePull


def read(pull: RangePull, seed: int, *, cap: int, filtered: bool, fails: float = 0.0) -> list[int]:
    """Every offset that a model broker with `cap` messages for a pull gives, as a caller keeps them; odd ones match a filter."""
    source = random.Random(seed)
    rows: list[int] = []
    while not pull.finished:
        wave = pull.wave()
        assert [ask.begin for ask in wave] == sorted(ask.begin for ask in wave)
        source.shuffle(wave)
        got: list[int] = []
        lost = False
        while wave and not lost:
            ask = wave.pop()
            lost = source.random() < fails
            room = source.randint(1, min(cap, ask.messages))
            at, taken = ask.begin, list[int]()
            while len(taken) < room and at < 10_000 and at < ask.begin + 500:
                if not filtered or at % 2:
                    taken.append(at)
                at += 1
            following = pull.answered(ask, at, 100 * len(taken))
            got += [offset for offset in taken if offset < ask.end]
            if following is not None:
                wave.append(following)
        if not lost:
            pull.done()
            rows += sorted(got)
    return rows


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_every_offset_comes_once_and_in_order(seed: int, filtered: bool) -> None:
    begin, end = seed * 7, seed * 7 + random.Random(seed).randint(1, 3_000)
    rows = read(RangePull(begin, end, 1_000, filtered=filtered), seed, cap=32, filtered=filtered)
    assert rows == [offset for offset in range(begin, end) if not filtered or offset % 2]


@pytest.mark.parametrize("seed", range(10))
def test_a_wave_that_was_lost_begins_anew(seed: int) -> None:
    rows = read(RangePull(5, 2_000, 1_000), seed, cap=32, filtered=False, fails=0.02)
    assert rows == list(range(5, 2_000))


def test_the_first_pull_tells_how_far_apart_the_others_are() -> None:
    pull = RangePull(0, 10_000, 1_000)
    [first] = pull.wave()
    assert first == Ask(0, 10_000, 1_000)
    assert pull.answered(first, 32, 32_768) is None
    pull.done()
    assert pull.wave()[:2] == [Ask(32, 64, 32), Ask(64, 96, 32)]


def test_pulls_of_a_wave_end_where_the_next_begin() -> None:
    pull = RangePull(0, 10_000, 1_000, pace=Pace(32, 32_768), pulls_max=4)
    assert pull.wave() == [Ask(0, 32, 32), Ask(32, 64, 32), Ask(64, 96, 32), Ask(96, 10_000, 1_000)]


def test_large_answers_make_small_waves() -> None:
    assert len(RangePull(0, 10_000, 1_000, pace=Pace(32, 3_000_000)).wave()) == 1
