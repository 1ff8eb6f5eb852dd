"""The runner on a small store: what it writes, what it reads again, what retention gets, and what goes wrong alone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.recurring_store import OpenRuns, RecurringStore

from orbitmq.clock import ManualClock
from orbitmq.errors import StoreUnwritableError
from orbitmq.limits import recurrence as limits
from orbitmq.protocol.names import RECURRING_TOPIC
from orbitmq.protocol.properties import Property
from orbitmq.protocol.remoting.recurring_bodies import CatchUp
from orbitmq.store.durability import PutStatus
from orbitmq.store.files import OsFiles
from orbitmq.store.mark import MARK_FILE
from orbitmq.store.message import NewMessage
from orbitmq.store.settings import FlushDiskType
from orbitmq.timing.recurrence.rule import Rule
from orbitmq.timing.recurrence.state import RunMessage
from orbitmq.timing.recurrence.turns import LeftOutReason

NOW = 1_767_225_600_000
MINUTE = 60_000
EVERY_MINUTE = Rule(interval_ms=MINUTE)
MESSAGE = RunMessage("T", b"run")


@pytest.fixture
def sender() -> OpenRuns:
    return OpenRuns()


@pytest.fixture
def opened(tmp_path: Path, sender: OpenRuns) -> Callable[..., RecurringStore]:
    clock = ManualClock(NOW)
    return lambda **changes: RecurringStore(tmp_path / "store", OsFiles(), clock, sender, **changes)


@pytest.fixture
def here(opened: Callable[..., RecurringStore]) -> RecurringStore:
    return opened(mapped_file_size_commit_log=1 << 20)


def planned(here: RecurringStore, topic: str = "T") -> list[int]:
    """Minutes after the start that runs were planned for."""
    return [(int(run[Property.PLANNED_MS]) - NOW) // MINUTE for run in here.runs(topic)]


def test_runs_and_progress_lie_side_by_side(here: RecurringStore) -> None:
    here.put("a", Rule(interval_ms=MINUTE, catch_up=CatchUp.ALL))
    here.clock.advance(3 * MINUTE)
    here.rest()
    runs, records = here.records(), here.records(RECURRING_TOPIC)
    assert len(runs) == 3
    assert [record.physical_offset + record.total_size for record in runs] == [
        *(record.physical_offset for record in runs[1:]),
        records[-1].physical_offset,
    ]
    assert here.statuses == [PutStatus.PUT_OK]


def test_a_sleeping_runner_wakes_for_its_runs_only(here: RecurringStore) -> None:
    here.put("a", Rule(interval_ms=MINUTE, count_max=1))
    assert "recurring" in here.store.deadlines._due_ns
    here.advance(MINUTE)
    here.store.deadlines.run_due(here.clock.monotonic_ns() + 10**12)
    assert "recurring" not in here.store.deadlines._due_ns, "nothing is to come"


def test_a_stepped_clock_is_noticed_within_a_second(here: RecurringStore) -> None:
    here.put("a", EVERY_MINUTE)
    here.clock.set_wall(NOW + MINUTE)
    here.clock.advance(1_000)
    here.turn()
    assert planned(here) == [1]
    here.clock.set_wall(NOW)
    here.advance(MINUTE)
    assert planned(here) == [1], "a clock that was set back repeats nothing"
    here.advance(MINUTE)
    assert planned(here) == [1, 2]


YEAR = 365 * 86_400_000


def wrong_for_two_minutes(here: RecurringStore) -> None:
    """The clock shows ten years ahead, and is set right."""
    here.clock.set_wall(here.clock.now_ms() + 10 * YEAR)
    here.advance(2 * MINUTE)
    here.clock.set_wall(here.clock.now_ms() - 10 * YEAR)
    here.advance(MINUTE)


@pytest.mark.parametrize("remedy", ["define", "define another", "pause and resume"])
def test_a_message_that_a_wrong_clock_has_stopped_shows_it_and_goes_on(here: RecurringStore, remedy: str) -> None:
    here.put("a", EVERY_MINUTE)
    wrong_for_two_minutes(here)
    trouble = here.recurrences.trouble("a")
    assert trouble is not None
    assert trouble.startswith("the clock was ahead: runs of the next 3153")
    assert here.recurrences.state_counts() == {"active": 0, "paused": 0, "ended": 0, "trouble": 1}
    before = here.runs()
    here.advance(5 * MINUTE)
    assert here.runs() == before
    state = here.recurrences.get("a")
    assert state is not None
    if remedy == "define":
        here.put("a", EVERY_MINUTE)
    elif remedy == "define another":
        here.put("a", EVERY_MINUTE, body=b"other")
    else:
        here.recurrences.set_paused(state, paused=True, on_done=here.statuses.append)
        here.recurrences.set_paused(state, paused=False, on_done=here.statuses.append)
    assert here.recurrences.trouble("a") is None
    begun_ms = here.clock.now_ms()
    here.advance(3 * MINUTE)
    after = [int(run[Property.PLANNED_MS]) for run in here.runs()[len(before) :]]
    assert len(after) == 3
    assert begun_ms < after[0] <= begun_ms + MINUTE
    ids = [run[Property.UNIQ_KEY] for run in here.runs()]
    assert len(ids) == len(set(ids))


def test_an_interval_that_was_begun_in_the_future_begins_now(here: RecurringStore) -> None:
    here.clock.set_wall(NOW + 10 * YEAR)
    here.put("a", EVERY_MINUTE)
    here.clock.set_wall(NOW)
    assert here.recurrences.trouble("a") is not None
    here.put("a", EVERY_MINUTE)
    here.advance(2 * MINUTE)
    assert planned(here) == [1, 2]


def test_the_start_says_what_a_wrong_clock_has_stopped(
    opened: Callable[..., RecurringStore], here: RecurringStore, caplog: pytest.LogCaptureFixture
) -> None:
    here.put("a", EVERY_MINUTE)
    wrong_for_two_minutes(here)
    here.store.close()
    opened(mapped_file_size_commit_log=1 << 20)
    assert "1 recurring messages have no runs for now, because the clock was ahead, such as 'a'" in caplog.text


def test_an_hour_of_summer_time_is_waited_for(here: RecurringStore) -> None:
    here.put("a", Rule(interval_ms=60 * MINUTE))
    here.clock.set_wall(NOW + 60 * MINUTE)
    here.rest()
    here.clock.set_wall(NOW)
    assert here.recurrences.trouble("a") is None
    assert planned(here) == [60]
    here.put("a", Rule(interval_ms=60 * MINUTE))
    here.advance(60 * MINUTE)
    assert planned(here) == [60], "nothing comes twice"


def test_a_crowd_is_served_in_turns(here: RecurringStore) -> None:
    count = limits.RECURRENCE_NAMES_PER_TURN_MAX + 10
    for number in range(count):
        here.recurrences.put(f"n{number}", EVERY_MINUTE, MESSAGE, here.statuses.append)
    here.turn()
    here.clock.advance(MINUTE)
    here.recurrences.clock_moved()
    here.turn()
    assert len(here.runs()) == limits.RECURRENCE_NAMES_PER_TURN_MAX
    here.rest()
    assert len(here.runs()) == count


def test_many_late_runs_of_one_come_in_slices(here: RecurringStore) -> None:
    here.put("a", Rule(interval_ms=1_000, catch_up=CatchUp.ALL, catch_up_max=200))
    here.clock.advance(200_000)
    here.recurrences.clock_moved()
    here.turn()
    assert len(here.runs()) == limits.RECURRENCE_RUNS_PER_TURN_MAX
    here.rest()
    seconds = [(int(run[Property.PLANNED_MS]) - NOW) // 1_000 for run in here.runs()]
    assert seconds == list(range(1, 201))


def test_runs_that_do_not_fit_into_a_file_together(opened: Callable[..., RecurringStore]) -> None:
    here = opened(mapped_file_size_commit_log=16 * 1024)
    here.put("a", Rule(interval_ms=MINUTE, catch_up=CatchUp.ALL), body=b"x" * 2_000)
    here.clock.advance(12 * MINUTE)
    here.rest()
    assert planned(here) == list(range(1, 13))


def test_a_run_that_is_refused_is_left_out_said_once_and_stops_nobody(
    here: RecurringStore, sender: OpenRuns, caplog: pytest.LogCaptureFixture
) -> None:
    here.put("bad", EVERY_MINUTE, topic="Gone")
    here.put("good", EVERY_MINUTE)
    sender.refused["Gone"] = "it is gone"
    with caplog.at_level(logging.ERROR):
        here.advance(3 * MINUTE)
    assert planned(here) == [1, 2, 3]
    assert caplog.messages == ["recurring message 'bad': a run cannot be stored: it is gone"]
    assert here.recurrences.trouble("bad") == "a run cannot be stored: it is gone"
    assert here.recurrences.left_out_counts[LeftOutReason.REFUSED] == 3
    assert here.recurrences.state_counts() == {"active": 1, "paused": 0, "ended": 0, "trouble": 1}
    del sender.refused["Gone"]
    here.advance(MINUTE)
    assert planned(here, "Gone") == [4]
    assert here.recurrences.trouble("bad") is None


def test_a_run_that_the_store_finds_too_large(here: RecurringStore) -> None:
    here.put("big", EVERY_MINUTE, body=b"x" * 2_000)
    here.store.use(here.store.settings.__class__(max_message_size=1_000, mapped_file_size_commit_log=1 << 20))
    here.advance(MINUTE)
    assert here.runs() == []
    assert "2000 bytes" in (here.recurrences.trouble("big") or "")


def test_a_defect_in_one_turn_stops_nobody_else(here: RecurringStore, monkeypatch: pytest.MonkeyPatch) -> None:
    here.put("a", EVERY_MINUTE, topic="A")
    here.put("b", EVERY_MINUTE, topic="B")
    honest = OpenRuns.message_of

    def broken(self: OpenRuns, state: object, run: object, now_ms: int) -> object:
        if getattr(state, "name", "") == "a":
            raise ZeroDivisionError
        return honest(self, state, run, now_ms)  # type: ignore[arg-type]

    monkeypatch.setattr(OpenRuns, "message_of", broken)
    here.advance(2 * MINUTE)
    assert (planned(here, "A"), planned(here, "B")) == ([], [1, 2])
    assert "ZeroDivisionError" in (here.recurrences.trouble("a") or "")
    monkeypatch.undo()
    here.put("a", EVERY_MINUTE, topic="A")
    here.advance(MINUTE)
    assert planned(here, "A") == [2, 3], "the same definition is a new attempt"


def test_while_sends_are_refused_runs_wait(here: RecurringStore) -> None:
    here.put("a", Rule(interval_ms=MINUTE, catch_up=CatchUp.ALL))
    here.store.refuse("disk", "the disk is nearly full")
    here.advance(2 * MINUTE)
    assert here.runs() == []
    here.store.allow("disk")
    here.advance(1_000)
    assert planned(here) == [1, 2]


def test_a_store_that_stops_in_the_middle_makes_nobody_wait_for_ever(
    here: RecurringStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        here.put(name, EVERY_MINUTE)

    def unwritable(messages: object) -> list[object]:
        raise StoreUnwritableError("no file could be made")

    monkeypatch.setattr(here.store, "append_batch", unwritable)
    here.clock.advance(MINUTE)
    here.recurrences.clock_moved()
    here.turn()
    assert here.runs() == []
    monkeypatch.undo()
    here.advance(1_000)
    assert planned(here) == [1, 1, 1]


def test_synchronous_flush_tells_when_it_is_safe(opened: Callable[..., RecurringStore]) -> None:
    here = opened(flush_disk_type=FlushDiskType.SYNC_FLUSH, mapped_file_size_commit_log=1 << 20)
    here.recurrences.put("a", EVERY_MINUTE, MESSAGE, here.statuses.append)
    here.store.commit()
    assert (here.statuses, here.recurrences.is_releasing) == ([], True)
    here.turn()
    assert (here.statuses, here.recurrences.is_releasing) == ([PutStatus.PUT_OK], False)


# --- starts -----------------------------------------------------------------------------------------------------------


def test_a_start_reads_what_holds(here: RecurringStore, opened: Callable[..., RecurringStore]) -> None:
    here.put("a", EVERY_MINUTE)
    here.put("b", EVERY_MINUTE)
    here.advance(3 * MINUTE)
    before = list(here.recurrences)
    state = here.recurrences.get("b")
    assert state is not None
    here.recurrences.delete(state, here.statuses.append)
    here.turn()
    here.store.close()
    again = opened(mapped_file_size_commit_log=1 << 20)
    assert list(again.recurrences) == [each for each in before if each.name == "a"]


def test_without_a_mark_everything_is_read(
    tmp_path: Path, here: RecurringStore, opened: Callable[..., RecurringStore]
) -> None:
    """As after RocketMQ's broker has run on the store."""
    here.put("a", Rule(interval_ms=MINUTE, catch_up=CatchUp.ALL))
    here.advance(3 * MINUTE)
    known = here.recurrences.get("a")
    assert known is not None
    for run in here.recurrences.upcoming(known, 2):  # of a torn end: no record of their progress
        here.store.append(OpenRuns().message_of(known, run, run.at_ms))
    here.store.commit()
    here.store.close()
    (tmp_path / "store" / MARK_FILE).unlink()
    here.clock.advance(5 * MINUTE)
    again = opened(mapped_file_size_commit_log=1 << 20)
    again.rest()
    assert planned(again) == list(range(1, 9))


