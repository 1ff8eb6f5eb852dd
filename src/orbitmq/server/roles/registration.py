"""Keeping the name servers informed: who this broker is and which topics it carries.

Every name server is served by itself: all topics at the start, at every period and after a failure; the changed
topics alone right after a change. What happens to one name server never delays another, and never the broker.

Rules of this file
1. The broker runs without name servers. One log line tells when a name server stops taking registrations, one when
   it takes them again.
2. Changes of one loop turn travel together, and what changes while a registration is under way travels in the next.
3. After a failed registration or a lost connection the whole table is sent: the name server may have restarted or
   missed a change, and it compares versions, not topics.
4. The encoded whole table is kept while its version stays: an idle broker encodes nothing.

(RocketMQ remoting, registration of brokers.)
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from orbitmq.clock import Clock
from orbitmq.errors import ClientError, OrbitError, ProtocolError, RemoteError
from orbitmq.limits.server import (
    ANNOUNCEMENT_WAIT_MS,
    OUTBOUND_PAUSE_LAST_MS,
    REGISTRATION_PERIOD_MS_MAX,
    REGISTRATION_PERIOD_MS_MIN,
    REGISTRATION_RETRY_FIRST_MS,
    REGISTRATION_TIMEOUT_MS,
    ROUTE_TIMEOUT_MS,
    UNREGISTER_TIMEOUT_MS,
)
from orbitmq.protocol.names import GRPC_ENDPOINTS_NAMESPACE
from orbitmq.protocol.remoting.bodies import (
    ClusterInfo,
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfigWrapper,
    TopicRouteData,
)
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.server.connections.outbound import PLAIN, Calling, Outbound
from orbitmq.server.process.turn import Wakeups
from orbitmq.server.roles.published_endpoint import PublishedEndpoint

_log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

PERIODIC: Final = "broker: periodic registration"
RETRY: Final = "broker: registration retry"
_UNKNOWN: Final = "give this broker innerClientAuthenticationCredentials of a user that the name server knows"


class BrokerIdentity(msgspec.Struct, frozen=True):
    """How this broker is known to others."""

    cluster: str
    name: str
    broker_id: int
    address: str
    """`ip:port` that clients connect to."""
    ha_address: str


class TopicSource(Protocol):
    """The broker's topics; `orbitmq.broker.topics.TopicTable` is one."""

    @property
    def version(self) -> DataVersion: ...

    def wrapper(self, only: Iterable[str] | None = None, *, registration: bool = False) -> TopicConfigWrapper:
        """The table, or the topics named in `only`, with the permissions that are announced."""
        ...


class _NameServer:
    """One name server and what it still has to be told."""

    def __init__(self, address: str, clock: Clock, lost: Callable[[_NameServer], None], calling: Calling) -> None:
        self.outbound = Outbound(address, clock, lost=lambda: lost(self), calling=calling)
        self.whole = True
        self.changed: dict[str, None] = {}
        self.task: asyncio.Task[None] | None = None
        self.retry: asyncio.TimerHandle | None = None
        self.retry_ms = 0
        self.registered: bool | None = None
        """Outcome of the last registration; None before the first."""
        self.failure = ""


