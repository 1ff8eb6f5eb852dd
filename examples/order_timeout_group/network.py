"""The network of the story: every connection passes a front, and whoever is cut off neither hears nor is heard.

A front listens at an address of 127.0.1.0/24, which programs are told, and passes on what comes to the same port of 127.0.0.1. Linux
says which process made a connection, and so whose it is.

Rules of this file
1. A cut is silent, as that of a cable: nothing is closed and nothing refused, and what was under way comes when it is mended.
2. A front is closed while nobody serves behind it, so that connections are refused as they are where a process is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import StreamReader, StreamWriter
from pathlib import Path

READ_BYTES = 65_536


class Network:
    def __init__(self) -> None:
        self.processes: dict[str, int] = {}
        """Pids of those who can be cut off."""
        self._fronts: dict[str, list[asyncio.Server]] = {}
        self._writers: dict[str, set[StreamWriter]] = {}
        self._cut: set[str] = set()
        self._changed = asyncio.Event()
        self._relays: set[asyncio.Task[None]] = set()

    async def open(self, name: str, host: str, *ports: int) -> None:
        """Fronts of a process at `host`."""
        for port in ports:

            async def passed(reader: StreamReader, writer: StreamWriter, port: int = port) -> None:
                await self._pass_on(name, port, reader, writer)

            self._fronts.setdefault(name, []).append(await asyncio.start_server(passed, host, port))

    def close(self, name: str) -> None:
        """The process is gone, and its connections with it."""
        for front in self._fronts.pop(name, []):
            front.close()
        for writer in self._writers.pop(name, set()):
            writer.transport.abort()

    def cut(self, name: str) -> None:
        self._cut.add(name)

    def mend(self, name: str) -> None:
        self._cut.discard(name)
        self._changed.set()
        self._changed = asyncio.Event()

    async def end(self) -> None:
        for name in tuple(self._fronts):
            self.close(name)
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    async def _pass_on(self, name: str, port: int, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        ends = {name, self._owner(writer)}
        both = {writer}
        try:
            await self._passes(ends)
            behind = await asyncio.open_connection("127.0.0.1", port)
            both.add(behind[1])
            for end in ends:
                self._writers.setdefault(end, set()).update(both)
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._one_way(ends, reader, behind[1]))
                ways.create_task(self._one_way(ends, behind[0], writer))
        except* OSError:
            pass  # one side is gone, and so is the other one then
        finally:
            for one in both:
                one.transport.abort()
            for end in ends:
                self._writers.get(end, set()).difference_update(both)
            self._relays.discard(task)

    async def _one_way(self, ends: set[str], reader: StreamReader, writer: StreamWriter) -> None:
        while data := await reader.read(READ_BYTES):
            await self._passes(ends)
            writer.write(data)
            await writer.drain()
        await self._passes(ends)
        raise ConnectionResetError

    async def _passes(self, ends: set[str]) -> None:
        while ends & self._cut:
            await self._changed.wait()

    def _owner(self, writer: StreamWriter) -> str:
        """Who made this connection; empty for everybody else than `processes`."""
        inode = _inode(writer.get_extra_info("peername"), writer.get_extra_info("sockname"))
        return next((name for name, pid in self.processes.items() if _holds(pid, f"socket:[{inode}]")), "")


def _inode(own: tuple[str, int], other: tuple[str, int]) -> str:
    places = [_in_table(*own), _in_table(*other)]
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table:
            fields = line.split()
            if fields[1:3] == places:
                return fields[9]
    return ""


def _in_table(host: str, port: int) -> str:
    return f"{bytes(reversed([int(part) for part in host.split('.')])).hex().upper()}:{port:04X}"


def _holds(pid: int, socket: str) -> bool:
    with contextlib.suppress(OSError):  # it is gone, or closes a file just now
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(file.readlink()) == socket:
                    return True
    return False
