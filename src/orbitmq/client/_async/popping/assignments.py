"""Which queues a pop consumer pops: its broker decides.

What a broker assigns by POP is popped. Where it assigns nothing by POP, because nobody has set a mode for topic and group, all queues of
each broker are popped, as RocketMQ's proxies do: that needs no agreement, since nobody owns a queue that is popped.

Rules of this file
1. A broker of the topic, chosen at random, is asked every 20 s, and at once when the members of the group or a route have changed.
2. When it cannot be asked, or says nothing, what was popped goes on being popped.
"""

from __future__ import annotations

from orbitmq.client._async.consuming.group_members import some_broker
from orbitmq.client._async.parts import ClientContext
from orbitmq.client.route import Route
from orbitmq.limits.client import CONSUMER_GROUP_TIMEOUT_MS
from orbitmq.protocol.remoting.bodies import (
    MessageQueue,
    MessageQueueAssignment,
    MessageRequestMode,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
)
from orbitmq.protocol.remoting.codes import RequestCode

ALL_QUEUES = -1


async def assigned(client: ClientContext, group: str, topic: str, route: Route) -> set[MessageQueue] | None:
    """What this member pops of a topic; None when the broker does not know yet. Raises ClientError, ProtocolError."""
    name, address = some_broker(route)
    asked = QueryAssignmentRequest(topic=topic, consumer_group=group, client_id=client.client_id, strategy_name="AVG")
    answer = await client.network.request(
        address,
        RequestCode.QUERY_ASSIGNMENT,
        {},
        asked.encode(),
        timeout_ms=CONSUMER_GROUP_TIMEOUT_MS,
        doing=f"asking broker {name} for the queues of {topic!r}",
    )
    assignments = QueryAssignmentResponse.decode(answer.body).message_queue_assignments
    return None if assignments is None else popped_queues(topic, route, assignments)


def popped_queues(topic: str, route: Route, assignments: list[MessageQueueAssignment]) -> set[MessageQueue]:
    """What a member pops to whom a broker has answered this."""
    by_pop = {each.message_queue for each in assignments if each.mode is MessageRequestMode.POP}
    if by_pop:
        return by_pop
    return {MessageQueue(topic, queue.broker_name, ALL_QUEUES) for queue in route.subscribe_queues}
