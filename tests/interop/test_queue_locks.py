"""Queue locks of orderly consumers, asked for over the wire: what RocketMQ's broker grants, ours grants.

The same steps against either broker; the Java broker says what is right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count

import pytest
from rig.brokers import BROKER_NAME, BrokerUnderTest
from rig.wire import Wire

LOCK, UNLOCK, HEART_BEAT, UNREGISTER = 41, 42, 34, 35
TOPIC = "LockedTopic"
_numbers = count()


class Client:
    """A consumer of a group as far as its locks go."""

    def __init__(self, wire: Wire, group: str, client_id: str) -> None:
        self.wire, self.group, self.client_id = wire, group, client_id
        subscription = {"topic": TOPIC, "subString": "*", "subVersion": 1}
        consumer = {
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription],
        }  # fmt: skip
        beat = {"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": []}
        wire.call(HEART_BEAT, {}, json.dumps(beat).encode())

    def _body(self, queues: tuple[int, ...]) -> bytes:
        wanted = [{"topic": TOPIC, "brokerName": BROKER_NAME, "queueId": queue} for queue in queues]
        return json.dumps({"consumerGroup": self.group, "clientId": self.client_id, "mqSet": wanted}).encode()

    def lock(self, *queues: int) -> list[int]:
        """The queues that are this client's afterwards, of those asked for."""
        _, body = self.wire.call(LOCK, {}, self._body(queues))
        return sorted(queue["queueId"] for queue in json.loads(body)["lockOKMQSet"])

    def unlock(self, *queues: int) -> None:
        self.wire.call(UNLOCK, {}, self._body(queues))

    def leave(self) -> None:
        self.wire.call(UNREGISTER, {"clientID": self.client_id, "consumerGroup": self.group})


@pytest.fixture
def group() -> str:
    return f"LockGroup{next(_numbers)}"


@pytest.fixture
def wires(broker: BrokerUnderTest) -> Iterator[tuple[Wire, Wire]]:
    with broker.wire() as first, broker.wire() as second:
        first.create_topic(TOPIC, 4)
        yield first, second


def test_a_queue_has_one_owner_until_it_is_given_back(wires: tuple[Wire, Wire], group: str) -> None:
    a, b = Client(wires[0], group, "a"), Client(wires[1], group, "b")
    assert a.lock(0, 1) == [0, 1]
    assert b.lock(0, 1, 2) == [2]
    assert a.lock(0, 1, 2) == [0, 1]
    b.unlock(0, 1)
    assert b.lock(0, 1) == []
    a.unlock(1)
    assert b.lock(0, 1) == [1]


def test_leaving_and_a_lost_connection_free_nothing(
    broker: BrokerUnderTest, wires: tuple[Wire, Wire], group: str
) -> None:
    a, b = Client(wires[0], group, "a"), Client(wires[1], group, "b")
    assert a.lock(0, 1) == [0, 1]
    a.leave()
    assert b.lock(0) == []
    wires[0].close()
    assert b.lock(0) == []
    with broker.wire() as again:
        assert Client(again, group, "a").lock(0, 1) == [0, 1]


def test_groups_do_not_see_each_other(wires: tuple[Wire, Wire], group: str) -> None:
    assert Client(wires[0], group, "a").lock(3) == [3]
    assert Client(wires[1], group + "Other", "b").lock(3) == [3]


def test_queues_that_do_not_exist_are_locked_too(wires: tuple[Wire, Wire], group: str) -> None:
    """Locks are about names: nobody looks whether there is such a queue, or whether the client is in the group."""
    assert Client(wires[0], group, "a").lock(77) == [77]
    assert Client(wires[1], group, "b").lock(77) == []
