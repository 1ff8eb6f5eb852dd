"""Counters by name and their windows, held against a list of everything that was counted."""

from __future__ import annotations

import random

import pytest

from orbitmq.broker.counting import traffic
from orbitmq.broker.counting.traffic import DAY, HOUR, MINUTE, OTHERS, WINDOWS, Counter, Traffic, Window
from orbitmq.limits.broker import TRAFFIC_STEP_NS

S = 1_000_000_000


class TestWindows:
    def test_a_burst_is_in_every_window_at_once(self):
        table = Traffic()
        table.add("T", 20, 5_000, 100)
        counter = table.get("T")
        assert counter is not None
        for window in WINDOWS:
            gained = counter.within(window, 100 * TRAFFIC_STEP_NS + S)
            assert (gained.count, gained.size, gained.times) == (20, 5_000, 1)

    def test_it_leaves_the_minute_first_and_the_day_last(self):
        table = Traffic()
        start = 10 * DAY.reach
        table.add("T", 7, 70, start)
        counter = table.get("T")
        assert counter is not None

        def counts(after: int) -> list[int]:
            return [counter.within(window, (start + after) * TRAFFIC_STEP_NS).count for window in WINDOWS]

        assert counts(MINUTE.reach - 1) == [7, 7, 7]
        assert counts(MINUTE.reach) == [0, 7, 7]
        assert counts(HOUR.reach) == [0, 0, 7]
        assert counts(DAY.reach) == [0, 0, 0]

    def test_the_rate_is_over_the_time_that_the_counter_has_lived(self):
        counter = Counter(100)
        counter.count += 30
        assert counter.within(MINUTE, 100 * TRAFFIC_STEP_NS + 3 * S).seconds == 3
        assert counter.within(MINUTE, 103 * TRAFFIC_STEP_NS).seconds == 30
        assert 50 <= counter.within(MINUTE, 1_000 * TRAFFIC_STEP_NS + S).seconds <= 60
        assert counter.within(MINUTE, 100 * TRAFFIC_STEP_NS).seconds == 1  # never a division by nothing

    @pytest.mark.parametrize("seed", range(5))
    def test_any_history_sums_up_as_a_list_of_it_does(self, seed):
        chance = random.Random(seed)
        table, history, step = Traffic(), [], 1_000_000
        for _ in range(400):
            step += chance.choice([0, 0, 1, 1, 2, 7, 59, 360, 4_000])
            amount = chance.randrange(1, 9)
            table.add("T", amount, amount * 10, step)
            history.append((step, amount))
            counter = table.get("T")
            assert counter is not None
            at = step + chance.choice([0, 0, 1, 5, 100, 9_000])
            for window in WINDOWS:
                gained = counter.within(window, at * TRAFFIC_STEP_NS)
                expected = [amount for when, amount in history if within(window, when, at)]
                assert (gained.count, gained.size, gained.times) == (sum(expected), 10 * sum(expected), len(expected))


def within(window: Window, when: int, at: int) -> bool:
    """Whether a step counts: it lies in one of the coarse steps that the window reaches back to."""
    return at // window.resolution - when // window.resolution < window.reach // window.resolution


class TestNames:
    def test_beyond_the_bound_names_share_a_counter(self, monkeypatch):
        monkeypatch.setattr(traffic, "STATISTIC_NAMES_MAX", 2)
        table = Traffic()
        for name in ("a", "b", "c", "d"):
            table.add(name, 1, 0, 0)
        shared = table.get(OTHERS)
        assert sorted(table.names()) == [OTHERS, "a", "b"]
        assert shared is not None
        assert shared.count == 2

    def test_a_dropped_name_is_gone(self):
        table = Traffic()
        table.add("a", 1, 0, 0)
        table.drop("a")
        table.drop("never there")
        assert table.get("a") is None
        assert len(table) == 0
