"""Metrics of a broker and its copies: which slaves keep up, how far behind they are, how connections ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbitmq.clock import Clock
from orbitmq.replication.classic.closing import LinkEnd
from orbitmq.replication.copies import CopyState
from orbitmq.server.replication.replica_facts import slaves_of
from orbitmq.telemetry import catalogue
from orbitmq.telemetry.metric import Family, by_label, one
from orbitmq.units import NS_PER_S

if TYPE_CHECKING:
    from orbitmq.server.replication.following import Following
    from orbitmq.server.replication.replication_role import ReplicationRole
    from orbitmq.server.replication.slave_port import SlavePort


class ReplicaMetrics:
    """The collector of one broker. Costs 2 us for each slave."""

    def __init__(self, role: ReplicationRole, clock: Clock) -> None:
        self._role = role
        self._clock = clock

    def __call__(self) -> Iterator[Family]:
        role = self._role
        yield by_label(catalogue.REPLICA_ROLE, [(role.kind.value, 1)])
        damage = role.mending.damage
        yield one(catalogue.REPLICA_DAMAGED, len(damage.places))
        yield one(catalogue.REPLICA_MENDED, damage.mended_count)
        yield one(catalogue.REPLICA_MENDED_BYTES, damage.mended_bytes)
        if role.following is not None:
            yield from self._slave(role.following)
        elif role.port is not None:
            yield from self._master(role.port)

    def _master(self, port: SlavePort) -> Iterator[Family]:
        slaves = slaves_of(port, self._clock)
        counted = CopyState.COUNTED.value
        yield one(catalogue.REPLICA_COPIES_NEEDED, port.gate.copies.rule.needed)
        yield one(catalogue.REPLICA_COPIES_MISSING, port.gate.copies.missing)
        yield by_label(catalogue.REPLICA_COUNTED, [(slave.slave, int(slave.state == counted)) for slave in slaves])
        yield by_label(catalogue.REPLICA_LAG_BYTES, [(slave.slave, slave.behind_bytes) for slave in slaves])
        yield by_label(catalogue.REPLICA_LAG_SECONDS, [(slave.slave, slave.behind_millis / 1_000) for slave in slaves])
        yield by_label(catalogue.REPLICA_ACKNOWLEDGED, [(slave.slave, slave.position) for slave in slaves])
        yield from _traffic(port.ends, port.received_bytes, port.sent_bytes)

    def _slave(self, following: Following) -> Iterator[Family]:
        yield one(catalogue.REPLICA_CONNECTED, int(following.is_connected))
        if following.last_read_ns:
            silence_ns = self._clock.monotonic_ns() - following.last_read_ns
            yield one(catalogue.REPLICA_SILENCE, silence_ns / NS_PER_S)
        yield from _traffic(following.ends, following.received_bytes, following.sent_bytes)


def _traffic(ends: dict[LinkEnd, int], received: int, sent: int) -> Iterator[Family]:
    yield by_label(catalogue.REPLICA_ENDS, [(why.value, count) for why, count in ends.items()])
    yield by_label(catalogue.REPLICA_BYTES, [("in", received), ("out", sent)])
