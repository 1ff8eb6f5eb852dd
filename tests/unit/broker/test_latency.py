"""Durations: percentiles against sorted lists, RocketMQ's ranges, and forgetting."""

from __future__ import annotations

import random

import pytest

from orbitmq.broker.counting.latency import Latency
from orbitmq.limits.broker import LATENCY_SPAN_NS

US, MS = 1_000, 1_000_000


def test_without_a_measurement_everything_is_nothing():
    latency = Latency(0)
    assert latency.percentile_ms(0.99, 0) == 0.0
    assert latency.highest_ns == 0
    assert latency.distribution().startswith("[<=0ms]:0 [0~10ms]:0 [10~50ms]:0 ")


@pytest.mark.parametrize("share", [0.5, 0.99, 0.999])
def test_percentiles_are_those_of_a_sorted_list_within_a_fifth(share):
    chance = random.Random(7)
    latency, all_of_them = Latency(0), []
    for _ in range(5_000):
        duration = int(chance.lognormvariate(13, 2))
        all_of_them.append(duration)
        latency.took(duration, 0)
    exact = sorted(all_of_them)[int(share * len(all_of_them)) - 1] / MS
    assert exact * 0.99 <= latency.percentile_ms(share, 0) <= exact * 1.25 + 0.001
    assert latency.highest_ns == max(all_of_them)


@pytest.mark.parametrize("duration", [0, 1, 999, 5 * US, 4 * MS, 3_600 * 1_000 * MS, 1 << 62])
def test_any_duration_is_taken(duration):
    latency = Latency(0)
    latency.took(duration, 0)
    assert latency.percentile_ms(1.0, 0) >= 0
    assert sum(int(part.rsplit(":", 1)[1]) for part in latency.distribution().split()) == 1


def test_ranges_carry_rocketmq_s_names():
    latency = Latency(0)
    for ms in (0, 0.9, 1, 9, 10, 49, 50, 150, 300, 700, 1_500, 2_500, 3_500, 4_500, 9_999, 10_000, 60_000):
        latency.took(int(ms * MS), 0)
    assert latency.distribution() == (
        "[<=0ms]:2 [0~10ms]:2 [10~50ms]:2 [50~100ms]:1 [100~200ms]:1 [200~500ms]:1 [500ms~1s]:1 [1~2s]:1 [2~3s]:1 "
        "[3~4s]:1 [4~5s]:1 [5~10s]:1 [10s~]:2 "
    )


def test_old_durations_are_forgotten_after_one_to_two_minutes():
    latency = Latency(0)
    latency.took(500 * MS, 0)
    latency.took(1 * MS, LATENCY_SPAN_NS)
    assert latency.percentile_ms(1.0, LATENCY_SPAN_NS) > 400
    assert latency.percentile_ms(1.0, 2 * LATENCY_SPAN_NS) < 2
    assert latency.percentile_ms(1.0, 9 * LATENCY_SPAN_NS) == 0.0
    assert latency.highest_ns == 500 * MS
