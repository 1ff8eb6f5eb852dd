"""Queue locks of orderly consumers."""

from __future__ import annotations

from orbitmq.protocol.remoting.bodies.json_body import JsonBody, MessageQueue, kept, kept_list


class LockBatchRequest(JsonBody):
    """Body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ. `only_this_broker` is set between replicas."""

    client_id: str = kept("")
    consumer_group: str = kept("")
    mq_set: list[MessageQueue] = kept_list()
    only_this_broker: bool = kept(False)


class LockBatchResponse(JsonBody):
    """Answer to LOCK_BATCH_MQ: the queues that the client holds now."""

    lock_ok_mq_set: list[MessageQueue] = kept_list("lockOKMQSet")
