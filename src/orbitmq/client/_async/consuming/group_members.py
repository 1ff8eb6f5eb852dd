"""Who is in a consumer group. Every broker of a topic knows all members of the groups that consume it."""

from __future__ import annotations

import random

from orbitmq.client._async.parts import ClientContext
from orbitmq.client.route import Route
from orbitmq.errors import ClientError
from orbitmq.limits.client import CONSUMER_GROUP_TIMEOUT_MS
from orbitmq.protocol.remoting.bodies import ConsumerIdList
from orbitmq.protocol.remoting.codes import RequestCode


def some_broker(route: Route) -> tuple[str, str]:
    """Name and address of a broker of the topic, chosen at random so that no broker is asked by everybody."""
    brokers = [(name, address) for name in route.brokers if (address := route.reader(name)) is not None]
    if not brokers:
        raise ClientError(f"topic {route.topic!r} has no broker", remedy="check that the brokers run")
    return random.choice(brokers)


async def member_ids(client: ClientContext, group: str, address: str) -> list[str]:
    """Client ids of the group as one broker knows them, with repetitions when two members share an id."""
    answer = await client.network.request(
        address,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        {"consumerGroup": group},
        timeout_ms=CONSUMER_GROUP_TIMEOUT_MS,
        doing=f"listing the members of group {group!r}",
    )
    return list(ConsumerIdList.decode(answer.body).consumer_id_list)
