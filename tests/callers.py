"""Requests and calls of every kind as a client sends them that is allowed to, and users to sign them: for tests of who may do what.

Every request names the topic `TOPIC`, the group `GROUP`, or both, wherever its row says that it names some.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from orbitmq.access.evaluation import Permissions
from orbitmq.access.needed import Needed
from orbitmq.access.policies import Acl, Decision, Entry, read_resource
from orbitmq.access.users import User
from orbitmq.protocol.grpc.calls import GrpcCall
from orbitmq.protocol.grpc.rpcs import RPCS, Rpc
from orbitmq.protocol.http2.request_fields import RequestFields
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.protocol.remoting.requests import Action, NamedBy, RequestRow, ResourceType
from orbitmq.protocol.signing import Credentials

TOPIC, GROUP, CLUSTER = "orders", "shop", "DefaultCluster"
ADDRESS = "10.0.0.9"

_NAMES: Mapping[ResourceType, str] = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.GROUP: GROUP,
    ResourceType.CLUSTER: CLUSTER,
}

_LOCKS = b'{"clientId":"c","consumerGroup":"shop","mqSet":[{"topic":"orders","brokerName":"b","queueId":0}]}'
_ONE_OF_BOTH = b'{"topic":"orders","consumerGroup":"shop","clientId":"c","strategyName":"AVG"}'

BODIES: Mapping[RequestCode, bytes] = {
    RequestCode.HEART_BEAT: (
        b'{"clientID":"c","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[{"groupName":"shop",'
        b'"subscriptionDataSet":[{"topic":"orders","subString":"*"},{"topic":"%RETRY%shop","subString":"*"}]}]}'
    ),
    RequestCode.LOCK_BATCH_MQ: _LOCKS,
    RequestCode.UNLOCK_BATCH_MQ: _LOCKS,
    RequestCode.QUERY_ASSIGNMENT: _ONE_OF_BOTH,
    RequestCode.SET_MESSAGE_REQUEST_MODE: b'{"topic":"orders","consumerGroup":"shop","mode":"POP"}',
    RequestCode.BATCH_ACK_MESSAGE: b'{"brokerName":"b","acks":[{"c":"shop","t":"orders","r":"0","so":1,"q":0,"b":"AQ=="}]}',
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: b'{"topicConfigList":[{"topicName":"orders","readQueueNums":1,"perm":6}]}',
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: b'{"groupName":"shop"}',
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: b'{"groupConfigList":[{"groupName":"shop"}]}',
    RequestCode.LIST_TIMERS: b'{"topic":"orders"}',
    RequestCode.COUNT_TIMERS: b'{"topic":"orders"}',
    RequestCode.PUT_RECURRING: b'{"name":"n","topic":"orders","intervalMs":60000}',
}
"""A body for each request whose row says `@body`."""


def sample(row: RequestRow) -> Command:
    """A request of this kind, not signed."""
    fields = {need.field: _NAMES[need.resource] for need in row.needs if need.named_by is NamedBy.FIELD}
    return request(row.code, fields, BODIES.get(row.code, b""))


def needs_by_hand(row: RequestRow) -> set[Needed]:
    """What the sample of this row needs, read from the row alone."""
    return {
        Needed(need.resource, None if need.named_by is NamedBy.ALL else _NAMES[need.resource], need.actions)
        for need in row.needs
    } | ({Needed(ResourceType.GROUP, GROUP, frozenset({Action.SUB}))} if row.code == RequestCode.HEART_BEAT else set())


def led_to(command: Command) -> list[str]:
    """Every record is one of the topic."""
    return [TOPIC]


def signed(command: Command, user: User, secret: str | None = None) -> Command:
    """The same request signed, with another secret than the user's if one is given."""
    credentials = Credentials(user.name, user.password if secret is None else secret)
    return request(command.code, credentials.signed(command.fields, command.body), command.body)


class Grant(NamedTuple):
    """One entry of a policy: `resource` as requests write it."""

    resource: str
    actions: frozenset[Action]
    decision: Decision = Decision.ALLOW
    sources: tuple[str, ...] = ()

    @property
    def entry(self) -> Entry:
        return Entry(read_resource(self.resource), self.actions, self.sources, self.decision)


def grants_for(needs: Iterable[Needed]) -> list[Grant]:
    """The least that allows all of these: for each its resource, with one of its actions."""
    actions: dict[str, set[Action]] = {}
    for needed in needs:
        actions.setdefault(needed.text, set()).add(min(needed.actions, key=lambda action: action.value))
    return [Grant(resource, frozenset(allowed)) for resource, allowed in actions.items()]


class UsersInMemory:
    """Users by name, and their policies."""

    def __init__(self, *users: User) -> None:
        self.by_name = {user.name: user for user in users}
        self.granted: dict[str, Permissions] = {}

    def grant(self, user: User, *grants: Grant) -> None:
        self.granted[user.name] = Permissions(Acl(user.name, tuple(grant.entry for grant in grants)))

    def user(self, name: str) -> User | None:
        return self.by_name.get(name)

    def permissions(self, name: str) -> Permissions | None:
        return self.granted.get(name)


class CallingPeer:
    """A connection that nothing is sent through."""

    def __init__(self, address: str = ADDRESS) -> None:
        self.address = (address, 40_000)
        self.host = pack_host(ADDRESS, 40_000)
        self.attachments: dict[str, object] = {}


DATE: Final = b"20261124T030000Z"
"""When calls say that they were made: nobody looks at it, but it is what is signed."""


class CallingCall:
    """A gRPC call that nothing is answered to, with these header fields beside those of gRPC itself."""

    def __init__(
        self, rpc: Rpc, fields: Mapping[bytes, bytes] | None = None, connection: CallingPeer | None = None
    ) -> None:
        self.call = GrpcCall(RPCS[rpc], None, RequestFields.made((fields or {}).items()))
        self.connection = connection or CallingPeer()
        self.address = self.connection.address


def authorization(user: User, secret: str | None = None, date: bytes = DATE) -> dict[bytes, bytes]:
    """The header fields of a call that this user signs, with another secret than the user's if one is given."""
    key = (user.password if secret is None else secret).encode()
    signature = hmac.digest(key, date, "sha1").hex()
    said = f"MQv2-HMAC-SHA1 Credential={user.name}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {b"authorization": said.encode(), b"x-mq-date-time": date}


def signed_call(rpc: Rpc, user: User, secret: str | None = None, connection: CallingPeer | None = None) -> CallingCall:
    return CallingCall(rpc, authorization(user, secret), connection)
