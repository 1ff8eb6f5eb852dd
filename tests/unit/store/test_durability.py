"""Waiting for disk and copies: everybody is told once, in order, and nobody is told OK after a failed sync."""

from __future__ import annotations

from orbitmq.store.durability import PutStatus, Waiters, worst_of


def waiting(*ends: int, deadline_ns: int = 100) -> tuple[Waiters, list[tuple[int, PutStatus]]]:
    waiters, told = Waiters(), []
    for end in ends:
        waiters.wait(end, deadline_ns + end, lambda status, end=end: told.append((end, status)))  # type: ignore[misc]
    return waiters, told


def test_those_are_told_whose_records_are_synced() -> None:
    waiters, told = waiting(30, 10, 20)
    waiters.confirmed(20)
    assert told == [(10, PutStatus.PUT_OK), (20, PutStatus.PUT_OK)]
    waiters.confirmed(29)
    assert len(waiters) == 1
    waiters.confirmed(30)
    assert told[-1] == (30, PutStatus.PUT_OK)


def test_a_timeout_is_its_own_answer_and_the_only_one() -> None:
    waiters, told = waiting(10, 20)
    assert waiters.next_deadline_ns == 110
    waiters.expire(109, 0)
    assert told == []
    waiters.expire(110, 0)
    assert told == [(10, PutStatus.FLUSH_DISK_TIMEOUT)]
    assert waiters.next_deadline_ns == 120
    waiters.confirmed(1_000)
    assert told[1:] == [(20, PutStatus.PUT_OK)]
    assert waiters.next_deadline_ns is None


def test_after_a_failed_sync_nothing_is_promised() -> None:
    waiters, told = waiting(20, 10)
    waiters.fail()
    assert told == [(10, PutStatus.SERVICE_NOT_AVAILABLE), (20, PutStatus.SERVICE_NOT_AVAILABLE)]
    waiters.wait(5, 0, lambda status: told.append((5, status)))
    waiters.confirmed(1_000)
    assert told[2:] == [(5, PutStatus.SERVICE_NOT_AVAILABLE)]


def test_who_waits_for_copies_alone_is_not_late_at_the_disk() -> None:
    waiters, told = waiting(10, 20)
    waiters.expire(500, synced_end=10)
    assert told == [(20, PutStatus.FLUSH_DISK_TIMEOUT)]
    assert waiters.next_deadline_ns is None
    waiters.copies_failed(PutStatus.FLUSH_SLAVE_TIMEOUT, beyond=9)
    waiters.confirmed(10)
    assert told[1:] == [(10, PutStatus.FLUSH_SLAVE_TIMEOUT)]


def test_what_the_copies_failed_in_is_told_when_the_disk_has_the_record() -> None:
    waiters, told = waiting(10, 20)
    waiters.copies_failed(PutStatus.SLAVE_NOT_AVAILABLE, beyond=10)
    assert told == []
    waiters.confirmed(20)
    assert told == [(10, PutStatus.PUT_OK), (20, PutStatus.SLAVE_NOT_AVAILABLE)]


def test_who_waits_behind_a_cut_is_told_so_and_nobody_else() -> None:
    waiters, told = waiting(30, 10, 20)
    waiters.give_up(PutStatus.UNKNOWN, beyond=10)
    assert told == [(20, PutStatus.UNKNOWN), (30, PutStatus.UNKNOWN)]
    waiters.confirmed(30)
    assert told[2:] == [(10, PutStatus.PUT_OK)]


def test_the_worst_of_several_is_what_promises_least() -> None:
    assert worst_of([PutStatus.PUT_OK, PutStatus.UNKNOWN, PutStatus.FLUSH_DISK_TIMEOUT]) is PutStatus.UNKNOWN
    assert worst_of([PutStatus.SLAVE_NOT_AVAILABLE, PutStatus.FLUSH_DISK_TIMEOUT]) is PutStatus.FLUSH_DISK_TIMEOUT
    assert [status for status in PutStatus if not status.is_kept] == [
        PutStatus.UNKNOWN,
        PutStatus.SERVICE_NOT_AVAILABLE,
    ]
