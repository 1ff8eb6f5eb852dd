"""Telling brokers which groups live in this client.

Rules of this file
1. One heartbeat carries all groups of which this client is a member; a broker forgets what is missing from the next one it looks at,
   and the whole client after 120 s.
2. A new connection begins with a heartbeat, at the latest when a route leads to its broker and a group lives here: the broker knows
   members by connection, and a restarted broker knows nobody.
3. A failed heartbeat is not repeated before the next one is due.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from orbitmq.client._async.connecting.network import Network
from orbitmq.client._async.connecting.routes import Routes
from orbitmq.client._async.runtime import Lock, log
from orbitmq.errors import ClientError, ProtocolError
from orbitmq.protocol.remoting.bodies import ConsumerData, HeartbeatData, ProducerData
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command, request

if TYPE_CHECKING:
    from orbitmq.client._async.parts import Member, OtherMember


class Membership:
    """Heartbeats of one client.

    `producers` and the consumers are the client's own tables by group name, read at each heartbeat.
    """

    def __init__(
        self,
        client_id: str,
        network: Network,
        routes: Routes,
        producers: Mapping[str, object],
        consumers: Mapping[str, Member],
        other_consumers: Mapping[str, OtherMember],
        timeout_ms: int,
    ) -> None:
        self._client_id = client_id
        self._network = network
        self._routes = routes
        self._producers = producers
        self._consumers = consumers
        self._other_consumers = other_consumers
        self._timeout_ms = timeout_ms
        self._one_at_a_time = Lock()

    async def beat_all(self) -> None:
        """A heartbeat to every known broker; to masters only while there is no consumer."""
        async with self._one_at_a_time:
            consumers = self._heartbeats()
            if self._producers or consumers:
                for address in sorted(self._routes.addresses(masters_only=not consumers)):
                    await self._beat(address, consumers)

    async def beat(self, address: str) -> None:
        """A heartbeat to one broker; nothing for an address that is in no route, such as a name server."""
        async with self._one_at_a_time:
            consumers = self._heartbeats()
            if (self._producers or consumers) and address in self._routes.addresses():
                await self._beat(address, consumers)

    def greeting(self, address: str) -> Command | None:
        """What a broker has to hear before it serves this client's groups; nothing for a name server."""
        if address not in self._routes.addresses():
            return None
        consumers = self._heartbeats()
        if self._producers or consumers:
            return request(RequestCode.HEART_BEAT, {}, self._heartbeat(consumers))
        return None

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

    def _heartbeats(self) -> list[ConsumerData]:
        """Groups of which this client is a member; lite consumers of assigned queues are no members."""
        lite = [consumer.heartbeat() for consumer in self._other_consumers.values()]
        return [consumer.heartbeat() for consumer in self._consumers.values()] + [
            data for data in lite if data is not None
        ]

    def _heartbeat(self, consumers: list[ConsumerData]) -> bytes:
        return HeartbeatData(
            client_id=self._client_id,
            producer_data_set=[ProducerData(group_name=group) for group in self._producers],
            consumer_data_set=consumers,
        ).encode()

    async def _beat(self, address: str, consumers: list[ConsumerData]) -> None:
        subject = f"the heartbeat to broker {address}"
        try:
            await self._network.request(
                address,
                RequestCode.HEART_BEAT,
                {},
                self._heartbeat(consumers),
                timeout_ms=self._timeout_ms,
                doing="heartbeat",
            )
        except (ClientError, ProtocolError) as error:
            self._network.troubles.failed(subject, error)
        else:
            self._network.troubles.worked(subject)
