"""The settings of replication: what a broker is to its copies. The keys are RocketMQ's.

Rules of this file
1. A plain value object: it reads no file and no environment. Loading, bounds and key names belong to the server.
2. RocketMQ 5's numbers of copies count the master's own, RocketMQ 4 has none: a synchronous master with one replica in all waits for any
   slave, as with RocketMQ 4. (RocketMQ 5 would wait for none, and say nothing.)
"""

from __future__ import annotations

import enum
from ipaddress import IPv4Network, IPv6Network

import msgspec

from orbitmq.errors import ConfigurationError
from orbitmq.limits.engine import ENGINE_QUESTION_MS
from orbitmq.limits.replication import (
    COPY_BEHIND_BYTES_MAX,
    COPY_TIMEOUT_MS,
    LINK_HEARTBEAT_MS,
    LINK_RATE_BYTES_PER_S,
    LINK_SILENCE_MS,
    TRANSFER_BATCH_BYTES,
)
from orbitmq.replication.acknowledgements import CopyRule, one_slave_rule, quorum_rule
from orbitmq.replication.classic.link_settings import LinkSettings
from orbitmq.replication.engine_address import EngineAddress


class BrokerKind(enum.Enum):
    """What `brokerRole` says. The values are RocketMQ's."""

    ASYNC_MASTER = "ASYNC_MASTER"
    """A send is answered without asking slaves."""

    SYNC_MASTER = "SYNC_MASTER"
    """A send is answered when slaves have the message."""

    SLAVE = "SLAVE"
    """It copies the log of a master, and takes no messages."""


class ReplicationAck(enum.Enum):
    """When a member of a replicated group says that it has something."""

    DISK = "disk"
    """When a sync has covered it."""

    MEMORY = "memory"
    """When it is written: a power failure of all members of the set may take it."""


