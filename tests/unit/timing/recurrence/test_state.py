"""What requests change: create, replace, pause, resume, delete."""

from __future__ import annotations

import msgspec
import pytest

from orbitmq.errors import ConfigurationError, RecordError
from orbitmq.protocol.remoting.recurring_bodies import RecurringOutcome
from orbitmq.timing.recurrence.rule import Rule
from orbitmq.timing.recurrence.state import (
    Change,
    RecurringState,
    RunMessage,
    RunPlace,
    RunProgress,
    define,
    delete,
    is_used_up,
    pause,
    resume,
)
from orbitmq.timing.recurrence.turns import Previous, next_due, settled, take_turn

NOW = 1_790_000_100_000
MINUTE = 60_000
HOUR = 3_600_000
HOURLY = Rule(cron="0 * * * *")
MESSAGE = RunMessage("reports", b"{}", {"KEYS": "hourly"})


def made(rule: Rule = HOURLY, now_ms: int = NOW) -> RecurringState:
    state = define(None, "report", rule, MESSAGE, now_ms).state
    assert state is not None
    return state


def due(state: RecurringState) -> int | None:
    return next_due(state, state.schedule())


def after_change(change: Change) -> RecurringState:
    assert change.state is not None
    return change.state


def next_hour(at_ms: int) -> int:
    return (at_ms // HOUR + 1) * HOUR


def test_a_new_one_runs_later_than_now() -> None:
    assert define(None, "report", HOURLY, MESSAGE, NOW).outcome is RecurringOutcome.CREATED
    assert due(made()) == next_hour(NOW)
    assert due(made(now_ms=next_hour(NOW))) == next_hour(NOW) + HOUR
    assert due(made(Rule(interval_ms=MINUTE))) == NOW + MINUTE


def test_the_past_of_a_start_is_not_made_up_for() -> None:
    assert due(made(Rule(interval_ms=MINUTE, start_ms=NOW - HOUR - 1))) == NOW + MINUTE - 1
    assert due(made(Rule(interval_ms=MINUTE, start_ms=NOW + HOUR))) == NOW + HOUR


def test_defining_the_same_again_changes_nothing() -> None:
    state = made()
    assert define(
        state, "report", Rule(cron="0 * * * *"), RunMessage("reports", b"{}", {"KEYS": "hourly"}), NOW + 5
    ) == Change(RecurringOutcome.UNCHANGED, state)
    every = made(Rule(interval_ms=MINUTE))  # its start is when it was made, also when it is defined again later
    assert define(every, "report", Rule(interval_ms=MINUTE), MESSAGE, NOW + 30_000) == Change(
        RecurringOutcome.UNCHANGED, every
    )


def test_replacing_begins_a_generation_whose_runs_are_later_than_now() -> None:
    state = settled(made(), take_turn(made(), made().schedule(), next_hour(NOW), Previous.NONE), RunPlace(2, 40))
    change = define(state, "report", Rule(cron="30 * * * *"), MESSAGE, NOW + HOUR)
    assert change.outcome is RecurringOutcome.REPLACED
    new = after_change(change)
    assert (new.generation, new.begun_ms) == (NOW + HOUR, NOW + HOUR)
    assert new.progress == RunProgress(settled_ms=NOW + HOUR, stored_count=0, last=RunPlace(2, 40))
    assert due(new) == next_hour(NOW + HOUR) - 30 * MINUTE


def test_another_body_is_a_generation_too() -> None:
    change = define(made(), "report", HOURLY, RunMessage("reports", b"new"), NOW + 1)
    assert change.outcome is RecurringOutcome.REPLACED
    assert after_change(change).generation == NOW + 1


def test_a_new_topic_forgets_where_the_last_message_is() -> None:
    state = msgspec.structs.replace(made(), progress=RunProgress(settled_ms=NOW, last=RunPlace(0, 1)))
    assert after_change(define(state, "report", HOURLY, RunMessage("other", b""), NOW + 1)).progress.last is None


def test_generations_grow_even_when_the_clock_was_set_back() -> None:
    state = made()
    back = after_change(define(state, "report", Rule(cron="5 * * * *"), MESSAGE, NOW - HOUR))
    assert back.generation == NOW + 1
    assert back.progress.settled_ms == NOW  # what is settled stays settled


def test_a_run_that_waits_for_its_jitter_is_made_over_to_the_new_rule() -> None:
    state = made(msgspec.structs.replace(HOURLY, jitter_ms=30 * MINUTE))
    planned, at = next_hour(NOW), due(state)
    assert at is not None
    assert planned + 2 < at  # the case needs some jitter
    same_time = after_change(define(state, "report", HOURLY, RunMessage("reports", b"new"), planned + 1))
    assert due(same_time) == planned  # at once, and not twice
    other_time = after_change(define(state, "report", Rule(cron="59 * * * *"), MESSAGE, planned + 1))
    assert due(other_time) == planned + 59 * MINUTE


def test_a_paused_one_does_not_run_and_resuming_makes_up_for_nothing() -> None:
    change = pause(made())
    assert change.outcome is RecurringOutcome.PAUSED
    paused = after_change(change)
    assert due(paused) is None
    assert take_turn(paused, paused.schedule(), NOW + 9 * HOUR, Previous.NONE).runs == ()
    again = resume(paused, NOW + 5 * HOUR)
    assert again.outcome is RecurringOutcome.RESUMED
    assert due(after_change(again)) == next_hour(NOW + 5 * HOUR)
    assert after_change(again).generation == paused.generation


def test_pausing_and_resuming_twice_is_once() -> None:
    state = made()
    assert resume(state, NOW + HOUR) == Change(RecurringOutcome.UNCHANGED, state)
    paused = after_change(pause(state))
    assert pause(paused) == Change(RecurringOutcome.UNCHANGED, paused)


def test_a_paused_one_that_is_replaced_stays_paused() -> None:
    replaced = after_change(define(pause(made()).state, "report", Rule(cron="5 * * * *"), MESSAGE, NOW + 7 * HOUR))
    assert replaced.paused
    assert replaced.progress.settled_ms == NOW + 7 * HOUR
    assert due(replaced) is None


def test_a_resume_with_a_clock_that_was_set_back_repeats_nothing() -> None:
    state = msgspec.structs.replace(made(), progress=RunProgress(settled_ms=NOW + HOUR), paused=True)
    assert after_change(resume(state, NOW)).progress.settled_ms == NOW + HOUR


def test_deleting_leaves_nothing_and_a_new_one_has_other_ids() -> None:
    assert delete() == Change(RecurringOutcome.DELETED, None)
    first, second = made(), made(now_ms=NOW + 1)
    runs = [state.schedule().next(NOW + 1) for state in (first, second)]
    assert runs[0] is not None
    assert runs[1] is not None
    assert runs[0].planned_ms == runs[1].planned_ms
    assert runs[0].id != runs[1].id


def test_a_generation_that_had_all_its_runs_is_used_up() -> None:
    state = made(msgspec.structs.replace(HOURLY, count_max=1))
    assert not is_used_up(state)
    turn = take_turn(state, state.schedule(), next_hour(NOW), Previous.NONE)
    done = settled(state, turn, RunPlace(0, 0))
    assert is_used_up(done)
    assert due(done) is None
    more = after_change(define(done, "report", msgspec.structs.replace(HOURLY, count_max=2), MESSAGE, NOW + HOUR))
    assert due(more) == next_hour(NOW + HOUR)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (RunMessage("", b""), "the topic name is blank"),
        (RunMessage("a b", b""), "contains characters"),
        (RunMessage("t", b"x" * 262_145), "RECURRENCE_BODY_BYTES_MAX = 262144"),
        (RunMessage("t", b"", {"p": "x" * 33_000}), "PROPERTIES_BYTES_MAX = 32767"),
    ],
)
def test_a_message_that_cannot_be_sent_is_refused(message: RunMessage, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as refused:
        define(None, "report", HOURLY, message, NOW)
    assert refused.value.remedy


def test_a_separator_in_a_property_is_refused() -> None:
    with pytest.raises(RecordError):
        define(None, "report", HOURLY, RunMessage("t", b"", {"p": "a\x02b"}), NOW)


def test_a_rule_that_cannot_be_is_refused_before_anything_changes() -> None:
    for current in (None, made()):
        with pytest.raises(ConfigurationError, match="none of the months"):
            define(current, "report", Rule(cron="0 0 30 2 *"), MESSAGE, NOW)
