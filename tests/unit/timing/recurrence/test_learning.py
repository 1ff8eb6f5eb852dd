"""What holds is learnt from the log alone: whoever appended a record, and however often a broker begins and ends to let runs happen.

A *leader* lets messages recur; a *copy* gets the bytes of its log and has, until it is attached, no hand in anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from tests.worlds.raw_log import append_raw
from tests.worlds.recurring_store import OpenRuns, RecurringStore

from orbitmq.clock import ManualClock
from orbitmq.errors import StoreUnwritableError
from orbitmq.protocol.names import RECURRING_TOPIC
from orbitmq.protocol.properties import Property
from orbitmq.protocol.remoting.recurring_bodies import CatchUp
from orbitmq.store.files import OsFiles
from orbitmq.store.message import NewMessage
from orbitmq.timing.recurrence.records import Record, defined, deleted, encode
from orbitmq.timing.recurrence.rule import Rule
from orbitmq.timing.recurrence.state import RecurringState, RunMessage, define, pause

NOW = 1_767_225_600_000
MINUTE = 60_000
EVERY_MINUTE = Rule(interval_ms=MINUTE, catch_up=CatchUp.ALL)


class Pair:
    def __init__(self, root: Path) -> None:
        self.clock = ManualClock(NOW)
        self.leader, self.copy = (
            RecurringStore(root / name, OsFiles(), self.clock, OpenRuns(), mapped_file_size_commit_log=1 << 20)
            for name in ("leader", "copy")
        )
        self.copy.recurrences.detach()

    def replicate(self, *, without_bytes: int = 0) -> None:
        """Give the copy what the leader has and it lacks; all but the last bytes."""
        end, ours = self.leader.store.log.end - without_bytes, self.copy.store.log.end
        data = self.leader.store.log.read(ours, end - ours) if end > ours else None
        if data is not None:
            append_raw(self.copy.store, ours, bytes(data))
        self.copy.turn()

    def close(self) -> None:
        self.leader.store.close()
        self.copy.store.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


@pytest.fixture
def here(pair: Pair) -> RecurringStore:
    return pair.leader


def planned(store: RecurringStore) -> list[int]:
    """Minutes after the start that runs were planned for."""
    return [(int(run[Property.PLANNED_MS]) - NOW) // MINUTE for run in store.runs()]


def made(name: str, rule: Rule = EVERY_MINUTE) -> RecurringState:
    state = define(None, name, rule, RunMessage("T", b"run"), NOW).state
    assert state is not None
    return state


def append(store: RecurringStore, record: Record) -> None:
    """As somebody else: the service does not know."""
    store.store.append(NewMessage(RECURRING_TOPIC, 0, encode(record), b""))


def test_a_definition_that_somebody_else_appended_is_heeded(here: RecurringStore) -> None:
    append(here, defined(made("a")))
    here.turn()
    assert [state.name for state in here.recurrences] == ["a"]
    assert here.recurrences.due_ms("a") == NOW + MINUTE
    here.advance(3 * MINUTE)
    assert planned(here) == [1, 2, 3]


def test_a_pause_and_a_deletion_that_somebody_else_appended_are_heeded(here: RecurringStore) -> None:
    here.put("a", EVERY_MINUTE)
    here.put("b", EVERY_MINUTE)
    here.advance(MINUTE)
    known = {state.name: state for state in here.recurrences}
    paused = pause(known["a"]).state
    assert paused is not None
    append(here, defined(paused))
    append(here, deleted(known["b"]))
    here.turn()
    assert [(state.name, state.paused) for state in here.recurrences] == [("a", True)]
    here.advance(3 * MINUTE)
    assert planned(here) == [1, 1]


def test_what_was_changed_without_knowing_of_a_record_before_it_counts_behind_it(here: RecurringStore) -> None:
    """One turn: somebody else's definitions of two messages, then our own of one of them. The last of each holds."""
    append(here, defined(made("a")))
    append(here, defined(made("b")))
    here.recurrences.put("a", Rule(interval_ms=5 * MINUTE), RunMessage("T", b"run"), here.statuses.append)
    append(here, defined(made("c")))
    here.turn()
    rules = {state.name: state.rule.interval_ms for state in here.recurrences}
    assert rules == {"a": 5 * MINUTE, "b": MINUTE, "c": MINUTE}
    assert [here.recurrences.due_ms(name) for name in "abc"] == [NOW + 5 * MINUTE, NOW + MINUTE, NOW + MINUTE]


def test_entries_that_are_given_again_change_nothing(here: RecurringStore) -> None:
    given = []
    apply = here.recurrences.apply
    here.recurrences.apply = lambda entries: (given.append(list(entries)), apply(entries))[1]  # type: ignore[method-assign]
    here.put("a", EVERY_MINUTE)
    here.advance(2 * MINUTE)
    before = list(here.recurrences)
    for entries in given:
        apply(entries)
    assert list(here.recurrences) == before
    here.advance(MINUTE)
    assert planned(here) == [1, 2, 3]


