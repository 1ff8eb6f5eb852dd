"""Names by which brokers know a client.

A client id is `<ip>@<instance>[@<unit>]`. Two members of a consumer group must never share one: the broker lists ids,
and both would be given the same queues. Hence the instance defaults to process id and nanoseconds, as in RocketMQ.
"""

from __future__ import annotations

import os
import socket
from typing import Final

from orbitmq.clock import SystemClock

DEFAULT_INSTANCE: Final = "DEFAULT"
"""Instance of a client that must have the same id after each start: a broadcasting consumer, as in RocketMQ."""


def client_id(ip: str, instance_name: str | None, unit_name: str | None) -> str:
    """`instance_name` None draws one that no other client of this machine has."""
    instance = instance_name if instance_name is not None else f"{os.getpid()}#{SystemClock().monotonic_ns()}"
    parts = [ip, instance]
    if unit_name:
        parts.append(unit_name)
    return "@".join(parts)


def local_ip() -> str:
    """An address of this machine: of the interface towards the outside if there is one, else loopback.

    No packet is sent; connecting a datagram socket only asks the routing table.
    """
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                address = probe.getsockname()[0]
        except OSError:
            continue  # no route of this family; the next one, or loopback, serves as well
        if isinstance(address, str) and address:
            return address.partition("%")[0]
    return "127.0.0.1"
