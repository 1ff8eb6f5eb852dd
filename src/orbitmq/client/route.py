"""Where the queues of a topic live, as name servers tell it.

Rules of this file
1. A `Route` is immutable; a refresh replaces it and two routes compare equal when nothing that matters changed.
2. Sending needs the master of a broker group (id 0), reading is content with any member.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from orbitmq.limits.client import CLIENT_ROUTES_EARLY_MS, CLIENT_ROUTES_OFTEN_MS
from orbitmq.protocol.names import Perm
from orbitmq.protocol.remoting.bodies import MessageQueue, QueueData, TopicRouteData

MASTER_ID = 0


class Route(msgspec.Struct, frozen=True):
    """Queues and brokers of one topic.

    publish_queues: writable queues whose broker has a master, ordered by broker name and queue id.
    subscribe_queues: readable queues, the same order; their master may be missing.
    brokers: broker name -> member id -> `host:port`.
    awaits_master: there are writable queues whose broker has no master at present.
    ordered: the name server keeps an explicit queue list for this topic.
    clusters: names of the clusters its brokers belong to.
    """

    topic: str
    publish_queues: tuple[MessageQueue, ...]
    subscribe_queues: tuple[MessageQueue, ...]
    brokers: Mapping[str, Mapping[int, str]]
    awaits_master: bool = False
    ordered: bool = False
    clusters: frozenset[str] = frozenset()

    def master(self, broker_name: str) -> str | None:
        return self.brokers.get(broker_name, {}).get(MASTER_ID)

    def reader(self, broker_name: str, wanted_id: int = MASTER_ID) -> str | None:
        """Address to pull from: the wanted member; a missing slave's next one; else any member, lowest id first."""
        members = self.brokers.get(broker_name, {})
        if not members:
            return None
        if wanted_id in members:
            return members[wanted_id]
        if wanted_id != MASTER_ID and wanted_id + 1 in members:
            return members[wanted_id + 1]
        return members[min(members)]

    def addresses(self) -> Iterator[str]:
        for members in self.brokers.values():
            yield from members.values()


def early_pause_ms(elapsed_ms: int) -> int:
    """How long until the routes are asked for again when brokers have been amiss for so long: the longer it takes, the seldomer."""
    return min(max(CLIENT_ROUTES_EARLY_MS, elapsed_ms // 4), max(CLIENT_ROUTES_OFTEN_MS, elapsed_ms // 8))


def build_route(topic: str, data: TopicRouteData, *, queues_max: int | None = None) -> Route:
    """The usable form of a name server's answer for `topic`.

    `queues_max` is given when `data` belongs to the template topic from which the broker will create `topic`: at most so
    many queues per broker, and never more than the template's readable ones.
    """
    brokers = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
    queue_datas = sorted(data.queue_datas, key=lambda queue_data: queue_data.broker_name)
    ordered = bool(data.order_topic_conf)
    if ordered:
        publish = list(_ordered_queues(topic, data.order_topic_conf or ""))
    else:
        publish = [
            MessageQueue(topic, queue_data.broker_name, queue_id)
            for queue_data in queue_datas
            if queue_data.perm & Perm.WRITE and MASTER_ID in brokers.get(queue_data.broker_name, {})
            for queue_id in range(_count(queue_data, queue_data.write_queue_nums, queues_max))
        ]
    subscribe = [
        MessageQueue(topic, queue_data.broker_name, queue_id)
        for queue_data in queue_datas
        if queue_data.perm & Perm.READ
        for queue_id in range(_count(queue_data, queue_data.read_queue_nums, queues_max))
    ]
    awaits_master = any(
        queue_data.perm & Perm.WRITE and MASTER_ID not in brokers.get(queue_data.broker_name, {})
        for queue_data in queue_datas
    )
    clusters = frozenset(broker.cluster for broker in data.broker_datas if broker.cluster)
    return Route(topic, tuple(publish), tuple(subscribe), brokers, awaits_master, ordered, clusters)


def _count(queue_data: QueueData, count: int, queues_max: int | None) -> int:
    return count if queues_max is None else min(queues_max, queue_data.read_queue_nums)


def _ordered_queues(topic: str, conf: str) -> Iterator[MessageQueue]:
    """Queues of an order configuration `broker:count;broker:count`; entries that are no such pair are left out."""
    for part in conf.split(";"):
        broker_name, separator, count = part.partition(":")
        if separator and count.strip().isdigit():
            for queue_id in range(int(count)):
                yield MessageQueue(topic, broker_name.strip(), queue_id)