class Registrar:
    """Registers one broker at all its name servers.

    `took_orders` is called with the table of order configurations (topic -> text) that a name server answers.
    """

    def __init__(
        self,
        identity: BrokerIdentity,
        name_servers: Sequence[str],
        topics: TopicSource,
        clock: Clock,
        wakeups: Wakeups,
        *,
        period_ms: int = 30_000,
        took_orders: Callable[[dict[str, str]], None] | None = None,
        calling: Calling = PLAIN,
    ) -> None:
        """`name_servers` are `host:port` texts; ValueError when one is not."""
        self.identity = identity
        self.grpc_endpoint: Final = PublishedEndpoint(identity.name)
        self._topics = topics
        self._wakeups = wakeups
        self._period_ms = max(REGISTRATION_PERIOD_MS_MIN, min(period_ms, REGISTRATION_PERIOD_MS_MAX))
        self._took_orders = took_orders
        self._servers = [_NameServer(address, clock, self._lost, calling) for address in dict.fromkeys(name_servers)]
        self.master_address = ""
        """The master of this group, as a name server has told a slave; empty while that is not known."""
        self.master_ha_address = ""
        """In the same way, where it takes slaves."""
        self._body: tuple[DataVersion, bytes] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self._asking: set[asyncio.Task[object]] = set()

    @property
    def registered(self) -> dict[str, bool]:
        """Name server -> whether its last registration succeeded."""
        return {server.outbound.address: bool(server.registered) for server in self._servers}

    @property
    def failures(self) -> dict[str, str]:
        """Name server -> why its last registration failed, of those where it did."""
        return {server.outbound.address: server.failure for server in self._servers if server.failure}

    async def start(self, wait_ms: int = 1_000) -> bool:
        """Register everywhere, then keep registering; True when every name server has answered "success".

        Returns as soon as all have answered or failed, at the latest after `wait_ms`: a name server that is down is
        tried again in the background.
        """
        for server in self._servers:
            self._serve(server)
        self._plan_next_period()
        tasks = [server.task for server in self._servers if server.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=wait_ms / 1_000)
        return all(server.registered for server in self._servers)

    def topics_changed(self, topics: Iterable[str]) -> None:
        """Announce new or changed topics; cheap, does nothing before the end of the loop turn."""
        if self._stopping:
            return
        names = dict.fromkeys(topics)
        for server in self._servers:
            server.changed.update(names)
            self._serve(server)

    def when_told(self, done: Callable[[], None], wait_ms: int = ANNOUNCEMENT_WAIT_MS) -> None:
        """Call `done` once every name server that is being told has answered or failed, at the latest after `wait_ms`."""
        tasks = [server.task for server in self._servers if server.task is not None]
        if not tasks:
            asyncio.get_running_loop().call_soon(done)
            return
        waiting = asyncio.get_running_loop().create_task(asyncio.wait(tasks, timeout=wait_ms / 1_000), name="announce")
        self._asking.add(waiting)
        waiting.add_done_callback(self._asking.discard)
        waiting.add_done_callback(lambda _: done())

    def ask_route(self, topic: str, took: Callable[[TopicRouteData | None], None]) -> None:
        """Ask one name server after the other where a topic is; `took` gets the first answer, a route without queues when there is no such
        topic; None when none of them answers."""

        async def ask(server: Outbound) -> TopicRouteData:
            answer = await server.call(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}), ROUTE_TIMEOUT_MS)
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                return TopicRouteData()
            return TopicRouteData.decode(_body(server, answer))

        self._ask_in_turn(f"where topic {topic} is", ask, took)

    def ask_brokers(self, took: Callable[[Mapping[str, str] | None], None]) -> None:
        """In the same way ask which brokers are registered, and where each says that it serves gRPC; an empty text for those that say
        nothing."""

        async def ask(server: Outbound) -> Mapping[str, str]:
            table = request(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": GRPC_ENDPOINTS_NAMESPACE})
            answer = await server.call(table, ROUTE_TIMEOUT_MS)
            said = {} if answer.code == ResponseCode.QUERY_NOT_FOUND else KVTable.decode(_body(server, answer)).table
            answer = await server.call(request(RequestCode.GET_BROKER_CLUSTER_INFO), ROUTE_TIMEOUT_MS)
            brokers = ClusterInfo.decode(_body(server, answer)).broker_addr_table
            return {name: said.get(name, "") for name in brokers}

        self._ask_in_turn("which brokers serve gRPC", ask, took)

    def ask_group(self, took: Callable[[Mapping[int, str] | None], None]) -> None:
        """In the same way ask where the brokers of this group are, by their ids, this one included."""

        async def ask(server: Outbound) -> Mapping[int, str]:
            answer = await server.call(request(RequestCode.GET_BROKER_CLUSTER_INFO), ROUTE_TIMEOUT_MS)
            return group_in(answer, self.identity.name, server.address)

        self._ask_in_turn("which brokers are in this group", ask, took)

    def _ask_in_turn(
        self, what: str, ask: Callable[[Outbound], Awaitable[_Answer]], took: Callable[[_Answer | None], None]
    ) -> None:
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(
            self._first_answer(what, ask, took), name=what
        )
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _first_answer(
        self, what: str, ask: Callable[[Outbound], Awaitable[_Answer]], took: Callable[[_Answer | None], None]
    ) -> None:
        found: _Answer | None = None
        for server in self._servers:
            try:
                found = await ask(server.outbound)
            except OrbitError as error:
                _log.info("name server %s did not say %s: %s", server.outbound.address, what, error)
            else:
                break
        took(found)

    def become(self, broker_id: int) -> None:
        """This broker has that id from now on, which name servers are told at once; they forget the earlier one of its address. Who is
        master is not known until one says so again."""
        self.master_address = self.master_ha_address = ""
        self.identity = msgspec.structs.replace(self.identity, broker_id=broker_id)
        self.register_all()

    def register_all(self) -> None:
        """Send the whole table to every name server now."""
        for server in self._servers:
            server.whole = True
            self._serve(server)

    async def stop(self, *, leave: bool = True) -> None:
        """Unregister from every name server that knows this broker, then close; bounded in time, raises nothing.

        With `leave` false the connections close without a word.
        """
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        running = []
        for server in self._servers:
            if server.retry is not None:
                server.retry.cancel()
            if server.task is not None:
                server.task.cancel()
                running.append(server.task)
        await asyncio.gather(*running, return_exceptions=True)
        if leave:
            await asyncio.gather(*(self._leave(server) for server in self._servers))
        else:
            await asyncio.gather(*(server.outbound.close() for server in self._servers))

    # --- one name server ------------------------------------------------------------------------------------------

    def _serve(self, server: _NameServer) -> None:
        if server.task is None and not self._stopping:
            if server.retry is not None:
                server.retry.cancel()
                server.retry = None
            name = f"register at {server.outbound.address}"
            server.task = asyncio.get_running_loop().create_task(self._register(server), name=name)

    async def _register(self, server: _NameServer) -> None:
        """Registers until nothing is left to say, or until it fails."""
        try:
            while (server.whole or server.changed) and not self._stopping:
                whole, server.whole = server.whole, False
                changed, server.changed = server.changed, {}
                try:
                    body = self._whole_body() if whole else self._encode(changed)
                    answer = await server.outbound.call(self._request(body), REGISTRATION_TIMEOUT_MS)
                    if answer.code != ResponseCode.SUCCESS:
                        remedy = _UNKNOWN if answer.code == ResponseCode.NO_PERMISSION else None
                        raise RemoteError(
                            answer.code, answer.remark or "", address=server.outbound.address, remedy=remedy
                        )
                except OrbitError as error:
                    server.whole = True
                    if not whole and isinstance(error, RemoteError):
                        continue  # it may have lost this broker and takes no single topics of strangers
                    self._failed(server, error)
                    return
                self._succeeded(server, answer)
                if whole:
                    await self.grpc_endpoint.renew(server.outbound)
        finally:
            server.task = None

    def _succeeded(self, server: _NameServer, answer: Command) -> None:
        server.retry_ms = 0
        server.failure = ""
        if not server.registered:
            server.registered = True
            _log.info("registered at name server %s as %s", server.outbound.address, self.identity.address)
        if self.identity.broker_id:
            self.master_address = answer.fields.get("masterAddr", "")
            self.master_ha_address = answer.fields.get("haServerAddr", "")
        if self._took_orders is not None and answer.body:
            try:
                self._took_orders(KVTable.decode(bytes(answer.body)).table)
            except ProtocolError as error:
                _log.warning("name server %s answered unreadable order data: %s", server.outbound.address, error)

    def _lost(self, server: _NameServer) -> None:
        """The connection broke: the name server has forgotten this broker, or will have after its restart."""
        server.whole = True
        if server.task is None and server.retry is None and not self._stopping:
            self._retry_later(server)

    def _failed(self, server: _NameServer, error: OrbitError) -> None:
        server.failure = str(error)
        if server.registered is not False:
            server.registered = False
            _log.warning(
                "registration at name server %s failed, trying again: %s", server.outbound.address, server.failure
            )
        self._retry_later(server)

    def _retry_later(self, server: _NameServer) -> None:
        server.retry_ms = min(server.retry_ms * 2 or REGISTRATION_RETRY_FIRST_MS, OUTBOUND_PAUSE_LAST_MS)
        server.retry = self._wakeups.call_later(server.retry_ms / 1_000, RETRY, lambda: self._serve(server))

    async def _leave(self, server: _NameServer) -> None:
        who = self.identity
        fields = {
            "brokerName": who.name,
            "brokerAddr": who.address,
            "clusterName": who.cluster,
            "brokerId": str(who.broker_id),
        }
        if server.outbound.connected:
            await self.grpc_endpoint.withdraw(server.outbound)
            try:
                await server.outbound.call(request(RequestCode.UNREGISTER_BROKER, fields), UNREGISTER_TIMEOUT_MS)
            except ClientError as error:
                _log.info("name server %s was not told that this broker leaves: %s", server.outbound.address, error)
        server.registered = False
        await server.outbound.close()

    # --- what is said ---------------------------------------------------------------------------------------------

    def _whole_body(self) -> bytes:
        version = self._topics.version
        if self._body is None or self._body[0] != version:
            self._body = (version, self._encode(None))
        return self._body[1]

    def _encode(self, only: Iterable[str] | None) -> bytes:
        return RegisterBrokerBody(self._topics.wrapper(only, registration=True)).encode()

    def _request(self, body: bytes) -> Command:
        who = self.identity
        fields = {
            "brokerName": who.name,
            "brokerAddr": who.address,
            "clusterName": who.cluster,
            "haServerAddr": who.ha_address,
            "brokerId": str(who.broker_id),
            "enableActingMaster": "false",
            "compressed": "false",
            "bodyCrc32": str(zlib.crc32(body) & 0x7FFF_FFFF),
        }
        return request(RequestCode.REGISTER_BROKER, fields, body)

    def _plan_next_period(self) -> None:
        if self._servers and not self._stopping:
            self._timer = self._wakeups.call_later(self._period_ms / 1_000, PERIODIC, self._period)

    def _period(self) -> None:
        self.register_all()
        self._plan_next_period()


def group_in(answer: Command, name: str, address: str) -> Mapping[int, str]:
    """Main ports of the brokers of a group by their ids, as the name server at an address says. Raises OrbitError."""
    group = ClusterInfo.decode(_body_of(answer, address)).broker_addr_table.get(name)
    return {} if group is None else group.broker_addrs


def _body(server: Outbound, answer: Command) -> bytes:
    """Raises RemoteError for an answer that is none."""
    return _body_of(answer, server.address)


def _body_of(answer: Command, address: str) -> bytes:
    if answer.code != ResponseCode.SUCCESS:
        raise RemoteError(answer.code, answer.remark or "", address=address)
    return bytes(answer.body)
