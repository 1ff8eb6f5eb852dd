"""How long ago the log ended where."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.replication.log_ages import LogAges

SPAN, STEP = 3_000, 50


def ages(end: int = 0, now: int = 0) -> LogAges:
    return LogAges(end, now, span_ns=SPAN, step_ns=STEP)


def test_what_was_there_at_first_was_there_always() -> None:
    log = ages(500, now=10_000)
    assert log.end_at(0) == log.end_at(10_000) == log.end == 500
    assert log.written_ns(499) == 10_000
    assert log.written_ns(500) is None


def test_growth_counts_from_the_next_step_on() -> None:
    log = ages()
    log.note(10, 1_001)
    assert log.end_at(1_049) == 0
    assert log.end_at(1_050) == 10
    assert log.written_ns(3) == 1_050
    log.note(20, 1_030)  # in the same step
    assert log.end_at(1_050) == log.end == 20


def test_a_log_that_was_cut() -> None:
    log = ages()
    log.note(100, 1_000)
    log.note(200, 2_000)
    log.note(50, 2_100)
    assert log.end == log.end_at(2_000) == 50
    assert log.written_ns(50) is None
    log.note(60, 2_200)
    assert (log.end_at(2_199), log.end_at(2_200)) == (50, 60)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 9)), max_size=200), st.integers(0, 9_000))
def test_never_too_much_and_at_most_a_step_too_little(growth: list[tuple[int, int]], back: int) -> None:
    log, end, now = ages(), 0, 0
    ends = [(0, 0)]
    for pause, more in growth:
        now, end = now + pause, end + more
        log.note(end, now)
        ends.append((now, end))
    then = max(now - back, 0)
    true = max(one for at, one in ends if at <= then)
    assert log.end == end
    assert log.end_at(then) <= true or back > SPAN
    assert log.end_at(then) >= max((one for at, one in ends if at <= then - STEP), default=0)
    assert len(log._ends) == len(log._times_ns) <= 2 * SPAN // STEP + 3