def test_a_record_that_cannot_be_read_is_reported(
    here: RecurringStore, opened: Callable[..., RecurringStore], caplog: pytest.LogCaptureFixture
) -> None:
    here.put("a", EVERY_MINUTE)
    here.store.append(NewMessage(RECURRING_TOPIC, 0, b'{"version": 2, "kind": "new"}', b""))
    here.store.commit()
    here.put("b", EVERY_MINUTE)
    here.kill()
    with caplog.at_level(logging.ERROR):
        again = opened(mapped_file_size_commit_log=1 << 20)
    assert [state.name for state in again.recurrences] == ["a", "b"]
    assert any("version 2" in line for line in caplog.messages)


# --- retention --------------------------------------------------------------------------------------------------------


def test_definitions_are_written_anew_for_retention(
    here: RecurringStore, opened: Callable[..., RecurringStore]
) -> None:
    for name in ("a", "b", "c"):
        here.put(name, EVERY_MINUTE)
    here.advance(2 * MINUTE)
    before = list(here.recurrences)
    end = here.store.log.end
    assert here.recurrences.lowest_needed() == 0
    assert here.recurrences.bytes_below(end) > 300
    assert here.recurrences.take_below(end, 1) == [], "there is nothing to be moved by others"
    assert here.recurrences.lowest_needed() == 0, "until the new record is in the log"
    here.rest()
    assert (here.recurrences.lowest_needed() or 0) >= end
    assert here.recurrences.bytes_below(end) == 0
    here.kill()
    again = opened(mapped_file_size_commit_log=1 << 20)
    assert sorted(again.recurrences, key=lambda each: each.name) == before
    again.advance(MINUTE)
    assert planned(again) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_a_start_never_has_to_read_much(
    here: RecurringStore, opened: Callable[..., RecurringStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RECURRENCE_RECORDS_KEPT_MIN", 20)
    here.put("rare", Rule(interval_ms=10**9))
    here.put("often", EVERY_MINUTE)
    here.advance(200 * MINUTE)
    book = here.recurrences._book
    oldest = book.oldest()
    assert oldest is not None
    assert book.next_offset - oldest.queue_offset <= 22
    assert here.recurrences.rewritten_count > 10
    here.kill()
    again = opened(mapped_file_size_commit_log=1 << 20)
    assert {state.name for state in again.recurrences} == {"rare", "often"}
    again.advance(MINUTE)
    assert planned(again) == list(range(1, 202))
