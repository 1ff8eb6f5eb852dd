"""The gRPC front end: a port whose connections speak HTTP/2, and the handler of their calls.

Rules of this file
1. No timer of its own: the look for idle connections gives those that stay their budgets again, and closes who does not begin to speak.
2. What a connection is made of (HTTP/2, calls, protobuf) is imported with the first one: a broker without clients of gRPC is spared 20 ms
   of its start and 7 MB.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

from orbitmq.clock import Clock
from orbitmq.limits.grpc import PREFACE_MS
from orbitmq.limits.server import STOP_GRACE_MS
from orbitmq.protocol.grpc.call_tally import CallTally
from orbitmq.protocol.http2.figures import Http2Figures
from orbitmq.server.connections.accepted_connection import AcceptedConnection
from orbitmq.server.connections.descriptors import ConnectionRoom
from orbitmq.server.connections.first_bytes import PortRules
from orbitmq.server.connections.listener import Handler, Listener, ListenerLimits, PortTraffic
from orbitmq.server.process.turn import Turn, Wakeups
from orbitmq.units import NS_PER_MS

if TYPE_CHECKING:
    from orbitmq.protocol.grpc.open_call import OpenCall
    from orbitmq.server.grpc.connection import GrpcConnection


class CallHandler(Protocol):
    """What stands behind the port. Whatever it is handed it ends, see `OpenCall`."""

    def message(self, call: OpenCall, message: bytes) -> None:
        """A message came: the request of a call that has one, or the next of a stream."""
        ...

    def excess(self, call: OpenCall, message: bytes) -> None:
        """As `message`, where too many requests wait: refuse what can be repeated."""
        ...

    def over(self, call: OpenCall) -> None:
        """No message comes any more of a stream, or the call was cancelled (`is_wanted`). Called at most twice."""
        ...

    def close(self) -> None:
        """The server stops, before it saves its tables: answer what waits, keep nothing for anybody. Calls may still come."""
        ...


class GrpcListener(Listener):
    """One listening port that speaks gRPC. See `Listener`."""

    ALPN = ("h2",)
    TAKEN_REMEDY = "stop the program that holds the port, choose another one with --grpc-port, or give --no-grpc"

    def __init__(
        self,
        name: str,
        broker: Handler,
        make_calls: Callable[[], CallHandler],
        turn: Turn,
        wakeups: Wakeups,
        clock: Clock,
        limits: ListenerLimits | None = None,
        *,
        traffic: PortTraffic | None = None,
        room: ConnectionRoom | None = None,
        rules: PortRules | None = None,
    ) -> None:
        """`broker` is whose turn ends with this port's. `make_calls()` gives what carries calls out; it is made at the first connection, as
        it takes protobuf, which a process without clients of gRPC is spared."""
        super().__init__(name, broker, turn, wakeups, clock, limits, traffic=traffic, room=room, rules=rules)
        self._make_calls = make_calls
        self.tally = CallTally()
        self.figures = Http2Figures(queued=self._count_waiting)
        self._all_answered: asyncio.Event = asyncio.Event()

    @cached_property
    def calls(self) -> CallHandler:
        return self._make_calls()

    def close_calls(self) -> None:
        """What carries calls out stops, if it was made: what waits is answered, and what was popped for nobody is released."""
        if "calls" in vars(self):
            self.calls.close()

    async def start(self, host: str, port: int, bound: socket.socket | None = None) -> None:
        """As `Listener.start`. What carried calls out before a stop is made anew."""
        vars(self).pop("calls", None)
        await super().start(host, port, bound)

    async def stop(self, grace_ms: int = STOP_GRACE_MS) -> None:
        """As `Listener.stop`. Clients are told to begin no more calls here (GOAWAY), streams end, and calls under way have half of the
        grace for their answers before their connections close."""
        self._stop_accepting()
        for connection in self.connections:
            connection.wind_down()
        self.turn.run()
        if self.traffic.unanswered:
            self._all_answered.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_answered.wait(), grace_ms / 2_000)
        await super().stop(grace_ms // 2)

    def _count_waiting(self, change_bytes: int) -> None:
        """What waits for windows of clients waits to leave the port like what sockets do not take."""
        self.traffic.count_unsent(change_bytes, self.limits.write_high_water_bytes)

    def call_ended(self) -> None:
        """Said by connections while the port stops: `traffic.unanswered` is less."""
        if not self.traffic.unanswered:
            self._all_answered.set()

    def dismiss(self, peer: AcceptedConnection[Any]) -> None:
        super().dismiss(peer)
        if self.stopping:
            self.call_ended()

    @property
    def connections(self) -> list[GrpcConnection]:
        """Those that are open; this port has no others."""
        return cast("list[GrpcConnection]", list(self.peers))

    def _connected(self) -> AcceptedConnection[Any]:
        from orbitmq.server.grpc.connection import GrpcConnection

        return GrpcConnection(self)

    def _sweep(self) -> None:
        silent_since_ns = self.clock.monotonic_ns() - PREFACE_MS * NS_PER_MS
        for connection in self.connections:
            connection.http2.renew_budgets()
            if not connection.http2.has_begun and connection.opened_ns <= silent_since_ns and not connection.ending:
                self.traffic.idle_closed += 1
                connection.close(f"it has not begun to speak HTTP/2 for {PREFACE_MS} ms")
        super()._sweep()
