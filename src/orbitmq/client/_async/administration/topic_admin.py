"""Administration of topics: list, look up, create, change, delete, bounds of their queues."""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.client._async.administration.admin_calls import AdminCalls, Broker
from orbitmq.client.route import Route
from orbitmq.errors import ConfigurationError, RouteNotFoundError
from orbitmq.protocol.names import AUTO_CREATE_TOPIC, READ_WRITE, Perm, topic_name_problem
from orbitmq.protocol.remoting.bodies import (
    MessageQueue,
    TopicConfig,
    TopicConfigWrapper,
    TopicList,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
)
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode


class TopicAdmin(AdminCalls):
    """Calls about topics."""

    async def topics(self) -> list[str]:
        """Names of all topics the name servers know, system topics included, in order."""
        answer = await self._client.name_servers.request(
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, doing="listing topics"
        )
        return sorted(TopicList.decode(answer.body).topic_list)

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Where a topic's queues are. `RouteNotFoundError` when it does not exist."""
        answer = await self._client.name_servers.request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            {"topic": topic, "acceptStandardJsonOnly": "true"},
            doing=f"looking up topic {topic!r}",
            accept=(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST),
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise RouteNotFoundError(
                f"the name servers know no topic {topic!r}", remedy=f"create it: orbitmq topic create {topic}"
            )
        return TopicRouteData.decode(answer.body)

    async def topic_configs(self, address: str) -> dict[str, TopicConfig]:
        """Settings of all topics of one broker."""
        answer = await self._ask(address, RequestCode.GET_ALL_TOPIC_CONFIG, doing="reading the topics")
        return TopicConfigWrapper.decode(answer.body).topic_config_table

    async def create_topic(
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
        problem = topic_name_problem(topic)
        if problem is not None:
            raise ConfigurationError(problem)
        fields = {
            "topic": topic,
            "defaultTopic": AUTO_CREATE_TOPIC,
            "readQueueNums": str(queues_count),
            "writeQueueNums": str(write_queues_count if write_queues_count is not None else queues_count),
            "perm": str(int(perm)),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "true" if ordered else "false",
        }
        if attributes:
            fields["attributes"] = ",".join(f"+{name}={value}" for name, value in attributes.items())
        targets = await self._targets(cluster, broker)
        await self._ask_all(targets, RequestCode.UPDATE_AND_CREATE_TOPIC, fields, doing=f"creating topic {topic!r}")
        return targets

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic with its messages from all masters and from the name servers. An unknown topic is no error."""
        masters = await self.masters(cluster)
        doing = f"deleting topic {topic!r}"
        await self._ask_all(masters, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}, doing=doing)
        fields = {"topic": topic} if cluster is None else {"topic": topic, "clusterName": cluster}
        await self._client.name_servers.request_all(RequestCode.DELETE_TOPIC_IN_NAMESRV, fields, doing=doing)

    async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Bounds of every queue of a topic, over all its brokers."""
        stats: dict[MessageQueue, TopicOffset] = {}
        for address in _readers(await self._route(topic)):
            answer = await self._ask(
                address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}, doing=f"reading topic {topic!r}"
            )
            stats.update(TopicStatsTable.decode(answer.body).offset_table)
        return dict(sorted(stats.items()))


def _readers(route: Route) -> list[str]:
    """One address per broker of a route."""
    addresses = (route.reader(broker_name) for broker_name in route.brokers)
    return [address for address in addresses if address is not None]
