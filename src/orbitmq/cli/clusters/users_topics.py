"""Topics that somebody made on purpose, as opposed to those of the system."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.protocol.remoting.bodies import ClusterInfo


def users_topics(names: Iterable[str], cluster: ClusterInfo) -> list[str]:
    """Those of `names` that are no system topics, and no retry or dead-letter topics, in their order.

    The topics named like clusters and brokers are the system's too, and only the name server knows those names.
    """
    from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic, reply_topic

    own = {*cluster.cluster_addr_table, *cluster.broker_addr_table, *map(reply_topic, cluster.cluster_addr_table)}
    return [
        name
        for name in names
        if name not in own and not name.startswith((RETRY_PREFIX, DLQ_PREFIX)) and not is_system_topic(name)
    ]
