"""Names in gRPC messages: which topics and groups a client may name, and the namespace that stands before a name.

Rules of this file
1. Only the name of a `Resource` counts where a client sends one; its namespace is what the client keeps for itself.
2. System topics are for nobody here, neither to send nor to receive.

Source: RocketMQ gRPC, common validation.
"""

from __future__ import annotations

from functools import lru_cache

from orbitmq.limits.grpc import CONSUMER_GROUP_CHARS_MAX, NAMES_KEPT_MAX
from orbitmq.limits.wire import TOPIC_BYTES_MAX
from orbitmq.protocol.grpc.messages import Code, Resource
from orbitmq.protocol.grpc.status import RpcError
from orbitmq.protocol.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    group_name_problem,
    is_system_topic,
    topic_name_problem,
)


def topic_of(resource: Resource) -> str:
    """The name of a topic. Raises RpcError (ILLEGAL_TOPIC)."""
    name = resource.name
    if len(name) > TOPIC_BYTES_MAX:
        raise RpcError(
            Code.ILLEGAL_TOPIC, f"the topic name has {len(name)} characters, at most {TOPIC_BYTES_MAX} are allowed"
        )
    problem = _topic_problem(name)
    if problem is not None:
        raise RpcError(Code.ILLEGAL_TOPIC, problem)
    return name


@lru_cache(NAMES_KEPT_MAX)
def _topic_problem(name: str) -> str | None:
    return topic_name_problem(name) or (f"topic {name!r} belongs to the broker" if is_system_topic(name) else None)


def group_of(resource: Resource) -> str:
    """The name of a consumer group. Raises RpcError (ILLEGAL_CONSUMER_GROUP)."""
    name = resource.name
    if len(name) > CONSUMER_GROUP_CHARS_MAX:
        raise RpcError(
            Code.ILLEGAL_CONSUMER_GROUP,
            f"the group name has {len(name)} characters, at most {CONSUMER_GROUP_CHARS_MAX} are allowed",
        )
    problem = _group_problem(name)
    if problem is not None:
        raise RpcError(Code.ILLEGAL_CONSUMER_GROUP, problem)
    return name


@lru_cache(NAMES_KEPT_MAX)
def _group_problem(name: str) -> str | None:
    is_ours = name.startswith(SYSTEM_GROUP_PREFIX)
    return group_name_problem(name) or (f"group {name!r} belongs to the broker" if is_ours else None)


def put_name(resource: Resource, stored: str) -> None:
    """Write a stored name, `namespace%name` or `name`, into an empty resource. Names of retry and dead-letter topics are taken whole."""
    if "%" in stored and not stored.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        namespace, _, name = stored.partition("%")
        if namespace and name:
            resource.resource_namespace, resource.name = namespace, name
            return
    resource.name = stored
