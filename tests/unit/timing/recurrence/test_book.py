"""The book: changes that count at once and can be taken back, and which record of the log is the oldest that is needed."""

from __future__ import annotations

import msgspec
import pytest

from orbitmq.limits import recurrence as limits
from orbitmq.timing.recurrence.book import RecurrenceBook
from orbitmq.timing.recurrence.records import defined, deleted, progressed
from orbitmq.timing.recurrence.rule import Rule
from orbitmq.timing.recurrence.state import RecurringState, RunMessage, RunPlace, RunProgress, define

NOW = 1_767_225_600_000


def recurring(name: str, body: bytes = b"12345", now_ms: int = NOW) -> RecurringState:
    state = define(None, name, Rule(interval_ms=60_000), RunMessage("T", body), now_ms).state
    assert state is not None
    return state


def further(state: RecurringState, count: int = 1) -> RecurringState:
    settled_ms = state.progress.settled_ms + 60_000
    progress = RunProgress(settled_ms=settled_ms, stored_count=state.progress.stored_count + count, last=RunPlace(0, 7))
    return msgspec.structs.replace(state, progress=progress)


class Log:
    """Gives records their places."""

    def __init__(self) -> None:
        self.book = RecurrenceBook()
        self.end = 1_000

    def defined(self, state: RecurringState) -> int:
        self.book.note(defined(state), self.book.next_offset, self.end, 100)
        return self.moved()

    def progressed(self, state: RecurringState) -> int:
        self.book.note(progressed(state), self.book.next_offset, self.end, 100)
        return self.moved()

    def deleted(self, state: RecurringState) -> int:
        self.book.note(deleted(state), self.book.next_offset, self.end, 100)
        return self.moved()

    def moved(self) -> int:
        self.end += 100
        return self.end - 100


@pytest.fixture
def log() -> Log:
    return Log()


def oldest(book: RecurrenceBook) -> int | None:
    kept = book.oldest()
    return None if kept is None else kept.physical_offset


def test_records_say_what_holds(log: Log) -> None:
    one = recurring("a")
    log.defined(one)
    log.defined(recurring("b", b"123"))
    log.progressed(further(one))
    assert [state.name for state in log.book] == ["a", "b"]
    assert log.book.get("a") == further(one)
    assert (log.book.bodies_bytes, log.book.next_offset) == (8, 3)
    log.deleted(one)
    assert log.book.get("a") is None
    assert (len(log.book), log.book.bodies_bytes) == (1, 3)


def test_progress_of_a_rule_that_was_replaced_changes_nothing(log: Log) -> None:
    one = recurring("a")
    log.defined(one)
    new = msgspec.structs.replace(one, generation=one.generation + 1)
    log.defined(new)
    log.progressed(further(one))
    assert log.book.get("a") == new


def test_what_the_log_did_not_take_is_taken_back(log: Log) -> None:
    one, two = recurring("a"), recurring("b")
    log.defined(one)
    log.defined(two)
    log.book.confirm(log.end)
    begin = log.progressed(further(one))
    log.deleted(two)
    log.defined(recurring("c"))
    assert sorted(log.book.take_back(begin)) == ["a", "b", "c"]
    assert list(log.book) == [one, two], "in the order of their definitions"
    assert (log.book.next_offset, log.book.bodies_bytes) == (2, 10)


def test_what_the_log_confirmed_stays(log: Log) -> None:
    one = recurring("a")
    log.defined(one)
    first = log.progressed(further(one))
    log.book.confirm(first + 1)
    second = log.progressed(further(further(one)))
    assert log.book.take_back(second) == ["a"]
    assert log.book.get("a") == further(one)
    assert log.book.take_back(0) == []


def test_the_oldest_definition_is_needed_until_a_newer_one_is_confirmed(log: Log) -> None:
    assert oldest(log.book) is None
    one = recurring("a")
    first = log.defined(one)
    second = log.defined(recurring("b"))
    log.book.confirm(log.end)
    assert oldest(log.book) == first
    log.defined(one)
    assert oldest(log.book) == first, "the new record may not reach the log"
    log.book.confirm(log.end)
    assert oldest(log.book) == second
    assert [kept.state.name for kept in log.book.below(second + 1)] == ["b"]
    log.deleted(recurring("b"))
    log.deleted(one)
    log.book.confirm(log.end)
    assert oldest(log.book) is None


def test_a_definition_becomes_too_old(log: Log) -> None:
    one, two = recurring("a"), recurring("b")
    log.defined(one)
    log.defined(two)
    for _ in range(limits.RECURRENCE_RECORDS_KEPT_MIN - 1):
        assert log.book.too_old() is None
        log.progressed(two)
    assert log.book.too_old() == one
    log.defined(one)
    assert log.book.too_old() == two
    log.defined(two)
    assert log.book.too_old() is None
