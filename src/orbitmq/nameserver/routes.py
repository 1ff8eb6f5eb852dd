"""The route registry: which brokers live, in which groups and clusters, and which topics they carry.

A *group* is one broker name: a master (id 0) and its slaves. Topics belong to groups. A broker is alive as long as
it registers in time or its connection stands; when it goes, its address goes, and with the last address of a group
its topics.

Rules of this file
1. Pure state: no sockets, no clock, no JSON. Time comes as monotonic nanoseconds, a connection as an opaque owner.
2. A registration is judged completely before anything is changed; a refused one leaves no trace.
3. Topics come from the master, or, where no master is registered, from the smallest id of a group whose brokers
   know acting masters (the prime slave). Other slaves only add their address.
4. Registrations add and update. What a broker stops listing stays until it is deleted, unless asked otherwise.
5. `changes` grows with every change that could alter an answer, and with nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from orbitmq.errors import ProtocolError
from orbitmq.limits.nameserver import (
    BROKER_TIMEOUT_MS,
    NAMESERVER_BROKERS_MAX,
    NAMESERVER_MAPPED_QUEUES_MAX,
    NAMESERVER_TOPIC_ENTRIES_MAX,
)
from orbitmq.protocol.names import Perm
from orbitmq.protocol.remoting.bodies import TopicQueueMappingInfo
from orbitmq.protocol.remoting.peer import Peer

MASTER_ID: Final = 0


class RegistrationError(ProtocolError):
    """A registration is refused; nothing was changed."""


class Version(NamedTuple):
    """Data version of a broker's topic table; different in any part means different."""

    counter: int = 0
    timestamp: int = 0
    state_version: int = 0


class TopicQueues(NamedTuple):
    """A topic on one group."""

    read_count: int
    write_count: int
    perm: int
    sys_flag: int = 0


class BrokerKey(NamedTuple):
    """What identifies a live broker."""

    cluster: str
    address: str


class NamedBroker(msgspec.Struct):
    """One broker name."""

    name: str
    cluster: str
    addresses: dict[int, str]
    """Broker id -> `ip:port`."""
    acting_master: bool = False
    """A slave may stand in for a missing master, as the latest registration said."""
    zone: str | None = None


class LiveBroker(msgspec.Struct):
    """One registered broker."""

    key: BrokerKey
    group: str
    broker_id: int
    owner: Peer
    """The connection it registered over; only its identity matters here."""
    updated_ns: int
    timeout_ms: int
    version: Version
    ha_address: str

    @property
    def deadline_ns(self) -> int:
        return self.updated_ns + self.timeout_ms * 1_000_000


class Registration(msgspec.Struct):
    """What a broker says about itself."""

    cluster: str
    address: str
    group: str
    broker_id: int
    ha_address: str
    version: Version
    topics: dict[str, TopicQueues]
    timeout_ms: int | None = None
    acting_master: bool | None = None
    """None = a broker too old to know acting masters."""
    zone: str | None = None
    filter_servers: list[str] | None = None
    mappings: dict[str, TopicQueueMappingInfo] = {}
    """Static topics among `topics`: topic -> which queues live here; passed through."""


class MinimumChange(NamedTuple):
    """The smallest id of a group changed; `tell` are the addresses of the members that do not know."""

    group: str
    broker_id: int
    address: str
    offline_address: str | None
    ha_address: str | None
    tell: tuple[str, ...]


class Registered(NamedTuple):
    """Result of a registration. The addresses are for slaves: where their master is."""

    master_address: str | None = None
    master_ha_address: str | None = None
    change: MinimumChange | None = None
    ignored: bool = False
    """A newer state of the same broker id lives at another address; nothing was taken over."""


