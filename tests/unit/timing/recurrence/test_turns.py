"""Which runs happen now: catching up, overlap, count, and what the broker can know."""

from __future__ import annotations

from datetime import datetime

import msgspec
import pytest
from cronsim import CronSim

from orbitmq.limits import recurrence as limits
from orbitmq.protocol.remoting.recurring_bodies import CatchUp, Overlap
from orbitmq.timing.recurrence.rule import Rule
from orbitmq.timing.recurrence.state import RecurringState, RunMessage, RunPlace, RunProgress
from orbitmq.timing.recurrence.turns import (
    LeftOut,
    LeftOutReason,
    Previous,
    RecurrenceTurn,
    next_due,
    previous_of,
    settled,
    take_turn,
)

HOUR = 3_600_000
BEGUN = 497_000 * HOUR
GRACE = limits.RECURRENCE_GRACE_MS


def hourly(**fields: object) -> RecurringState:
    rule = msgspec.structs.replace(Rule(cron="0 * * * *"), **fields)
    return RecurringState(
        name="r",
        generation=1,
        begun_ms=BEGUN,
        rule=rule,
        message=RunMessage("t", b""),
        progress=RunProgress(settled_ms=BEGUN),
    )


def turn(state: RecurringState, now_ms: int, previous: Previous = Previous.NONE) -> RecurrenceTurn:
    return take_turn(state, state.schedule(), now_ms, previous)


