"""Administration of topics: list, look up, create, change, delete, bounds of their queues.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/administration/topic_admin.py: change that file and run `make generate`.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.client._async.administration import topic_admin as source
from orbitmq.client._async.administration.admin_calls import Broker
from orbitmq.client._sync.administration.admin_calls import AdminCalls
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.protocol.names import READ_WRITE, Perm
from orbitmq.protocol.remoting.bodies import MessageQueue, TopicConfig, TopicOffset, TopicRouteData


class TopicAdmin(AdminCalls):
    """Calls about topics."""

    def __init__(self, twin: source.TopicAdmin, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.TopicAdmin = twin

    def topics(self) -> list[str]:
        """Names of all topics the name servers know, system topics included, in order."""
        return self._loop.run(self._twin.topics())

    def topic_route(self, topic: str) -> TopicRouteData:
        """Where a topic's queues are. `RouteNotFoundError` when it does not exist."""
        return self._loop.run(self._twin.topic_route(topic))

    def topic_configs(self, address: str) -> dict[str, TopicConfig]:
        """Settings of all topics of one broker."""
        return self._loop.run(self._twin.topic_configs(address))

    def create_topic(
        self,
        topic: str,
        *,
        queues_count: int = 8,
        write_queues_count: int | None = None,
        perm: Perm = READ_WRITE,
        ordered: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[Broker]:
        """Create a topic or change its settings, on every master of the cluster or on one broker (by name or address).

        queues_count: queues per broker, also for writing unless `write_queues_count` says otherwise. Returns the brokers that have it now.
        """
        return self._loop.run(
            self._twin.create_topic(
                topic,
                queues_count=queues_count,
                write_queues_count=write_queues_count,
                perm=perm,
                ordered=ordered,
                attributes=attributes,
                cluster=cluster,
                broker=broker,
            )
        )

    def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic with its messages from all masters and from the name servers. An unknown topic is no error."""
        self._loop.run(self._twin.delete_topic(topic, cluster=cluster))

    def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Bounds of every queue of a topic, over all its brokers."""
        return self._loop.run(self._twin.topic_stats(topic))
