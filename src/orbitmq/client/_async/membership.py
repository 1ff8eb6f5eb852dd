"""Telling brokers which groups live in this client.

Rules of this file
1. One heartbeat carries all groups of which this client is a member; a broker forgets what is missing from the next one it looks at,
   and the whole client after 120 s.
2. A new connection gets a heartbeat at once: the broker knows members by connection, and a restarted broker knows nobody.
3. A failed heartbeat is logged and not repeated before the next one is due.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.client._async.network import Network
from orbitmq.client._async.parts import Member
from orbitmq.client._async.routes import Routes
from orbitmq.client._async.runtime import Lock, log
from orbitmq.errors import ClientError
from orbitmq.protocol.remoting.bodies import HeartbeatData, ProducerData
from orbitmq.protocol.remoting.codes import RequestCode


class Membership:
    """Heartbeats of one client.

    `producers` and `consumers` are the client's own tables by group name, read at each heartbeat.
    """

    def __init__(
        self,
        client_id: str,
        network: Network,
        routes: Routes,
        producers: Mapping[str, object],
        consumers: Mapping[str, Member],
        timeout_ms: int,
    ) -> None:
        self._client_id = client_id
        self._network = network
        self._routes = routes
        self._producers = producers
        self._consumers = consumers
        self._timeout_ms = timeout_ms
        self._one_at_a_time = Lock()

    async def beat_all(self) -> None:
        """A heartbeat to every known broker; to masters only while there is no consumer."""
        async with self._one_at_a_time:
            if not self._producers and not self._consumers:
                return
            for address in sorted(self._routes.addresses(masters_only=not self._consumers)):
                await self._beat(address)

    async def beat(self, address: str) -> None:
        """A heartbeat to one broker; nothing for an address that is in no route, such as a name server."""
        async with self._one_at_a_time:
            if (self._producers or self._consumers) and address in self._routes.addresses():
                await self._beat(address)

    async def leave(self, *, producer: str | None = None, consumer: str | None = None) -> None:
        """Tell every connected broker that a group of this client is gone, so that others take its queues at once."""
        fields = {"clientID": self._client_id}
        if producer is not None:
            fields["producerGroup"] = producer
        if consumer is not None:
            fields["consumerGroup"] = consumer
        brokers = self._routes.addresses()
        for address in self._network.addresses:
            if address not in brokers:
                continue
            try:
                await self._network.request(
                    address, RequestCode.UNREGISTER_CLIENT, fields, timeout_ms=self._timeout_ms, doing="leaving a group"
                )
            except ClientError as error:
                log.warning("broker %s was not told that this client leaves: %s", address, error)

    def drop_unknown(self, name_servers: frozenset[str]) -> None:
        """Close connections to brokers that are in no route any more."""
        known = self._routes.addresses() | name_servers
        for address in self._network.addresses:
            if address not in known:
                self._network.forget(address, "the broker is in no route any more")

    async def _beat(self, address: str) -> None:
        groups = [consumer.heartbeat() for consumer in self._consumers.values()]
        data = HeartbeatData(
            client_id=self._client_id,
            producer_data_set=[ProducerData(group_name=group) for group in self._producers],
            consumer_data_set=[group for group in groups if group is not None],
        )
        if not data.producer_data_set and not data.consumer_data_set:
            return  # consumers that read fixed queues are no members of their groups
        try:
            await self._network.request(
                address, RequestCode.HEART_BEAT, {}, data.encode(), timeout_ms=self._timeout_ms, doing="heartbeat"
            )
        except ClientError as error:
            log.warning("heartbeat to broker %s failed: %s", address, error)
