"""A network of simulated processes: connections of bytes that are delayed, cut anywhere, held back in one direction, or lost.

Rules of this file
1. Within one connection bytes arrive in order, or the connection ends. Nothing is said of the order of two connections.
2. What a direction holds back arrives when it is let through again; the end of a connection is held back like its bytes.
3. A process that is killed has its connections ended by its system; a machine that loses power says nothing until it runs again.
4. Who asked its system for it (TCP_USER_TIMEOUT) loses a connection whose bytes do not reach the other machine for so long.
"""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from tests.worlds.simulated_loop import SimulatedLoop

from orbitmq.clock import ManualClock
from orbitmq.units import NS_PER_MS

HIGH_WATER_BYTES = 64 * 1024
"""Bytes under way, unless a transport sets it, beyond which its protocol is told to pause."""


class Listening:
    """A port that takes connections; the part of `asyncio.Server` that is used."""

    def __init__(self, network: SimulatedNetwork, loop: SimulatedLoop, factory: Callable[[], Any], port: int) -> None:
        self.network, self.loop, self.factory, self.port = network, loop, factory, port
        self.sockets = (self,)

    def getsockname(self) -> tuple[str, int]:
        return self.loop.host, self.port

    def close(self) -> None:
        self.network.listeners.pop((self.loop.host, self.port), None)


class OwnSocket:
    """What is asked of the socket of one end."""

    def __init__(self, end: Transport) -> None:
        self._end = end

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if (level, option) == (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT):
            self._end.user_timeout_ns = value * NS_PER_MS


class Transport(asyncio.Transport):
    """One end of a connection. What is written arrives at `peer`, the other end, unless that is gone."""

    def __init__(self, network: SimulatedNetwork, loop: SimulatedLoop, protocol: Any, other_host: str) -> None:
        self.network, self.loop, self.protocol, self.other_host = network, loop, protocol, other_host
        self.peer: Transport | None = None
        self.incoming: deque[tuple[int, bytes | None]] = deque()
        """What is under way to this end, and when it arrives; None ends the connection."""
        self.incoming_bytes = 0
        self.high_water_bytes = HIGH_WATER_BYTES
        self.writer_is_paused = False
        self.user_timeout_ns = 0
        self._unheard_ns: int | None = None
        """Since when bytes go to a machine that is gone."""
        self._is_reading = True
        self._is_closing = False

    # --- asyncio --------------------------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return OwnSocket(self)
        return (self.other_host, 40_000) if name == "peername" else default

    def get_write_buffer_size(self) -> int:
        return 0 if self.peer is None else self.peer.incoming_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high_water_bytes = HIGH_WATER_BYTES if high is None else high

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        data = b"".join(bytes(part) for part in list_of_data)
        if self._is_closing or not data:
            return
        if self.peer is None:
            if self._unheard_ns is None:
                self._unheard_ns = self.loop.clock.monotonic_ns()
            return
        self.network.send(self.peer, data)
        if self.peer.incoming_bytes > self.high_water_bytes and not self.writer_is_paused:
            self.writer_is_paused = True
            self.loop.call_soon(self.protocol.pause_writing)

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True

    def abort(self) -> None:
        if not self._is_closing:
            self.network.end(self.peer)
            self.lost(None)

    close = abort

    # --- what the network does --------------------------------------------------------------------------------------------

    def lost(self, error: Exception | None) -> None:
        """The connection is over at this end."""
        if not self._is_closing:
            self._is_closing = True
            self.network.ends.pop(self, None)
            self.loop.call_soon(self.protocol.connection_lost, error)

    def drop(self) -> None:
        """The process of this end is gone."""
        self._is_closing = True
        self.network.ends.pop(self, None)
        if self.peer is not None:
            self.peer.peer = None

    @property
    def overdue_ns(self) -> int | None:
        """When its system gives this connection up, as things are."""
        since_ns, peer = self._unheard_ns, self.peer
        if peer is not None and peer.incoming and (self.loop.host, self.other_host) in self.network.held:
            since_ns = peer.incoming[0][0]
        return None if since_ns is None else since_ns + self.user_timeout_ns

    def can_take(self) -> bool:
        link = (self.other_host, self.loop.host)
        return bool(self.incoming) and self.is_reading() and link not in self.network.held and not self.loop.is_paused


