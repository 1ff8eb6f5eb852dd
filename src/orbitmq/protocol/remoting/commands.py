"""The commands of the protocol: every code, and the ext fields its request and its answer carry.

The table is written in the notation of the protocol document, one word per field:

    name             optional text          name:int    32-bit number      name:bool     boolean
    name!            mandatory              name:long   64-bit number      name:boundary LOWER or UPPER
    name:int=-1      value taken when the field is absent

Rules of this file
1. "Mandatory" is what the protocol document declares. Servers do not refuse a request because such a field is
   missing; they take the default of the type (0, false, empty). Answers always carry their mandatory fields.
2. A code without a row here has no ext fields of its own. Every code has a name in `RequestCode`.
3. Unknown ext fields are ignored; `COMMON_FIELDS` may accompany any request.

(RocketMQ remoting: client requests, admin requests, broker to broker, name server.)
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from orbitmq.protocol.remoting.codes import (
    OWN_CODES_FROM,
    RequestCode,
    ResponseCode,
    request_name,
    response_name,
)

__all__ = [
    "COMMON_FIELDS",
    "COMMON_RESPONSE_FIELDS",
    "HEADERS",
    "OWN_CODES_FROM",
    "SEND_V1_FIELDS",
    "SEND_V2_FIELDS",
    "FieldType",
    "HeaderField",
    "HeaderSpec",
    "RequestCode",
    "ResponseCode",
    "absent_field",
    "header_of",
    "request_name",
    "response_name",
]


class FieldType(Enum):
    """Type of an ext field; its value on the wire is always text."""

    TEXT = "text"
    INT = "int"
    LONG = "long"
    BOOLEAN = "bool"
    BOUNDARY = "boundary"


class HeaderField(NamedTuple):
    """One ext field. `default` is the text taken when it is absent; None where there is none."""

    name: str
    type: FieldType
    mandatory: bool
    default: str | None


class HeaderSpec(NamedTuple):
    """Ext fields of a request and of its answer, in the order of the protocol document."""

    request: tuple[HeaderField, ...]
    response: tuple[HeaderField, ...]


def _fields(notation: str) -> tuple[HeaderField, ...]:
    """Fields of one side of a table row; the notation is in the module docstring."""
    fields = []
    for word in notation.split():
        declaration, has_default, default = word.partition("=")
        mandatory = declaration.endswith("!")
        name, _, type_name = declaration.rstrip("!").partition(":")
        fields.append(HeaderField(name, FieldType(type_name or "text"), mandatory, default if has_default else None))
    return tuple(fields)


COMMON_FIELDS: Final = frozenset(
    {
        "ns",
        "nsd",
        "bname",
        "oway",
        "lo",
        "ReqT",
        "__ZONE_NAME",
        "__ZONE_MODE",
        "AccessKey",
        "Signature",
        "SecurityToken",
        "OnsChannel",
    }
)
"""Ext fields that any request may carry: namespace, broker name, stream marker, zone, signature."""

COMMON_RESPONSE_FIELDS: Final = frozenset({"MSG_REGION", "TRACE_ON"})
"""Ext fields that answers to sends and recalls carry beside those of their header."""

SEND_V2_FIELDS: Final = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
    "n": "bname",
}
"""Letters of the short send header and the names they stand for in the long one."""

SEND_V1_FIELDS: Final = {name: letter for letter, name in SEND_V2_FIELDS.items()}

_SEND = (
    "producerGroup! topic! defaultTopic! defaultTopicQueueNums:int! queueId:int! sysFlag:int! bornTimestamp:long! "
    "flag:int! properties reconsumeTimes:int unitMode:bool batch:bool maxReconsumeTimes:int"
)
_SEND_V2 = "a! b! c! d:int! e:int! f:int! g:long! h:int! i j:int k:bool l:int m:bool n"
_SENT = (
    "msgId! queueId:int! queueOffset:long! transactionId batchUniqId recallHandle MSG_REGION TRACE_ON "
    "orbitmqRepeat orbitmqDeliverMs:long"
)
_PULL = (
    "consumerGroup! topic! queueId:int! queueOffset:long! maxMsgNums:int! sysFlag:int! commitOffset:long! "
    "suspendTimeoutMillis:long! subscription subVersion:long! expressionType maxMsgBytes:int requestSource:int "
    "proxyFrowardClientId"
)
_PULLED = (
    "suggestWhichBrokerId:long! nextBeginOffset:long! minOffset:long! maxOffset:long! offsetDelta:long "
    "topicSysFlag:int groupSysFlag:int forbiddenType:int"
)
_TOPIC = (
    "topic! defaultTopic! readQueueNums:int! writeQueueNums:int! perm:int! topicFilterType! topicSysFlag:int "
    "order:bool!=false attributes force:bool=false"
)
_BROKER = "brokerName! brokerAddr! clusterName! brokerId:long!"
_RESET = "topic! group! queueId:int=-1 offset:long timestamp:long! isForce:bool!"
_HA_INFO = "masterHaAddress masterFlushOffset:long masterAddress"
_POPPED = "popTime:long! invisibleTime:long! reviveQid:int! restNum:long! startOffsetInfo msgOffsetInfo orderCountInfo"
_ELECTED = "masterBrokerId:long masterAddress masterEpoch:int syncStateSetEpoch:int"

_Code = RequestCode

_TABLE: Final[dict[RequestCode, tuple[str, str]]] = {
    # messages
    _Code.SEND_MESSAGE: (_SEND, _SENT),
    _Code.SEND_MESSAGE_V2: (_SEND_V2, _SENT),
    _Code.SEND_BATCH_MESSAGE: (_SEND_V2, _SENT),
    _Code.SEND_REPLY_MESSAGE: (_SEND, _SENT),
    _Code.SEND_REPLY_MESSAGE_V2: (_SEND_V2, _SENT),
    _Code.PUSH_REPLY_MESSAGE_TO_CLIENT: (
        "producerGroup! topic! defaultTopic! defaultTopicQueueNums:int! queueId:int! sysFlag:int! bornTimestamp:long! "
        "flag:int! properties reconsumeTimes:int unitMode:bool=false bornHost! storeHost! storeTimestamp:long!",
        "",
    ),
    _Code.PULL_MESSAGE: (_PULL, _PULLED),
    _Code.LITE_PULL_MESSAGE: (_PULL, _PULLED),
    _Code.CONSUMER_SEND_MSG_BACK: (
        "offset:long! group! delayLevel:int! originMsgId originTopic unitMode:bool=false maxReconsumeTimes:int",
        "",
    ),
    _Code.QUERY_MESSAGE: (
        "topic! key! maxNum:int! beginTimestamp:long! endTimestamp:long! _UNIQUE_KEY_QUERY:bool=false",
        "indexLastUpdateTimestamp:long! indexLastUpdatePhyoffset:long!",
    ),
    _Code.VIEW_MESSAGE_BY_ID: ("offset:long! topic", ""),
    _Code.RECALL_MESSAGE: ("producerGroup topic! recallHandle!", "msgId!"),
    # transactions
    _Code.END_TRANSACTION: (
        "topic producerGroup! tranStateTableOffset:long! commitLogOffset:long! commitOrRollback:int! "
        "fromTransactionCheck:bool=false msgId! transactionId",
        "",
    ),
    _Code.CHECK_TRANSACTION_STATE: (
        "topic tranStateTableOffset:long! commitLogOffset:long! msgId transactionId offsetMsgId",
        "",
    ),
    _Code.RESUME_CHECK_HALF_MESSAGE: ("topic msgId", ""),
    # membership
    _Code.HEART_BEAT: ("", "IS_SUPPORT_HEART_BEAT_V2:bool IS_SUB_CHANGE:bool"),
    _Code.UNREGISTER_CLIENT: ("clientID! producerGroup consumerGroup", ""),
    _Code.GET_CONSUMER_LIST_BY_GROUP: ("consumerGroup!", ""),
    _Code.NOTIFY_CONSUMER_IDS_CHANGED: ("consumerGroup!", ""),
    # offsets
    _Code.QUERY_BROKER_OFFSET: ("topic queueId:int", ""),
    _Code.QUERY_CONSUMER_OFFSET: ("consumerGroup! topic! queueId:int! setZeroIfNotFound:bool", "offset:long!"),
    _Code.UPDATE_CONSUMER_OFFSET: ("consumerGroup! topic! queueId:int! commitOffset:long!", ""),
    _Code.SEARCH_OFFSET_BY_TIMESTAMP: (
        "topic! queueId:int! timestamp:long! boundaryType:boundary=LOWER",
        "offset:long!",
    ),
    _Code.GET_MAX_OFFSET: ("topic! queueId:int! committed:bool=true", "offset:long!"),
    _Code.GET_MIN_OFFSET: ("topic! queueId:int!", "offset:long!"),
    _Code.GET_EARLIEST_MSG_STORETIME: ("topic! queueId:int!", "timestamp:long!"),
    # pop
    _Code.POP_MESSAGE: (
        "consumerGroup! topic! queueId:int! maxMsgNums:int! invisibleTime:long! pollTime:long! bornTime:long! "
        "initMode:int! expType exp order:bool=false attemptId",
        _POPPED,
    ),
    _Code.PEEK_MESSAGE: ("consumerGroup! topic! queueId:int! maxMsgNums:int!", _POPPED),
    _Code.ACK_MESSAGE: ("consumerGroup! topic! queueId:int! extraInfo! offset:long!", ""),
    _Code.CHANGE_MESSAGE_INVISIBLETIME: (
        "consumerGroup! topic! queueId:int! extraInfo! offset:long! invisibleTime:long! suspend:bool=false",
        "popTime:long! invisibleTime:long! reviveQid:int!",
    ),
    _Code.NOTIFICATION: (
        "consumerGroup! topic! queueId:int! pollTime:long! bornTime:long! order:bool=false attemptId expType exp",
        "hasMsg:bool! pollingFull:bool=false",
    ),
    _Code.POLLING_INFO: ("consumerGroup! topic! queueId:int!", "pollingNum:int!"),
    # topics
    _Code.UPDATE_AND_CREATE_TOPIC: (_TOPIC, ""),
    _Code.UPDATE_AND_CREATE_STATIC_TOPIC: (_TOPIC, ""),
    _Code.DELETE_TOPIC_IN_BROKER: ("topic!", ""),
    _Code.GET_ALL_TOPIC_CONFIG: ("topicSeq:int dataVersion maxTopicNum:int", "totalTopicNum:int"),
    _Code.GET_TOPIC_CONFIG: ("topic! lo:bool", ""),
    _Code.GET_TOPIC_STATS_INFO: ("topic!", ""),
    # subscription groups
    _Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: ("groupSeq:int dataVersion maxGroupNum:int", "totalGroupNum:int"),
    _Code.DELETE_SUBSCRIPTIONGROUP: ("groupName! cleanOffset:bool=false", ""),
    _Code.GET_SUBSCRIPTIONGROUP_CONFIG: ("group!", ""),
    _Code.UPDATE_AND_GET_GROUP_FORBIDDEN: ("group! topic! readable:bool", ""),
    # broker
    _Code.GET_BROKER_CONFIG: ("", "version!"),
    _Code.VIEW_BROKER_STATS_DATA: ("statsName! statsKey!", ""),
    _Code.RESET_MASTER_FLUSH_OFFSET: ("masterFlushOffset:long!", ""),
    _Code.SET_COMMITLOG_READ_MODE: ("READ_AHEAD_MODE:int", ""),
    _Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: ("topic! checkStoreTime:long", ""),
    _Code.EXPORT_ROCKSDB_CONFIG_TO_JSON: ("configType!", ""),
    _Code.UPDATE_AND_CREATE_ACL_CONFIG: (
        "accessKey! secretKey whiteRemoteAddress admin:bool defaultTopicPerm defaultGroupPerm topicPerms groupPerms",
        "",
    ),
    _Code.DELETE_ACL_CONFIG: ("accessKey!", ""),
    _Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: ("globalWhiteAddrs! aclFileFullPath", ""),
    _Code.GET_BROKER_CLUSTER_ACL_INFO: ("", "version! allAclFileVersion brokerName! brokerAddr! clusterName!"),
    # inspection
    _Code.GET_CONSUME_STATS: ("consumerGroup! topic topicList", ""),
    _Code.GET_CONSUMER_CONNECTION_LIST: ("consumerGroup!", ""),
    _Code.GET_PRODUCER_CONNECTION_LIST: ("producerGroup!", ""),
    _Code.QUERY_TOPIC_CONSUME_BY_WHO: ("topic!", ""),
    _Code.QUERY_TOPICS_BY_CONSUMER: ("group!", ""),
    _Code.QUERY_SUBSCRIPTION_BY_CONSUMER: ("group! topic!", ""),
    _Code.QUERY_CONSUME_TIME_SPAN: ("topic! group!", ""),
    _Code.GET_BROKER_CONSUME_STATS: ("isOrder:bool!", ""),
    _Code.QUERY_CONSUME_QUEUE: ("topic! queueId:int! index:long count:int consumerGroup", ""),
    _Code.GET_CONSUMER_RUNNING_INFO: ("consumerGroup! clientId! jstackEnable:bool", ""),
    _Code.CONSUME_MESSAGE_DIRECTLY: (
        "consumerGroup! clientId msgId topic brokerName topicSysFlag:int groupSysFlag:int",
        "",
    ),
    # offset administration
    _Code.INVOKE_BROKER_TO_RESET_OFFSET: (_RESET, ""),
    _Code.RESET_CONSUMER_CLIENT_OFFSET: (_RESET, ""),
    _Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: ("topic! group! clientAddr", ""),
    _Code.GET_CONSUMER_STATUS_FROM_CLIENT: ("topic! group!", ""),
    _Code.QUERY_CORRECTION_OFFSET: ("filterGroups compareGroup! topic!", ""),
    _Code.CLONE_GROUP_OFFSET: ("srcGroup! destGroup! topic offline:bool", ""),
    # name server
    _Code.REGISTER_BROKER: (
        _BROKER + " haServerAddr! heartbeatTimeoutMillis:long enableActingMaster:bool compressed:bool=false "
        "bodyCrc32:int=0",
        "haServerAddr masterAddr",
    ),
    _Code.UNREGISTER_BROKER: (_BROKER, ""),
    _Code.QUERY_DATA_VERSION: (_BROKER, "changed:bool!"),
    _Code.BROKER_HEARTBEAT: (
        "clusterName! brokerAddr! brokerName! brokerId:long epoch:int maxOffset:long confirmOffset:long "
        "heartbeatTimeoutMills:long electionPriority:int",
        "",
    ),
    _Code.NOTIFY_MIN_BROKER_ID_CHANGE: (
        "minBrokerId:long brokerName minBrokerAddr offlineBrokerAddr haBrokerAddr",
        "",
    ),
    _Code.GET_BROKER_MEMBER_GROUP: ("clusterName! brokerName!", ""),
    _Code.GET_ROUTEINFO_BY_TOPIC: ("topic! acceptStandardJsonOnly:bool", ""),
    _Code.PUT_KV_CONFIG: ("namespace! key! value!", ""),
    _Code.GET_KV_CONFIG: ("namespace! key!", "value"),
    _Code.DELETE_KV_CONFIG: ("namespace! key!", ""),
    _Code.GET_KVLIST_BY_NAMESPACE: ("namespace!", ""),
    _Code.WIPE_WRITE_PERM_OF_BROKER: ("brokerName!", "wipeTopicCount:int!"),
    _Code.ADD_WRITE_PERM_OF_BROKER: ("brokerName!", "addTopicCount:int!"),
    _Code.DELETE_TOPIC_IN_NAMESRV: ("topic! clusterName", ""),
    _Code.REGISTER_TOPIC_IN_NAMESRV: ("topic!", ""),
    _Code.GET_TOPICS_BY_CLUSTER: ("cluster!", ""),
    # broker to broker, container, controller
    _Code.EXCHANGE_BROKER_HA_INFO: (_HA_INFO, _HA_INFO),
    _Code.ADD_BROKER: ("configPath", ""),
    _Code.REMOVE_BROKER: ("brokerName! brokerClusterName! brokerId:long!", ""),
    _Code.CONTROLLER_ALTER_SYNC_STATE_SET: (
        "brokerName masterBrokerId:long masterEpoch:int invokeTime:long",
        "newSyncStateSetEpoch:int",
    ),
    _Code.CONTROLLER_ELECT_MASTER: (
        "clusterName! brokerName! brokerId:long!=-1 designateElect:bool!=false invokeTime:long",
        _ELECTED,
    ),
    _Code.CONTROLLER_REGISTER_BROKER: (
        "clusterName brokerName brokerId:long brokerAddress invokeTime:long",
        "clusterName brokerName " + _ELECTED,
    ),
    _Code.CONTROLLER_GET_REPLICA_INFO: ("brokerName", "masterBrokerId:long masterAddress masterEpoch:int"),
    _Code.CONTROLLER_GET_METADATA_INFO: (
        "",
        "group controllerLeaderId controllerLeaderAddress isLeader:bool peers",
    ),
    _Code.NOTIFY_BROKER_ROLE_CHANGED: (_ELECTED, ""),
    _Code.CLEAN_BROKER_DATA: (
        "clusterName brokerName! brokerControllerIdsToClean isCleanLivingBroker:bool=false invokeTime:long",
        "",
    ),
    _Code.CONTROLLER_GET_NEXT_BROKER_ID: ("clusterName brokerName", "clusterName brokerName nextBrokerId:long"),
    _Code.CONTROLLER_APPLY_BROKER_ID: (
        "clusterName brokerName appliedBrokerId:long registerCheckCode",
        "clusterName brokerName",
    ),
    # users and policies
    _Code.AUTH_CREATE_USER: ("username", ""),
    _Code.AUTH_UPDATE_USER: ("username", ""),
    _Code.AUTH_DELETE_USER: ("username", ""),
    _Code.AUTH_GET_USER: ("username", ""),
    _Code.AUTH_LIST_USER: ("filter", ""),
    _Code.AUTH_CREATE_ACL: ("subject", ""),
    _Code.AUTH_UPDATE_ACL: ("subject", ""),
    _Code.AUTH_DELETE_ACL: ("subject policyType resource", ""),
    _Code.AUTH_GET_ACL: ("subject", ""),
    _Code.AUTH_LIST_ACL: ("subjectFilter resourceFilter", ""),
}

NO_HEADER: Final = HeaderSpec((), ())

HEADERS: Final[dict[RequestCode, HeaderSpec]] = {
    code: HeaderSpec(_fields(_TABLE[code][0]), _fields(_TABLE[code][1])) if code in _TABLE else NO_HEADER
    for code in RequestCode
}
"""Header fields of every request code."""


def header_of(code: int) -> HeaderSpec | None:
    """Header fields of a request code, None when the code is not known."""
    return HEADERS.get(code)  # type: ignore[call-overload, no-any-return]


def absent_field(code: int, fields: Mapping[str, str]) -> str | None:
    """The first mandatory field that a request lacks; None when it has them all, or the code is not known."""
    header = header_of(code)
    for field in header.request if header is not None else ():
        if field.mandatory and field.default is None and field.name not in fields:
            return field.name
    return None
