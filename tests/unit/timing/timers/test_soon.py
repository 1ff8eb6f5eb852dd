"""What is due soon: due order, arrival order for equal times, turns of topics, never early."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from orbitmq.timing.timers.soon import DueTimer, SoonTimers

NOW_MS = 1_700_000_000_000


def fed(*timers: tuple[str, int, int], soon: SoonTimers | None = None, warm_from: int = 0) -> SoonTimers:
    """With these (topic, ms from now, log position), which were read from the runs."""
    soon = soon or SoonTimers()
    soon.feed(sorted((NOW_MS + after_ms, at, topic) for topic, after_ms, at in timers), warm_from)
    return soon


def taken(soon: SoonTimers, now_ms: int, limit: int = 256) -> list[int]:
    return [timer.physical_offset for timer in soon.take(now_ms, limit, lambda at: True)]


def test_messages_leave_in_the_order_of_their_due_times() -> None:
    assert taken(fed(("a", 500, 10), ("a", 20, 20), ("a", 999, 30)), NOW_MS + 1_000) == [20, 10, 30]


def test_equal_times_leave_in_the_order_of_arrival() -> None:
    soon = fed(*[("a", 7, at) for at in (10, 20, 30)])
    soon.add(NOW_MS + 7, 40, "a")
    assert taken(soon, NOW_MS + 7) == [10, 20, 30, 40]


def test_what_comes_later_finds_its_place_among_what_was_read() -> None:
    soon = fed(("a", 10, 10), ("a", 30, 30))
    soon.add(NOW_MS + 20, 100, "a")
    soon.add(NOW_MS + 40, 110, "a")
    soon.add(NOW_MS + 1, 120, "a")
    assert taken(soon, NOW_MS + 100) == [120, 10, 100, 30, 110]


def test_of_equal_times_the_record_that_was_written_anew_keeps_its_new_place() -> None:
    """Retention moves records: a lower queue offset is not always a lower place in the log."""
    soon = SoonTimers()
    soon.feed([(NOW_MS + 5, 900, "a"), (NOW_MS + 5, 100, "a"), (NOW_MS + 5, 950, "a")], 0)
    assert soon.count == 3
    assert [taken(soon, NOW_MS + 5, limit=1) for _ in range(3)] == [[100], [900], [950]]


def test_what_is_read_in_slices_leaves_as_if_it_was_read_at_once() -> None:
    soon = SoonTimers()
    for first in range(0, 100, 7):
        soon = fed(*[("ab"[n % 2], n * 3_000, n) for n in range(first, min(first + 7, 100))], soon=soon)
    assert soon.count == 100
    assert taken(soon, NOW_MS + 300_000) == list(range(100))
    assert soon.count == 0


@pytest.mark.parametrize("now_ms", [NOW_MS - 1, NOW_MS, NOW_MS + 499])
def test_nothing_leaves_before_its_time(now_ms: int) -> None:
    soon = fed(("a", 500, 10))
    assert taken(soon, now_ms) == []
    assert soon.next_due_ms == NOW_MS + 500


def test_a_clock_that_steps_back_takes_the_turn_away_again() -> None:
    soon = fed(("a", 500, 10), ("a", 510, 20), ("a", 900, 30))
    assert taken(soon, NOW_MS + 600, limit=1) == [10]
    assert taken(soon, NOW_MS) == []
    assert soon.next_due_ms == NOW_MS + 510
    assert taken(soon, NOW_MS + 510) == [20]


def test_one_that_is_late_already_leaves_at_once() -> None:
    soon = fed(("a", 500, 10))
    soon.add(NOW_MS - 5_000, 20, "a")
    assert soon.next_due_ms == soon.first_due_ms == NOW_MS - 5_000
    assert taken(soon, NOW_MS) == [20]
    assert soon.next_due_ms == NOW_MS + 500


def test_a_crowded_topic_shares_every_batch_with_the_others() -> None:
    soon = fed(*[("crowd", 5, at) for at in range(1_000)], ("b", 5, 5_000), ("c", 5, 6_000))
    assert {5_000, 6_000} <= set(taken(soon, NOW_MS + 5, limit=30))


def test_a_topic_that_becomes_due_goes_before_those_that_had_their_share() -> None:
    soon = fed(*[(f"t{topic}", 5, topic * 1_000 + n) for topic in range(10) for n in range(50)], ("z", 6, 99_000))
    taken(soon, NOW_MS + 5, limit=10)
    assert 99_000 in taken(soon, NOW_MS + 6, limit=1)


def test_a_topic_comes_back_after_everything_of_it_has_left() -> None:
    soon = fed(("a", 5, 10))
    assert taken(soon, NOW_MS + 5) == [10]
    assert soon.next_due_ms is soon.first_due_ms is None
    fed(("a", 9, 20), soon=soon)
    assert soon.next_due_ms == NOW_MS + 9
    assert taken(soon, NOW_MS + 9) == [20]


# --- records that have to be read first -------------------------------------------------------------------------------


def test_topics_that_wait_for_their_records_let_others_pass() -> None:
    soon = fed(("a", 5, 10), ("a", 6, 100), ("b", 7, 200))
    warm = soon.take(NOW_MS + 10, 10, lambda at: at >= 100)
    assert [timer.physical_offset for timer in warm] == [200]  # 100 waits behind 10: the order within a topic stands
    assert soon.first_due_ms == NOW_MS + 5
    assert soon.next_due_ms is None
    assert soon.to_read(NOW_MS, 10, 0) == ([10], [])
    soon.read()
    assert taken(soon, NOW_MS + 10) == [10, 100]


def test_what_comes_for_a_topic_that_waits_is_not_forgotten() -> None:
    soon = fed(("a", 5, 10))
    assert soon.take(NOW_MS + 5, 10, lambda at: False) == []
    soon.add(NOW_MS + 1, 20, "a")
    fed(("a", 9, 30), soon=soon)
    soon.read()
    assert taken(soon, NOW_MS + 9) == [20, 10, 30]


def test_cold_records_are_told_once_and_before_their_time() -> None:
    soon = fed(("a", 500, 10), ("a", 600, 20), ("a", 900, 300), warm_from=100)
    assert soon.to_read(NOW_MS + 500, 10, 100) == ([], [10])
    assert soon.to_read(NOW_MS + 600, 10, 100) == ([], [20])
    assert soon.to_read(NOW_MS + 2_000, 10, 100) == ([], [])


def test_cold_records_of_a_later_slice_are_told_as_well() -> None:
    soon = fed(("a", 500, 10), warm_from=100)
    assert soon.to_read(NOW_MS + 2_000, 10, 100) == ([], [10])
    fed(("a", 700, 20), ("b", 800, 30), soon=soon, warm_from=100)
    assert soon.to_read(NOW_MS + 2_000, 10, 100) == ([], [20, 30])
    assert soon.to_read(NOW_MS + 2_000, 10, 100) == ([], [])


def test_a_crowded_topic_is_read_ahead_in_turn_with_others() -> None:
    soon = fed(*[("crowd", 5, at) for at in range(100)], ("z", 900, 500), warm_from=1_000)
    _, found = soon.to_read(NOW_MS + 2_000, 10, 1_000)
    assert 500 in found
    assert len(found) <= 10


# --- given back -------------------------------------------------------------------------------------------------------


def test_one_that_is_given_back_keeps_its_place() -> None:
    soon = fed(("a", 5, 10), ("a", 6, 20))
    (timer,) = soon.take(NOW_MS + 5, 10, lambda at: True)
    soon.give_back(timer)
    assert soon.count == 2
    assert taken(soon, NOW_MS + 6) == [10, 20]


def test_one_whose_time_is_known_better_comes_at_that_time() -> None:
    soon = fed(("a", 1, 10))
    (timer,) = soon.take(NOW_MS + 1, 10, lambda at: True)
    soon.give_back(timer, NOW_MS + 700)
    assert soon.next_due_ms == NOW_MS + 700
    assert taken(soon, NOW_MS + 699) == []
    assert taken(soon, NOW_MS + 700) == [10]


# --- cost and everything together -------------------------------------------------------------------------------------


def test_a_message_costs_eight_bytes() -> None:
    count = 100_000
    tracemalloc.start()
    soon = SoonTimers()
    soon.feed(((NOW_MS + n // 4, n * 300, f"t{n % 7}") for n in range(count)), 0)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < count * 10 + 100_000


class Model:
    """What is soon as one list."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[int, str]] = {}
        """Log position -> due time and topic."""

    def judge(self, now_ms: int, left: list[DueTimer]) -> None:
        """What was taken was due, and nothing before it in its topic stayed."""
        for timer in left:
            assert timer.due_ms <= now_ms
            assert self.waiting.pop(timer.physical_offset) == (timer.due_ms, timer.topic)
        newest = {timer.topic: (timer.due_ms, timer.physical_offset) for timer in left}  # in order: the last one stays
        for at, (due_ms, topic) in self.waiting.items():
            assert topic not in newest or (due_ms, at) > newest[topic]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_every_message_leaves_once_and_in_its_time(seed: int) -> None:
    def is_ready(position: int) -> bool:
        return position not in cold

    draw = random.Random(seed)
    soon, model, at, now_ms, horizon_ms = SoonTimers(), Model(), 0, NOW_MS, NOW_MS
    cold: set[int] = set()
    for _ in range(300):
        what = draw.random()
        if what < 0.15:
            end_ms = horizon_ms + draw.choice((10, 1_000, 40_000))
            batch = []
            for due_ms in sorted(draw.randrange(horizon_ms, end_ms) for _ in range(draw.randrange(60))):
                at += 100
                batch.append((due_ms, at, draw.choice("abcd")))
            soon.feed(batch, at)
            model.waiting |= {position: (due_ms, topic) for due_ms, position, topic in batch}
            cold |= {position for _, position, _ in batch if draw.random() < 0.3}
            horizon_ms = end_ms
        elif what < 0.4:
            at += 100
            timer = DueTimer(draw.randrange(horizon_ms - 3_000, horizon_ms + 1), at, draw.choice("abcde"))
            soon.add(*timer)
            model.waiting[at] = timer.due_ms, timer.topic
        elif what < 0.5:
            now_ms -= draw.randrange(300)
        elif what < 0.6:
            waited_for, found = soon.to_read(now_ms + 1_000, 20, at + 1)
            cold -= {*waited_for, *found}
            soon.read()
        else:
            now_ms += draw.choice((1, 100, 5_000))
            left = soon.take(now_ms, draw.randrange(1, 20), is_ready)
            model.judge(now_ms, left)
            for timer in left:
                if draw.random() < 0.1:
                    soon.give_back(timer)
                    model.waiting[timer.physical_offset] = timer.due_ms, timer.topic
        assert soon.count == len(model.waiting)
        first_ms = min((due_ms for due_ms, _ in model.waiting.values()), default=None)
        assert soon.first_due_ms == first_ms
    soon.read()
    while left := soon.take(horizon_ms + 100_000, 7, lambda position: True):
        model.judge(horizon_ms + 100_000, left)
    assert soon.count == len(model.waiting) == 0