def test_a_copy_knows_what_the_leader_knows_after_every_turn(pair: Pair) -> None:
    leader, copy = pair.leader, pair.copy
    leader.put("a", EVERY_MINUTE)
    leader.put("b", Rule(interval_ms=2 * MINUTE, catch_up=CatchUp.ALL))
    for minute in range(1, 6):
        leader.advance(MINUTE)
        pair.replicate()
        assert list(copy.recurrences) == list(leader.recurrences), minute
        assert copy.recurrences.next_due_ms == leader.recurrences.next_due_ms
    state = leader.recurrences.get("a")
    assert state is not None
    leader.recurrences.delete(state, leader.statuses.append)
    leader.turn()
    pair.replicate()
    assert [state.name for state in copy.recurrences] == ["b"]
    assert len(copy.runs()) == len(leader.runs()), "the copy has appended nothing of its own"


def test_a_copy_that_takes_over_goes_on_where_the_leader_was(pair: Pair) -> None:
    leader, copy = pair.leader, pair.copy
    leader.put("a", EVERY_MINUTE)
    leader.advance(2 * MINUTE)
    pair.replicate()
    pair.clock.advance(2 * MINUTE)  # nobody leads
    copy.recurrences.attach(copy.store)
    copy.rest()
    copy.advance(MINUTE)
    assert planned(copy) == [1, 2, 3, 4, 5]


def test_runs_whose_progress_the_copy_did_not_get_are_not_run_again(pair: Pair) -> None:
    leader, copy = pair.leader, pair.copy
    leader.put("a", EVERY_MINUTE)
    leader.advance(MINUTE)
    pair.replicate()
    leader.advance(MINUTE)
    pair.replicate(without_bytes=leader.records(RECURRING_TOPIC)[-1].total_size)
    assert planned(copy) == [1, 2]
    copy.recurrences.attach(copy.store)
    copy.advance(MINUTE)
    assert planned(copy) == [1, 2, 3]
    assert next(iter(copy.recurrences)).progress.stored_count == 3


def test_attached_and_detached_any_number_of_times_each_run_happens_once(here: RecurringStore) -> None:
    here.put("a", EVERY_MINUTE)
    for _ in range(3):
        here.recurrences.detach()
        here.recurrences.detach()
        here.advance(MINUTE)
        before = len(here.runs())
        here.turn()
        assert len(here.runs()) == before, "nobody lets runs happen"
        here.recurrences.attach(here.store)
        here.recurrences.attach(here.store)
        here.advance(MINUTE)
    assert planned(here) == [1, 2, 3, 4, 5, 6]


def test_a_run_of_the_turn_in_which_the_service_was_detached_is_kept(here: RecurringStore) -> None:
    here.put("a", EVERY_MINUTE)
    here.clock.advance(MINUTE)
    here.recurrences.clock_moved()
    here.store.run_due(here.clock.monotonic_ns())
    here.recurrences.detach()
    here.turn()
    assert planned(here) == [1]
    assert not here.recurrences.is_releasing
    here.recurrences.attach(here.store)
    here.advance(MINUTE)
    assert planned(here) == [1, 2]


def test_what_was_put_behind_a_cut_of_the_log_never_was(here: RecurringStore) -> None:
    here.put("a", EVERY_MINUTE)
    here.put("b", EVERY_MINUTE)
    before = list(here.recurrences)
    cut_at = here.store.log.end
    here.recurrences.put("a", Rule(interval_ms=5 * MINUTE), RunMessage("T", b"other"), here.statuses.append)
    here.recurrences.put("c", EVERY_MINUTE, RunMessage("T", b"run"), here.statuses.append)
    here.recurrences.delete(made("b"), here.statuses.append)
    here.recurrences.detach()
    assert [state.name for state in here.recurrences] == ["a", "c"], "kept until the log says more"
    here.recurrences.take_back(cut_at)
    assert list(here.recurrences) == before
    assert here.recurrences.next_due_ms == NOW + MINUTE
    assert here.recurrences.due_ms("c") is None


def test_what_lies_before_a_cut_of_the_log_stays(here: RecurringStore) -> None:
    here.recurrences.put("a", EVERY_MINUTE, RunMessage("T", b"run"), here.statuses.append)
    here.recurrences.take_back(here.store.log.end)
    here.turn()
    here.recurrences.take_back(0)
    assert [state.name for state in here.recurrences] == ["a"], "it was confirmed"


def test_who_is_detached_takes_no_change_and_lets_no_run_happen(here: RecurringStore) -> None:
    here.put("a", EVERY_MINUTE)
    here.recurrences.detach()
    end = here.store.log.end
    with pytest.raises(StoreUnwritableError, match="ask the master"):
        here.put("b", EVERY_MINUTE)
    here.clock.advance(10 * MINUTE)
    here.rest()
    assert here.store.log.end == end
    assert here.recurrences.take_below(end, 10) == []


def test_a_run_that_could_not_be_stored_at_another_time_is_tried_by_the_next_master(here: RecurringStore) -> None:
    here.put("a", EVERY_MINUTE)
    assert here.recurrences.sender is not None
    with mock.patch.object(here.recurrences.sender, "message_of", side_effect=ValueError("planted")):
        here.advance(MINUTE)
    assert here.recurrences.due_ms("a") is None
    here.recurrences.detach()
    here.recurrences.attach(here.store)
    here.advance(MINUTE)
    assert planned(here) == [1, 2]
