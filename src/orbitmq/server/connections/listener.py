"""The remoting front end: accepted sockets on one side, a handler that knows nothing of sockets on the other.

A listener accepts connections, cuts their bytes into commands with the sans-I/O `Connection`, hands every request to
its handler and writes the answers at the end of the loop turn (`Turn`). The broker's main and second port and the
name server's port are three listeners over the same classes.

Rules of this file
1. Bad input harms its sender only: a malformed frame costs its connection one log line and its life; what the
   handler raises becomes a SYSTEM_ERROR answer, and the connection lives.
2. No timer per connection. One coarse timer per listener looks for idle connections, and only while there are any.
3. A connection that does not take its answers is not read any further, and its requests that were read already wait
   until it does; beyond `WRITE_BYTES_MAX` it is cut.
4. Nothing is decided about load here. The handler gets the age of a request (`peer.received_ns`), or is told that too
   many wait (`handle_excess`), and answers SYSTEM_BUSY itself.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any, Protocol

import msgspec

from orbitmq.clock import Clock
from orbitmq.limits.server import (
    CONNECTION_IDLE_MS,
    CONNECTIONS_MAX,
    DESCRIPTORS_MAX,
    HELD_BYTES_MAX,
    IDLE_SWEEP_MS,
    LISTEN_BACKLOG,
    STOP_GRACE_MS,
    UNSENT_BYTES_MAX,
    UNSENT_SHARE,
    WRITE_BYTES_MAX,
    WRITE_HIGH_WATER_BYTES,
    WRITE_LOW_WATER_BYTES,
)
from orbitmq.limits.wire import FRAME_BYTES_MAX
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.requests import REQUESTS
from orbitmq.server.connections.accepted import AcceptedPeer
from orbitmq.server.connections.accepted_connection import AcceptedConnection
from orbitmq.server.connections.descriptors import ConnectionRoom
from orbitmq.server.connections.first_bytes import PortRules, protocols
from orbitmq.server.connections.held_bytes import HeldBytes
from orbitmq.server.connections.listening import bound_address, opened
from orbitmq.server.process.turn import Turn, Wakeups

_log = logging.getLogger(__name__)

SECOND_PORT_REFUSES = frozenset(int(code) for code, row in REQUESTS.items() if row.waits)
"""Codes that the broker's second port (listenPort - 2) answers "not supported": those that may wait."""


class Handler(Protocol):
    """What stands behind a listener: the broker or the name server."""

    def handle(self, request: Command, peer: Peer) -> Command | None:
        """The answer, or None when it comes later through `peer.send` (or never, for a oneway request)."""
        ...

    def handle_excess(self, request: Command, peer: Peer) -> Command | None:
        """As `handle`, for a request that finds the request queue full: refuse it if it can be repeated."""
        ...

    def peer_closed(self, peer: Peer) -> None:
        """The connection is gone; called once for every peer that `handle` may have seen."""
        ...

    def end_turn(self) -> None:
        """All sockets that were ready have been read: finish what was left open."""
        ...


class ListenerLimits(msgspec.Struct, frozen=True):
    """Bounds of one listener; the defaults are those of `orbitmq.limits`."""

    connections_max: int = CONNECTIONS_MAX
    idle_ms: int = CONNECTION_IDLE_MS
    """0 = never."""
    sweep_ms: int = IDLE_SWEEP_MS
    frame_bytes_max: int = FRAME_BYTES_MAX
    write_high_water_bytes: int = WRITE_HIGH_WATER_BYTES
    write_low_water_bytes: int = WRITE_LOW_WATER_BYTES
    write_bytes_max: int = WRITE_BYTES_MAX
    held_bytes_max: int = HELD_BYTES_MAX
    backlog: int = LISTEN_BACKLOG


