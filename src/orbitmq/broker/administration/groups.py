"""Requests about consumer groups and their members: 200, 225, 201, 207, 352, 353, 203, 204, 328, 300, 343,
345.

Source: RocketMQ remoting, admin requests for subscription groups and for consumer and producer inspection.
"""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.broker.administration.removal import TopicRemoval
from orbitmq.broker.clients import ClientRegistry, ConsumerGroup, GroupMember, endpoint
from orbitmq.broker.counting.statistics import Statistics
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.offsets import OffsetTable
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.broker.refusal import Refusal, group_missing
from orbitmq.broker.table_saving import TableSaving
from orbitmq.protocol.remoting.bodies import (
    ClientConnection,
    ConsumerConnection,
    GroupForbidden,
    GroupList,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    QuerySubscriptionBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicList,
)
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer


class GroupAdminProcessor:
    def __init__(
        self,
        groups: GroupTable,
        offsets: OffsetTable,
        saving: TableSaving,
        clients: ClientRegistry,
        locks: QueueLocks,
        statistics: Statistics,
        removal: TopicRemoval,
        *,
        address: str,
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._saving = saving
        self._clients = clients
        self._locks = locks
        self._statistics = statistics
        self._removal = removal
        self._address = address

    # --- groups -----------------------------------------------------------------------------------------------------

    def put(self, command: Command, peer: Peer) -> Command | None:
        self._groups.put(SubscriptionGroupConfig.decode(bytes(command.body)))
        return self._saved(command, peer)

    def put_list(self, command: Command, peer: Peer) -> Command | None:
        """Many groups at once. The first fault ends the list: what stands before it stays."""
        for config in SubscriptionGroupList.decode(bytes(command.body)).group_config_list:
            self._groups.put(config)
        return self._saved(command, peer)

    def delete(self, command: Command, peer: Peer) -> Command | None:
        group = command.text("groupName")
        self._groups.delete(group)
        self._locks.drop_group(group)
        self._statistics.drop_group(group)
        if command.boolean("cleanOffset"):
            retries = self._removal.pop_retry_topics([group], self._offsets.topics_of(group))
            self._offsets.drop_group(group)
            self._removal.remove(retries)
        return self._saved(command, peer)

    def get_all(self, command: Command, peer: Peer) -> Command:
        return response(command, ResponseCode.SUCCESS, None, None, self._groups.wrapper().encode())

    def get(self, command: Command, peer: Peer) -> Command:
        name = command.text("group")
        group = self._groups.get(name)
        if group is None:
            raise group_missing(name)
        return response(command, ResponseCode.SUCCESS, None, None, group.encode())

    def forbid(self, command: Command, peer: Peer) -> Command | None:
        """Set or ask whether a group may read a topic; without `readable` it only asks."""
        group, topic = command.text("group"), command.text("topic")
        if "readable" in command.fields:
            self._groups.forbid_reading(group, topic, forbidden=not command.boolean("readable"))
        body = GroupForbidden(group=group, topic=topic, readable=not self._groups.reading_forbidden(group, topic))
        answer = response(command, ResponseCode.SUCCESS, "", None, body.encode())
        return self._saving.answer(command, peer, answer, refuses=True) if "readable" in command.fields else answer

    def _saved(self, command: Command, peer: Peer) -> Command | None:
        """SUCCESS when the change is saved."""
        return self._saving.answer(command, peer, response(command, ResponseCode.SUCCESS), refuses=True)

    # --- members ----------------------------------------------------------------------------------------------------

    def consumer_connections(self, command: Command, peer: Peer) -> Command:
        group = self._online(command.text("consumerGroup"))
        body = ConsumerConnection(
            connection_set=_connections(group.members.values()),
            subscription_table=dict(sorted(group.subscriptions.items())),
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
            orbitmq_warnings=list(group.disagreements) or None,
        )
        return response(command, ResponseCode.SUCCESS, None, None, body.encode())

    def producer_connections(self, command: Command, peer: Peer) -> Command:
        name = command.text("producerGroup")
        members = self._clients.producer(name)
        if not members:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no producer of group {name!r} is online")
        body = ProducerConnection(connection_set=_connections(members))
        return response(command, ResponseCode.SUCCESS, None, None, body.encode())

    def all_producers(self, command: Command, peer: Peer) -> Command:
        data = {
            group: [
                ProducerInfo(
                    client_id=member.client_id,
                    remote_ip=f"/{endpoint(member.session)}",
                    language=member.language,
                    version=member.version,
                    last_update_timestamp=member.seen_ms,
                )
                for member in self._clients.producer(group)
            ]
            for group in self._clients.producer_groups()
        }
        return response(command, ResponseCode.SUCCESS, None, None, ProducerTableInfo(data=data).encode())

    def subscription(self, command: Command, peer: Peer) -> Command:
        name, topic = command.text("group"), command.text("topic")
        group = self._clients.consumer(name)
        body = QuerySubscriptionBody(
            group=name, topic=topic, subscription_data=group.subscriptions.get(topic) if group else None
        )
        return response(command, ResponseCode.SUCCESS, None, None, body.encode())

    def groups_of_topic(self, command: Command, peer: Peer) -> Command:
        topic = command.text("topic")
        names = {*self._clients.groups_subscribed_to(topic), *self._offsets.groups_of(topic)}
        return response(command, ResponseCode.SUCCESS, None, None, GroupList(group_list=sorted(names)).encode())

    def topics_of_group(self, command: Command, peer: Peer) -> Command:
        body = TopicList(topic_list=self._offsets.topics_of(command.text("group")), broker_addr=self._address)
        return response(command, ResponseCode.SUCCESS, None, None, body.encode())

    def _online(self, name: str) -> ConsumerGroup:
        group = self._clients.consumer(name)
        if group is None:
            raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, f"no consumer of group {name!r} is online")
        return group


def _connections(members: Iterable[GroupMember]) -> list[ClientConnection]:
    return [
        ClientConnection(
            client_id=member.client_id,
            client_addr=endpoint(member.session),
            language=member.language,
            version=member.version,
        )
        for member in members
    ]
