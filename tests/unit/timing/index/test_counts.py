"""Counting what is pending, exactly and in bounded memory."""

from __future__ import annotations

import random

from orbitmq.timing.index.counting import WIDTHS_MS, PendingCounts

MINUTE, HOUR = WIDTHS_MS[:2]


def test_counts_are_per_topic_and_per_minute() -> None:
    counts = PendingCounts()
    for due_ms in (1, 59_999, 60_000, 10 * HOUR):
        counts.add("a", due_ms)
    counts.add_all("b", [0, 1, 2])
    counted = counts.count(bucket_ms=MINUTE)
    assert (counted.pending, counted.by_topic, counted.width_ms) == (7, {"a": 4, "b": 3}, MINUTE)
    assert counted.buckets == [(0, 5), (60_000, 1), (10 * HOUR, 1)]
    assert counts.count("a", bucket_ms=MINUTE, from_ms=60_000, until_ms=120_000).buckets == [(60_000, 1)]
    assert counts.count("nobody", bucket_ms=1).pending == 0
    assert counts.count(bucket_ms=0).buckets == []


def test_a_width_is_rounded_up_to_what_is_kept() -> None:
    counts = PendingCounts()
    counts.add("a", 90_000)
    assert counts.count(bucket_ms=1).width_ms == MINUTE
    assert counts.count(bucket_ms=90_000).buckets == [(0, 1)]


def test_what_goes_is_taken_away_where_it_was_added() -> None:
    counts = PendingCounts()
    counts.add("a", 5)
    assert counts.take_away("a", 6)
    assert not counts.take_away("a", 5)
    assert counts.by_topic() == {}
    assert counts._bucket_count == 0


def test_too_many_buckets_become_wider_and_stay_exact() -> None:
    rng = random.Random(1)
    counts = PendingCounts(buckets_max=50)
    known = [(rng.choice("ab"), rng.randrange(400 * HOUR)) for _ in range(500)]
    for topic, due_ms in known:
        counts.add(topic, due_ms)
    assert counts._bucket_count <= 50
    for topic, due_ms in known[:250]:
        assert counts.take_away(topic, due_ms)
    left = known[250:]
    assert counts.by_topic() == {name: sum(topic == name for topic, _ in left) for name in "ab"}
    counted = counts.count(bucket_ms=HOUR)
    assert counted.width_ms > HOUR
    assert sum(count for _, count in counted.buckets) == len(left)
    for begin, count in counted.buckets:
        assert count == sum(begin <= due_ms < begin + counted.width_ms for _, due_ms in left)
