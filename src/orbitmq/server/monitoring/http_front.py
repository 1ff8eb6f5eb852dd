"""A small HTTP port: GET requests from monitoring systems and probes, nothing else. What is answered is somebody else's (`Answers`).

Rules of this file
1. Connections are bounded. When all places are taken, the one that has been waiting longest makes room.
2. What reads HTTP is imported with the first connection (`http_connection`): most servers are started more often than asked.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from orbitmq.clock import Clock
from orbitmq.limits.server import HTTP_CONNECTIONS_MAX, LISTEN_BACKLOG
from orbitmq.server.connections.descriptors import ConnectionRoom
from orbitmq.server.connections.first_bytes import PortRules, protocols
from orbitmq.server.connections.listening import bound_address, opened
from orbitmq.server.process.turn import Wakeups

if TYPE_CHECKING:
    from orbitmq.server.monitoring.http_connection import HttpConnection

NAME = "http"


class HttpRequest(msgspec.Struct, frozen=True):
    """A request without its body. `path` ends before the question mark. `authorization` is the header, which may hold a password, or
    empty; `client` the address that asks."""

    path: str
    accept: str
    authorization: str = ""
    client: str = ""

    def __repr__(self) -> str:
        return f"HttpRequest({self.path!r} from {self.client})"


class HttpAnswer(msgspec.Struct, frozen=True):
    """What is sent back."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


Answers = Callable[[HttpRequest], Awaitable[HttpAnswer]]


class HttpTraffic(msgspec.Struct):
    """Counters since the start."""

    answers: Counter[int] = msgspec.field(default_factory=Counter)
    """By status."""
    connections_accepted: int = 0
    connections_refused: int = 0
    bad_requests: int = 0
    slow_cut: int = 0


class HttpFront:
    """The listening socket and its connections."""

    def __init__(
        self,
        answers: Answers,
        wakeups: Wakeups,
        clock: Clock,
        room: ConnectionRoom,
        rules: PortRules | None = None,
    ) -> None:
        """With `rules` a connection may begin as they allow, else it is plain."""
        self.answers = answers
        self.wakeups = wakeups
        self.clock = clock
        self.traffic = HttpTraffic()
        self._room = room
        self._rules = rules
        self._connections: set[HttpConnection] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen. Port 0 takes a free one (`address`). PortTakenError or ConfigurationError when it cannot be had."""
        loop = asyncio.get_running_loop()
        made = protocols(self._rules, NAME, self._connection, ("http/1.1",))
        server = loop.create_server(made, host, port, backlog=LISTEN_BACKLOG, reuse_address=True)
        remedy = "stop the program that holds the port, choose another one with --http-port, or give --no-http"
        self._server = await opened(server, NAME, (host, port), remedy)

    def _connection(self) -> HttpConnection:
        from orbitmq.server.monitoring.http_connection import HttpConnection

        return HttpConnection(self)

    @property
    def is_listening(self) -> bool:
        return self._server is not None

    @property
    def open_count(self) -> int:
        return len(self._connections)

    @property
    def address(self) -> tuple[str, int]:
        """The bound address; RuntimeError before `start`."""
        found = bound_address(self._server)
        if found is None:
            raise RuntimeError(f"{NAME} is not listening")
        return found

    async def stop(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for connection in list(self._connections):
            connection.cut()
        await asyncio.sleep(0)

    # --- connections (called by HttpConnection) ---------------------------------------------------------------------

    def admit(self, connection: HttpConnection) -> bool:
        if len(self._connections) >= HTTP_CONNECTIONS_MAX:
            waiting = [other for other in self._connections if not other.is_answering]
            if waiting:
                min(waiting, key=lambda other: other.waiting_since_ns).cut()
        if self._server is None or len(self._connections) >= HTTP_CONNECTIONS_MAX or not self._room.take():
            self.traffic.connections_refused += 1
            return False
        self.traffic.connections_accepted += 1
        self._connections.add(connection)
        return True

    def dismiss(self, connection: HttpConnection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self._room.give_back()
