"""Looking now and then whether the group's members agree, and telling the user when they do not.

Rules of this file
1. One request to one broker, a second after the members have changed or a broker does not know our subscription, and every two
   minutes: a broker only shows the subscription of whoever sent the last heartbeat.
2. Each disagreement is a warning once; it is said again when it has changed, or when it was gone and is back.
3. A client id that seems to be used twice is reported only when it still is at the next look, a few seconds later: after a broken
   connection a broker may count the old one for a while.
4. A look that fails is logged quietly and changes nothing.
"""

from __future__ import annotations

from typing import Protocol

from orbitmq.client._async.parts import ClientContext
from orbitmq.client._async.runtime import Event, log, sleep_ms, wait_event
from orbitmq.client.consuming.group_agreement import different_subscriptions, shared_client_ids
from orbitmq.client.consuming.subscription import Subscription
from orbitmq.client.route import Route
from orbitmq.errors import ClientError, ProtocolError
from orbitmq.limits.client import (
    CONSUMER_GROUP_TIMEOUT_MS,
    GROUP_CHECK_AGAIN_MS,
    GROUP_CHECK_INTERVAL_MIN_MS,
    GROUP_CHECK_PERIOD_MS,
    GROUP_CHECK_SETTLE_MS,
)
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.remoting.bodies import ConsumerConnection, ConsumerData, MessageModel
from orbitmq.protocol.remoting.codes import RequestCode


class Checked(Protocol):
    """A consumer of whatever kind. `heartbeat` is None while it is no member of its group."""

    client: ClientContext
    group: str
    subscriptions: dict[str, Subscription]

    def heartbeat(self) -> ConsumerData | None: ...


class GroupCheck:
    """The look-out of one consumer."""

    def __init__(self, consumer: Checked) -> None:
        self._consumer = consumer
        self._due = Event()
        self._differences: list[str] = []
        self._shared_ids: set[str] = set()
        self._suspected_ids: set[str] = set()

    def soon(self) -> None:
        """The members have changed, or a broker knows us otherwise: look as soon as that has settled."""
        self._due.set()

    async def run_forever(self) -> None:
        while True:
            if await wait_event(self._due, GROUP_CHECK_AGAIN_MS if self._suspected_ids else GROUP_CHECK_PERIOD_MS):
                await sleep_ms(GROUP_CHECK_SETTLE_MS)
                self._due.clear()
            await self.look()
            await sleep_ms(GROUP_CHECK_INTERVAL_MIN_MS)

    async def look(self) -> None:
        """Compare now."""
        own = self._consumer.heartbeat()
        if own is None:
            return
        try:
            group = await self._ask()
        except (ClientError, ProtocolError) as error:
            log.info("members of group %s were not compared: %s", self._consumer.group, error)
            return
        self._report_differences(group, own.message_model)
        self._report_shared_ids(group, own.message_model)

    def _report_differences(self, group: ConsumerConnection, model: MessageModel) -> None:
        consumer = self._consumer
        differences = different_subscriptions(consumer.subscriptions, model, group)
        if differences and differences != self._differences:
            log.warning(
                "members of group %s differ, so messages will be missed: %s. All members of a group must subscribe to the "
                "same topics and tags; use another group for another subscription",
                consumer.group,
                "; ".join(differences),
            )
        self._differences = differences

    def _report_shared_ids(self, group: ConsumerConnection, model: MessageModel) -> None:
        shared = {} if model is MessageModel.BROADCASTING else shared_client_ids(group)
        confirmed = shared.keys() & (self._suspected_ids | self._shared_ids)
        if confirmed - self._shared_ids:
            log.warning(
                "members of group %s share a client id, so they are given the same queues and messages come twice: %s. Give each "
                "client its own ClientOptions(instance_name=...), or none",
                self._consumer.group,
                "; ".join(shared[client_id] for client_id in sorted(confirmed)),
            )
        self._shared_ids = set(confirmed)
        self._suspected_ids = set(shared) - confirmed

    async def _ask(self) -> ConsumerConnection:
        consumer = self._consumer
        answer = await consumer.client.network.request(
            self._address(),
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            {"consumerGroup": consumer.group},
            timeout_ms=CONSUMER_GROUP_TIMEOUT_MS,
            doing=f"reading the connections of group {consumer.group!r}",
        )
        return ConsumerConnection.decode(answer.body)

    def _address(self) -> str:
        for topic in self._consumer.subscriptions:
            route: Route | None = self._consumer.client.routes.known(topic)
            if topic.startswith(RETRY_PREFIX) or route is None:
                continue
            for broker_name in route.brokers:
                address = route.reader(broker_name)
                if address is not None:
                    return address
        raise ClientError(f"no broker of a topic of group {self._consumer.group!r} is known")
