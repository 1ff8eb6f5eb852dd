"""What all administrative calls build on: which brokers there are, and one call to one of them.

Rules of this file
1. What changes a topic, a group or a user is done on every master meant, also where one of them is away. The first failure is raised,
   and says where it was done and where not. A refusal ends it.
2. Results are the protocol's own bodies where they say all there is, else small named tuples.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/administration/admin_calls.py: change that file and run `make generate`.
"""

from __future__ import annotations

from orbitmq.client._async.administration import admin_calls as source
from orbitmq.client._async.administration.admin_calls import Broker
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.protocol.remoting.bodies import ClusterInfo


class AdminCalls:
    """Brokers of the cluster, and asking one of them."""

    def __init__(self, twin: source.AdminCalls, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.AdminCalls = twin

    def cluster(self) -> ClusterInfo:
        """Clusters, their brokers and the addresses of these."""
        return self._loop.run(self._twin.cluster())

    def brokers(self, cluster: str | None = None) -> list[Broker]:
        """All broker processes (of one cluster), ordered by cluster, name and id."""
        return self._loop.run(self._twin.brokers(cluster))

    def masters(self, cluster: str | None = None) -> list[Broker]:
        """Masters, at least one; `NotFoundError` when none is registered."""
        return self._loop.run(self._twin.masters(cluster))
