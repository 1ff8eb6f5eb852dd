"""Administration of a cluster: topics, groups, offsets, look-up of messages, brokers.

Rules of this file
1. What changes a topic or a group is done on every master of the cluster; the first failure is raised and says where.
2. Results are the protocol's own bodies where they say all there is, else small named tuples.
3. Looking at messages changes nothing: no offset is committed, no group is joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from orbitmq.client._async.parts import Context
from orbitmq.client._async.reading import records_of, restore_body
from orbitmq.client.pull_plan import PULL_ANSWERS, PullFlag, PullStatus
from orbitmq.client.route import MASTER_ID, Route
from orbitmq.client.stored import StoredMessage
from orbitmq.errors import ClientError, ConfigurationError, NotFoundError, RouteNotFoundError
from orbitmq.protocol.ids import decode_offset_id, host_text
from orbitmq.protocol.java_properties import read_properties
from orbitmq.protocol.names import (
    AUTO_CREATE_TOPIC,
    READ_WRITE,
    Perm,
    dlq_topic,
    group_name_problem,
    retry_topic,
    topic_name_problem,
)
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record
from orbitmq.protocol.remoting.bodies import (
    ClusterInfo,
    ConsumerConnection,
    ConsumeStats,
    KVTable,
    MessageQueue,
    OffsetProgress,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigWrapper,
    TopicList,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
)
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Buffer, Command

LOOK_UP_GROUP: Final = "TOOLS_CONSUMER"
"""Group under which messages are looked at; every broker has it."""

KEY_MATCHES_MAX: Final = 64
_FOUND_OR_NOT: Final = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
_FOREVER_MS: Final = 2**63 - 1


class Broker(NamedTuple):
    """One broker process."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID


class ReadRecords(NamedTuple):
    """Stored records of a queue from some offset on; `next_offset` is where to go on reading."""

    records: list[Record]
    next_offset: int
    min_offset: int
    max_offset: int


