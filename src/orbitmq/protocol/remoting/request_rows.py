"""Rows of the table of requests: one for each code. What the words mean stands in `requests`.

Rules of this file
1. A code without a row cannot be served. A row says who serves it, or in `refused` why nobody does; one that neither serves nor
   refuses is a name that RocketMQ keeps for what its own servers answer "not supported".
2. What a request needs follows RocketMQ 5.5. It is stricter where RocketMQ asks for nothing (lists, LITE_PULL_MESSAGE, requests whose
   topic stands in a record or a handle), and wider in one place: who may consume from a topic may ask for its offsets.
3. What shows the content of messages names Sub: accounts of RocketMQ 4 are asked for nothing else that only looks.

(RocketMQ remoting: client requests, admin requests, broker to broker, name server.)
"""

from __future__ import annotations

from typing import Final, NamedTuple

from orbitmq.protocol.remoting.codes import RequestCode


class Row(NamedTuple):
    """A row as it is written: `requests.RequestRow` is what it says."""

    code: RequestCode
    served_by: str = ""
    needs: str = ""
    request: str = ""
    response: str = ""
    waits: bool = False
    refused: str = ""


_SEND = (
    "producerGroup! topic! defaultTopic! defaultTopicQueueNums:int! queueId:int! sysFlag:int! bornTimestamp:long! "
    "flag:int! properties reconsumeTimes:int unitMode:bool batch:bool maxReconsumeTimes:int"
)
_SEND_V2 = "a! b! c! d:int! e:int! f:int! g:long! h:int! i j:int k:bool l:int m:bool n"
_SENDS_V1 = "Topic=topic:Pub Topic=@record:Pub"
"""A send leads to the topic of the timer message that its properties cancel, if they cancel one."""
_SENDS_V2 = "Topic=b:Pub Topic=@record:Pub"
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

_CONTROLLER = "there is no controller: no broker changes its role by itself"
_CONTAINER = "a process holds one broker, there is no container of several"
_REPLICATION = (
    "slaves of a group learn of its master by registration, and groups that choose it by themselves are not built"
)
_STATIC = "static topics, whose queues are mapped over several brokers, are not built"
_ROCKSDB = "nothing is kept in RocksDB"
_COLD = "reads of old messages never hold up others, so there is nothing to control"
_POP_ROLLBACK = "it takes back the tables of RocketMQ's pop in RocksDB, and there are none"
_LITE = "small topics inside topics (LITE) are not built"

_Code = RequestCode

