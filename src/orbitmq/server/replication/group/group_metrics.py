"""Metrics of a member and its group: who leads, in which epoch, who is in sync, how far the others are behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbitmq.server.replication.group.group_facts import IN_SYNC, followers_of, role_of
from orbitmq.telemetry import catalogue
from orbitmq.telemetry.metric import Family, by_label, one

if TYPE_CHECKING:
    from orbitmq.server.replication.group.broker_member import BrokerMember


class GroupMetrics:
    """The collector of one member. Costs 2 us for each other one."""

    def __init__(self, member: BrokerMember) -> None:
        self._member = member

    def __call__(self) -> Iterator[Family]:
        member = self._member
        driver, damage = member.driver, member.mending.damage
        yield by_label(catalogue.REPLICA_ROLE, [(role_of(member), 1)])
        yield one(catalogue.REPLICA_DAMAGED, len(damage.places))
        yield one(catalogue.REPLICA_MENDED, damage.mended_count)
        yield one(catalogue.REPLICA_MENDED_BYTES, damage.mended_bytes)
        yield one(catalogue.GROUP_ENGINE, int(not member.calls.trouble))
        sent = sum(sender.sent_bytes for sender in member.links.senders.values())
        yield by_label(catalogue.REPLICA_BYTES, [("in", member.port.received_bytes), ("out", sent)])
        yield one(catalogue.GROUP_REFUSED, member.port.refused)
        if driver is None:
            return
        replica = driver.replica
        yield one(catalogue.GROUP_EPOCH, replica.epoch)
        yield one(catalogue.GROUP_ELECTIONS, driver.elections)
        yield one(catalogue.GROUP_CLOCK_OFF, driver.clock_report.off_ms / 1_000)
        if replica.view is not None:
            yield one(catalogue.GROUP_IN_SYNC, len(replica.view.in_sync))
        if not member.duties.leads:
            yield one(catalogue.REPLICA_CONNECTED, int(replica.following.is_matched))
            return
        others = followers_of(member)
        yield by_label(catalogue.REPLICA_COUNTED, [(one.slave, int(one.state == IN_SYNC)) for one in others])
        yield by_label(catalogue.REPLICA_LAG_BYTES, [(one.slave, one.behind_bytes) for one in others])
        yield by_label(catalogue.REPLICA_LAG_SECONDS, [(one.slave, one.behind_millis / 1_000) for one in others])
        yield by_label(catalogue.REPLICA_ACKNOWLEDGED, [(one.slave, one.position) for one in others])