class Peeked(NamedTuple):
    """Messages of a queue from some offset on; `next_offset` is where to go on looking."""

    messages: list[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int


class Admin:
    """Administrative calls of a client; see `Client.admin`."""

    def __init__(self, client: Context) -> None:
        self._client = client

    # --- cluster and brokers

    async def cluster(self) -> ClusterInfo:
        """Clusters, their brokers and the addresses of these."""
        answer = await self._client.name_servers.request(RequestCode.GET_BROKER_CLUSTER_INFO, doing="listing brokers")
        return ClusterInfo.decode(answer.body)

    async def brokers(self, cluster: str | None = None) -> list[Broker]:
        """All broker processes (of one cluster), ordered by cluster, name and id."""
        info = await self.cluster()
        if cluster is not None and cluster not in info.cluster_addr_table:
            raise NotFoundError(
                f"there is no cluster {cluster!r}", remedy=f"known are {sorted(info.cluster_addr_table) or 'none'}"
            )
        found = [
            Broker(cluster_name, name, broker_id, address)
            for cluster_name, names in info.cluster_addr_table.items()
            if cluster is None or cluster == cluster_name
            for name in names
            if name in info.broker_addr_table
            for broker_id, address in info.broker_addr_table[name].broker_addrs.items()
        ]
        return sorted(found)

    async def masters(self, cluster: str | None = None) -> list[Broker]:
        """Masters, at least one; `NotFoundError` when none is registered."""
        masters = [broker for broker in await self.brokers(cluster) if broker.is_master]
        if not masters:
            raise NotFoundError("no master broker is registered at the name servers", remedy="start a broker")
        return masters

    async def broker_runtime(self, address: str) -> dict[str, str]:
        """Figures of a running broker by name, as text."""
        answer = await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO, doing="reading runtime figures")
        return KVTable.decode(answer.body).table

    async def broker_config(self, address: str) -> dict[str, str]:
        """Settings of a running broker by name, as text."""
        answer = await self._ask(address, RequestCode.GET_BROKER_CONFIG, doing="reading the configuration")
        return read_properties(bytes(answer.body), where=f"configuration of {address}")

    # --- topics

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
        for target in targets:
            await self._ask(
                target.address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields, doing=f"creating topic {topic!r}"
            )
        return targets

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic with its messages from all masters and from the name servers. An unknown topic is no error."""
        for target in await self.masters(cluster):
            await self._ask(
                target.address,
                RequestCode.DELETE_TOPIC_IN_BROKER,
                {"topic": topic},
                doing=f"deleting topic {topic!r}",
            )
        fields = {"topic": topic} if cluster is None else {"topic": topic, "clusterName": cluster}
        await self._client.name_servers.request_all(
            RequestCode.DELETE_TOPIC_IN_NAMESRV, fields, doing=f"deleting topic {topic!r}"
        )

    async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Bounds of every queue of a topic, over all its brokers."""
        stats: dict[MessageQueue, TopicOffset] = {}
        for address in _readers(await self._route(topic)):
            answer = await self._ask(
                address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}, doing=f"reading topic {topic!r}"
            )
            stats.update(TopicStatsTable.decode(answer.body).offset_table)
        return dict(sorted(stats.items()))

    # --- groups

    async def groups(self, cluster: str | None = None) -> dict[str, SubscriptionGroupConfig]:
        """Settings of all consumer groups by name; where brokers differ, those of the first broker."""
        found: dict[str, SubscriptionGroupConfig] = {}
        for target in await self.masters(cluster):
            answer = await self._ask(
                target.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, doing="listing groups"
            )
            for name, config in SubscriptionGroupWrapper.decode(answer.body).subscription_group_table.items():
                found.setdefault(name, config)
        return dict(sorted(found.items()))

    async def create_group(
        self,
        group: str,
        *,
        settings: SubscriptionGroupConfig | None = None,
        retry_max_times: int = 16,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[Broker]:
        """Create a consumer group or change its settings. `settings` gives all of them and wins over `retry_max_times`."""
        problem = group_name_problem(group)
        if problem is not None:
            raise ConfigurationError(problem)
        config = settings or SubscriptionGroupConfig(retry_max_times=retry_max_times)
        config.group_name = group
        targets = await self._targets(cluster, broker)
        for target in targets:
            await self._ask(
                target.address,
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                body=config.encode(),
                doing=f"creating group {group!r}",
            )
        return targets

    async def delete_group(self, group: str, *, clean_offsets: bool = True, cluster: str | None = None) -> None:
        """Delete a consumer group with its retry and dead-letter topics. An unknown group is no error."""
        fields = {"groupName": group, "cleanOffset": "true" if clean_offsets else "false"}
        for target in await self.masters(cluster):
            await self._ask(
                target.address, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields, doing=f"deleting group {group!r}"
            )
        for topic in (retry_topic(group), dlq_topic(group)):
            await self.delete_topic(topic, cluster=cluster)

    async def group_progress(self, group: str, topic: str | None = None) -> dict[MessageQueue, OffsetProgress]:
        """How far a group has come on each queue; `broker_offset - consumer_offset` is its lag."""
        progress: dict[MessageQueue, OffsetProgress] = {}
        fields = {"consumerGroup": group}
        if topic is not None:
            fields["topic"] = topic
        for target in await self.masters():
            answer = await self._ask(
                target.address, RequestCode.GET_CONSUME_STATS, fields, doing=f"reading the progress of group {group!r}"
            )
            progress.update(ConsumeStats.decode(answer.body).offset_table)
        return dict(sorted(progress.items()))

    async def group_connections(self, group: str) -> ConsumerConnection | None:
        """Connected members of a consumer group and their subscriptions; None when nobody is online."""
        merged: ConsumerConnection | None = None
        for target in await self.masters():
            answer = await self._ask(
                target.address,
                RequestCode.GET_CONSUMER_CONNECTION_LIST,
                {"consumerGroup": group},
                doing=f"listing the members of group {group!r}",
                accept=(ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE),
            )
            if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
                continue
            found = ConsumerConnection.decode(answer.body)
            if merged is None:
                merged = found
            else:
                known = {connection.client_id for connection in merged.connection_set}
                merged.connection_set.extend(new for new in found.connection_set if new.client_id not in known)
        return merged

    # --- offsets

    async def min_offset(self, queue: MessageQueue) -> int:
        """Offset of the oldest message a queue still has; equal to `max_offset` when it has none."""
        return await self._offset(queue, RequestCode.GET_MIN_OFFSET)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Offset the next message of a queue will get."""
        return await self._offset(queue, RequestCode.GET_MAX_OFFSET)

    async def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Offset of the first message stored at or after an instant; `max_offset` when there is none."""
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": str(timestamp_ms)})

    # --- messages

    async def peek(self, queue: MessageQueue, offset: int, *, count: int = 32, tags: str = "*") -> Peeked:
        """Messages of a queue from `offset` on, at most `count`; at once, without waiting for new ones."""
        read = await self.read_records(queue, offset, count=count, tags=tags)
        messages = [await _stored(record, queue) for record in read.records]
        return Peeked(messages, read.next_offset, read.min_offset, read.max_offset)

    async def read_records(
        self, queue: MessageQueue, offset: int, *, count: int = 32, tags: str = "*", hold_ms: int = 0
    ) -> ReadRecords:
        """As `peek`, but records as they are stored. The broker holds the request for up to `hold_ms` while there are none."""
        flags = PullFlag.SUBSCRIPTION | PullFlag.SUSPEND if hold_ms else PullFlag.SUBSCRIPTION
        address = await self._reader(queue)
        answer = await self._ask(
            address,
            RequestCode.PULL_MESSAGE,
            {
                "consumerGroup": LOOK_UP_GROUP,
                "topic": queue.topic,
                "queueId": str(queue.queue_id),
                "queueOffset": str(offset),
                "maxMsgNums": str(count),
                "sysFlag": str(int(flags)),
                "commitOffset": "0",
                "suspendTimeoutMillis": str(hold_ms),
                "subscription": tags,
                "subVersion": "0",
                "expressionType": "TAG",
                "bname": queue.broker_name,
            },
            doing=f"looking at {queue.topic} {queue.broker_name}/{queue.queue_id}",
            accept=PULL_ANSWERS,
            more_ms=hold_ms,
        )
        return ReadRecords(
            list(records_of(answer.body)) if answer.code == PullStatus.FOUND.value else [],
            answer.integer("nextBeginOffset", offset),
            answer.integer("minOffset"),
            answer.integer("maxOffset"),
        )

    async def message_at(self, queue: MessageQueue, offset: int) -> StoredMessage | None:
        """The message at one offset of a queue, or None."""
        for message in (await self.peek(queue, offset, count=1)).messages:
            if message.queue_offset == offset:
                return message
        return None

    async def message_by_id(self, message_id: str, topic: str | None = None) -> StoredMessage | None:
        """The message with an offset id, asked from the broker that the id names; or, with its topic, one with a unique id.

        Both kinds of id look alike. With `topic` the unique id is tried first.
        """
        if topic is not None:
            found = await self.messages_by_unique_id(topic, message_id)
            if found:
                return found[0]
        host, physical_offset = decode_offset_id(message_id)
        fields = {"offset": str(physical_offset)}
        if topic is not None:
            fields["topic"] = topic
        answer = await self._ask(
            host_text(host),
            RequestCode.VIEW_MESSAGE_BY_ID,
            fields,
            doing=f"looking up message {message_id}",
            accept=(ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR),
        )
        if answer.code != ResponseCode.SUCCESS:
            return None
        for record in records_of(answer.body):
            return await _stored(record, MessageQueue(record.topic, "", record.queue_id))
        return None

    async def messages_by_unique_id(self, topic: str, unique_id: str) -> list[StoredMessage]:
        """Messages of a topic with this sender's id; more than one when a send was repeated."""
        found = await self._by_key(topic, unique_id, KEY_MATCHES_MAX, 0, _FOREVER_MS, unique=True)
        return [message for message in found if message.properties.get(Property.UNIQ_KEY) == unique_id]

    async def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        max_count: int = KEY_MATCHES_MAX,
        begin_ms: int = 0,
        end_ms: int = _FOREVER_MS,
    ) -> list[StoredMessage]:
        """Messages of a topic that carry `key`, stored in a span of time; at most `max_count` from each broker."""
        found = await self._by_key(topic, key, max_count, begin_ms, end_ms, unique=False)
        return [message for message in found if key in message.keys and message.record.topic == topic]

    # --- inside

    async def _by_key(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> list[StoredMessage]:
        route = await self._route(topic)
        found: list[StoredMessage] = []
        for broker_name in route.brokers:
            address = route.reader(broker_name)
            if address is None:
                continue
            answer = await self._ask(
                address,
                RequestCode.QUERY_MESSAGE,
                {
                    "topic": topic,
                    "key": key,
                    "maxNum": str(max_count),
                    "beginTimestamp": str(begin_ms),
                    "endTimestamp": str(end_ms),
                    "_UNIQUE_KEY_QUERY": "true" if unique else "false",
                },
                doing=f"searching topic {topic!r} for {key!r}",
                accept=_FOUND_OR_NOT,
            )
            if answer.code == ResponseCode.SUCCESS:
                for record in records_of(answer.body):
                    found.append(await _stored(record, MessageQueue(record.topic, broker_name, record.queue_id)))
        return found

    async def _offset(self, queue: MessageQueue, code: RequestCode, more: Mapping[str, str] | None = None) -> int:
        fields = {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name, **(more or {})}
        where = f"{queue.topic} {queue.broker_name}/{queue.queue_id}"
        answer = await self._ask(await self._reader(queue), code, fields, doing=f"reading an offset of {where}")
        offset = answer.optional_integer("offset")
        if offset is None:
            raise ClientError(f"the broker of {where} answered without an offset")
        return offset

    async def _route(self, topic: str) -> Route:
        return await self._client.routes.get(topic)

    async def _reader(self, queue: MessageQueue) -> str:
        address = (await self._route(queue.topic)).reader(queue.broker_name)
        if address is None:
            raise RouteNotFoundError(
                f"topic {queue.topic!r} has no broker {queue.broker_name!r}", remedy="see: orbitmq topic route"
            )
        return address

    async def _targets(self, cluster: str | None, broker: str | None) -> list[Broker]:
        masters = await self.masters(cluster)
        if broker is None:
            return masters
        chosen = [master for master in masters if broker in (master.name, master.address)]
        if not chosen:
            raise NotFoundError(
                f"there is no master broker {broker!r}", remedy=f"known are {[master.name for master in masters]}"
            )
        return chosen

    async def _ask(
        self,
        address: str,
        code: RequestCode,
        fields: dict[str, str] | None = None,
        body: Buffer = b"",
        *,
        doing: str,
        accept: tuple[int, ...] | frozenset[int] = (ResponseCode.SUCCESS,),
        more_ms: int = 0,
    ) -> Command:
        """One call to a broker; `more_ms` is time that the broker may take on purpose."""
        timeout_ms = self._client.options.admin_timeout_ms + more_ms
        return await self._client.network.request(
            address, code, fields, body, timeout_ms=timeout_ms, doing=doing, accept=accept
        )


def _readers(route: Route) -> list[str]:
    """One address per broker of a route."""
    addresses = (route.reader(broker_name) for broker_name in route.brokers)
    return [address for address in addresses if address is not None]


async def _stored(record: Record, queue: MessageQueue) -> StoredMessage:
    return StoredMessage(record, await restore_body(record), decode_properties(record.properties), queue)
