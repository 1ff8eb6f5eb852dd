"""What a request needs: one of some actions on each of some resources, by the row of its code.

Rules of this file
1. A body is read here as its handler reads it, so that both see the same names.
2. A resource that the row names and the request does not is an error of the request (`Denied`), never one need less.
3. The topic of a retry or dead-letter queue stands for its group; publishing there is consuming in that group.
4. In topics that only the broker writes to, messages of all topics wait: who consumes from one of them needs all topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from orbitmq.access.gate import Denied, LedTo
from orbitmq.errors import ProtocolError
from orbitmq.limits.access import JUDGED_BODY_BYTES_MAX
from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_send_forbidden
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


class Needed(NamedTuple):
    """The caller needs one of `actions` on the resource; `name` None: on all resources of the type."""

    resource: ResourceType
    name: str | None
    actions: frozenset[Action]

    @property
    def text(self) -> str:
        return f"{self.resource.value}:{'*' if self.name is None else self.name}"


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
                raise _missing(command, resource, f"the field {field!r} says which")
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


def _needed(command: Command, resource: ResourceType, name: str | None, actions: frozenset[Action]) -> Needed:
    needed = judged_as(Needed(resource, name, actions))
    if needed.name == "":
        raise _missing(command, needed.resource, "an empty name stands for nothing")
    return needed


def judged_as(needed: Needed) -> Needed:
    """What is asked of the policies: for the topic of a retry or dead-letter queue its group, whose name may be empty; for consuming
    from a topic that only the broker writes to all topics."""
    name, actions = needed.name, needed.actions
    if needed.resource is not ResourceType.TOPIC or not name:
        return needed
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            # `+` ends the group in the retry topics of pop consumption, and stands in no name of a group.
            group = name[len(prefix) :].partition("+")[0]
            return Needed(ResourceType.GROUP, group, _OF_GROUP.get(actions, actions))
    if is_send_forbidden(name) and Action.SUB in actions:
        return needed._replace(name=None)
    return needed


_OF_GROUP: Final = {
    actions: actions - {Action.PUB} | {Action.SUB}
    for actions in (frozenset({Action.PUB}), frozenset({Action.PUB, Action.SUB, Action.GET}))
}


def _in_record(command: Command, led_to: LedTo | None) -> Iterable[str | None]:
    if led_to is None:
        raise _missing(command, ResourceType.TOPIC, "nothing here tells which message it is about")
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


def _missing(command: Command, resource: ResourceType, hint: str) -> Denied:
    return Denied(ResponseCode.NO_PERMISSION, f"request code {command.code} names no {resource.value.lower()}; {hint}")


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