class ReplicationSettings(msgspec.Struct, frozen=True, kw_only=True):
    kind: BrokerKind = BrokerKind.ASYNC_MASTER
    listens: bool = True
    """Open the port for slaves."""

    listen_port: int = 0
    """For slaves; 0 is the main port + 1, as RocketMQ's default."""

    master_addresses: tuple[str, ...] = ()
    """`host:port` that a slave follows, at most one; without one it is what a name server says."""

    heartbeat_ms: int = LINK_HEARTBEAT_MS
    silence_ms: int = LINK_SILENCE_MS
    batch_bytes: int = TRANSFER_BATCH_BYTES
    limits_rate: bool = False
    rate_bytes_per_s: int = LINK_RATE_BYTES_PER_S
    peers: tuple[IPv4Network | IPv6Network, ...] = ()
    """Where slaves may come from; where callers have to prove who they are, none comes from elsewhere."""

    total_replicas: int = 1
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    lowers: bool = False
    waits_for_all: bool = False
    behind_bytes_max: int = COPY_BEHIND_BYTES_MAX
    timeout_ms: int = COPY_TIMEOUT_MS
    replica_name: str = ""
    """Of this member of a replicated group, whose name is brokerName; empty where it is no member of any."""

    ack: ReplicationAck = ReplicationAck.DISK
    refuses: bool = False
    """With too few copies nothing is written, instead of written and answered with a warning. At a slave: from when it is a synchronous
    master on."""

    engine: EngineAddress | None = None
    """Of a replicated group: what keeps its view."""

    engine_password_file: str = ""
    engine_question_ms: int = ENGINE_QUESTION_MS

    def link(self) -> LinkSettings:
        """ValueError where the values do not go together."""
        return LinkSettings(
            batch_bytes=self.batch_bytes,
            limits_rate=self.limits_rate,
            rate_bytes_per_s=self.rate_bytes_per_s,
            heartbeat_ms=self.heartbeat_ms,
            silence_ms=self.silence_ms,
        )

    def rule(self) -> CopyRule:
        """What sends wait for. ValueError where the numbers do not go together."""
        if self.kind is not BrokerKind.SYNC_MASTER:
            return CopyRule(behind_bytes_max=self.behind_bytes_max)
        if self.total_replicas == 1 and self.in_sync_replicas == 1:
            return one_slave_rule(behind_bytes_max=self.behind_bytes_max, refuses=self.refuses)
        return quorum_rule(
            total_replicas=self.total_replicas,
            in_sync_replicas=self.in_sync_replicas,
            min_in_sync_replicas=self.min_in_sync_replicas,
            lowers=self.lowers,
            waits_for_all=self.waits_for_all,
            max_gap_bytes=self.behind_bytes_max,
            refuses=self.refuses,
        )

    @property
    def unheeded(self) -> str:
        """Which keys ask for copies and are not heeded, because an asynchronous master waits for none; empty where there are none."""
        if self.kind is not BrokerKind.ASYNC_MASTER:
            return ""
        asked = (("inSyncReplicas", self.in_sync_replicas), ("minInSyncReplicas", self.min_in_sync_replicas))
        return ", ".join(f"{name} = {count}" for name, count in asked if count > 1)

    @property
    def confirms_alone(self) -> bool:
        """Whether what a start finds behind the confirmed offset may count without a word of a copy."""
        return not (self.is_member or (self.refuses and self.kind is BrokerKind.SYNC_MASTER))

    @property
    def is_member(self) -> bool:
        """Of a replicated group."""
        return self.engine is not None

    def as_kind(self, kind: BrokerKind) -> ReplicationSettings:
        """The same with another role."""
        return msgspec.structs.replace(self, kind=kind)

    def _check_member(self, broker_id: int) -> None:
        if self.is_member and not self.replica_name:
            raise ConfigurationError(
                "replicationEngine is set, and replicaName is not",
                remedy="give each member of the group a name of its own, which it keeps: replicaName",
            )
        if not self.is_member:
            if self.replica_name or self.ack is not ReplicationAck.DISK:
                raise ConfigurationError(
                    "replicaName and replicationAck are of a replicated group, and replicationEngine is not set",
                    remedy="name the engine, or remove them",
                )
            return
        pair = {
            "brokerRole": self.kind is not BrokerKind.ASYNC_MASTER,
            "brokerId": broker_id != 0,
            "haMasterAddress": bool(self.master_addresses),
            "haEnable": not self.listens,
            "refuseWithoutCopies": self.refuses,
            "totalReplicas": self.total_replicas > 1,
            "inSyncReplicas": self.in_sync_replicas > 1,
            "minInSyncReplicas": self.min_in_sync_replicas > 1,
        }
        if given := ", ".join(name for name, is_given in pair.items() if is_given):
            raise ConfigurationError(
                f"{given}: these are of a master and its slaves, and replicationEngine makes this broker a member of a replicated group",
                remedy="remove them: a group chooses its leader, and waits for all that are in sync",
            )

    def check(self, broker_id: int) -> None:
        """Raises ConfigurationError where the values do not go together."""
        self._check_member(broker_id)
        if self.kind is BrokerKind.SLAVE and broker_id < 1:
            raise ConfigurationError(
                f"brokerRole = SLAVE and brokerId = {broker_id}",
                remedy="give each slave of a group a brokerId of its own, from 1",
            )
        if self.kind is not BrokerKind.SLAVE and broker_id != 0:
            raise ConfigurationError(
                f"brokerRole = {self.kind.value} and brokerId = {broker_id}",
                remedy="a master has brokerId 0; give brokerRole = SLAVE to a broker that copies another one",
            )
        if self.refuses and self.kind is BrokerKind.ASYNC_MASTER:
            raise ConfigurationError(
                "refuseWithoutCopies = true and brokerRole = ASYNC_MASTER", remedy="give brokerRole = SYNC_MASTER"
            )
        if len(self.master_addresses) > 1:
            raise ConfigurationError(
                f"haMasterAddress = {';'.join(self.master_addresses)}",
                remedy="a slave has one master: give its address",
            )
        try:
            self.link()
            self.rule()
        except ValueError as error:
            raise ConfigurationError(f"the settings of replication do not go together: {error}") from error
