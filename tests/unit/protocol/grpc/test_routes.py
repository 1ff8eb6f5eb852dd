"""Routes and assignments: the queues that clients see."""

from __future__ import annotations

import pytest

from orbitmq.protocol.grpc.messages import AddressScheme, Broker, MessageType, Permission, Resource
from orbitmq.protocol.grpc.routes import (
    ANY_QUEUE,
    BrokerQueues,
    accepted_types,
    assignments,
    endpoints_of,
    routed_queues,
)
from orbitmq.protocol.names import Perm

TOPIC = Resource(resource_namespace="ns", name="Orders")
BROKER = Broker(name="broker-a", id=0, endpoints=endpoints_of("10.0.0.1", 8081))
SLAVE = Broker(name="broker-a", id=1, endpoints=endpoints_of("10.0.0.2", 8081))
R, W, RW, NO = Permission.READ, Permission.WRITE, Permission.READ_WRITE, Permission.NONE


@pytest.mark.parametrize(
    ("read", "write", "perm", "expected"),
    [
        (2, 2, Perm.READ | Perm.WRITE, [RW, RW]),
        (3, 1, Perm.READ | Perm.WRITE | Perm.INHERIT, [R, R, RW]),
        (1, 3, Perm.READ | Perm.WRITE, [W, W, RW]),
        (2, 1, Perm.WRITE, [W]),
        (2, 1, Perm.READ, [R, R]),
        (0, 0, 0, [NO]),
        (2, 3, 0, [NO, NO, NO]),
        (0, 0, Perm.READ, []),
    ],
)
def test_permissions_of_queues(read: int, write: int, perm: int, expected: list[Permission]) -> None:
    queues = routed_queues(TOPIC, [BrokerQueues(BROKER, read, write, perm)], [MessageType.NORMAL])
    assert [queue.permission for queue in queues] == expected
    assert [queue.id for queue in queues] == list(range(len(expected)))
    for queue in queues:
        assert (queue.topic, queue.broker, list(queue.accept_message_types)) == (TOPIC, BROKER, [MessageType.NORMAL])


def test_numbers_begin_anew_for_each_broker() -> None:
    both = [BrokerQueues(BROKER, 2, 2, 6), BrokerQueues(SLAVE, 2, 2, 6)]
    assert [(queue.broker.id, queue.id) for queue in routed_queues(TOPIC, both, [])] == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ("NORMAL", [MessageType.NORMAL]),
        ("PRIORITY", [MessageType.PRIORITY]),
        ("MIXED", [MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION]),
        ("FOREIGN", [MessageType.MESSAGE_TYPE_UNSPECIFIED]),
        ("", [MessageType.MESSAGE_TYPE_UNSPECIFIED]),
    ],
)
def test_types_that_a_topic_takes(taken: str, expected: list[MessageType]) -> None:
    assert accepted_types(taken) == expected


def test_a_group_gets_brokers_and_an_orderly_one_their_queues() -> None:
    brokers = [BrokerQueues(BROKER, 3, 1, Perm.READ), BrokerQueues(SLAVE, 3, 1, Perm.READ)]
    (one,) = assignments(TOPIC, brokers, is_orderly=False)
    assert (one.message_queue.id, one.message_queue.broker, one.message_queue.topic) == (ANY_QUEUE, BROKER, TOPIC)
    found = assignments(TOPIC, brokers, is_orderly=True)
    assert [(each.message_queue.broker.id, each.message_queue.id) for each in found] == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize(
    "queues", [BrokerQueues(BROKER, 3, 3, Perm.WRITE), BrokerQueues(BROKER, 0, 3, Perm.READ | Perm.WRITE)]
)
def test_nothing_to_read_is_no_assignment(queues: BrokerQueues) -> None:
    assert assignments(TOPIC, [queues], is_orderly=False) == []


@pytest.mark.parametrize(
    ("host", "scheme"),
    [("10.0.0.1", AddressScheme.IPv4), ("::1", AddressScheme.IPv6), ("broker.example", AddressScheme.DOMAIN_NAME)],
)
def test_schemes_of_addresses(host: str, scheme: AddressScheme) -> None:
    endpoints = endpoints_of(host, 8081)
    assert (endpoints.scheme, endpoints.addresses[0].host, endpoints.addresses[0].port) == (scheme, host, 8081)
