"""Sharing queues among members: the vectors of the reference algorithms, and that every queue has exactly one owner."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.consuming.allocation import (
    AllocateAverage,
    AllocateCircle,
    AllocateConsistentHash,
    AllocateFixed,
    AllocateMachineRoom,
    AllocateNearby,
    Strategy,
    java_order,
    ring_hash,
    share,
)
from orbitmq.errors import ClientError, ConfigurationError
from orbitmq.protocol.remoting.bodies import MessageQueue

# Per strategy: (queues, members, queues of each member), produced by running RocketMQ's own algorithms.
AVERAGE = [
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
CIRCLE = [
    (8, 2, [[0, 2, 4, 6], [1, 3, 5, 7]]),
    (8, 3, [[0, 3, 6], [1, 4, 7], [2, 5]]),
    (8, 4, [[0, 4], [1, 5], [2, 6], [3, 7]]),
    (8, 5, [[0, 5], [1, 6], [2, 7], [3], [4]]),
    (10, 4, [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]),
    (4, 6, [[0], [1], [2], [3], [], []]),
    (7, 3, [[0, 3, 6], [1, 4], [2, 5]]),
]
CONSISTENT_HASH = [
    (8, 1, [[0, 1, 2, 3, 4, 5, 6, 7]]),
    (8, 2, [[0, 3, 5, 6], [1, 2, 4, 7]]),
    (8, 3, [[3, 5, 6], [2, 4, 7], [0, 1]]),
    (8, 4, [[3, 5, 6], [7], [1], [0, 2, 4]]),
    (8, 5, [[5, 6], [7], [1], [0, 2, 4], [3]]),
    (8, 8, [[5], [], [1], [0, 2, 4], [], [6, 7], [3], []]),
    (8, 10, [[5], [], [], [0, 2], [], [6, 7], [], [], [1, 3, 4], []]),
    (10, 4, [[3, 5, 6, 8], [7], [1], [0, 2, 4, 9]]),
    (4, 6, [[], [], [1], [0, 2], [3], []]),
    (5, 2, [[0, 3], [1, 2, 4]]),
    (1, 2, [[0], []]),
]
VECTORS: list[tuple[Strategy, int, int, list[list[int]]]] = [
    *((AllocateAverage(), *vector) for vector in AVERAGE),
    *((AllocateCircle(), *vector) for vector in CIRCLE),
    *((AllocateConsistentHash(), *vector) for vector in CONSISTENT_HASH),
]


def queues(*brokers: tuple[str, int], topic: str = "TopicTest") -> list[MessageQueue]:
    return [MessageQueue(topic, broker, number) for broker, count in brokers for number in range(count)]


def members(count: int) -> list[str]:
    return [f"CID-{number}" for number in range(count)]


def shares(strategy: Strategy, ids: Sequence[str], all_queues: list[MessageQueue]) -> list[list[int]]:
    """What each of `ids` takes, as positions in the sorted queues; the inputs come in the wrong order."""
    return [
        [all_queues.index(queue) for queue in share(strategy, own, list(reversed(ids)), list(reversed(all_queues)))]
        for own in ids
    ]


@pytest.mark.parametrize(("strategy", "queue_count", "member_count", "expected"), VECTORS)
def test_reference_vectors(strategy: Strategy, queue_count: int, member_count: int, expected: list[list[int]]) -> None:
    assert shares(strategy, members(member_count), queues(("broker-a", queue_count))) == expected


def test_places_on_the_hash_ring() -> None:
    places = {
        "CID-0-0": 0x71479AF9,
        "CID-1-0": 0x4229C993,
        "CID-2-9": 0xAFF615BB,
        "MessageQueue [topic=TopicTest, brokerName=broker-a, queueId=0]": 0x767D59FC,
        "MessageQueue [topic=TopicTest, brokerName=broker-a, queueId=1]": 0xFFC8CD39,
    }
    assert {text: ring_hash(text) for text in places} == places


@pytest.mark.parametrize(
    ("ids", "virtual_nodes_count", "expected"),
    [
        (members(3), 10, [[3, 4, 6], [2, 5, 7], [0, 1]]),
        (["10.0.0.1@100#1", "10.0.0.2@200#2", "10.0.0.3@300#3"], 10, [[0, 1, 2, 6, 7], [4, 5], [3]]),
        (members(3), 3, [[4], [1, 2, 3, 5, 6, 7], [0]]),
    ],
)
def test_the_hash_ring_over_two_brokers(ids: list[str], virtual_nodes_count: int, expected: list[list[int]]) -> None:
    two = queues(("broker-a", 4), ("broker-b", 4))
    assert shares(AllocateConsistentHash(virtual_nodes_count), ids, two) == expected


@pytest.mark.parametrize(
    ("member_count", "expected"),
    [
        (3, [[4, 5, 14], [6, 7, 15], [12, 13]]),
        (5, [[4, 13], [5, 14], [6, 15], [7], [12]]),
        (10, [[4], [5], [6], [7], [12], [13], [14], [15], [], []]),
    ],
)
def test_machine_rooms(member_count: int, expected: list[list[int]]) -> None:
    rooms = queues(("broker-d", 4), ("room1@broker-a", 4), ("room2@broker-b", 4), ("room3@broker-c", 4))
    strategy = AllocateMachineRoom(frozenset({"room1", "room3"}))
    assert [sorted(each) for each in shares(strategy, members(member_count), rooms)] == expected


def room(name: str) -> str:
    return name.split("-")[0]


@pytest.mark.parametrize(
    ("ids", "inner", "expected"),
    [
        (["IDC1-c0", "IDC1-c1", "IDC2-c0"], AllocateAverage(), [[0, 1, 8, 9], [2, 3, 10], [4, 5, 6, 7, 11]]),
        (
            ["IDC1-c0", "IDC1-c1", "IDC2-c0", "IDC3-c0"],
            AllocateAverage(),
            [[0, 1], [2, 3], [4, 5, 6, 7], [8, 9, 10, 11]],
        ),
        (["IDC1-c0"], AllocateAverage(), [list(range(12))]),
        (["IDC4-c0", "IDC1-c0"], AllocateAverage(), [[4, 5, 8, 9], [0, 1, 2, 3, 6, 7, 10, 11]]),
        (["IDC1-c0", "IDC1-c1", "IDC2-c0"], AllocateCircle(), [[0, 2, 8, 11], [1, 3, 9], [4, 5, 6, 7, 10]]),
    ],
)
def test_the_nearest_room(ids: list[str], inner: Strategy, expected: list[list[int]]) -> None:
    three = queues(("IDC1-broker", 4), ("IDC2-broker", 4), ("IDC3-broker", 4))
    strategy = AllocateNearby(lambda queue: room(queue.broker_name), room, inner)
    # One vector gives the members unsorted: call the strategy itself, which takes them in the order given.
    assert [sorted(map(three.index, strategy(own, ids, three))) for own in ids] == expected


def test_a_fixed_list_whoever_else_is_there() -> None:
    four = queues(("broker-a", 4))
    strategy = AllocateFixed((four[1], four[3], MessageQueue("other", "broker-a", 0)))
    assert shares(strategy, members(3), four) == [[1, 3]] * 3


def test_someone_the_broker_does_not_know_gets_nothing() -> None:
    assert share(AllocateFixed(tuple(queues(("b", 1)))), "me", ["you"], queues(("b", 1))) == []
    assert share(AllocateAverage(), "me", ["me"], []) == []


def test_a_program_may_bring_its_own_strategy() -> None:
    def last(own_id: str, member_ids: Sequence[str], queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        assert list(member_ids) == sorted(member_ids)
        return queues[-1:] if own_id == member_ids[0] else []

    assert shares(last, members(2), queues(("b", 3))) == [[2], []]


@pytest.mark.parametrize(
    "broken",
    [
        lambda own, ids, queues: 1 / 0,
        lambda own, ids, queues: None,
        lambda own, ids, queues: [MessageQueue("T", "nowhere", 0)],
        AllocateNearby(lambda queue: "", lambda member: "r"),
        AllocateNearby(lambda queue: "r", lambda member: ""),
    ],
)
def test_a_strategy_that_fails_says_so(broken: Strategy) -> None:
    with pytest.raises(ClientError, match="strategy"):
        share(broken, "me", ["me"], queues(("b", 2)))


@pytest.mark.parametrize("count", [0, -1, 100_000])
def test_a_ring_without_places_is_refused(count: int) -> None:
    with pytest.raises(ConfigurationError, match="virtual_nodes_count"):
        AllocateConsistentHash(count)


def test_java_orders_by_utf16_unit() -> None:
    assert sorted(["\U0001f600", "￿"], key=java_order) == ["\U0001f600", "￿"]
    assert sorted(["10.0.0.9@1", "10.0.0.10@1", "10.0.0.9@#"], key=java_order) == [
        "10.0.0.10@1",
        "10.0.0.9@#",
        "10.0.0.9@1",
    ]


@given(
    st.sampled_from([AllocateAverage(), AllocateCircle(), AllocateConsistentHash(), AllocateConsistentHash(1)]),
    st.integers(0, 40),
    st.lists(st.text(max_size=4), min_size=1, max_size=12, unique=True),
)
def test_every_queue_has_exactly_one_owner(strategy: Strategy, queue_count: int, ids: list[str]) -> None:
    all_queues = queues(("b-a", queue_count), ("b-b", queue_count // 2))
    owned = [queue for member in ids for queue in share(strategy, member, ids, all_queues)]
    assert sorted(owned) == sorted(all_queues)