class RouteTable:
    """All that a name server knows about brokers and topics."""

    __slots__ = (
        "_entries",
        "_group_topics",
        "_mapped",
        "_write_taken",
        "changes",
        "clusters",
        "filter_servers",
        "groups",
        "live",
        "mappings",
        "topics",
    )

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, TopicQueues]] = {}
        """Topic -> group -> queues."""
        self.groups: dict[str, NamedBroker] = {}
        self.clusters: dict[str, dict[str, None]] = {}
        """Cluster -> its group names, in order of arrival."""
        self.live: dict[BrokerKey, LiveBroker] = {}
        self.filter_servers: dict[BrokerKey, list[str]] = {}
        self.mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        """Static topic -> group -> mapping info."""
        self._group_topics: dict[str, set[str]] = {}
        self._write_taken: dict[str, set[str]] = {}
        """Group -> topics whose write bit was cleared here and not announced anew since."""
        self._entries = 0
        self._mapped = 0
        self.changes = 0

    # --- registration ---------------------------------------------------------------------------------------------

    def register(self, broker: Registration, owner: Peer, now_ns: int, *, delete_missing: bool = False) -> Registered:
        """Take a registration over. `delete_missing` also removes the group's topics that it does not list.

        RegistrationError: refused. Cost: one pass over the listed topics.
        """
        key = BrokerKey(broker.cluster, broker.address)
        group = self.groups.get(broker.group)
        present = group.addresses if group is not None else {}
        others = {number: address for number, address in present.items() if address != broker.address}
        before = present.get(broker.broker_id)
        if before is not None and before != broker.address:
            holder = self.live.get(BrokerKey(broker.cluster, before))
            if holder is not None and holder.version.state_version > broker.version.state_version:
                self.live.pop(key, None)
                return Registered(ignored=True)
        first = before is None
        if first and len(broker.topics) == 1:
            raise RegistrationError(
                f"broker {broker.group} id {broker.broker_id} is unknown and registers a single topic",
                remedy="register the whole topic table first",
            )
        self._check_room(broker, key)

        smallest_before = min(present, default=None)
        group = self._enter(broker, group)
        group.addresses = {**others, broker.broker_id: broker.address}
        if group.addresses != present:
            self.changes += 1
        prime = broker.broker_id != MASTER_ID and broker.acting_master is not None
        prime = prime and broker.broker_id == min(group.addresses)
        if broker.broker_id == MASTER_ID or prime:
            self._take_topics(broker, self.live.get(key), first, prime, delete_missing)
        self.live[key] = LiveBroker(
            key,
            broker.group,
            broker.broker_id,
            owner,
            now_ns,
            BROKER_TIMEOUT_MS if broker.timeout_ms is None else broker.timeout_ms,
            broker.version,
            broker.ha_address,
        )
        if broker.filter_servers:
            self.filter_servers[key] = broker.filter_servers
            self.changes += 1
        elif self.filter_servers.pop(key, None):
            self.changes += 1
        change = None
        if group.acting_master and smallest_before is not None and broker.broker_id < smallest_before:
            change = self._minimum_change(group, None, broker.ha_address)
        return self._answer(group, broker.broker_id, change)

    def _check_room(self, broker: Registration, key: BrokerKey) -> None:
        if key not in self.live and len(self.live) >= NAMESERVER_BROKERS_MAX:
            raise RegistrationError(
                f"{len(self.live)} brokers are registered, no more are taken",
                remedy="look for programs that register invented brokers",
            )
        if self._entries + len(broker.topics) > NAMESERVER_TOPIC_ENTRIES_MAX:
            carried = self._group_topics.get(broker.group, set())
            self._check_entries(sum(1 for topic in broker.topics if topic not in carried))
        if broker.mappings:
            before = (self.mappings.get(topic, {}).get(broker.group) for topic in broker.mappings)
            mapped = self._mapped + sum(map(_queues_in, broker.mappings.values())) - sum(map(_queues_in, before))
            if mapped > NAMESERVER_MAPPED_QUEUES_MAX:
                raise RegistrationError(
                    f"the mappings of static topics would have {mapped} queues, at most {NAMESERVER_MAPPED_QUEUES_MAX} "
                    "are kept",
                    remedy="delete unused static topics or split the cluster",
                )

    def _check_entries(self, new: int) -> None:
        if self._entries + new > NAMESERVER_TOPIC_ENTRIES_MAX:
            raise RegistrationError(
                f"the route table has {self._entries} entries; {new} more exceed {NAMESERVER_TOPIC_ENTRIES_MAX}",
                remedy="delete unused topics or split the cluster",
            )

    def _enter(self, broker: Registration, group: NamedBroker | None) -> NamedBroker:
        if group is None:
            group = self.groups[broker.group] = NamedBroker(broker.group, broker.cluster, {})
            self.changes += 1
        names = self.clusters.setdefault(broker.cluster, {})
        if broker.group not in names:
            names[broker.group] = None
            self.changes += 1
        acting_master = bool(broker.acting_master)
        if (group.acting_master, group.zone) != (acting_master, broker.zone):
            group.acting_master, group.zone = acting_master, broker.zone
            self.changes += 1
        return group

    def _take_topics(
        self, broker: Registration, known: LiveBroker | None, first: bool, prime: bool, delete_missing: bool
    ) -> None:
        carried = self._group_topics.setdefault(broker.group, set())
        if delete_missing:
            for topic in carried - broker.topics.keys():
                self._drop_queues(topic, broker.group)
        changed = first or known is None or known.version != broker.version
        read_only = prime and bool(broker.acting_master)
        for topic, queues in broker.topics.items():
            if changed or topic not in carried:
                if read_only:
                    queues = queues._replace(perm=queues.perm & ~Perm.WRITE)
                self._set_queues(topic, broker.group, queues)
        if changed:
            for topic, mapping in broker.mappings.items():
                present = self.mappings.setdefault(topic, {})
                self._mapped += _queues_in(mapping) - _queues_in(present.get(broker.group))
                present[broker.group] = mapping
                self.changes += 1

    def _answer(self, group: NamedBroker, broker_id: int, change: MinimumChange | None) -> Registered:
        master = group.addresses.get(MASTER_ID)
        if broker_id == MASTER_ID or master is None:
            return Registered(change=change)
        live = self.live.get(BrokerKey(group.cluster, master))
        if live is None:
            return Registered(change=change)
        return Registered(master, live.ha_address, change)

    def merge_topic(self, topic: str, queues: Mapping[str, TopicQueues]) -> None:
        """Announce one topic for the groups in `queues` that are known; others are left out."""
        known = {group: value for group, value in queues.items() if group in self.groups}
        self._check_entries(sum(1 for group in known if topic not in self._group_topics.get(group, ())))
        for group, value in known.items():
            self._set_queues(topic, group, value)

    # --- life -----------------------------------------------------------------------------------------------------

    def touch(self, key: BrokerKey, now_ns: int) -> None:
        """A sign of life. Nothing happens for a broker that is not registered."""
        live = self.live.get(key)
        if live is not None:
            live.updated_ns = now_ns

    def version_of(self, key: BrokerKey) -> Version | None:
        live = self.live.get(key)
        return live.version if live is not None else None

    def expired(self, now_ns: int) -> list[LiveBroker]:
        """Brokers whose last sign of life is older than their own timeout. They stay until `remove`."""
        return [live for live in self.live.values() if live.deadline_ns < now_ns]

    def next_deadline_ns(self) -> int | None:
        """The earliest moment at which a broker can expire; None when there is none."""
        return min((live.deadline_ns for live in self.live.values()), default=None)

    def remove(self, key: BrokerKey, group_name: str) -> MinimumChange | None:
        """Take a broker out, and with a group's last address its topics.

        When a group with acting masters loses its master, its topics become read-only instead.
        """
        self.live.pop(key, None)
        if self.filter_servers.pop(key, None):
            self.changes += 1
        group = self.groups.get(group_name)
        if group is None:
            return None
        smallest = min(group.addresses, default=None)
        left = {number: address for number, address in group.addresses.items() if address != key.address}
        if left == group.addresses or self._lives_elsewhere(key, group):
            return None
        self.changes += 1
        group.addresses = left
        if not left:
            self._remove_group(group)
            return None
        if not group.acting_master:
            return None
        if MASTER_ID not in left:
            self.set_write_perm(group_name, writable=False)
        return self._minimum_change(group, key.address, None) if min(left) != smallest else None

    def _lives_elsewhere(self, key: BrokerKey, group: NamedBroker) -> bool:
        """Whether the same broker has registered again under another cluster name."""
        again = (self.live.get(BrokerKey(cluster, key.address)) for cluster in self.clusters)
        return any(live is not None and live.group == group.name for live in again)

    def _remove_group(self, group: NamedBroker) -> None:
        del self.groups[group.name]
        for cluster, names in list(self.clusters.items()):
            if group.name in names:
                del names[group.name]
                if not names:
                    del self.clusters[cluster]
        for topic in list(self._group_topics.get(group.name, ())):
            self._drop_queues(topic, group.name)
        self._group_topics.pop(group.name, None)
        self._write_taken.pop(group.name, None)

    @staticmethod
    def _minimum_change(group: NamedBroker, offline_address: str | None, ha_address: str | None) -> MinimumChange:
        smallest = min(group.addresses)
        address = group.addresses[smallest]
        tell: Iterable[str] = group.addresses.values()
        if offline_address is None and len(group.addresses) > 1:
            tell = (other for other in tell if other != address)
        return MinimumChange(group.name, smallest, address, offline_address, ha_address, tuple(tell))

    # --- topics ---------------------------------------------------------------------------------------------------

    def set_write_perm(self, group_name: str, *, writable: bool) -> int:
        """Clear the write bit of every topic of a group, or set it where it was cleared: what the broker announced as read-only stays so.
        The number of topics of the group.

        Lasts until the group's broker registers with another data version.
        """
        topics = self._group_topics.get(group_name, ())
        taken = self._write_taken.pop(group_name, set())
        for topic in taken if writable else topics:
            queues = self.topics[topic][group_name]
            if not writable and queues.perm & Perm.WRITE:
                taken.add(topic)
            perm = queues.perm | Perm.WRITE if writable else queues.perm & ~Perm.WRITE
            self._set_queues(topic, group_name, queues._replace(perm=int(perm)))
        if not writable and taken:
            self._write_taken[group_name] = taken
        return len(topics)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic on all groups, or on those of one cluster."""
        carriers = list(self.topics.get(topic, ()))
        if cluster is not None:
            names = self.clusters.get(cluster, {})
            carriers = [group for group in carriers if group in names]
        for group in carriers:
            self._drop_queues(topic, group)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Topics that at least one group of the cluster carries."""
        found: dict[str, None] = {}
        for group in self.clusters.get(cluster, ()):
            found.update(dict.fromkeys(self._group_topics.get(group, ())))
        return list(found)

    def _set_queues(self, topic: str, group: str, queues: TopicQueues) -> None:
        self._write_taken.get(group, set()).discard(topic)
        carriers = self.topics.setdefault(topic, {})
        present = carriers.get(group)
        if present != queues:
            self._entries += present is None
            carriers[group] = queues
            self._group_topics.setdefault(group, set()).add(topic)
            self.changes += 1

    def _drop_queues(self, topic: str, group: str) -> None:
        carriers = self.topics[topic]
        if carriers.pop(group, None) is None:
            return
        self.changes += 1
        self._entries -= 1
        self._group_topics[group].discard(topic)
        self._write_taken.get(group, set()).discard(topic)
        mappings = self.mappings.get(topic)
        if mappings is not None:
            self._mapped -= _queues_in(mappings.pop(group, None))
        if not carriers:
            del self.topics[topic]
            self.mappings.pop(topic, None)


def _queues_in(mapping: TopicQueueMappingInfo | None) -> int:
    """What a mapping counts for; one without queues is not free either."""
    return 0 if mapping is None else max(1, len(mapping.curr_id_map))
