"""Priorities over gRPC: a message lies in the queue of its priority, and the most urgent one is received first."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.messaging.conftest import FrontRig
from tests.worlds.grpc_consumers import GrpcConsumer

from orbitmq.broker.message_types import MESSAGE_TYPE
from orbitmq.protocol.grpc.messages import (
    Code,
    Message,
    MessageType,
    QueryRouteRequest,
    QueryRouteResponse,
    Resource,
    SendMessageRequest,
    SendMessageResponse,
    SystemProperties,
)
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.remoting.bodies import TopicConfig

QUEUES = 4


@pytest.fixture
def rig(front_rig: FrontRig) -> FrontRig:
    for name, taken in (("T", "PRIORITY"), ("Normal", "NORMAL")):
        config = TopicConfig(topic_name=name, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        front_rig.broker.topics.put(config, {f"+{MESSAGE_TYPE}": taken})
    return front_rig


def send(rig: FrontRig, body: bytes, topic: str = "T", **system: Any) -> int:
    """The code."""
    named = {"message_id": body.decode(), "message_type": MessageType.PRIORITY, **system}
    message = Message(topic=Resource(name=topic), body=body, system_properties=SystemProperties(**named))
    answer = rig.client().call(Rpc.SEND_MESSAGE, SendMessageRequest(messages=[message]), SendMessageResponse)
    code: int = answer.status.code
    return code


def test_producers_are_told_that_the_topic_takes_priorities(rig: FrontRig) -> None:
    answer = rig.client().call(Rpc.QUERY_ROUTE, QueryRouteRequest(topic=Resource(name="T")), QueryRouteResponse)
    assert [list(queue.accept_message_types) for queue in answer.message_queues] == [[MessageType.PRIORITY]] * QUEUES


@pytest.mark.parametrize(("priority", "queue_id"), [(0, 0), (2, 2), (3, 3), (99, 3), (2**31 - 1, 3)])
def test_a_priority_chooses_the_queue(rig: FrontRig, priority: int, queue_id: int) -> None:
    assert send(rig, b"a", priority=priority) == Code.OK
    (found,) = rig.records("T", queue_id)
    assert decode_properties(found.properties)[Property.PRIORITY] == str(priority)


def test_the_most_urgent_message_is_received_first_and_says_its_priority(rig: FrontRig) -> None:
    for priority in (1, 3, 0, 2):
        assert send(rig, str(priority).encode(), priority=priority) == Code.OK
    messages = GrpcConsumer(rig.client()).receive().messages
    assert [message.system_properties.priority for message in messages] == [3, 2, 1, 0]
    assert {message.system_properties.message_type for message in messages} == {MessageType.PRIORITY}


def test_types_are_told_apart(rig: FrontRig) -> None:
    assert send(rig, b"urgent", "Normal", priority=1) == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert send(rig, b"plain") == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert send(rig, b"in order", priority=1, message_group="g") == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


def test_a_priority_below_the_lowest_is_any(rig: FrontRig) -> None:
    rig.chosen_queue = 2
    assert send(rig, b"a", priority=-1) == Code.OK
    assert len(rig.records("T", 2)) == 1
