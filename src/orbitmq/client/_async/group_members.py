"""Who is in a consumer group, as the brokers of a topic know it."""

from __future__ import annotations

import random
from typing import Final

from orbitmq.client._async.parts import Context
from orbitmq.client.route import Route
from orbitmq.errors import ClientError
from orbitmq.protocol.remoting.bodies import ConsumerIdList
from orbitmq.protocol.remoting.codes import RequestCode

_TIMEOUT_MS: Final = 3_000


async def member_ids(client: Context, group: str, route: Route) -> list[str]:
    """Client ids of the group, from one broker of the topic chosen at random. Every broker of a topic knows all of them."""
    brokers = [name for name in route.brokers if route.brokers[name]]
    if not brokers:
        raise ClientError(f"topic {route.topic!r} has no broker", remedy="check that the brokers run")
    address = route.reader(random.choice(brokers))
    assert address is not None  # brokers without any member were left out
    answer = await client.network.request(
        address,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        {"consumerGroup": group},
        timeout_ms=_TIMEOUT_MS,
        doing=f"listing the members of group {group!r}",
    )
    return list(ConsumerIdList.decode(bytes(answer.body)).consumer_id_list)
