"""A bad network between a client and one server: delays, stalls, cuts in the middle of a frame, resets.

    async with BadNetwork("127.0.0.1:10911", Weather(seed=1)) as network:
        ... dial network.address instead of the server

Rules of this file
1. All mischief follows from the seed and from the sequence of chunks; what was done is counted by kind.
2. A chunk that goes through is never changed: bytes are late or missing from the end on, as TCP allows.
3. `is_fair` ends all mischief, so that a run can finish and be counted.
4. An address that was given is kept: whoever ends a network and begins it again listens there.
5. Besides, a direction can be held, in which bytes are late until it is let go, and all of it cut: connections end and none is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Self


class Mischief(Enum):
    """What happens to a chunk of bytes on its way."""

    NONE = "passes"
    DELAY = "delayed"
    STALL = "connection stalled"
    CUT = "connection closed in the middle of a chunk"
    RESET = "connection reset in the middle of a chunk"
    SWALLOW_ANSWER = "request passed on, connection reset before its answer"


@dataclass(frozen=True)
class Weather:
    """How bad it is: the chance of each mischief per chunk, and how long delays and stalls last."""

    seed: int
    delay: float = 0.02
    stall: float = 0.001
    cut: float = 0.002
    reset: float = 0.002
    swallow_answer: float = 0.003
    refuse: float = 0.2
    """Chance that a new connection is closed at once."""
    delay_s: float = 0.05
    stall_s: float = 1.5


class Way(Enum):
    """The two directions."""

    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"


class BadNetwork:
    """A TCP proxy in front of one server. `done` counts what it did."""

    def __init__(self, target: str, weather: Weather, address: str = "127.0.0.1:0") -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._weather = weather
        self._random = random.Random(weather.seed)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_fair = False
        self._is_cut = False
        self._passable = {way: asyncio.Event() for way in Way}
        self.let_go()
        self.done: Counter[Mischief] = Counter()
        self.refused_count = 0
        self.address = address

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, *self.address.rsplit(":", 1))
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in tuple(self._writers):
            writer.close()

    # --- one direction, or both

    def hold(self, way: Way) -> None:
        """What is sent in this direction arrives when it is let go, on old connections and new ones."""
        self._passable[way].clear()

    def let_go(self) -> None:
        for passable in self._passable.values():
            passable.set()

    def cut(self) -> None:
        """End all connections, and make none until `mend`."""
        self._is_cut = True
        for writer in tuple(self._writers):
            _reset(writer)

    def mend(self) -> None:
        self._is_cut = False

    # --- inside

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(
            asyncio.CancelledError
        ):  # the network ends; asyncio complains of a cancelled task here
            await self._join(reader, writer)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut or (not self.is_fair and self._random.random() < self._weather.refuse):
            self.refused_count += 1
            _reset(writer)
            return
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target)
        except OSError:
            _reset(writer)
            return
        self._writers |= {writer, server_writer}
        swallowing = asyncio.Event()
        forth = asyncio.ensure_future(self._carry(reader, server_writer, writer, swallowing, requests=True))
        back = asyncio.ensure_future(self._carry(server_reader, writer, server_writer, swallowing, requests=False))
        try:
            await asyncio.wait({forth, back}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for side in (forth, back):
                side.cancel()
            await asyncio.gather(forth, back, return_exceptions=True)
            for end in (writer, server_writer):
                self._writers.discard(end)
                end.close()

    async def _carry(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
        swallowing: asyncio.Event,
        *,
        requests: bool,
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(1 << 16):
                if swallowing.is_set():
                    continue
                mischief = self._choose(requests)
                self.done[mischief] += 1
                await self._pass(Way.TO_SERVER if requests else Way.TO_CLIENT, source, data)
                if mischief is Mischief.DELAY:
                    await asyncio.sleep(self._random.random() * self._weather.delay_s)
                elif mischief is Mischief.STALL:
                    await asyncio.sleep(self._weather.stall_s)
                elif mischief in (Mischief.CUT, Mischief.RESET):
                    sink.write(data[: self._random.randrange(len(data))])
                    with contextlib.suppress(ConnectionError):
                        await sink.drain()
                    if mischief is Mischief.RESET:
                        _reset(sink)
                        _reset(back)
                    return
                elif mischief is Mischief.SWALLOW_ANSWER:
                    swallowing.set()
                    sink.write(data)
                    await sink.drain()
                    await asyncio.sleep(0.02)  # the server has it and works on it
                    _reset(back)
                    return
                sink.write(data)
                await sink.drain()

    async def _pass(self, way: Way, source: asyncio.StreamReader, data: bytes) -> None:
        """Returns when these bytes, the next ones of `source`, may go on."""
        await self._passable[way].wait()

    def _choose(self, requests: bool) -> Mischief:
        if self.is_fair:
            return Mischief.NONE
        weather = self._weather
        chances = {
            Mischief.DELAY: weather.delay,
            Mischief.STALL: weather.stall,
            Mischief.CUT: weather.cut,
            Mischief.RESET: weather.reset,
            Mischief.SWALLOW_ANSWER: weather.swallow_answer if requests else 0.0,
        }
        drawn = self._random.random()
        for mischief, chance in chances.items():
            if drawn < chance:
                return mischief
            drawn -= chance
        return Mischief.NONE


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST."""
    connection: socket.socket | None = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
