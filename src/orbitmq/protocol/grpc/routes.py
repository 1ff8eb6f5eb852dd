"""Routes and assignments: the queues of a topic as clients of gRPC see them.

Rules of this file
1. The numbers of queues run from 0 for each broker: those that can only be read, those that can only be written, then both. They are names
   for clients; servers look at none of them.
2. Every consumer of a group gets every queue: consumers share by popping.

Source: RocketMQ gRPC, QueryRoute and QueryAssignment.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from orbitmq.limits.grpc import ENDPOINTS_BYTES_MAX
from orbitmq.protocol.grpc import messages
from orbitmq.protocol.grpc.messages import (
    Address,
    AddressScheme,
    Assignment,
    Endpoints,
    MessageQueue,
    Permission,
    Resource,
)
from orbitmq.protocol.message_types import MessageType
from orbitmq.protocol.names import Perm

ANY_QUEUE: Final = -1
"""Number of the queue in an assignment that stands for all queues of a broker."""

_MIXED: Final = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)


class BrokerQueues(NamedTuple):
    """What a topic has on one broker. `perm` is that of the topic; what is not READ or WRITE in it counts nothing here."""

    broker: messages.Broker
    read_count: int
    write_count: int
    perm: int


def accepted_types(taken: str) -> list[int]:
    """What a topic takes, by its attribute `message.type`; UNSPECIFIED for a word that nobody knows."""
    names = _MIXED if taken == MessageType.MIXED else (taken,)
    known = messages.MessageType.__members__
    return [known.get(name, messages.MessageType.MESSAGE_TYPE_UNSPECIFIED) for name in names]


def routed_queues(topic: Resource, brokers: Iterable[BrokerQueues], types: Sequence[int]) -> list[MessageQueue]:
    """All queues of a topic. `types`: see `accepted_types`."""
    queues = []
    for broker, read_count, write_count, perm in brokers:
        for queue_id, permission in enumerate(_permissions(read_count, write_count, perm)):
            queues.append(
                MessageQueue(topic=topic, id=queue_id, permission=permission, broker=broker, accept_message_types=types)
            )
    return queues


def assignments(topic: Resource, brokers: Iterable[BrokerQueues], *, is_orderly: bool) -> list[Assignment]:
    """What a consumer pops: of each broker that can be read all queues at once, or one by one for a group that consumes in order.

    Empty where nothing can be read.
    """
    found = []
    for broker, read_count, _, perm in brokers:
        permission = Permission.READ_WRITE if perm & Perm.WRITE else Permission.READ
        if broker.id == 0 and perm & Perm.READ and read_count > 0:
            for queue_id in range(read_count) if is_orderly else (ANY_QUEUE,):
                queue = MessageQueue(topic=topic, id=queue_id, permission=permission, broker=broker)
                found.append(Assignment(message_queue=queue))
    return found


def endpoints_of(host: str, port: int) -> Endpoints:
    """An address in the form that clients dial. `host`: an address, IPv6 without brackets, or a name."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        scheme = AddressScheme.DOMAIN_NAME
    else:
        scheme = AddressScheme.IPv4 if version == 4 else AddressScheme.IPv6
    return Endpoints(scheme=scheme, addresses=[Address(host=host, port=port)])


def endpoints_at(text: str) -> Endpoints | None:
    """The same of `host:port`, an IPv6 address in brackets; None for a text that is none, or is too long."""
    host, _, port = text.rpartition(":")
    if len(text) > ENDPOINTS_BYTES_MAX or not host or not (port.isascii() and port.isdigit()):
        return None
    if not 0 < int(port) < 65_536:
        return None
    return endpoints_of(host.removeprefix("[").removesuffix("]"), int(port))


def _permissions(read_count: int, write_count: int, perm: int) -> list[Permission]:
    """What may be done with each queue of one broker."""
    can_read, can_write = bool(perm & Perm.READ), bool(perm & Perm.WRITE)
    if can_read and can_write:
        both = min(read_count, write_count)
        return (
            [Permission.READ] * (read_count - both)
            + [Permission.WRITE] * (write_count - both)
            + [Permission.READ_WRITE] * both
        )
    if can_write:
        return [Permission.WRITE] * write_count
    if can_read:
        return [Permission.READ] * read_count
    return [Permission.NONE] * max(1, read_count, write_count)