class PortTraffic(msgspec.Struct):
    """Counters of one port since its start, or of the ports that share them. `unanswered`, `held_bytes` and whatever says how much waits
    to leave are the present state."""

    connections_accepted: int = 0
    connections_refused: int = 0
    idle_closed: int = 0
    slow_cut: int = 0
    bad_frames: int = 0
    frames_in: int = 0
    frames_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    handler_errors: int = 0
    unanswered: int = 0
    """Requests handed to the handler whose answer has not been given yet."""
    late_answers: int = 0
    """Answers of clients to requests of ours that nobody waited for any longer."""
    unsent_bytes: int = 0
    """Large answers of this turn, and answers that connections do not take, as far as they are above `UNSENT_PAUSE_BYTES`."""
    output_max_bytes: int = WRITE_HIGH_WATER_BYTES
    """What a connection may collect before it is handled no further; less while much waits to leave."""
    is_crowded: bool = False
    """More waits to leave than leaves every connection its `output_max_bytes`."""
    held_bytes: int = 0
    """Frames that have not arrived whole, and requests of connections that do not take their answers."""

    def count_unsent(self, change_bytes: int, high_water_bytes: int) -> None:
        """So much more waits to leave, or less."""
        self.unsent_bytes += change_bytes
        share_bytes = max(UNSENT_BYTES_MAX - self.unsent_bytes, 0) // UNSENT_SHARE
        self.is_crowded = share_bytes < high_water_bytes
        self.output_max_bytes = share_bytes if self.is_crowded else high_water_bytes


