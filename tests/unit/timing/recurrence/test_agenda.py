"""The agenda: whose run is next, without looking at anybody else."""

from __future__ import annotations

import msgspec
import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.timing.recurrence.rule import Rule
from orbitmq.timing.recurrence.state import RecurringState, RunMessage, RunProgress, define, pause
from orbitmq.timing.recurrence.turns import Agenda, runs_after

NOW = 1_767_225_600_000


def recurring(name: str, interval_ms: int, **rule: object) -> RecurringState:
    asked = Rule(interval_ms=interval_ms, **rule)  # type: ignore[arg-type]
    state = define(None, name, asked, RunMessage("T", b"x"), NOW).state
    assert state is not None
    return state


def settled(state: RecurringState, settled_ms: int, stored_count: int = 0) -> RecurringState:
    return msgspec.structs.replace(state, progress=RunProgress(settled_ms=settled_ms, stored_count=stored_count))


def test_the_earliest_comes_first_and_at_most_so_many() -> None:
    agenda = Agenda()
    for name, seconds in (("c", 3), ("a", 1), ("b", 2), ("d", 60)):
        agenda.put(recurring(name, seconds * 1_000))
    assert agenda.next_due_ms == NOW + 1_000
    assert agenda.take_due(NOW + 999, 9) == []
    assert agenda.take_due(NOW + 5_000, 2) == ["a", "b"]
    assert agenda.take_due(NOW + 5_000, 2) == ["c"]
    assert agenda.next_due_ms == NOW + 60_000


def test_a_new_state_takes_the_place_of_the_old_one() -> None:
    agenda = Agenda()
    state = recurring("a", 1_000)
    for number in range(1_000):
        agenda.put(settled(state, NOW + number * 1_000))
    assert len(agenda._heap) < 100, "outdated entries are dropped"
    assert agenda.due_ms("a") == agenda.next_due_ms == NOW + 1_000_000
    agenda.put(msgspec.structs.replace(state, paused=True))
    assert agenda.next_due_ms is None
    agenda.put(state)
    agenda.drop("a")
    assert agenda.next_due_ms is None


def test_a_message_that_has_ended_has_no_next_run() -> None:
    agenda = Agenda()
    agenda.put(settled(recurring("a", 1_000, count_max=2), NOW + 2_000, 2))
    assert agenda.due_ms("a") is None


def test_a_rule_that_is_not_usable_any_more_has_no_runs_and_holds_nobody_up() -> None:
    agenda = Agenda()
    agenda.put(recurring("good", 1_000))
    state = recurring("bad", 500_000)
    agenda.put(state)
    gone = msgspec.structs.replace(
        state, generation=state.generation + 1, rule=Rule(cron="* * * * *", zone="Gone/Zone")
    )
    with pytest.raises(ConfigurationError, match="Gone/Zone"):
        agenda.put(gone)
    assert agenda.due_ms("bad") is None
    assert agenda.take_due(NOW + 10**9, 9) == ["good"]


def test_the_next_runs_end_with_the_count() -> None:
    state = settled(recurring("a", 1_000, count_max=5), NOW + 3_000, 3)
    schedule = Agenda().schedule(state)
    assert [run.planned_ms - NOW for run in runs_after(schedule, state, NOW + 3_000, 10)] == [4_000, 5_000]
    assert runs_after(schedule, settled(state, NOW + 5_000, 5), NOW + 5_000, 10) == []
    paused = pause(recurring("b", 1_000)).state
    assert paused is not None
    assert len(runs_after(schedule, paused, NOW, 3)) == 3
