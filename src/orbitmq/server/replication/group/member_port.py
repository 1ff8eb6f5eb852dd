"""A member's port for the other ones: who connects says who it is, and then what it has to say.

Rules of this file
1. Nothing of a connection is believed before its hello: of this cluster and group, by a name that is not ours, to us, in our version, and
   with the secret of the group where callers have to prove who they are.
2. One name has one store: while a member is connected, another store under its name is turned away. The same one again is a process that
   began anew, or connects anew, and takes the place of its earlier connection.
3. What breaks the protocol costs its sender the connection, and one line of the log; who comes again and again for the same reason, one
   in a minute.
4. A crowd of clients keeps no member out: these connections have a bound of their own, and are none of those that all ports share.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any, Final, cast

from orbitmq.errors import ReplicationFrameError, words_of
from orbitmq.limits.group import MEMBER_CONNECTIONS_MAX, MEMBER_HELLO_MS, MEMBER_TOLD_MAX, MEMBER_TOLD_MS
from orbitmq.protocol.replication.member_frames import (
    GROUP_MAGIC,
    LINK_VERSION,
    NONCE_BYTES,
    FrameReader,
    MemberHello,
    greeting,
)
from orbitmq.replication.replica_steps import Message
from orbitmq.replication.slave_callers import is_peer, may_follow_unnamed
from orbitmq.server.connections.addresses import endpoint, peer_address
from orbitmq.server.connections.first_bytes import protocols
from orbitmq.server.connections.listening import bound_address, opened
from orbitmq.server.process.surroundings import Surroundings
from orbitmq.server.replication.group.link_source import OwnName
from orbitmq.server.replication.group.member_messages import KINDS, check
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.replication")

NAME: Final = "port for members"


class MemberPort:
    """Of one member. `received_bytes` since the start; `refused` connections of strangers, and ends for a breach."""

    def __init__(self, process: Surroundings, own: OwnName, took: Callable[[Message], None]) -> None:
        """`took(message)` is told each message of a member that said who it is."""
        self.received_bytes = 0
        self.refused = 0
        self.took: Final = took
        self.connections: dict[MemberConnection, None] = {}
        self._told: dict[tuple[str, str], int] = {}
        """When it was told last of which host why it is let go."""
        self._process = process
        self._own = own
        access = process.settings.access
        self._authenticates = access.authenticates or bool(access.plain)
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen. PortTakenError or ConfigurationError when the address cannot be had."""
        peers = self._process.settings.replication.peers
        made = protocols(
            self._process.rules, NAME, lambda: MemberConnection(self), plain_from=lambda host: is_peer(host, peers)
        )
        server = asyncio.get_running_loop().create_server(made, host, port, reuse_address=True)
        name, remedy = "the port for the members of a group", "choose another one with haListenPort"
        self._server = await opened(server, name, (host, port), remedy)

    @property
    def address(self) -> tuple[str, int] | None:
        """Where it listens; None when it does not."""
        return bound_address(self._server)

    def close(self) -> None:
        """Listen no more: who connects is refused, and so knows that nobody is here."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self.connections):
            connection.end("stopped", is_breach=False)

    # --- connections ----------------------------------------------------------------------------------------------------

    def opened(self, connection: MemberConnection) -> bool:
        if len(self.connections) >= MEMBER_CONNECTIONS_MAX:
            stranger = next((one for one in self.connections if not one.member), None)
            if stranger is None:
                return False
            stranger.end("others came, and it had said nothing")
        self.connections[connection] = None
        return True

    def ended(self, connection: MemberConnection) -> None:
        self.connections.pop(connection, None)

    def is_news(self, host: str, why: str) -> bool:
        """Whether it was not told lately that this host is let go for that reason."""
        now_ns, key = self._process.clock.monotonic_ns(), (host, why)
        told_ns = self._told.get(key)
        if told_ns is not None and now_ns - told_ns < MEMBER_TOLD_MS * NS_PER_MS:
            return False
        self._told.pop(key, None)
        if len(self._told) >= MEMBER_TOLD_MAX:
            del self._told[next(iter(self._told))]
        self._told[key] = now_ns
        return True

    def let_go(self, member: str, why: str) -> None:
        """It said what cannot be."""
        for connection in list(self.connections):
            if connection.member == member:
                connection.end(why)

    def why_not(self, connection: MemberConnection, hello: MemberHello) -> str:
        """Why this one is not spoken with; empty where it is."""
        own = self._own
        if hello.version != LINK_VERSION:
            return f"it speaks version {hello.version} of this protocol, this member {LINK_VERSION}"
        if (hello.cluster, hello.group) != (own.cluster, own.group):
            return f"it is of group {hello.group} in {hello.cluster}, this one is {own.group} in {own.cluster}"
        if hello.to != own.name:
            return f"it looks for member {hello.to!r}, this one is {own.name!r}"
        if hello.sender in ("", own.name):
            return f"it calls itself {hello.sender!r}, as this member: give each member a replicaName of its own"
        if why_not := self._unproved(connection, hello):
            return why_not
        for other in list(self.connections):
            if other.member == hello.sender and other is not connection:
                if other.store != hello.store:
                    return f"member {hello.sender} is connected with another store: two members have one replicaName"
                other.end("the same member has connected anew", is_breach=False)
        return ""

    def _unproved(self, connection: MemberConnection, hello: MemberHello) -> str:
        credentials = self._process.calling.credentials
        if credentials is not None:
            is_proved = hello.is_proved(connection.nonce, credentials.secret_key)
            return "" if is_proved else "it does not know the secret of innerClientAuthenticationCredentials"
        peers = self._process.settings.replication.peers
        if may_follow_unnamed(connection.host, peers, authenticates=self._authenticates):
            return ""
        return "this member has no innerClientAuthenticationCredentials, and haPeerAddresses does not name its address"


class MemberConnection(asyncio.Protocol):
    """One connection that came in. `member` is who it is of, empty before its hello."""

    def __init__(self, port: MemberPort) -> None:
        self.member = self.store = ""
        self.host = self.address = ""
        self.nonce: Final = os.urandom(NONCE_BYTES)
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._magic: bytes | None = b""
        self._frames = FrameReader(KINDS)
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.host, port = peer_address(transport)
        self.address = endpoint(self.host, port)
        if not self._port.opened(self):
            self._transport.abort()
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(MEMBER_HELLO_MS / 1_000, self.end, "it did not say who it is")

    def speak_over(self, transport: asyncio.BaseTransport, client: tuple[str, int] | None) -> None:
        """Use this transport from now on; the member is at `client`, where that is not what the transport says."""
        self._transport = cast(asyncio.Transport, transport)
        if client is not None:
            self.host, self.address = client[0], endpoint(*client)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        self._port.received_bytes += len(data)
        if self._magic is not None:
            data = self._after_magic(data)
        self._frames.receive(data)
        try:
            while self._transport is not None and (read := self._frames.take()) is not None:
                self._took(read)
        except ReplicationFrameError as error:
            self.end(str(error))

    def _after_magic(self, data: bytes) -> bytes:
        assert self._magic is not None
        magic = self._magic + data
        if magic[: len(GROUP_MAGIC)] != GROUP_MAGIC[: len(magic)]:
            self.end("it speaks another protocol")
            return b""
        if len(magic) < len(GROUP_MAGIC):
            self._magic = magic
            return b""
        self._magic = None
        if self._transport is not None:
            self._transport.write(greeting(self.nonce))
        return magic[len(GROUP_MAGIC) :]

    def _took(self, read: Any) -> None:
        if self.member:
            self._port.took(check(read, self.member))
            return
        if not isinstance(read, MemberHello):
            raise ReplicationFrameError("a message came before it was known who sends it")
        if why_not := self._port.why_not(self, read):
            self.end(why_not)
            return
        self.member, self.store = read.sender, read.store
        self._frames.hello_came()
        if self._timer is not None:
            self._timer.cancel()
        logger.info("member %s at %s is connected", self.member, self.address)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.end("it closed the connection" if error is None else words_of(error), is_breach=False)

    def end(self, why: str, *, is_breach: bool = True) -> None:
        """Close it; only the first reason counts."""
        transport, self._transport = self._transport, None
        if transport is None:
            return
        transport.abort()
        if self._timer is not None:
            self._timer.cancel()
        self._port.ended(self)
        who = f"member {self.member} at {self.address}" if self.member else f"a connection from {self.address}"
        self._port.refused += is_breach
        if not is_breach or self._port.is_news(self.host, why):
            logger.log(logging.WARNING if is_breach else logging.INFO, "%s is let go: %s", who, why)
