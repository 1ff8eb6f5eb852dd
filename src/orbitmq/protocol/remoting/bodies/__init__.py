"""Bodies of requests and answers, one module per subject; `json_body` holds the rules they share.

A module is imported when one of its names is first used: a program that sends needs two of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from orbitmq.protocol.remoting.bodies.assignment import (
        BatchAckBody,
        BatchAckEntry,
        MessageQueueAssignment,
        MessageRequestMode,
        MessageRequestModes,
        QueryAssignmentRequest,
        QueryAssignmentResponse,
        SetMessageRequestModeRequest,
    )
    from orbitmq.protocol.remoting.bodies.connections import (
        ClientConnection,
        ConsumerConnection,
        ConsumerIdList,
        ProducerConnection,
        ProducerInfo,
        ProducerTableInfo,
    )
    from orbitmq.protocol.remoting.bodies.groups import (
        CustomizedRetryPolicy,
        ExponentialRetryPolicy,
        GroupForbidden,
        GroupList,
        GroupRetryPolicy,
        SimpleSubscriptionData,
        SubscriptionGroupConfig,
        SubscriptionGroupList,
        SubscriptionGroupWrapper,
    )
    from orbitmq.protocol.remoting.bodies.heartbeat import (
        CheckClientBody,
        ConsumeFromWhere,
        ConsumerData,
        ConsumeType,
        HeartbeatData,
        MessageModel,
        ProducerData,
        QuerySubscriptionBody,
        SubscriptionData,
    )
    from orbitmq.protocol.remoting.bodies.json_body import JsonBody, MessageQueue
    from orbitmq.protocol.remoting.bodies.offsets import (
        ConsumerOffsetTable,
        ConsumerStatusBody,
        CorrectionOffsets,
        DelayOffsetTable,
        QueueOffset,
        ResetOffsetBody,
    )
    from orbitmq.protocol.remoting.bodies.queue_locks import LockBatchRequest, LockBatchResponse
    from orbitmq.protocol.remoting.bodies.registration import RegisterBrokerBody
    from orbitmq.protocol.remoting.bodies.routes import (
        BrokerData,
        BrokerMemberGroup,
        BrokerMemberGroupBody,
        ClusterInfo,
        KVTable,
        QueueData,
        TopicRouteData,
    )
    from orbitmq.protocol.remoting.bodies.running import (
        ConsumeMessageDirectlyResult,
        ConsumeResult,
        ConsumerRunningInfo,
        ConsumeStatus,
        PopProcessQueueInfo,
        ProcessQueueInfo,
    )
    from orbitmq.protocol.remoting.bodies.statistics import (
        BrokerStatsData,
        ConsumeQueueBody,
        ConsumeQueueUnit,
        ConsumeStats,
        ConsumeStatsList,
        ConsumeTimeSpans,
        HaClientRuntime,
        HaConnectionRuntime,
        HaRuntimeInfo,
        OffsetProgress,
        QueueTimeSpan,
        StatsItem,
        TimerCount,
        TimerMetrics,
    )
    from orbitmq.protocol.remoting.bodies.topics import (
        DataVersion,
        LogicQueueMappingItem,
        TopicConfig,
        TopicConfigAndMapping,
        TopicConfigList,
        TopicConfigWrapper,
        TopicList,
        TopicOffset,
        TopicQueueMappingDetail,
        TopicQueueMappingInfo,
        TopicStatsTable,
    )

__all__ = [
    "BatchAckBody",
    "BatchAckEntry",
    "BrokerData",
    "BrokerMemberGroup",
    "BrokerMemberGroupBody",
    "BrokerStatsData",
    "CheckClientBody",
    "ClientConnection",
    "ClusterInfo",
    "ConsumeFromWhere",
    "ConsumeMessageDirectlyResult",
    "ConsumeQueueBody",
    "ConsumeQueueUnit",
    "ConsumeResult",
    "ConsumeStats",
    "ConsumeStatsList",
    "ConsumeStatus",
    "ConsumeTimeSpans",
    "ConsumeType",
    "ConsumerConnection",
    "ConsumerData",
    "ConsumerIdList",
    "ConsumerOffsetTable",
    "ConsumerRunningInfo",
    "ConsumerStatusBody",
    "CorrectionOffsets",
    "CustomizedRetryPolicy",
    "DataVersion",
    "DelayOffsetTable",
    "ExponentialRetryPolicy",
    "GroupForbidden",
    "GroupList",
    "GroupRetryPolicy",
    "HaClientRuntime",
    "HaConnectionRuntime",
    "HaRuntimeInfo",
    "HeartbeatData",
    "JsonBody",
    "KVTable",
    "LockBatchRequest",
    "LockBatchResponse",
    "LogicQueueMappingItem",
    "MessageModel",
    "MessageQueue",
    "MessageQueueAssignment",
    "MessageRequestMode",
    "MessageRequestModes",
    "OffsetProgress",
    "PopProcessQueueInfo",
    "ProcessQueueInfo",
    "ProducerConnection",
    "ProducerData",
    "ProducerInfo",
    "ProducerTableInfo",
    "QueryAssignmentRequest",
    "QueryAssignmentResponse",
    "QuerySubscriptionBody",
    "QueueData",
    "QueueOffset",
    "QueueTimeSpan",
    "RegisterBrokerBody",
    "ResetOffsetBody",
    "SetMessageRequestModeRequest",
    "SimpleSubscriptionData",
    "StatsItem",
    "SubscriptionData",
    "SubscriptionGroupConfig",
    "SubscriptionGroupList",
    "SubscriptionGroupWrapper",
    "TimerCount",
    "TimerMetrics",
    "TopicConfig",
    "TopicConfigAndMapping",
    "TopicConfigList",
    "TopicConfigWrapper",
    "TopicList",
    "TopicOffset",
    "TopicQueueMappingDetail",
    "TopicQueueMappingInfo",
    "TopicRouteData",
    "TopicStatsTable",
]

_MODULES: Final = {
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
_HOMES: Final = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    module = _HOMES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
