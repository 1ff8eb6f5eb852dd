"""Processes of a story on this machine: started, told apart by name, killed; and ports for them.

Rules of this file
1. Only processes started here are signalled, and what is left at the end is killed.
2. Each is in a session of its own: Ctrl-C is for the story, which ends its processes when it no longer needs them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from types import TracebackType
from typing import Self

START_LIMIT_S = 60
BELOW_OUTGOING_PORTS = range(15_000, 30_000)
"""Linux takes no port of this range for a connection that goes out, so that a broker which comes back finds its own port free."""


class Processes:
    """Of one story; their data and logs lie in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running: dict[str, Process] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in tuple(self._running):
            await self.kill(name)

    async def kill(self, name: str) -> None:
        """kill -9."""
        process = self._running.pop(name)
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself, which the story tells
            process.kill()
        await process.wait()

    async def _start_orbitmq(self, name: str, command: str, *words: object) -> None:
        """`orbitmq COMMAND WORDS` with a directory of its own, until it serves."""
        data = str(self._directory / name)
        await self._start(name, [sys.executable, "-m", "orbitmq", command, "--data", data, *map(str, words)])

    async def _start(self, name: str, command: list[str], *, is_told: bool = True) -> None:
        """`is_told`: it says with a line that it serves."""
        with (self._directory / f"{name}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, stdout=PIPE if is_told else log, stderr=log, start_new_session=True
            )
        self._running[name] = process
        self._has_begun(name, process.pid)
        if process.stdout is not None:
            async with asyncio.timeout(START_LIMIT_S):
                line = await process.stdout.readline()
            if not line:
                raise SystemExit(f"{name} did not start:\n{self._log(name)}")

    def _has_begun(self, name: str, pid: int) -> None:
        """It runs, and does not serve yet."""

    def _log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text(errors="replace")[-3_000:]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at any address, each with those from two below to one above it."""
    found: list[int] = []
    for port in random.sample(BELOW_OUTGOING_PORTS[2::4], 500):
        if all(_is_free(each) for each in range(port - 2, port + 2)):
            found.append(port)
        if len(found) == count:
            return found
    raise SystemExit("found no free ports for the brokers")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
