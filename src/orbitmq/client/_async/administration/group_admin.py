"""Administration of consumer groups: settings, members, progress, and moving their offsets.

Rules of this file
1. Moving offsets is planned first (`plan_reset`), so that what would happen can be shown; `reset_offsets` does exactly that.
2. Who is online is told by the broker; an offline group's offsets are simply written.
"""

from __future__ import annotations

from orbitmq.client._async.administration.admin_calls import Broker
from orbitmq.client._async.administration.broker_admin import BrokerAdmin
from orbitmq.client._async.administration.look_up import LookUp
from orbitmq.client._async.administration.topic_admin import TopicAdmin
from orbitmq.client.offset_reset import OffsetMove, ResetTo, check_reset, planned_offset
from orbitmq.errors import ClientError, ConfigurationError, NotFoundError, RemoteError, RequestTimeoutError
from orbitmq.protocol.names import dlq_topic, group_name_problem, retry_topic
from orbitmq.protocol.remoting.bodies import (
    ConsumerConnection,
    ConsumerOffsetTable,
    ConsumerRunningInfo,
    ConsumeStats,
    GroupList,
    MessageQueue,
    OffsetProgress,
    ProducerConnection,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.commands import BY_TOOL
from orbitmq.protocol.remoting.versions import version_ordinal

_SERVER_SIDE_RESET = version_ordinal("V5_1_0")
"""From here on a broker moves an online group's offsets itself, queue by queue; earlier ones only all queues by time."""


class GroupAdmin(BrokerAdmin, TopicAdmin, LookUp):
    """Calls about consumer groups."""

    async def groups(self, cluster: str | None = None) -> dict[str, SubscriptionGroupConfig]:
        """Settings of all consumer groups by name; where brokers differ, those of the first broker."""
        found: dict[str, SubscriptionGroupConfig] = {}
        for target in await self.masters(cluster):
            for name, config in (await self.group_configs(target.address)).items():
                found.setdefault(name, config)
        return dict(sorted(found.items()))

    async def group_configs(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        """Settings of all consumer groups of one broker."""
        answer = await self._ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, doing="listing groups")
        return SubscriptionGroupWrapper.decode(answer.body).subscription_group_table

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
        code, doing = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, f"creating group {group!r}"
        await self._ask_all(targets, code, body=config.encode(), doing=doing)
        return targets

    async def delete_group(self, group: str, *, clean_offsets: bool = True, cluster: str | None = None) -> None:
        """Delete a consumer group with its retry and dead-letter topics. An unknown group is no error."""
        fields = {"groupName": group, "cleanOffset": "true" if clean_offsets else "false"}
        masters = await self.masters(cluster)
        await self._ask_all(masters, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields, doing=f"deleting group {group!r}")
        for topic in (retry_topic(group), dlq_topic(group)):
            await self.delete_topic(topic, cluster=cluster)

    async def group_progress(
        self, group: str, topic: str | None = None, *, broker: str | None = None
    ) -> dict[MessageQueue, OffsetProgress]:
        """How far a group has come on each queue (of one broker); `broker_offset - consumer_offset` is its lag.

        Without a topic: those of which a broker has an offset of the group, and its retry topic in any case. What waits there before
        a member has read it would be missing otherwise.
        """
        progress: dict[MessageQueue, OffsetProgress] = {}
        for target in await self._targets(None, broker):
            found = await self._progress(target, group, topic)
            retry = retry_topic(group)
            if topic is None and all(queue.topic != retry for queue in found):
                found |= await self._progress(target, group, retry)
            progress.update(found)
        return dict(sorted(progress.items()))

    async def _progress(self, target: Broker, group: str, topic: str | None) -> dict[MessageQueue, OffsetProgress]:
        fields = {"consumerGroup": group}
        if topic is not None:
            fields["topic"] = topic
        answer = await self._ask(
            target.address, RequestCode.GET_CONSUME_STATS, fields, doing=f"reading the progress of group {group!r}"
        )
        return ConsumeStats.decode(answer.body).offset_table

    async def group_connections(self, group: str) -> ConsumerConnection | None:
        """Connected members of a consumer group and their subscriptions; None when nobody is online.

        Brokers of orbitmq tell in `orbitmq_warnings` what the members differ about.
        """
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
                said = {*(merged.orbitmq_warnings or ()), *(found.orbitmq_warnings or ())}
                merged.orbitmq_warnings = sorted(said) or None
        return merged

    async def groups_of_topic(self, topic: str) -> list[str]:
        """Groups that consume a topic or have offsets of it."""
        found: set[str] = set()
        for broker in (await self.topic_route(topic)).broker_datas:
            address = broker.broker_addrs.get(0)
            if address is not None:
                answer = await self._ask(
                    address,
                    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
                    {"topic": topic},
                    doing=f"listing groups of {topic!r}",
                )
                found.update(GroupList.decode(answer.body).group_list)
        return sorted(found)

    async def members(self, group: str) -> dict[str, ConsumerRunningInfo | None]:
        """What each connected member says about itself, by client id; None for one that does not answer the question."""
        connections = await self.group_connections(group)
        members: dict[str, ConsumerRunningInfo | None] = {}
        for client_id in sorted(member.client_id for member in (connections.connection_set if connections else [])):
            members[client_id] = await self._running_info(group, client_id)
        return members

    async def producer_connections(self, group: str, topic: str) -> ProducerConnection:
        """Connected members of a producer group at the brokers of a topic."""
        merged = ProducerConnection()
        for broker in (await self.topic_route(topic)).broker_datas:
            address = broker.broker_addrs.get(0)
            if address is None:
                continue
            answer = await self._ask(
                address,
                RequestCode.GET_PRODUCER_CONNECTION_LIST,
                {"producerGroup": group},
                doing=f"listing the members of producer group {group!r}",
                accept=(ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR),  # the second says: none here
            )
            if answer.code == ResponseCode.SUCCESS:
                known = {connection.client_id for connection in merged.connection_set}
                found = ProducerConnection.decode(answer.body).connection_set
                merged.connection_set.extend(new for new in found if new.client_id not in known)
        return merged

    # --- offsets of groups

    async def group_offsets(self, address: str) -> dict[tuple[str, str], dict[int, int]]:
        """All that groups have committed at one broker: by group and topic, by number of the queue."""
        answer = await self._ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET, doing="reading the offsets of groups")
        found: dict[tuple[str, str], dict[int, int]] = {}
        for name, offsets in ConsumerOffsetTable.decode(answer.body).offset_table.items():
            topic, _, group = name.partition("@")
            found[group, topic] = dict(sorted(offsets.items()))
        return dict(sorted(found.items()))

    async def group_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The offset that a group has committed of a queue, or None."""
        fields = {**_queue_fields(group, queue), "setZeroIfNotFound": "false"}
        answer = await self._ask(
            await self._master_of(queue),
            RequestCode.QUERY_CONSUMER_OFFSET,
            fields,
            doing=f"reading the offset of group {group!r}",
            accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        offset = answer.optional_integer("offset") if answer.code == ResponseCode.SUCCESS else None
        return offset if offset is not None and offset >= 0 else None

    async def commit_group_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Write a group's offset of a queue. Members that are online will overwrite it; see `reset_offsets`."""
        await self._ask(
            await self._master_of(queue),
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {**_queue_fields(group, queue), "commitOffset": str(offset), BY_TOOL: "true"},
            doing=f"writing the offset of group {group!r} on {queue.topic} {queue.broker_name}/{queue.queue_id}",
        )

    async def plan_reset(
        self,
        group: str,
        topic: str,
        to: ResetTo,
        *,
        at_ms: int | None = None,
        offset: int | None = None,
        broker: str | None = None,
        queue_id: int | None = None,
    ) -> list[OffsetMove]:
        """What `reset_offsets` with the same arguments would do; nothing is changed.

        at_ms: with ResetTo.TIME, the first message stored at or after this instant. offset: with ResetTo.OFFSET, must lie within
        each queue chosen. broker, queue_id: only these queues.
        """
        check_reset(to, at_ms, offset)
        queues = [
            queue
            for queue in (await self._route(topic)).subscribe_queues
            if broker in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
        ]
        if not queues:
            raise NotFoundError(f"topic {topic!r} has no such queue", remedy=f"see: orbitmq topic stats {topic}")
        moves: list[OffsetMove] = []
        for queue in queues:
            first, end = await self.min_offset(queue), await self.max_offset(queue)
            found = await self.offset_by_time(queue, at_ms) if at_ms is not None else None
            target = planned_offset(to, queue, first, end, found, offset)
            moves.append(OffsetMove(queue, await self.group_offset(group, queue), target))
        return moves

    async def reset_offsets(
        self,
        group: str,
        topic: str,
        to: ResetTo,
        *,
        at_ms: int | None = None,
        offset: int | None = None,
        broker: str | None = None,
        queue_id: int | None = None,
    ) -> list[OffsetMove]:
        """Move a group's offsets of a topic, whether its members are online or not; what was done, queue by queue.

        Members that are online drop what they have pulled and go on from the new place. Nothing is undone when a later queue fails.
        """
        moves = await self.plan_reset(group, topic, to, at_ms=at_ms, offset=offset, broker=broker, queue_id=queue_id)
        online = await self.group_connections(group) is not None
        if online:
            await self._check_brokers_move(moves)
        for move in moves:
            if online:
                await self._move_online(group, move)
            else:
                await self.commit_group_offset(group, move.queue, move.after)
        return moves

    # --- inside

    async def _running_info(self, group: str, client_id: str) -> ConsumerRunningInfo | None:
        fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": "false"}
        for target in await self.masters():
            try:
                answer = await self._ask(
                    target.address, RequestCode.GET_CONSUMER_RUNNING_INFO, fields, doing=f"asking member {client_id}"
                )
            except (RemoteError, RequestTimeoutError):
                continue  # not connected to this broker, or too busy to answer: another broker may know it
            return ConsumerRunningInfo.decode(answer.body)
        return None

    async def _move_online(self, group: str, move: OffsetMove) -> None:
        queue = move.queue
        fields = {
            "topic": queue.topic,
            "group": group,
            "queueId": str(queue.queue_id),
            "offset": str(move.after),
            "timestamp": "0",
            "isForce": "true",
        }
        await self._ask(
            await self._master_of(queue),
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            fields,
            doing=f"moving group {group!r} on {queue.topic} {queue.broker_name}/{queue.queue_id}",
        )

    async def _check_brokers_move(self, moves: list[OffsetMove]) -> None:
        for name, queue in {move.queue.broker_name: move.queue for move in moves}.items():
            runtime = await self.broker_runtime(await self._master_of(queue))
            version = runtime.get("brokerVersionDesc", "")
            if int(runtime.get("brokerVersion", "0")) < _SERVER_SIDE_RESET:
                raise ClientError(
                    f"broker {name} ({version or 'of unknown version'}) cannot move single queues of a group that is online",
                    remedy="stop the group's members first, or upgrade the broker",
                )

    async def _master_of(self, queue: MessageQueue) -> str:
        address = (await self._route(queue.topic)).master(queue.broker_name)
        if address is None:
            raise NotFoundError(
                f"broker {queue.broker_name!r} of topic {queue.topic!r} has no master", remedy="start it and try again"
            )
        return address


def _queue_fields(group: str, queue: MessageQueue) -> dict[str, str]:
    return {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "bname": queue.broker_name,
    }
