"""Names: topics and groups that RocketMQ gives a meaning to, the rules all names obey, and permissions.

Rules of this file
1. A name rule answers with the problem as text, or None; the caller decides which response code or error that is.
2. What a broker creates at start is data (`system_topics`, `BUILT_IN_GROUPS`); nothing is created here.

Source: RocketMQ remoting, names, permissions and limits; broker behaviour, system topics and names.
"""

from __future__ import annotations

import re
from enum import IntFlag
from typing import Final, NamedTuple

from orbitmq.limits import wire as limits


class Perm(IntFlag):
    """What may be done with a topic's queues. INHERIT lets an unknown topic be created in the image of this one."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


READ_WRITE: Final = Perm.READ | Perm.WRITE
TEMPLATE: Final = Perm.READ | Perm.WRITE | Perm.INHERIT

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group under which RocketMQ keeps how far it has seen transactions decided."""
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
QUARANTINE_TOPIC: Final = "orbitmq_sys_quarantine"
"""Ours: where records go that can never be delivered, with the reason as a property."""
FAR_TIMER_TOPIC: Final = "orbitmq_sys_far_timer"
"""Ours: timer messages on their way into the far tier."""
TIMER_CHANGES_TOPIC: Final = "orbitmq_sys_timer_changes"
"""Ours: what was moved, recalled or rescheduled in the far tier, as records."""
RECURRING_TOPIC: Final = "orbitmq_sys_recurring"
"""Ours: definitions of recurring messages and what became of their runs, as records."""
TABLES_TOPIC: Final = "orbitmq_sys_tables"
"""Ours: changes of topics, groups and whatever else a broker has to know beside its messages, as records. It is in no table of topics:
nobody pulls it."""
EPOCHS_TOPIC: Final = "orbitmq_sys_epochs"
"""Ours: who led a replicated group from where on. Each leader writes one record before anything else. In no table of topics either."""

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LIGHT_QUEUE_PREFIX: Final = "%LMQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
OWN_TOPIC_PREFIX: Final = "orbitmq_sys_"
"""Ours, those to come included: clients neither make such topics nor send to them."""
REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
"""Its offset in a revive topic is that of the last record that is done with."""
SYNC_MEMBER_TOPIC_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
REPLY_TOPIC_SUFFIX: Final = "REPLY_TOPIC"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

DEFAULT_PRODUCER_GROUP: Final = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP: Final = "DEFAULT_CONSUMER"
CLIENT_INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
REDRIVE_GROUP: Final = "orbitmq-redrive"
"""Ours: consumer group under which the place of a redrive in a dead-letter topic is kept; with a selection its digest is appended."""

GRPC_ENDPOINTS_NAMESPACE: Final = "ORBITMQ_GRPC"
"""Key-value table of name servers: broker name -> `host:port` where it serves gRPC."""
NO_GRPC_ENDPOINT: Final = "none"
"""The same of a broker that serves none."""

SYSTEM_TOPICS: Final[frozenset[str]] = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        TRACE_TOPIC,
        SELF_TEST_TOPIC,
        BENCHMARK_TOPIC,
        OFFSET_MOVED_TOPIC,
        CHECKPOINT_TOPIC,
        QUARANTINE_TOPIC,
        FAR_TIMER_TOPIC,
        TIMER_CHANGES_TOPIC,
        RECURRING_TOPIC,
        TABLES_TOPIC,
        EPOCHS_TOPIC,
    }
)
"""System topics with a fixed name; others begin with `rmq_sys_` or `orbitmq_sys_`, or bear the cluster's or the broker's name."""

SEND_FORBIDDEN_TOPICS: Final[frozenset[str]] = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        QUARANTINE_TOPIC,
        TIMER_TOPIC,
        FAR_TIMER_TOPIC,
        TIMER_CHANGES_TOPIC,
        RECURRING_TOPIC,
        TABLES_TOPIC,
        EPOCHS_TOPIC,
    }
)
"""Topics that only the broker itself writes to, with those that begin with `OWN_TOPIC_PREFIX` or `REVIVE_TOPIC_PREFIX`. RocketMQ lets
clients send to its timer topic and its revive topic; a record there that is no timer message would have to be explained at every start,
and one that acknowledges what another group has popped would lose it."""


class SystemTopic(NamedTuple):
    """A topic that a broker has from its start: as many read as write queues."""

    name: str
    queues: int
    perm: Perm


class BuiltInGroup(NamedTuple):
    """A consumer group that a broker has from its start."""

    name: str
    consume_broadcast: bool


BUILT_IN_GROUPS: Final[tuple[BuiltInGroup, ...]] = (
    BuiltInGroup("TOOLS_CONSUMER", False),
    BuiltInGroup("FILTERSRV_CONSUMER", False),
    BuiltInGroup("SELF_TEST_C_GROUP", False),
    BuiltInGroup("CID_ONS-HTTP-PROXY", True),
    BuiltInGroup("CID_ONSAPI_PULL", True),
    BuiltInGroup("CID_ONSAPI_PERMISSION", True),
    BuiltInGroup("CID_ONSAPI_OWNER", True),
    BuiltInGroup("CID_RMQ_SYS_TRANS", True),
)
"""`consume_broadcast` is what RocketMQ sets explicitly; the groups without it keep a group's default (allowed as
well).
"""

