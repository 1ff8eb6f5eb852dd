"""Waiting for the disk: everybody is told once, in order, and nobody is told OK after a failed sync."""

from __future__ import annotations

from orbitmq.store.durability import Durability, PutStatus


def waiting(*ends: int, deadline_ns: int = 100) -> tuple[Durability, list[tuple[int, PutStatus]]]:
    durability, told = Durability(), []
    for end in ends:
        durability.wait(end, deadline_ns + end, lambda status, end=end: told.append((end, status)))  # type: ignore[misc]
    return durability, told


def test_those_are_told_whose_records_are_synced() -> None:
    durability, told = waiting(30, 10, 20)
    durability.synced(20)
    assert told == [(10, PutStatus.PUT_OK), (20, PutStatus.PUT_OK)]
    durability.synced(29)
    assert len(durability) == 1
    durability.synced(30)
    assert told[-1] == (30, PutStatus.PUT_OK)


def test_a_timeout_is_its_own_answer_and_the_only_one() -> None:
    durability, told = waiting(10, 20)
    assert durability.next_deadline_ns == 110
    durability.expire(109)
    assert told == []
    durability.expire(110)
    assert told == [(10, PutStatus.FLUSH_DISK_TIMEOUT)]
    assert durability.next_deadline_ns == 120
    durability.synced(1_000)
    assert told[1:] == [(20, PutStatus.PUT_OK)]
    assert durability.next_deadline_ns is None


def test_after_a_failed_sync_nothing_is_promised() -> None:
    durability, told = waiting(20, 10)
    durability.fail()
    assert told == [(10, PutStatus.SERVICE_NOT_AVAILABLE), (20, PutStatus.SERVICE_NOT_AVAILABLE)]
    durability.wait(5, 0, lambda status: told.append((5, status)))
    durability.synced(1_000)
    assert told[2:] == [(5, PutStatus.SERVICE_NOT_AVAILABLE)]
