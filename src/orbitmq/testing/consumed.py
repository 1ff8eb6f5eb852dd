"""Whether consumer groups have dealt with everything that is visible to them.

A member is done when the broker holds a pull of it for every queue that has messages, so that nothing is left to fetch, and
when the client itself says that it has no message in hand. Both are asked of any client, whatever its language, that
is a push consumer: the second is the protocol's GET_CONSUMER_RUNNING_INFO.

Rules of this file
1. Nothing is concluded from committed offsets: clients commit every few seconds.
2. A round counts only if the log did not grow during it: what a handler sends is part of what has to be dealt with.
"""

from __future__ import annotations

import asyncio

from orbitmq.broker.broker import Broker
from orbitmq.broker.clients import ConsumerGroup, GroupMember
from orbitmq.errors import OrbitError
from orbitmq.limits.testing import EMBEDDED_ASK_MS
from orbitmq.protocol.names import is_system_topic, retry_topic
from orbitmq.protocol.remoting.bodies import ConsumerRunningInfo
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request


async def left_to_do(broker: Broker, group: str) -> str | None:
    """What the group has not dealt with, in words; None when it has consumed everything."""
    online = broker.clients.consumer(group)
    if online is None:
        return f"no member of group {group!r} is connected"
    end = broker.store.log.end
    unread = _unread(broker, online)
    if unread is not None:
        return unread
    for member in list(online.members.values()):
        in_hand = await _in_hand(member, group)
        if in_hand is not None:
            return in_hand
    if broker.store.log.end != end:
        return f"messages arrived while group {group!r} was asked"
    return _unread(broker, online)


def _unread(broker: Broker, online: ConsumerGroup) -> str | None:
    """A queue with messages that a member should be waiting at, and none is."""
    topics = dict.fromkeys(online.subscriptions)
    if not online.is_broadcasting:
        topics[retry_topic(online.name)] = None
    held = broker.rooms.pulls.held
    for topic in topics:
        if is_system_topic(topic):
            continue
        for queue_id in broker.store.queue_ids(topic):
            if not broker.store.max_offset(topic, queue_id):
                continue
            here = {pull.peer for pull in held.waiting(topic, queue_id) if pull.group == online.name}
            missing = set(online.members) - here if online.is_broadcasting else not here
            if missing:
                return (
                    f"group {online.name!r} is not waiting at queue {queue_id} of {topic!r}: it reads it still, has stopped "
                    "reading because too much is in hand, or has not heard of the topic yet, which takes a Java client up "
                    "to 50 s after the topic was made"
                )
    return None


async def _in_hand(member: GroupMember, group: str) -> str | None:
    fields = {"consumerGroup": group, "clientId": member.client_id, "jstackEnable": "false"}
    answered: asyncio.Future[Command | None] = asyncio.get_running_loop().create_future()

    def took(command: Command | None) -> None:
        if not answered.done():
            answered.set_result(command)

    member.session.request(request(RequestCode.GET_CONSUMER_RUNNING_INFO, fields), EMBEDDED_ASK_MS, took)
    answer = await answered
    if answer is None or answer.code != ResponseCode.SUCCESS:
        return f"client {member.client_id} of group {group!r} does not say what it has in hand"
    try:
        info = ConsumerRunningInfo.decode(bytes(answer.body))
    except OrbitError as error:
        return f"client {member.client_id} of group {group!r} gives no account of its queues: {error}"
    for queue, state in info.mq_table.items():
        count = state.cached_msg_count + state.transaction_msg_count
        if count and not state.droped:
            return (
                f"client {member.client_id} of group {group!r} has {count} messages of queue {queue.queue_id} of "
                f"{queue.topic!r} in hand"
            )
    return None
