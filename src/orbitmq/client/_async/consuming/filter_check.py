"""Asking a broker, before a consumer starts, whether it serves an SQL92 expression.

A broker that does not would answer every pull with an error, and the consumer would go on asking. One broker of the topic is asked; a
topic without brokers is waited for, and its filter is not checked.

Source: RocketMQ remoting, CHECK_CLIENT_CONFIG.
"""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.client._async.parts import ClientContext
from orbitmq.client.consuming.subscription import Subscription
from orbitmq.client.route import MASTER_ID
from orbitmq.errors import RouteNotFoundError
from orbitmq.limits.client import CONSUMER_GROUP_TIMEOUT_MS
from orbitmq.protocol.remoting.bodies import CheckClientBody
from orbitmq.protocol.remoting.codes import RequestCode


async def check_filters(client: ClientContext, group: str, subscriptions: Iterable[Subscription]) -> None:
    """Raises `RemoteError` with the broker's words for an expression that it does not serve."""
    for subscription in subscriptions:
        if subscription.sql is None:
            continue
        try:
            route = await client.routes.get(subscription.topic)
        except RouteNotFoundError:
            continue
        names = sorted({queue.broker_name for queue in route.subscribe_queues})
        address = next((found for name in names if (found := client.routes.reader(name, MASTER_ID)) is not None), None)
        if address is not None:
            body = CheckClientBody(client_id=client.client_id, group=group, subscription_data=subscription.body())
            await client.network.request(
                address,
                RequestCode.CHECK_CLIENT_CONFIG,
                {},
                body.encode(),
                timeout_ms=CONSUMER_GROUP_TIMEOUT_MS,
                doing=f"checking the filter of {subscription.topic}",
            )
