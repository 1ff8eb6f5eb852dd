"""Queue locks: their bound, and that expired ones make room."""

from __future__ import annotations

import pytest

from orbitmq.broker import queue_locks
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.clock import ManualClock
from orbitmq.limits.broker import QUEUE_LOCK_LIFE_NS
from orbitmq.protocol.remoting.bodies import MessageQueue


def queue(number: int, topic: str = "T") -> MessageQueue:
    return MessageQueue(topic, "broker-a", number)


@pytest.fixture(autouse=True)
def room_for_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_locks, "QUEUE_LOCKS_MAX", 3)


def test_locks_of_all_groups_share_one_bound() -> None:
    locks = QueueLocks(ManualClock())
    assert locks.lock("g1", "c", [queue(0), queue(1)], 0).queues == [queue(0), queue(1)]
    assert locks.lock("g2", "c", [queue(0), queue(1)], 0).queues == [queue(0)]
    assert locks.lock("g1", "c", [queue(0), queue(1)], 5).queues == [queue(0), queue(1)], "renewing needs no room"
    locks.unlock("g1", "c", [queue(1)])
    assert locks.lock("g3", "c", [queue(7), queue(8)], 5).queues == [queue(7)]
    locks.drop_group("g2")
    assert locks.lock("g3", "c", [queue(8), queue(9)], 5).queues == [queue(8)]


def test_expired_locks_make_room() -> None:
    locks = QueueLocks(ManualClock())
    locks.lock("g1", "c", [queue(0), queue(1)], 0)
    locks.lock("g2", "c", [queue(0)], 10)
    assert locks.lock("g3", "c", [queue(0)], QUEUE_LOCK_LIFE_NS - 1).queues == []
    assert locks.lock("g3", "c", [queue(0), queue(1), queue(2)], QUEUE_LOCK_LIFE_NS).queues == [queue(0), queue(1)]
    assert (locks.holds_any("g1", 0), locks.holds_any("g2", QUEUE_LOCK_LIFE_NS)) == (False, True)


def test_names_that_no_queue_can_have_are_not_kept() -> None:
    locks = QueueLocks(ManualClock())
    assert locks.lock("g", "c", [queue(0, "T" * 256), MessageQueue("T", "b" * 513, 0)], 0).queues == []