ROWS: Final = (
    # messages
    Row(_Code.SEND_MESSAGE, "broker", needs=_SENDS_V1, request=_SEND, response=_SENT),
    Row(_Code.SEND_MESSAGE_V2, "broker", needs=_SENDS_V2, request=_SEND_V2, response=_SENT),
    Row(_Code.SEND_BATCH_MESSAGE, "broker", needs=_SENDS_V2, request=_SEND_V2, response=_SENT),
    Row(_Code.SEND_REPLY_MESSAGE, "broker", needs=_SENDS_V1, request=_SEND, response=_SENT),
    Row(_Code.SEND_REPLY_MESSAGE_V2, "broker", needs=_SENDS_V2, request=_SEND_V2, response=_SENT),
    Row(
        _Code.PUSH_REPLY_MESSAGE_TO_CLIENT,
        "client",
        request=(
            "producerGroup! topic! defaultTopic! defaultTopicQueueNums:int! queueId:int! sysFlag:int! bornTimestamp:long! "
            "flag:int! properties reconsumeTimes:int unitMode:bool=false bornHost! storeHost! storeTimestamp:long!"
        ),
    ),
    Row(
        _Code.PULL_MESSAGE,
        "broker",
        needs="Topic=topic:Sub Group=consumerGroup:Sub",
        request=_PULL,
        response=_PULLED,
        waits=True,
    ),
    Row(
        _Code.LITE_PULL_MESSAGE,
        "broker",
        needs="Topic=topic:Sub Group=consumerGroup:Sub",
        request=_PULL,
        response=_PULLED,
        waits=True,
    ),
    Row(
        _Code.CONSUMER_SEND_MSG_BACK,
        "broker",
        needs="Group=group:Sub Topic=@record:Sub",
        request="offset:long! group! delayLevel:int! originMsgId originTopic unitMode:bool=false maxReconsumeTimes:int",
    ),
    Row(
        _Code.QUERY_MESSAGE,
        "broker",
        needs="Topic=topic:Sub|Get",
        request="topic! key! maxNum:int! beginTimestamp:long! endTimestamp:long! _UNIQUE_KEY_QUERY:bool=false",
        response="indexLastUpdateTimestamp:long! indexLastUpdatePhyoffset:long!",
    ),
    Row(_Code.VIEW_MESSAGE_BY_ID, "broker", needs="Topic=@record:Sub|Get", request="offset:long! topic"),
    Row(
        _Code.RECALL_MESSAGE,
        "broker",
        needs="Topic=topic:Pub Topic=@record:Pub",
        request="producerGroup topic! recallHandle!",
        response="msgId!",
    ),
    # transactions
    Row(
        _Code.END_TRANSACTION,
        "broker",
        needs="Topic=topic?:Pub Topic=@record:Pub",
        request=(
            "topic producerGroup! tranStateTableOffset:long! commitLogOffset:long! commitOrRollback:int! "
            "fromTransactionCheck:bool=false msgId! transactionId"
        ),
    ),
    Row(
        _Code.CHECK_TRANSACTION_STATE,
        "client",
        request="topic tranStateTableOffset:long! commitLogOffset:long! msgId transactionId offsetMsgId",
    ),
    Row(_Code.RESUME_CHECK_HALF_MESSAGE, "broker", needs="Topic=@record:Update", request="topic msgId"),
    Row(_Code.LIST_TRANSACTIONS, "broker", needs="Topic=@record:Get"),
    Row(_Code.GET_TRANSACTION, "broker", needs="Topic=@record:Sub|Get"),
    # membership
    Row(
        _Code.HEART_BEAT,
        "broker",
        needs="signed Group=@body:Sub Topic=@body:Sub",
        response="IS_SUPPORT_HEART_BEAT_V2:bool IS_SUB_CHANGE:bool",
    ),
    Row(
        _Code.UNREGISTER_CLIENT,
        "broker",
        needs="signed Group=consumerGroup?:Sub",
        request="clientID! producerGroup consumerGroup",
    ),
    Row(_Code.CHECK_CLIENT_CONFIG, "broker", needs="signed"),
    Row(_Code.GET_CONSUMER_LIST_BY_GROUP, "broker", needs="Group=consumerGroup:Sub|Get", request="consumerGroup!"),
    Row(_Code.NOTIFY_CONSUMER_IDS_CHANGED, "client", request="consumerGroup!"),
    Row(_Code.LOCK_BATCH_MQ, "broker", needs="Group=@body:Sub Topic=@body:Sub"),
    Row(_Code.UNLOCK_BATCH_MQ, "broker", needs="Group=@body:Sub Topic=@body:Sub"),
    Row(_Code.QUERY_ASSIGNMENT, "broker", needs="Group=@body:Sub Topic=@body:Sub"),
    Row(_Code.SET_MESSAGE_REQUEST_MODE, "broker", needs="Group=@body:Update Topic=@body:Update"),
    Row(_Code.GET_ALL_MESSAGE_REQUEST_MODE, "broker", needs="Cluster:Get"),
    # offsets
    Row(
        _Code.QUERY_CONSUMER_OFFSET,
        "broker",
        needs="Topic=topic:Sub|Get Group=consumerGroup:Sub|Get",
        request="consumerGroup! topic! queueId:int! setZeroIfNotFound:bool",
        response="offset:long!",
    ),
    Row(
        _Code.UPDATE_CONSUMER_OFFSET,
        "broker",
        needs="Topic=topic:Sub|Update Group=consumerGroup:Sub|Update",
        request="consumerGroup! topic! queueId:int! commitOffset:long! orbitmqByTool:bool",
    ),
    Row(
        _Code.SEARCH_OFFSET_BY_TIMESTAMP,
        "broker",
        needs="Topic=topic:Sub|Get",
        request="topic! queueId:int! timestamp:long! boundaryType:boundary=LOWER",
        response="offset:long!",
    ),
    Row(
        _Code.GET_MAX_OFFSET,
        "broker",
        needs="Topic=topic:Sub|Get",
        request="topic! queueId:int! committed:bool=true",
        response="offset:long!",
    ),
    Row(
        _Code.GET_MIN_OFFSET,
        "broker",
        needs="Topic=topic:Sub|Get",
        request="topic! queueId:int!",
        response="offset:long!",
    ),
    Row(
        _Code.GET_EARLIEST_MSG_STORETIME,
        "broker",
        needs="Topic=topic:Sub|Get",
        request="topic! queueId:int!",
        response="timestamp:long!",
    ),
    Row(_Code.GET_ALL_CONSUMER_OFFSET, "broker", needs="Cluster:Get"),
    Row(_Code.GET_ALL_DELAY_OFFSET, "broker", needs="Cluster:Get"),
    # pop
    Row(
        _Code.POP_MESSAGE,
        "broker",
        needs="Topic=topic:Sub Group=consumerGroup:Sub",
        request=(
            "consumerGroup! topic! queueId:int! maxMsgNums:int! invisibleTime:long! pollTime:long! bornTime:long! "
            "initMode:int! expType exp order:bool=false attemptId"
        ),
        response=_POPPED,
        waits=True,
    ),
    Row(
        _Code.PEEK_MESSAGE,
        "broker",
        needs="Topic=topic:Sub Group=consumerGroup:Sub",
        request="consumerGroup! topic! queueId:int! maxMsgNums:int!",
        response=_POPPED,
        waits=True,
    ),
    Row(
        _Code.NOTIFICATION,
        "broker",
        needs="Topic=topic:Sub Group=consumerGroup:Sub",
        request="consumerGroup! topic! queueId:int! pollTime:long! bornTime:long! order:bool=false attemptId expType exp",
        response="hasMsg:bool! pollingFull:bool=false",
        waits=True,
    ),
    Row(
        _Code.POLLING_INFO,
        "broker",
        needs="Topic=topic:Get Group=consumerGroup:Get",
        request="consumerGroup! topic! queueId:int!",
        response="pollingNum:int!",
        waits=True,
    ),
    Row(
        _Code.ACK_MESSAGE,
        "broker",
        needs="Topic=@record:Sub Group=consumerGroup:Sub",
        request="consumerGroup! topic! queueId:int! extraInfo! offset:long!",
    ),
    Row(_Code.BATCH_ACK_MESSAGE, "broker", needs="Topic=@body:Sub Group=@body:Sub"),
    Row(
        _Code.CHANGE_MESSAGE_INVISIBLETIME,
        "broker",
        needs="Topic=@record:Sub Group=consumerGroup:Sub",
        request="consumerGroup! topic! queueId:int! extraInfo! offset:long! invisibleTime:long! suspend:bool=false",
        response="popTime:long! invisibleTime:long! reviveQid:int!",
    ),
    Row(_Code.POP_ROLLBACK, refused=_POP_ROLLBACK),
    # topics
    Row(_Code.UPDATE_AND_CREATE_TOPIC, "broker", needs="Topic=topic:Create", request=_TOPIC),
    Row(_Code.UPDATE_AND_CREATE_TOPIC_LIST, "broker", needs="Topic=@body:Create"),
    Row(_Code.UPDATE_AND_CREATE_STATIC_TOPIC, refused=_STATIC, request=_TOPIC),
    Row(_Code.DELETE_TOPIC_IN_BROKER, "broker", needs="Topic=topic:Delete", request="topic!"),
    Row(
        _Code.GET_ALL_TOPIC_CONFIG,
        "broker",
        needs="Topic=*:List",
        request="topicSeq:int dataVersion maxTopicNum:int",
        response="totalTopicNum:int",
    ),
    Row(_Code.GET_TOPIC_CONFIG, "broker", needs="Topic=topic:Get", request="topic! lo:bool"),
    Row(_Code.GET_TOPIC_STATS_INFO, "broker", needs="Topic=topic:Get", request="topic!"),
    Row(_Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, "broker", needs="Topic=*:List"),
    # groups
    Row(_Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "broker", needs="Group=@body:Create"),
    Row(_Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, "broker", needs="Group=@body:Create"),
    Row(
        _Code.DELETE_SUBSCRIPTIONGROUP,
        "broker",
        needs="Group=groupName:Delete",
        request="groupName! cleanOffset:bool=false",
    ),
    Row(
        _Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        "broker",
        needs="Group=*:List",
        request="groupSeq:int dataVersion maxGroupNum:int",
        response="totalGroupNum:int",
    ),
    Row(_Code.GET_SUBSCRIPTIONGROUP_CONFIG, "broker", needs="Group=group:Get", request="group!"),
    Row(
        _Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
        "broker",
        needs="Group=group:Update Topic=topic:Update",
        request="group! topic! readable:bool",
    ),
    # the broker
    Row(_Code.UPDATE_BROKER_CONFIG, "broker", needs="Cluster:Update"),
    Row(_Code.GET_BROKER_CONFIG, "broker", needs="Cluster:Get", response="version!"),
    Row(_Code.GET_BROKER_RUNTIME_INFO, "broker", needs="Cluster:Get"),
    Row(_Code.VIEW_BROKER_STATS_DATA, "broker", needs="Cluster:Get", request="statsName! statsKey!"),
    Row(_Code.CLEAN_EXPIRED_CONSUMEQUEUE, "broker", needs="Cluster:Update"),
    Row(_Code.CLEAN_UNUSED_TOPIC, "broker", needs="Cluster:Update"),
    Row(_Code.DELETE_EXPIRED_COMMITLOG, "broker", needs="Cluster:Update"),
    Row(_Code.GET_TIMER_CHECK_POINT, "broker", needs="Cluster:Get"),
    Row(_Code.GET_TIMER_METRICS, "broker", needs="Cluster:Get"),
    Row(_Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, refused=_COLD),
    Row(_Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, refused=_COLD),
    Row(_Code.GET_COLD_DATA_FLOW_CTR_INFO, refused=_COLD),
    Row(_Code.SET_COMMITLOG_READ_MODE, refused=_COLD, request="READ_AHEAD_MODE:int"),
    Row(_Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, refused=_ROCKSDB, request="topic! checkStoreTime:long"),
    Row(_Code.EXPORT_ROCKSDB_CONFIG_TO_JSON, refused=_ROCKSDB, request="configType!"),
    Row(_Code.SWITCH_TIMER_ENGINE, refused=_ROCKSDB),
    # inspection
    Row(
        _Code.GET_CONSUME_STATS,
        "broker",
        needs="Group=consumerGroup:Get Topic=topic?:Get Topic=topicList[;]?:Get Topic=@record:Get",
        request="consumerGroup! topic topicList",
    ),
    Row(_Code.GET_CONSUMER_CONNECTION_LIST, "broker", needs="Group=consumerGroup:Get", request="consumerGroup!"),
    Row(_Code.GET_PRODUCER_CONNECTION_LIST, "broker", needs="Cluster:Get", request="producerGroup!"),
    Row(_Code.GET_ALL_PRODUCER_INFO, "broker", needs="Cluster:Get"),
    Row(_Code.QUERY_TOPIC_CONSUME_BY_WHO, "broker", needs="Topic=topic:Get", request="topic!"),
    Row(_Code.QUERY_TOPICS_BY_CONSUMER, "broker", needs="Group=group:Get", request="group!"),
    Row(
        _Code.QUERY_SUBSCRIPTION_BY_CONSUMER, "broker", needs="Group=group:Get Topic=topic:Get", request="group! topic!"
    ),
    Row(_Code.QUERY_CONSUME_TIME_SPAN, "broker", needs="Group=group:Get Topic=topic:Get", request="topic! group!"),
    Row(_Code.GET_BROKER_CONSUME_STATS, "broker", needs="Cluster:Get", request="isOrder:bool!"),
    Row(
        _Code.QUERY_CONSUME_QUEUE,
        "broker",
        needs="Topic=topic:Get Group=consumerGroup?:Get",
        request="topic! queueId:int! index:long count:int consumerGroup",
    ),
    Row(
        _Code.GET_CONSUMER_RUNNING_INFO,
        "broker client",
        needs="Group=consumerGroup:Get",
        request="consumerGroup! clientId! jstackEnable:bool",
    ),
    Row(
        _Code.CONSUME_MESSAGE_DIRECTLY,
        "broker client",
        needs="Group=consumerGroup:Sub Topic=@record:Sub",
        request="consumerGroup! clientId msgId topic brokerName topicSysFlag:int groupSysFlag:int",
    ),
    # changing offsets
    Row(_Code.INVOKE_BROKER_TO_RESET_OFFSET, "broker", needs="Group=group:Update Topic=topic:Update", request=_RESET),
    Row(_Code.RESET_CONSUMER_CLIENT_OFFSET, "client", request=_RESET),
    Row(
        _Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        "broker",
        needs="Group=group:Get Topic=topic:Get",
        request="topic! group! clientAddr",
    ),
    Row(_Code.GET_CONSUMER_STATUS_FROM_CLIENT, "client", request="topic! group!"),
    Row(
        _Code.QUERY_CORRECTION_OFFSET,
        "broker",
        needs="Group=filterGroups[,]?:Get Group=compareGroup:Get Topic=topic:Get",
        request="filterGroups compareGroup! topic!",
    ),
    Row(
        _Code.CLONE_GROUP_OFFSET,
        "broker",
        needs="Group=srcGroup:Get Group=destGroup:Update Topic=topic?:Update Topic=@record:Update",
        request="srcGroup! destGroup! topic offline:bool",
    ),
    # timers, recurring messages, the far tier and idempotent sends: requests of our own
    Row(_Code.RECALL_TIMERS, "broker", needs="Topic=@record:Pub"),
    Row(_Code.RESCHEDULE_TIMERS, "broker", needs="Topic=@record:Pub"),
    Row(_Code.TIMER_STATUS, "broker", needs="Topic=@record:Get"),
    Row(_Code.LIST_TIMERS, "broker", needs="Topic=@body:Get"),
    Row(_Code.COUNT_TIMERS, "broker", needs="Topic=@body:Get"),
    Row(_Code.GET_TIMER, "broker", needs="Topic=@record:Sub|Get"),
    Row(_Code.PUT_RECURRING, "broker", needs="Topic=@body:Pub Topic=@record:Pub"),
    Row(_Code.GET_RECURRING, "broker", needs="Topic=@record:Sub|Get"),
    Row(_Code.SET_RECURRING_STATE, "broker", needs="Topic=@record:Pub"),
    Row(_Code.DELETE_RECURRING, "broker", needs="Topic=@record:Pub"),
    Row(_Code.FAR_LOAD, "broker", needs="Topic=*:Pub"),
    Row(_Code.FAR_TIER, "broker", needs="Cluster:Update"),
    Row(_Code.FIND_SCOPES, "broker", needs="Topic=@record:Pub", request="topic"),
    Row(_Code.FINISH_EPOCH, "broker", needs="Topic=@record:Pub", request="topic"),
    # users and permissions
    Row(
        _Code.UPDATE_AND_CREATE_ACL_CONFIG,
        "broker",
        needs="Cluster:Update",
        request="accessKey! secretKey whiteRemoteAddress admin:bool defaultTopicPerm defaultGroupPerm topicPerms groupPerms",
    ),
    Row(_Code.DELETE_ACL_CONFIG, "broker", needs="Cluster:Update", request="accessKey!"),
    Row(
        _Code.GET_BROKER_CLUSTER_ACL_INFO,
        "broker",
        needs="Cluster:Get",
        response="version! allAclFileVersion brokerName! brokerAddr! clusterName!",
    ),
    Row(
        _Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        "broker",
        needs="Cluster:Update",
        request="globalWhiteAddrs! aclFileFullPath",
    ),
    Row(_Code.GET_BROKER_CLUSTER_ACL_CONFIG, "broker", needs="Cluster:Update"),  # it tells secrets
    Row(_Code.AUTH_CREATE_USER, "broker", needs="Cluster:Update", request="username"),
    Row(_Code.AUTH_UPDATE_USER, "broker", needs="Cluster:Update", request="username"),
    Row(_Code.AUTH_DELETE_USER, "broker", needs="Cluster:Update", request="username"),
    Row(_Code.AUTH_GET_USER, "broker", needs="Cluster:Get", request="username"),
    Row(_Code.AUTH_LIST_USER, "broker", needs="Cluster:Get", request="filter"),
    Row(_Code.AUTH_CREATE_ACL, "broker", needs="Cluster:Update", request="subject"),
    Row(_Code.AUTH_UPDATE_ACL, "broker", needs="Cluster:Update", request="subject"),
    Row(_Code.AUTH_DELETE_ACL, "broker", needs="Cluster:Update", request="subject policyType resource"),
    Row(_Code.AUTH_GET_ACL, "broker", needs="Cluster:Get", request="subject"),
    Row(_Code.AUTH_LIST_ACL, "broker", needs="Cluster:Get", request="subjectFilter resourceFilter"),
    # the name server
    Row(
        _Code.REGISTER_BROKER,
        "name-server",
        needs="Cluster:Update",
        request=_BROKER
        + " haServerAddr! heartbeatTimeoutMillis:long enableActingMaster:bool compressed:bool=false bodyCrc32:int=0",
        response="haServerAddr masterAddr",
    ),
    Row(_Code.UNREGISTER_BROKER, "name-server", needs="Cluster:Update", request=_BROKER),
    Row(_Code.QUERY_DATA_VERSION, "name-server", needs="Cluster:Get", request=_BROKER, response="changed:bool!"),
    Row(
        _Code.BROKER_HEARTBEAT,
        "name-server",
        needs="Cluster:Update",
        request=(
            "clusterName! brokerAddr! brokerName! brokerId:long epoch:int maxOffset:long confirmOffset:long "
            "heartbeatTimeoutMills:long electionPriority:int"
        ),
    ),
    Row(_Code.GET_BROKER_MEMBER_GROUP, "name-server", needs="Cluster:Get", request="clusterName! brokerName!"),
    Row(
        _Code.GET_ROUTEINFO_BY_TOPIC,
        "name-server",
        needs="Topic=topic:Pub|Sub|Get",
        request="topic! acceptStandardJsonOnly:bool",
    ),
    Row(_Code.GET_BROKER_CLUSTER_INFO, "name-server", needs="Cluster:Get"),
    Row(_Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, "name-server", needs="Topic=*:List"),
    Row(_Code.GET_TOPICS_BY_CLUSTER, "name-server", needs="Topic=*:List", request="cluster!"),
    Row(_Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, "name-server", needs="Topic=*:List"),
    Row(_Code.GET_UNIT_TOPIC_LIST, "name-server", needs="Topic=*:List"),
    Row(_Code.GET_HAS_UNIT_SUB_TOPIC_LIST, "name-server", needs="Topic=*:List"),
    Row(_Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, "name-server", needs="Topic=*:List"),
    Row(_Code.PUT_KV_CONFIG, "name-server", needs="Cluster:Update", request="namespace! key! value!"),
    Row(_Code.GET_KV_CONFIG, "name-server", needs="Cluster:Get", request="namespace! key!", response="value"),
    Row(_Code.DELETE_KV_CONFIG, "name-server", needs="Cluster:Update", request="namespace! key!"),
    Row(_Code.GET_KVLIST_BY_NAMESPACE, "name-server", needs="Cluster:Get", request="namespace!"),
    Row(
        _Code.WIPE_WRITE_PERM_OF_BROKER,
        "name-server",
        needs="Cluster:Update",
        request="brokerName!",
        response="wipeTopicCount:int!",
    ),
    Row(
        _Code.ADD_WRITE_PERM_OF_BROKER,
        "name-server",
        needs="Cluster:Update",
        request="brokerName!",
        response="addTopicCount:int!",
    ),
    Row(_Code.DELETE_TOPIC_IN_NAMESRV, "name-server", needs="Cluster:Update", request="topic! clusterName"),
    Row(_Code.REGISTER_TOPIC_IN_NAMESRV, "name-server", needs="Cluster:Update", request="topic!"),
    Row(_Code.UPDATE_NAMESRV_CONFIG, "name-server", needs="Cluster:Update"),
    Row(_Code.GET_NAMESRV_CONFIG, "name-server", needs="Cluster:Get"),
    # copies, containers, controllers
    Row(
        _Code.NOTIFY_MIN_BROKER_ID_CHANGE,
        refused=_REPLICATION,
        request="minBrokerId:long brokerName minBrokerAddr offlineBrokerAddr haBrokerAddr",
    ),
    Row(_Code.EXCHANGE_BROKER_HA_INFO, refused=_REPLICATION, request=_HA_INFO, response=_HA_INFO),
    Row(_Code.GET_BROKER_HA_STATUS, "broker", needs="Cluster:Get"),
    Row(_Code.FOLLOW_LOG, "broker", needs="Cluster:Update"),
    Row(_Code.PROMOTE_SLAVE, "broker", needs="Cluster:Update"),
    Row(_Code.FORGET_SLAVE, "broker", needs="Cluster:Update"),
    Row(_Code.RESEED_SLAVE, "broker", needs="Cluster:Update"),
    Row(_Code.READ_LOG, "broker", needs="Cluster:Update"),
    Row(_Code.DEMOTE_MASTER, "broker", needs="Cluster:Update"),
    Row(_Code.RESET_MASTER_FLUSH_OFFSET, refused=_REPLICATION, request="masterFlushOffset:long!"),
    Row(_Code.ADD_BROKER, refused=_CONTAINER, request="configPath"),
    Row(_Code.REMOVE_BROKER, refused=_CONTAINER, request="brokerName! brokerClusterName! brokerId:long!"),
    Row(
        _Code.CONTROLLER_ALTER_SYNC_STATE_SET,
        refused=_CONTROLLER,
        request="brokerName masterBrokerId:long masterEpoch:int invokeTime:long",
        response="newSyncStateSetEpoch:int",
    ),
    Row(
        _Code.CONTROLLER_ELECT_MASTER,
        refused=_CONTROLLER,
        request="clusterName! brokerName! brokerId:long!=-1 designateElect:bool!=false invokeTime:long",
        response=_ELECTED,
    ),
    Row(
        _Code.CONTROLLER_REGISTER_BROKER,
        refused=_CONTROLLER,
        request="clusterName brokerName brokerId:long brokerAddress invokeTime:long",
        response="clusterName brokerName " + _ELECTED,
    ),
    Row(
        _Code.CONTROLLER_GET_REPLICA_INFO,
        refused=_CONTROLLER,
        request="brokerName",
        response="masterBrokerId:long masterAddress masterEpoch:int",
    ),
    Row(
        _Code.CONTROLLER_GET_METADATA_INFO,
        refused=_CONTROLLER,
        response="group controllerLeaderId controllerLeaderAddress isLeader:bool peers",
    ),
    Row(_Code.CONTROLLER_GET_SYNC_STATE_DATA, refused=_CONTROLLER),
    Row(_Code.GET_BROKER_EPOCH_CACHE, refused=_CONTROLLER),
    Row(_Code.NOTIFY_BROKER_ROLE_CHANGED, refused=_CONTROLLER, request=_ELECTED),
    Row(_Code.UPDATE_CONTROLLER_CONFIG, refused=_CONTROLLER),
    Row(_Code.GET_CONTROLLER_CONFIG, refused=_CONTROLLER),
    Row(
        _Code.CLEAN_BROKER_DATA,
        refused=_CONTROLLER,
        request="clusterName brokerName! brokerControllerIdsToClean isCleanLivingBroker:bool=false invokeTime:long",
    ),
    Row(
        _Code.CONTROLLER_GET_NEXT_BROKER_ID,
        refused=_CONTROLLER,
        request="clusterName brokerName",
        response="clusterName brokerName nextBrokerId:long",
    ),
    Row(
        _Code.CONTROLLER_APPLY_BROKER_ID,
        refused=_CONTROLLER,
        request="clusterName brokerName appliedBrokerId:long registerCheckCode",
        response="clusterName brokerName",
    ),
    Row(_Code.BROKER_CLOSE_CHANNEL_REQUEST, refused=_CONTROLLER),
    Row(_Code.CHECK_NOT_ACTIVE_BROKER_REQUEST, refused=_CONTROLLER),
    Row(_Code.GET_BROKER_LIVE_INFO_REQUEST, refused=_CONTROLLER),
    Row(_Code.GET_SYNC_STATE_DATA_REQUEST, refused=_CONTROLLER),
    Row(_Code.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST, refused=_CONTROLLER),
    # small topics inside topics (5.5)
    Row(
        _Code.POP_LITE_MESSAGE,
        refused=_LITE,
        request="clientId! consumerGroup! topic! maxMsgNum:int! invisibleTime:long! pollTime:long! bornTime:long! attemptId",
        response="popTime:long! invisibleTime:long! reviveQid:int! startOffsetInfo msgOffsetInfo orderCountInfo",
    ),
    Row(_Code.LITE_SUBSCRIPTION_CTL, refused=_LITE),
    Row(_Code.ACK_LITE_MESSAGE, refused=_LITE),
    Row(_Code.NOTIFY_UNSUBSCRIBE_LITE, refused=_LITE, request="liteTopic! consumerGroup! clientId!"),
    Row(_Code.GET_BROKER_LITE_INFO, refused=_LITE),
    Row(_Code.GET_PARENT_TOPIC_INFO, refused=_LITE, request="topic!"),
    Row(_Code.GET_LITE_TOPIC_INFO, refused=_LITE, request="parentTopic! liteTopic!"),
    Row(_Code.GET_LITE_CLIENT_INFO, refused=_LITE, request="parentTopic group! clientId! maxCount:int=1000"),
    Row(_Code.GET_LITE_GROUP_INFO, refused=_LITE, request="group! liteTopic topK:int"),
    Row(_Code.TRIGGER_LITE_DISPATCH, refused=_LITE, request="group! clientId liteTopic"),
    # names that RocketMQ keeps for requests nobody serves: its own servers answer them "not supported", and so do ours
    Row(_Code.QUERY_BROKER_OFFSET, request="topic queueId:int"),
    Row(_Code.GET_TOPIC_CONFIG_LIST),
    Row(_Code.GET_TOPIC_NAME_LIST),
    Row(_Code.TRIGGER_DELETE_FILES),
    Row(_Code.GET_CLIENT_CONFIG),
    Row(_Code.SUSPEND_CONSUMER),
    Row(_Code.RESUME_CONSUMER),
    Row(_Code.RESET_CONSUMER_OFFSET_IN_CONSUMER),
    Row(_Code.RESET_CONSUMER_OFFSET_IN_BROKER),
    Row(_Code.ADJUST_CONSUMER_THREAD_POOL),
    Row(_Code.WHO_CONSUME_THE_MESSAGE),
    Row(_Code.REGISTER_FILTER_SERVER),
    Row(_Code.REGISTER_MESSAGE_FILTER_CLASS),
)
