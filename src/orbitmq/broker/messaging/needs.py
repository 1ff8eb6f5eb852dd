"""What the caller of each RPC needs: permissions on the topics and groups that its request names.

Rules of this file
1. A name that is missing is a need with an empty name, which a gate lets through for nobody; never one need less.
2. Names are taken as they stand. What a retry or dead-letter topic stands for is known where needs are judged (`access.needed`).
3. Nothing is looked up. A request leads elsewhere by what is kept here, and its handler compares that with what the request names, and so
   with what was judged:
   * a receipt handle settles what its group has popped from its topic, and nothing else of it is believed, its place in the log least;
   * an id of a transaction is that of a half message of the topic;
   * a session belongs to the user who began it, and its heartbeats and its end name the group of its settings.
4. More is asked for than RocketMQ does where others' messages could be hidden or lost: ChangeInvisibleDuration needs the topic too, every
   message of a send counts, and a recall needs the topic of its handle.

Source: RocketMQ gRPC, authorisation by RPC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from orbitmq.access.needed import Needed
from orbitmq.broker.real_topics import topic_of_popped
from orbitmq.errors import ProtocolError
from orbitmq.protocol.grpc.messages import (
    AckMessageRequest,
    ChangeInvisibleDurationRequest,
    ClientType,
    EndTransactionRequest,
    ForwardMessageToDeadLetterQueueRequest,
    HeartbeatRequest,
    NotifyClientTerminationRequest,
    QueryAssignmentRequest,
    QueryRouteRequest,
    RecallMessageRequest,
    ReceiveMessageRequest,
    SendMessageRequest,
    SyncLiteSubscriptionRequest,
    TelemetryCommand,
)
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.recall_handles import decode_handle
from orbitmq.protocol.remoting.requests import Action, ResourceType

_PUB: Final = frozenset({Action.PUB})
_SUB: Final = frozenset({Action.SUB})
_ANY_USE: Final = frozenset({Action.PUB, Action.SUB, Action.GET})
"""Of somebody who may learn where a topic is: as for a route over remoting, also who may only look."""

_NOT_CONSUMERS: Final = frozenset({ClientType.CLIENT_TYPE_UNSPECIFIED, ClientType.PRODUCER})


def _publishing(topic: str) -> Needed:
    return Needed(ResourceType.TOPIC, topic, _PUB)


def _consuming(topic: str) -> Needed:
    return Needed(ResourceType.TOPIC, topic, _SUB)


def _in_group(group: str) -> Needed:
    return Needed(ResourceType.GROUP, group, _SUB)


def _send(request: SendMessageRequest) -> Iterable[Needed]:
    """Properties that would lead to another topic, the cancelling of a timer or a scope, are refused to users (`REFUSED_TO_USERS`)."""
    names = dict.fromkeys(message.topic.name for message in request.messages)
    return map(_publishing, names or ("",))


def _recall(request: RecallMessageRequest) -> Iterator[Needed]:
    yield _publishing(request.topic.name)
    try:
        yield _publishing(decode_handle(request.recall_handle).topic)
    except ProtocolError:
        return  # it leads nowhere, which its handler says


def _end_transaction(request: EndTransactionRequest) -> Iterable[Needed]:
    return (_publishing(request.topic.name),)


def _route(request: QueryRouteRequest) -> Iterable[Needed]:
    return (Needed(ResourceType.TOPIC, request.topic.name, _ANY_USE),)


def _assignment(request: QueryAssignmentRequest | SyncLiteSubscriptionRequest) -> Iterable[Needed]:
    return _in_group(request.group.name), _consuming(request.topic.name)


def _receive(request: ReceiveMessageRequest) -> Iterable[Needed]:
    return _in_group(request.group.name), _consuming(request.message_queue.topic.name)


def _settling(
    request: AckMessageRequest | ChangeInvisibleDurationRequest | ForwardMessageToDeadLetterQueueRequest,
) -> Iterable[Needed]:
    group = request.group.name
    return _in_group(group), _consuming(topic_of_popped(request.topic.name, group))


def _heartbeat(request: HeartbeatRequest) -> Iterable[Needed]:
    """Producers have no group."""
    is_consumer = request.client_type not in _NOT_CONSUMERS
    return (_in_group(request.group.name),) if is_consumer or request.group.name else ()


def _termination(request: NotifyClientTerminationRequest) -> Iterable[Needed]:
    """Producers have no group, and some send an empty one."""
    return (_in_group(request.group.name),) if request.group.name else ()


def _telemetry(command: TelemetryCommand) -> Iterator[Needed]:
    """Only settings name something; the answers of clients need a caller who is known."""
    settings = command.settings
    for resource in settings.publishing.topics:
        yield _publishing(resource.name)
    if settings.WhichOneof("pub_sub") == "subscription":
        yield _in_group(settings.subscription.group.name)
        for entry in settings.subscription.subscriptions:
            yield _consuming(entry.topic.name)


NEEDS: Final[Mapping[Rpc, Callable[[Any], Iterable[Needed]]]] = {
    Rpc.QUERY_ROUTE: _route,
    Rpc.HEARTBEAT: _heartbeat,
    Rpc.SEND_MESSAGE: _send,
    Rpc.QUERY_ASSIGNMENT: _assignment,
    Rpc.RECEIVE_MESSAGE: _receive,
    Rpc.ACK_MESSAGE: _settling,
    Rpc.FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE: _settling,
    Rpc.END_TRANSACTION: _end_transaction,
    Rpc.TELEMETRY: _telemetry,
    Rpc.NOTIFY_CLIENT_TERMINATION: _termination,
    Rpc.CHANGE_INVISIBLE_DURATION: _settling,
    Rpc.RECALL_MESSAGE: _recall,
    Rpc.SYNC_LITE_SUBSCRIPTION: _assignment,
}
"""By RPC, what finds the needs of its request; each may be found more than once. An RPC that does not stand here is carried out for nobody
who is to be judged."""
