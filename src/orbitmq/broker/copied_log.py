"""What a broker refuses that only copies the log of another one: everything that its master has to decide or to write.

What it serves: pulls, queries, offsets, heartbeats, administration that only looks. Reads are its own (`slaveReadEnable`). A consumer that
reads here while its master is away reports its offsets here too; they are not in the log, and the master hears them from the consumer.

(RocketMQ broker, processors' checks of the role; replication 5.)
"""

from __future__ import annotations

from typing import Final

from orbitmq.protocol.remoting.codes import RequestCode as Code

MASTERS_ONLY: Final = frozenset(
    {
        Code.UPDATE_AND_CREATE_TOPIC, Code.UPDATE_AND_CREATE_TOPIC_LIST, Code.DELETE_TOPIC_IN_BROKER, Code.UPDATE_AND_CREATE_STATIC_TOPIC,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, Code.DELETE_SUBSCRIPTIONGROUP,
        Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ, Code.INVOKE_BROKER_TO_RESET_OFFSET, Code.CLONE_GROUP_OFFSET,
        Code.SET_MESSAGE_REQUEST_MODE, Code.UPDATE_AND_GET_GROUP_FORBIDDEN, Code.CLEAN_UNUSED_TOPIC,
        Code.POP_MESSAGE, Code.ACK_MESSAGE, Code.BATCH_ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME, Code.POP_ROLLBACK,
        Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.CONSUMER_SEND_MSG_BACK,
        Code.END_TRANSACTION, Code.RESUME_CHECK_HALF_MESSAGE,
        Code.RECALL_MESSAGE, Code.RECALL_TIMERS, Code.RESCHEDULE_TIMERS, Code.PUT_RECURRING, Code.SET_RECURRING_STATE,
        Code.DELETE_RECURRING, Code.FAR_LOAD, Code.FINISH_EPOCH,
        Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER, Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL,
        Code.AUTH_DELETE_ACL,
    }
)  # fmt: skip
