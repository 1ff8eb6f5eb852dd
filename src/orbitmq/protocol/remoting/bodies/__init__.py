"""Bodies of requests and answers, one module per subject; `json_body` holds the rules they share.

A module is imported when one of its names is first used: a program that sends needs two of them.
"""

# ruff: noqa: F403 (type checkers see every class of a module; which of them are taken from here stands below)

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from orbitmq.protocol.remoting.bodies.access import *
    from orbitmq.protocol.remoting.bodies.assignment import *
    from orbitmq.protocol.remoting.bodies.connections import *
    from orbitmq.protocol.remoting.bodies.groups import *
    from orbitmq.protocol.remoting.bodies.heartbeat import *
    from orbitmq.protocol.remoting.bodies.json_body import *
    from orbitmq.protocol.remoting.bodies.offsets import *
    from orbitmq.protocol.remoting.bodies.queue_locks import *
    from orbitmq.protocol.remoting.bodies.registration import *
    from orbitmq.protocol.remoting.bodies.routes import *
    from orbitmq.protocol.remoting.bodies.running import *
    from orbitmq.protocol.remoting.bodies.statistics import *
    from orbitmq.protocol.remoting.bodies.topics import *

_MODULES: Final = {
    "access": "AclInfo PolicyEntryInfo PolicyInfo UserInfo read_infos",
    "assignment": (
        "BatchAckBody BatchAckEntry MessageQueueAssignment MessageRequestMode MessageRequestModes "
        "QueryAssignmentRequest QueryAssignmentResponse SetMessageRequestModeRequest"
    ),
    "connections": "ClientConnection ConsumerConnection ConsumerIdList ProducerConnection ProducerInfo ProducerTableInfo",
    "groups": (
        "CustomizedRetryPolicy ExponentialRetryPolicy GroupForbidden GroupList GroupRetryPolicy "
        "SimpleSubscriptionData SubscriptionGroupConfig SubscriptionGroupList SubscriptionGroupWrapper"
    ),
    "heartbeat": (
        "CheckClientBody ConsumeFromWhere ConsumerData ConsumeType HeartbeatData MessageModel ProducerData "
        "QuerySubscriptionBody SubscriptionData"
    ),
    "json_body": "JsonBody MessageQueue",
    "offsets": (
        "ConsumerOffsetTable ConsumerStatusBody CorrectionOffsets DelayOffsetTable QueueOffset ResetOffsetBody"
    ),
    "queue_locks": "LockBatchRequest LockBatchResponse",
    "registration": "RegisterBrokerBody",
    "routes": "BrokerData BrokerMemberGroup BrokerMemberGroupBody ClusterInfo KVTable QueueData TopicRouteData",
    "running": (
        "ConsumeMessageDirectlyResult ConsumeResult ConsumerRunningInfo ConsumeStatus PopProcessQueueInfo "
        "ProcessQueueInfo"
    ),
    "statistics": (
        "BrokerStatsData ConsumeQueueBody ConsumeQueueUnit ConsumeStats ConsumeStatsList ConsumeTimeSpans "
        "HaClientRuntime HaConnectionRuntime HaRuntimeInfo OffsetProgress QueueTimeSpan StatsItem TimerCount "
        "TimerMetrics"
    ),
    "topics": (
        "DataVersion LogicQueueMappingItem TopicConfig TopicConfigAndMapping TopicConfigList "
        "TopicConfigWrapper TopicList TopicOffset TopicQueueMappingDetail TopicQueueMappingInfo "
        "TopicStatsTable"
    ),
}
"""Module -> the names that programs take from here."""

_HOMES: Final = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    module = _HOMES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(_HOMES)
