"""What administrators are told of a lite consumer."""

from __future__ import annotations

from orbitmq.client._async.pulling.lite_queue import LiteQueues
from orbitmq.client._async.runtime import monotonic_ms
from orbitmq.client.consuming.subscription import Subscription
from orbitmq.protocol.remoting.bodies import ConsumerRunningInfo, ConsumeType, MessageQueue, ProcessQueueInfo
from orbitmq.protocol.remoting.versions import OUR_VERSION, version_name


def running_info(
    queues: LiteQueues,
    subscriptions: dict[str, Subscription],
    name_servers: str,
    started_at_ms: int,
    now_ms: int,
    stacks: str | None,
) -> ConsumerRunningInfo:
    """Settings, subscriptions and the state of each queue; `now_ms` is wall time."""
    return ConsumerRunningInfo(
        properties={
            "PROP_NAMESERVER_ADDR": name_servers,
            "PROP_CONSUME_TYPE": ConsumeType.CONSUME_ACTIVELY.value,
            "PROP_CONSUMEORDERLY": "false",
            "PROP_THREADPOOL_CORE_SIZE": "1",
            "PROP_CLIENT_VERSION": version_name(OUR_VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(started_at_ms),
            "clientLanguage": "python",
        },
        subscription_set=[subscription.body() for subscription in subscriptions.values()],
        mq_table=_queue_infos(queues, now_ms - monotonic_ms()),
        jstack=stacks,
    )


def _queue_infos(queues: LiteQueues, to_wall_ms: int) -> dict[MessageQueue, ProcessQueueInfo]:
    infos: dict[MessageQueue, ProcessQueueInfo] = {}
    for queue, owned in queues.owned.items():
        messages = owned.messages
        first = messages.first_offset()
        infos[queue] = ProcessQueueInfo(
            commit_offset=queues.offsets.get(queue) or 0,
            cached_msg_min_offset=first or 0,
            cached_msg_max_offset=messages.last_offset if first is not None else 0,
            cached_msg_count=len(messages),
            cached_msg_size_in_mib=messages.bytes_total >> 20,
            last_pull_timestamp=messages.last_pull_ms + to_wall_ms,
            last_consume_timestamp=messages.last_consumed_ms + to_wall_ms,
        )
    return infos