RESERVED_GROUPS: Final[frozenset[str]] = frozenset(group.name for group in BUILT_IN_GROUPS) | frozenset(
    {
        DEFAULT_PRODUCER_GROUP,
        DEFAULT_CONSUMER_GROUP,
        CLIENT_INNER_PRODUCER_GROUP,
        "SCHEDULE_CONSUMER",
        "__MONITOR_CONSUMER",
        "SELF_TEST_P_GROUP",
    }
)
"""Groups whose names have a meaning of their own."""

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


def retry_topic(group: str) -> str:
    """Where a group's failed messages wait for their next attempt."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Where a group's messages end when every attempt failed."""
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Where answers of request-reply calls are sent."""
    return f"{cluster}_{REPLY_TOPIC_SUFFIX}"


def is_system_topic(topic: str, *, cluster: str | None = None, broker: str | None = None) -> bool:
    """Whether a topic belongs to the broker. Cluster and broker names make three more topics system topics when
    given.
    """
    if topic in SYSTEM_TOPICS or topic.startswith((SYSTEM_TOPIC_PREFIX, OWN_TOPIC_PREFIX)):
        return True
    if cluster is not None and topic in (cluster, reply_topic(cluster)):
        return True
    return broker is not None and topic == broker


def is_system_group(group: str) -> bool:
    """Whether a group exists without being created: reserved names and everything that begins `CID_RMQ_SYS_`."""
    return group in RESERVED_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def is_users_group(group: str) -> bool:
    """Whether a group is neither the system's nor one under which a redrive keeps its place."""
    return not is_system_group(group) and not group.startswith(REDRIVE_GROUP)


def is_send_forbidden(topic: str) -> bool:
    """Whether clients may not send to the topic."""
    return topic in SEND_FORBIDDEN_TOPICS or topic.startswith((OWN_TOPIC_PREFIX, REVIVE_TOPIC_PREFIX))


def topic_name_problem(topic: str) -> str | None:
    """Why `topic` is not a legal topic name, or None.

    Ordinary names have at most 127 characters, `%RETRY%` and `%DLQ%` ones 255. Retry topics of pop consumption
    contain `+`, are illegal by this rule and therefore never accepted from a client.
    """
    problem = _characters_problem("topic", topic)
    if problem is not None:
        return problem
    longest = limits.TOPIC_BYTES_MAX
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        longest = limits.RETRY_TOPIC_BYTES_MAX
    if len(topic) > longest:
        return f"the topic name has {len(topic)} characters, at most {longest} are allowed"
    return None


def group_name_problem(group: str) -> str | None:
    """Why `group` is not a legal producer or consumer group name, or None."""
    problem = _characters_problem("group", group)
    if problem is not None:
        return problem
    if len(group) > limits.GROUP_CHARS_MAX:
        return f"the group name has {len(group)} characters, at most {limits.GROUP_CHARS_MAX} are allowed"
    return None


def _characters_problem(kind: str, name: str) -> str | None:
    if not isinstance(name, str):
        return f"the {kind} name is text, not {type(name).__name__}"
    if not name or name.isspace():
        return f"the {kind} name is blank"
    if _NAME.fullmatch(name) is None:
        return f"the {kind} name {name[:64]!r} contains characters other than % | a-z A-Z 0-9 _ -"
    return None


def system_topics(
    cluster: str,
    broker: str,
    *,
    auto_create_queues: int | None = 8,
    cluster_topic: bool = True,
    broker_topic: bool = True,
    trace_topic: str | None = None,
    timer_wheel: bool = True,
) -> list[SystemTopic]:
    """What a broker creates at its start.

    `auto_create_queues` is `defaultTopicQueueNums`, or None when `autoCreateTopicEnable` is off; `cluster_topic` and
    `broker_topic` give the topics of that name read and write permission; `trace_topic` is the name when
    `traceTopicEnable` is on. The topic for transactions given up (`TRANS_CHECK_MAX_TIME_TOPIC`, one queue) is not
    here: it is created when the first one is.
    """
    topics = [SystemTopic(SELF_TEST_TOPIC, 1, READ_WRITE)]
    if auto_create_queues is not None:
        topics.append(SystemTopic(AUTO_CREATE_TOPIC, auto_create_queues, TEMPLATE))
    topics += [
        SystemTopic(BENCHMARK_TOPIC, 1024, READ_WRITE),
        SystemTopic(cluster, 16, TEMPLATE if cluster_topic else Perm.INHERIT),
        SystemTopic(broker, 1, TEMPLATE if broker_topic else Perm.INHERIT),
        SystemTopic(OFFSET_MOVED_TOPIC, 1, READ_WRITE),
        SystemTopic(SCHEDULE_TOPIC, 18, READ_WRITE),
    ]
    if trace_topic is not None:
        topics.append(SystemTopic(trace_topic, 1, READ_WRITE))
    topics += [
        SystemTopic(reply_topic(cluster), 1, READ_WRITE),
        SystemTopic(REVIVE_TOPIC_PREFIX + cluster, 8, READ_WRITE),
        SystemTopic(SYNC_MEMBER_TOPIC_PREFIX + broker, 1, Perm.INHERIT),
        SystemTopic(HALF_TOPIC, 1, READ_WRITE),
        SystemTopic(OP_HALF_TOPIC, 1, READ_WRITE),
        SystemTopic(QUARANTINE_TOPIC, 1, READ_WRITE),
        SystemTopic(RECURRING_TOPIC, 1, READ_WRITE),
    ]
    if timer_wheel:
        topics.append(SystemTopic(TIMER_TOPIC, 1, READ_WRITE))
    return topics