class SimulatedNetwork:
    """`held` are the directions, (from, to), in which nothing arrives."""

    def __init__(self, clock: ManualClock, rng: random.Random) -> None:
        self.clock = clock
        self.rng = rng
        self.delays_ms: tuple[int, ...] = (0, 0, 1, 1, 2)
        self.listeners: dict[tuple[str, int], Listening] = {}
        self.held: set[tuple[str, str]] = set()
        self.ends: dict[Transport, None] = {}

    def listen(self, loop: SimulatedLoop, factory: Callable[[], Any], port: int) -> Listening:
        listening = self.listeners[loop.host, port] = Listening(self, loop, factory, port)
        return listening

    def reaches(self, host: str, other: str) -> bool:
        return not {(host, other), (other, host)} & self.held

    async def delay(self) -> None:
        await asyncio.sleep(self.rng.choice(self.delays_ms) / 1_000)

    async def connect(self, loop: SimulatedLoop, factory: Callable[[], Any], host: str, port: int) -> Any:
        """Raises ConnectionRefusedError; waits for ever where nothing arrives."""
        await self.delay()
        if not self.reaches(loop.host, host):
            await asyncio.sleep(3_600)
        listening = self.listeners.get((host, port))
        if listening is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{host}:{port}: connection refused")
        ours, theirs = Transport(self, loop, factory(), host), Transport(self, listening.loop, None, loop.host)
        theirs.protocol = listening.factory()
        ours.peer, theirs.peer = theirs, ours
        self.ends[ours] = self.ends[theirs] = None
        theirs.loop.call_soon(theirs.protocol.connection_made, theirs)
        ours.protocol.connection_made(ours)
        return ours, ours.protocol

    # --- bytes ------------------------------------------------------------------------------------------------------------

    def _arrival_ns(self, end: Transport) -> int:
        at_ns = self.clock.monotonic_ns() + self.rng.choice(self.delays_ms) * NS_PER_MS
        return max(at_ns, end.incoming[-1][0]) if end.incoming else at_ns

    def send(self, end: Transport, data: bytes) -> None:
        at_ns = self._arrival_ns(end)
        while data:  # it arrives in pieces
            size = len(data) if self.rng.random() < 0.6 else self.rng.randint(1, len(data))
            end.incoming.append((at_ns, data[:size]))
            end.incoming_bytes += size
            data = data[size:]

    def end(self, end: Transport | None) -> None:
        """The other side has ended the connection."""
        if end is not None:
            end.incoming.append((self._arrival_ns(end), None))

    def deliver(self) -> bool:
        """What has arrived is read. False: nothing had."""
        now_ns, is_any = self.clock.monotonic_ns(), False
        for end in list(self.ends):
            overdue_ns = end.overdue_ns if end.user_timeout_ns else None
            if overdue_ns is not None and overdue_ns <= now_ns:
                self.end(end.peer)
                end.lost(TimeoutError("the other machine takes nothing"))
                is_any = True
                continue
            if end.incoming and end.can_take() and end.incoming[0][0] <= now_ns:
                is_any = True
                _, data = end.incoming.popleft()
                if data is None:
                    end.lost(ConnectionResetError("the other side closed it"))
                    continue
                end.incoming_bytes -= len(data)
                end.loop.call_soon(self._read, end, data)
                writer = end.peer
                if writer is not None and writer.writer_is_paused and end.incoming_bytes * 4 <= writer.high_water_bytes:
                    writer.writer_is_paused = False
                    writer.loop.call_soon(writer.protocol.resume_writing)
        return is_any

    def _read(self, end: Transport, data: bytes) -> None:
        if not end.is_closing():
            end.protocol.data_received(data)

    @property
    def due_ns(self) -> int | None:
        dues = [end.incoming[0][0] for end in self.ends if end.incoming and end.can_take()]
        timed = (end.overdue_ns for end in self.ends if end.user_timeout_ns)
        return min([*dues, *(at for at in timed if at is not None)], default=None)

    # --- faults -------------------------------------------------------------------------------------------------------------

    def break_one(self) -> None:
        """A connection ends; of what was under way some arrives."""
        connected = [end for end in self.ends if end.peer is not None]
        if connected:
            end = self.rng.choice(connected)
            assert end.peer is not None
            for one in (end, end.peer):
                for _ in range(self.rng.randint(0, len(one.incoming))):
                    lost = one.incoming.pop()[1]
                    one.incoming_bytes -= len(lost or b"")
                self.end(one)

    def killed(self, host: str) -> None:
        """The process there is gone, and its system ends its connections."""
        for end in [end for end in self.ends if end.loop.host == host]:
            self.end(end.peer)
            end.drop()
        self._close_ports(host)

    def lost_power(self, host: str) -> None:
        """The machine is gone: nobody hears of it."""
        for end in [end for end in self.ends if end.loop.host == host]:
            end.drop()
        self._close_ports(host)

    def is_back(self, host: str) -> None:
        """The machine runs again, and knows no connection of before."""
        for end in list(self.ends):
            if end.peer is None and end.other_host == host and not (end.incoming and end.incoming[-1][1] is None):
                self.end(end)

    def _close_ports(self, host: str) -> None:
        for key in [key for key in self.listeners if key[0] == host]:
            del self.listeners[key]
