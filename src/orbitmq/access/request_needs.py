"""What a request needs: one of some actions on each of some resources, by the row of its code.

Rules of this file
1. A body is read here as its handler reads it, so that both see the same names.
2. A resource that the row names and the request does not is an error of the request (`Denied`), never one need less.
3. What the request of a gRPC call names is found by who can read it. What it names stands for the same things.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from orbitmq.access.gate import Denied, LedTo
from orbitmq.access.needed import Needed, judged_as
from orbitmq.errors import ProtocolError
from orbitmq.limits.access import CALL_NEEDS_MAX, JUDGED_BODY_BYTES_MAX
from orbitmq.protocol.remoting.bodies import (
    BatchAckBody,
    HeartbeatData,
    LockBatchRequest,
    QueryAssignmentRequest,
    SetMessageRequestModeRequest,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicConfigList,
)
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Buffer, Command
from orbitmq.protocol.remoting.recurring_bodies import RecurringDefinition
from orbitmq.protocol.remoting.requests import Action, NamedBy, RequestRow, ResourceType
from orbitmq.protocol.remoting.timer_bodies import CountQuery, TimerQuery


def needs_of(command: Command, row: RequestRow, cluster: str, led_to: LedTo | None) -> list[Needed]:
    """Everything that the caller of a request needs, each once. `cluster` is the server's own.

    Raises `Denied` for a resource that is missing and a body that cannot be read, and what `led_to` raises.
    """
    found: list[Needed] = []
    for resource, actions, named_by, field, separators, optional in row.needs:
        names: Iterable[str | None]
        if named_by is NamedBy.FIELD:
            text = command.fields.get(field)
            if text and not separators:
                found.append(_needed(command, resource, text, actions))
                continue
            names = [name for name in text.split(separators) if name] if text else []
            if not names and not optional:
                raise _missing(command.code, resource, f"the field {field!r} says which")
        elif named_by is NamedBy.SERVER:
            names = [cluster]
        elif named_by is NamedBy.ALL:
            names = [None]
        elif named_by is NamedBy.BODY:
            names = _in_body(command, resource)
        else:
            names = _in_record(command, led_to)
        for name in names:
            found.append(_needed(command, resource, name, actions))
    return found if len(found) == 1 else list(dict.fromkeys(found))


def needs_of_call(rpc: str, needs: Iterable[Needed]) -> list[Needed]:
    """As `needs_of`, of a gRPC call whose request names `needs`. Raises `Denied` for a name that is empty, and for too many."""
    found: dict[Needed, None] = {}
    for count, needed in enumerate(needs, 1):
        if count > CALL_NEEDS_MAX:
            raise Denied(
                ResponseCode.NO_PERMISSION,
                f"{rpc} names more than {CALL_NEEDS_MAX} topics and groups: not more are judged",
            )
        found[_named(rpc, needed)] = None
    return list(found)


def _needed(command: Command, resource: ResourceType, name: str | None, actions: frozenset[Action]) -> Needed:
    return _named(command.code, Needed(resource, name, actions))


def _named(request: int | str, needed: Needed) -> Needed:
    judged = judged_as(needed)
    if judged.name == "":
        raise _missing(request, judged.resource, "an empty name stands for nothing")
    return judged


def _in_record(command: Command, led_to: LedTo | None) -> Iterable[str | None]:
    if led_to is None:
        raise _missing(command.code, ResourceType.TOPIC, "nothing here tells which message it is about")
    return led_to(command)


def _in_body(command: Command, resource: ResourceType) -> Iterable[str | None]:
    size = len(command.body)
    if size > JUDGED_BODY_BYTES_MAX:
        remark = (
            f"request code {command.code}: a body of {size} bytes is not read, {JUDGED_BODY_BYTES_MAX} are; split it"
        )
        raise Denied(ResponseCode.NO_PERMISSION, remark)
    try:
        named = _BODIES[RequestCode(command.code)](command.body)
    except ProtocolError as error:
        raise Denied(
            ResponseCode.NO_PERMISSION, f"parse authorization context error: request code {command.code}: {error}"
        ) from error
    names = named.topics if resource is ResourceType.TOPIC else named.groups
    return dict.fromkeys(names)


def _missing(request: int | str, resource: ResourceType, hint: str) -> Denied:
    """`request`: the code, or the name of an RPC."""
    what = request if isinstance(request, str) else f"request code {request}"
    return Denied(ResponseCode.NO_PERMISSION, f"{what} names no {resource.value.lower()}; {hint}")


# --- bodies -----------------------------------------------------------------------------------------------------------


class _NamedInBody(NamedTuple):
    """What a body names; None in it: all of them."""

    topics: Iterable[str | None] = ()
    groups: Iterable[str] = ()


def _heartbeat(body: Buffer) -> _NamedInBody:
    consumers = HeartbeatData.decode(body).consumer_data_set
    return _NamedInBody(
        [subscription.topic for consumer in consumers for subscription in consumer.subscription_data_set],
        [consumer.group_name for consumer in consumers],
    )


def _locks(body: Buffer) -> _NamedInBody:
    asked = LockBatchRequest.decode(body)
    return _NamedInBody([queue.topic for queue in asked.mq_set], [asked.consumer_group])


def _assignment(body: Buffer) -> _NamedInBody:
    asked = QueryAssignmentRequest.decode(body)
    return _NamedInBody([asked.topic], [asked.consumer_group])


def _request_mode(body: Buffer) -> _NamedInBody:
    mode = SetMessageRequestModeRequest.decode(body)
    return _NamedInBody([mode.topic], [mode.consumer_group])


def _acknowledged(body: Buffer) -> _NamedInBody:
    acks = BatchAckBody.decode(body).acks
    return _NamedInBody([ack.topic for ack in acks], [ack.consumer_group for ack in acks])


def _topics(body: Buffer) -> _NamedInBody:
    return _NamedInBody([config.topic_name for config in TopicConfigList.decode(body).topic_config_list])


def _group(body: Buffer) -> _NamedInBody:
    return _NamedInBody(groups=[SubscriptionGroupConfig.decode(body).group_name])


def _groups(body: Buffer) -> _NamedInBody:
    return _NamedInBody(groups=[config.group_name for config in SubscriptionGroupList.decode(body).group_config_list])


_BODIES: Final[dict[RequestCode, Callable[[Buffer], _NamedInBody]]] = {
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.QUERY_ASSIGNMENT: _assignment,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _request_mode,
    RequestCode.BATCH_ACK_MESSAGE: _acknowledged,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _topics,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _group,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _groups,
    RequestCode.LIST_TIMERS: lambda body: _NamedInBody([TimerQuery.decode(body).topic]),
    RequestCode.COUNT_TIMERS: lambda body: _NamedInBody([CountQuery.decode(body).topic]),
    RequestCode.PUT_RECURRING: lambda body: _NamedInBody([RecurringDefinition.decode(body).topic]),
}
"""What reads the body of each request whose row says `@body`."""
