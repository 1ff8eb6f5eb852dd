"""Rates of a consumer: over about the last minute, failures over the last hour."""

from __future__ import annotations

import pytest

from orbitmq.client.consuming.consume_statistics import ConsumeStatistics, TopicStatistics


def test_nothing_happened() -> None:
    status = TopicStatistics(0).status(0)
    assert (status.consume_ok_tps, status.consume_rt, status.pull_tps, status.consume_failed_msgs) == (0, 0, 0, 0)


def test_rates_and_mean_times() -> None:
    statistics = TopicStatistics(0)
    for second in range(1, 31):
        for _ in range(10):
            statistics.succeeded(4)
        statistics.failed(8)
        statistics.pulled(11, 100)
        statistics.sample(second * 1000)
    status = statistics.status(30_000)
    assert status.consume_ok_tps == pytest.approx(10)
    assert status.consume_failed_tps == pytest.approx(1)
    assert status.consume_rt == pytest.approx((40 + 8) / 11)
    assert (status.pull_tps, status.pull_rt) == (pytest.approx(11), pytest.approx(100))
    assert status.consume_failed_msgs == 30


def test_old_rates_are_forgotten_and_failures_after_an_hour() -> None:
    statistics = TopicStatistics(0)
    for _ in range(600):
        statistics.failed(1)
    for at_ms in range(0, 3_600_000, 5_000):
        statistics.sample(at_ms)
    assert statistics.status(600_000 * 5).consume_failed_tps == 0
    assert statistics.status(3_599_000).consume_failed_msgs == 600
    statistics.sample(3_700_000)
    assert statistics.status(3_720_000).consume_failed_msgs == 0


def test_each_topic_counts_for_itself() -> None:
    statistics = ConsumeStatistics()
    statistics.of("a", 0).succeeded(1)
    statistics.of("b", 0).failed(1)
    statistics.of("a", 5).succeeded(1)
    statistics.sample(10_000)
    statuses = statistics.statuses(20_000)
    assert (statuses["a"].consume_ok_tps, statuses["b"].consume_failed_msgs) == (pytest.approx(0.1), 1)
