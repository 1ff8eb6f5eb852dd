"""Average allocation: the reference vectors, and that every queue has exactly one owner."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.allocation import average, java_order
from orbitmq.protocol.remoting.bodies import MessageQueue

# (queues, members, result per member); produced by the reference algorithm of RocketMQ.
VECTORS = [
    (8, 1, [[0, 1, 2, 3, 4, 5, 6, 7]]),
    (8, 2, [[0, 1, 2, 3], [4, 5, 6, 7]]),
    (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
    (8, 4, [[0, 1], [2, 3], [4, 5], [6, 7]]),
    (8, 5, [[0, 1], [2, 3], [4, 5], [6], [7]]),
    (8, 8, [[0], [1], [2], [3], [4], [5], [6], [7]]),
    (8, 10, [[0], [1], [2], [3], [4], [5], [6], [7], [], []]),
    (10, 4, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
    (4, 6, [[0], [1], [2], [3], [], []]),
    (5, 2, [[0, 1, 2], [3, 4]]),
    (7, 3, [[0, 1, 2], [3, 4], [5, 6]]),
    (1, 2, [[0], []]),
]


def queues(count: int, broker: str = "b-a") -> list[MessageQueue]:
    return [MessageQueue("T", broker, number) for number in range(count)]


@pytest.mark.parametrize(("queue_count", "member_count", "expected"), VECTORS)
def test_reference_vectors(queue_count: int, member_count: int, expected: list[list[int]]) -> None:
    members = [f"10.0.0.{number:02d}@x" for number in range(1, member_count + 1)]
    shares = [
        [queue.queue_id for queue in average(member, list(reversed(members)), list(reversed(queues(queue_count))))]
        for member in members
    ]
    assert shares == expected


def test_a_member_the_broker_does_not_know_gets_nothing() -> None:
    assert average("me", ["other"], queues(4)) == []


def test_queue_ids_sort_as_numbers_and_brokers_as_text() -> None:
    mixed = [MessageQueue("T", "b-b", 0), MessageQueue("T", "b-a", 10), MessageQueue("T", "b-a", 9)]
    assert average("a", ["a"], mixed) == [mixed[2], mixed[1], mixed[0]]


def test_ids_sort_as_java_sorts_them() -> None:
    # U+1F600 is a surrogate pair in UTF-16 and sorts before U+FF01 there, though its code point is larger.
    assert sorted(["\uff01", "\U0001f600"], key=java_order) == ["\U0001f600", "\uff01"]


@given(st.integers(1, 60), st.sets(st.text(min_size=1, max_size=5), min_size=1, max_size=20))
def test_every_queue_has_exactly_one_owner_and_shares_differ_by_one(count: int, members: set[str]) -> None:
    shares = [average(member, list(members), queues(count)) for member in members]
    assert sorted(queue for share in shares for queue in share) == sorted(queues(count))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