class Listener:
    """One listening port and its connections."""

    ALPN: tuple[str, ...] = ()
    """Names of protocols that a TLS client may ask for."""

    TAKEN_REMEDY = "stop the program that holds the port or choose another port"

    def __init__(
        self,
        name: str,
        handler: Handler,
        turn: Turn,
        wakeups: Wakeups,
        clock: Clock,
        limits: ListenerLimits | None = None,
        *,
        refused_codes: frozenset[int] = frozenset(),
        traffic: PortTraffic | None = None,
        room: ConnectionRoom | None = None,
        rules: PortRules | None = None,
    ) -> None:
        """`name` stands in log lines. `traffic` may be shared by the ports of one server, so that `unanswered`
        covers all of them, `room` and `rules` by all ports of the process; without `rules` connections are plain."""
        self.name = name
        self.handler = handler
        self.turn = turn
        self.wakeups = wakeups
        self.clock = clock
        self.limits = limits or ListenerLimits()
        self.refused_codes = refused_codes
        self.traffic = traffic if traffic is not None else PortTraffic()
        self.traffic.count_unsent(0, self.limits.write_high_water_bytes)
        self.room = room if room is not None else ConnectionRoom(DESCRIPTORS_MAX)
        self._rules = rules
        self.peers: set[AcceptedConnection[Any]] = set()
        self.held: HeldBytes[AcceptedConnection[Any]] = HeldBytes(self.peers, self.limits.held_bytes_max)
        self._server: asyncio.Server | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._full = False
        self._emptied: asyncio.Event = asyncio.Event()
        self.stopping = False

    # --- life -----------------------------------------------------------------------------------------------------

    async def start(self, host: str, port: int, bound: socket.socket | None = None) -> None:
        """Listen, for the first time or after `stop`. Port 0 takes a free one (`address`); `bound` is a socket that has the port already.

        PortTakenError or ConfigurationError when the address cannot be had.
        """
        self.stopping = False
        create = asyncio.get_running_loop().create_server
        made = protocols(self._rules, self.name, self._connected, self.ALPN)
        backlog = self.limits.backlog
        if bound is not None:
            server = create(made, sock=bound, backlog=backlog)
        else:
            server = create(made, host, port, backlog=backlog, reuse_address=True)
        self._server = await opened(server, self.name, (host, port), self.TAKEN_REMEDY)
        self.turn.add(self.handler.end_turn)

    @property
    def is_listening(self) -> bool:
        return self._server is not None and self._server.is_serving()

    @property
    def address(self) -> tuple[str, int]:
        """The bound address; RuntimeError before `start`."""
        found = bound_address(self._server)
        if found is None:
            raise RuntimeError(f"{self.name} is not listening")
        return found

    async def stop(self, grace_ms: int = STOP_GRACE_MS) -> None:
        """Stop accepting, finish the turn, close every connection once its written answers are taken.

        Connections that still hold bytes after `grace_ms` are cut. The handler sees `peer_closed` for each and has
        its last `end_turn` here.
        """
        self._stop_accepting()
        for peer in list(self.peers):
            peer.close(f"{self.name} stops")
        if self.peers:
            _log.info("%s: %d connections may take their answers for up to %d ms", self.name, len(self.peers), grace_ms)
            self._emptied.clear()
            try:
                await asyncio.wait_for(self._emptied.wait(), grace_ms / 1_000)
            except TimeoutError:
                _log.info("%s: %d connections did not take their answers and are cut", self.name, len(self.peers))
                for peer in list(self.peers):
                    peer.cut()
                await asyncio.sleep(0)
        self._stop_sweeping()
        if self._server is not None:
            self.turn.run()
            self.turn.remove(self.handler.end_turn)
            self._server = None

    def _stop_accepting(self) -> None:
        """Take no connection any more, and handle what was read."""
        self.stopping = True
        if self._server is not None:
            self._server.close()
        self.turn.run()
        while self.turn.request_queue:
            self.turn.run()

    async def abort(self) -> None:
        """Stop as a process that is killed: every connection breaks, what was collected for it is lost."""
        self.stopping = True
        if self._server is not None:
            self._server.close()
            self._server = None
            self.turn.remove(self.handler.end_turn)
        for peer in list(self.peers):
            peer.cut()
        self._stop_sweeping()
        await asyncio.sleep(0)  # the loop closes the sockets; peers with requests in the queue are never dismissed

    # --- connections (called by AcceptedConnection) ---------------------------------------------------------------------

    def _connected(self) -> AcceptedConnection[Any]:
        """A new connection, in the protocol of this port."""
        return AcceptedPeer(self)

    def admit(self, peer: AcceptedConnection[Any]) -> bool:
        """Take a new connection in, or refuse it. The limit is reported once each time it is reached."""
        if self.stopping or len(self.peers) >= self.limits.connections_max or not self.room.take():
            self.traffic.connections_refused += 1
            if not self._full and not self.stopping:
                self._full = True
                _log.warning(
                    "%s: %d connections are open, the most it takes (%d at all ports, as many as open files allow); "
                    "further ones are closed at once",
                    self.name,
                    len(self.peers),
                    self.room.open_max,
                )
            return False
        self.traffic.connections_accepted += 1
        self.peers.add(peer)
        if self._sweep_timer is None and self.limits.idle_ms:
            self._sweep_later()
        return True

    def dismiss(self, peer: AcceptedConnection[Any]) -> None:
        """A connection is gone."""
        self.peers.discard(peer)
        self.room.give_back()
        if self._full and len(self.peers) < self.limits.connections_max:
            self._full = False
        try:
            peer.gone()
        except Exception:
            self.traffic.handler_errors += 1
            _log.exception("%s: what had to follow the closing of %s failed", self.name, peer)
        self.turn.schedule()
        if not self.peers:
            self._stop_sweeping()
            self._emptied.set()

    # --- idle connections -----------------------------------------------------------------------------------------

    def _sweep_later(self) -> None:
        name = f"{self.name}: idle connections"
        self._sweep_timer = self.wakeups.call_later(self.limits.sweep_ms / 1_000, name, self._sweep)

    def _stop_sweeping(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def _sweep(self) -> None:
        self._sweep_timer = None
        oldest_ns = self.clock.monotonic_ns() - self.limits.idle_ms * 1_000_000
        for peer in list(self.peers):
            if peer.active_ns >= oldest_ns:
                continue
            if peer.ending:
                peer.cut()
            else:
                self.traffic.idle_closed += 1
                peer.close(f"no byte for {self.limits.idle_ms} ms")
        if self.peers and not self.stopping:
            self._sweep_later()