def hours(found: RecurrenceTurn) -> list[int]:
    return [(run.planned_ms - BEGUN) // HOUR for run in found.runs]


def test_nothing_happens_early() -> None:
    state = hourly()
    assert next_due(state, state.schedule()) == BEGUN + HOUR
    assert turn(state, BEGUN + HOUR - 1) == RecurrenceTurn((), (), BEGUN)
    assert hours(turn(state, BEGUN + HOUR)) == [1]


def test_a_turn_taken_twice_gives_the_same_ids() -> None:
    state = hourly()
    assert turn(state, BEGUN + HOUR) == turn(state, BEGUN + HOUR)
    late = turn(state, BEGUN + HOUR + 5)
    assert late.runs == turn(state, BEGUN + HOUR).runs


def test_settling_moves_on() -> None:
    state = hourly()
    state = settled(state, turn(state, BEGUN + HOUR), RunPlace(3, 77))
    assert state.progress == RunProgress(settled_ms=BEGUN + HOUR, stored_count=1, last=RunPlace(3, 77))
    assert turn(state, BEGUN + HOUR) == RecurrenceTurn((), (), BEGUN + HOUR)
    assert next_due(state, state.schedule()) == BEGUN + 2 * HOUR


DOWN = BEGUN + 5 * HOUR + HOUR // 2


def test_after_down_time_the_latest_happens() -> None:
    found = turn(hourly(), DOWN)
    assert hours(found) == [5]
    assert found.left_out == (LeftOut(LeftOutReason.MISSED, BEGUN + HOUR, BEGUN + 5 * HOUR),)
    assert found.settled_ms == BEGUN + 5 * HOUR


def test_after_down_time_none_happens() -> None:
    found = turn(hourly(catch_up=CatchUp.NONE), DOWN)
    assert hours(found) == []
    assert found.left_out == (LeftOut(LeftOutReason.MISSED, BEGUN + HOUR, BEGUN + 5 * HOUR + 1),)
    assert found.settled_ms == BEGUN + 5 * HOUR


def test_a_restart_is_no_down_time() -> None:
    assert hours(turn(hourly(catch_up=CatchUp.NONE), BEGUN + HOUR + GRACE)) == [1]
    assert hours(turn(hourly(catch_up=CatchUp.NONE), BEGUN + HOUR + GRACE + 1)) == []
    late = turn(hourly(catch_up=CatchUp.NONE), BEGUN + 3 * HOUR + GRACE)
    assert hours(late) == [3]
    assert late.left_out == (LeftOut(LeftOutReason.MISSED, BEGUN + HOUR, BEGUN + 3 * HOUR),)


def test_after_down_time_all_happen_in_order_up_to_the_bound() -> None:
    assert hours(turn(hourly(catch_up=CatchUp.ALL), DOWN)) == [1, 2, 3, 4, 5]
    assert turn(hourly(catch_up=CatchUp.ALL), DOWN).left_out == ()
    bounded = turn(hourly(catch_up=CatchUp.ALL, catch_up_max=2), DOWN)
    assert hours(bounded) == [4, 5]
    assert bounded.left_out == (LeftOut(LeftOutReason.MISSED, BEGUN + HOUR, BEGUN + 4 * HOUR),)
    assert bounded.settled_ms == BEGUN + 5 * HOUR


@pytest.mark.parametrize("days", [1, 20 * 366])
def test_years_of_down_time_cost_no_more_than_a_day(days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in local times that are looked at, of which these twenty years have ten million."""
    state = hourly(cron="* * * * *", zone="Europe/Berlin", catch_up=CatchUp.ALL, catch_up_max=3)
    honest, looked_count = CronSim.__next__, 0

    def counting(self: CronSim) -> datetime:
        nonlocal looked_count
        looked_count += 1
        return honest(self)

    schedule = state.schedule()
    monkeypatch.setattr(CronSim, "__next__", counting)
    now_ms = BEGUN + days * 24 * HOUR
    found = take_turn(state, schedule, now_ms, Previous.NONE)
    assert [run.planned_ms for run in found.runs] == [now_ms - 120_000, now_ms - 60_000, now_ms]
    assert looked_count <= 20


def test_a_count_ends_the_rule() -> None:
    state = hourly(catch_up=CatchUp.ALL, count_max=3)
    found = turn(state, DOWN)
    assert hours(found) == [1, 2, 3]
    done = settled(state, found, RunPlace(0, 2))
    assert next_due(done, done.schedule()) is None
    assert turn(done, DOWN + 9 * HOUR) == RecurrenceTurn((), (), BEGUN + 5 * HOUR)


def test_runs_that_are_left_out_do_not_count() -> None:
    state = hourly(count_max=2)
    state = settled(state, turn(state, DOWN), RunPlace(0, 0))
    assert state.progress.stored_count == 1
    assert hours(turn(state, DOWN + HOUR)) == [6]


SKIPPING = {"overlap": Overlap.SKIP, "overlap_group": "workers"}


@pytest.mark.parametrize("previous", [Previous.NONE, Previous.TAKEN, Previous.GONE])
def test_a_run_happens_when_the_message_before_is_no_longer_there(previous: Previous) -> None:
    assert hours(turn(hourly(**SKIPPING), BEGUN + HOUR, previous)) == [1]


def test_a_run_is_left_out_while_the_message_before_waits() -> None:
    state = hourly(**SKIPPING)
    found = turn(state, DOWN, Previous.WAITING)
    assert found.runs == ()
    assert found.left_out == (
        LeftOut(LeftOutReason.MISSED, BEGUN + HOUR, BEGUN + 5 * HOUR),
        LeftOut(LeftOutReason.OVERLAP, BEGUN + 5 * HOUR, BEGUN + 5 * HOUR + 1),
    )
    after = settled(
        msgspec.structs.replace(state, progress=RunProgress(settled_ms=BEGUN, last=RunPlace(1, 5))), found, None
    )
    assert after.progress == RunProgress(
        settled_ms=BEGUN + 5 * HOUR, last=RunPlace(1, 5)
    )  # it still waits for the same message
    assert hours(turn(after, DOWN + HOUR, Previous.TAKEN)) == [6]


def test_a_rule_that_allows_overlap_does_not_care() -> None:
    assert hours(turn(hourly(), BEGUN + HOUR, Previous.WAITING)) == [1]


def test_a_run_that_waits_for_its_jitter_is_left_for_later() -> None:
    state = hourly(jitter_ms=HOUR // 2, catch_up=CatchUp.ALL)
    third = state.schedule().next(BEGUN + 2 * HOUR)
    assert third is not None
    assert third.at_ms > third.planned_ms
    assert hours(turn(state, third.at_ms - 1)) == [1, 2]
    assert hours(turn(state, third.at_ms)) == [1, 2, 3]
    after = settled(state, turn(state, third.at_ms - 1), RunPlace(0, 1))
    assert next_due(after, after.schedule()) == third.at_ms


def test_a_clock_that_was_set_back_brings_nothing_again() -> None:
    state = hourly()
    state = settled(state, turn(state, DOWN), RunPlace(0, 0))
    assert turn(state, BEGUN + 2 * HOUR) == RecurrenceTurn((), (), BEGUN + 5 * HOUR)
    assert next_due(state, state.schedule()) == BEGUN + 6 * HOUR


@pytest.mark.parametrize(
    ("last", "committed", "lowest", "known"),
    [
        (None, 10, 0, Previous.NONE),
        (RunPlace(0, 5), 6, 0, Previous.TAKEN),
        (RunPlace(0, 5), 5, 0, Previous.WAITING),
        (RunPlace(0, 5), None, 0, Previous.WAITING),
        (RunPlace(0, 5), None, 6, Previous.GONE),
        (RunPlace(0, 5), 2, 6, Previous.GONE),
        (RunPlace(0, 5), None, None, Previous.GONE),
        (RunPlace(0, 0), 1, None, Previous.TAKEN),
    ],
)
def test_what_the_broker_knows_about_the_message_before(
    last: RunPlace | None, committed: int | None, lowest: int | None, known: Previous
) -> None:
    assert previous_of(RunProgress(settled_ms=0, last=last), committed, lowest) is known
