"""The processes of the story: an etcd, a name server, and the three members of a replicated group.

Rules of this file
1. A member that comes back has its own directory and port.
2. Only processes started here are signalled.
3. All of them meet through `network`: the shop as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from examples.order_timeout_group.etcd import etcd_command, view_at
from examples.order_timeout_group.network import Network

GROUP = "orders"
MEMBERS = ("one", "two", "three")
START_LIMIT_S = 60
OUTSIDE = {"nameserver": "127.0.1.8", "etcd": "127.0.1.9"}
BELOW_OUTGOING_PORTS = range(15_000, 30_000)
"""Linux takes no port of this range for a connection that goes out, so that a member which comes back finds its own port free."""


class Members:
    """`async with` starts what the members need, and kills what is left at the end."""

    def __init__(self, directory: Path) -> None:
        self.network = Network()
        self._directory = directory
        self._running: dict[str, Process] = {}
        self._names, self._etcd, *ports = _free_ports(2 + len(MEMBERS))
        self._ports = dict(zip(MEMBERS, ports, strict=True))
        self.name_server = f"{OUTSIDE['nameserver']}:{self._names}"

    async def __aenter__(self) -> Self:
        await self._start("etcd", etcd_command(self._directory / "etcd", self._etcd, self._etcd + 1), is_told=False)
        await self._start("nameserver", self._orbitmq("nameserver", "nameserver", "--nameserver-port", self._names))
        await self.network.open("etcd", OUTSIDE["etcd"], self._etcd)
        await self.network.open("nameserver", OUTSIDE["nameserver"], self._names)
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in tuple(self._running):
            await self.kill(name)
        await self.network.end()

    async def start(self, name: str) -> None:
        """Until it serves, as a follower or the leader."""
        host, port = f"127.0.1.{1 + MEMBERS.index(name)}", self._ports[name]
        settings = {
            "brokerName": GROUP,
            "replicaName": name,
            "replicationEngine": f"etcd://{OUTSIDE['etcd']}:{self._etcd}",
            "brokerIP1": host,
            "haListenPort": port + 1,
            "httpEnable": "false",
            "grpcServerPort": 0,
        }
        words = ["--broker-port", port, "--namesrv", self.name_server]
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        await self.network.open(name, host, port, port + 1)
        await self._start(name, self._orbitmq(name, "broker", *words))

    async def kill(self, name: str) -> None:
        """kill -9."""
        process = self._running.pop(name)
        self.network.close(name)
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself, which the story tells
            process.kill()
        await process.wait()

    def freeze(self, name: str) -> None:
        """SIGSTOP: its connections stay, and nothing comes of them."""
        self._running[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._running[name].send_signal(signal.SIGCONT)

    async def view(self) -> dict[str, Any]:
        """Who leads, and who is in sync, as the engine says it."""
        return await asyncio.to_thread(view_at, self._etcd, f"orbitmq/groups/{GROUP}/view")

    def _orbitmq(self, name: str, command: str, *words: object) -> list[str]:
        data = str(self._directory / name)
        return [sys.executable, "-m", "orbitmq", command, "--data", data, *map(str, words)]

    async def _start(self, name: str, command: list[str], *, is_told: bool = True) -> None:
        """`is_told`: it says with a line that it serves."""
        with (self._directory / f"{name}.log").open("ab") as log:
            # In a session of its own: Ctrl-C is for the story, which ends its processes when it no longer needs them.
            process = await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, stdout=PIPE if is_told else log, stderr=log, start_new_session=True
            )
        self._running[name] = process
        self.network.processes[name] = process.pid
        if process.stdout is not None:
            async with asyncio.timeout(START_LIMIT_S):
                line = await process.stdout.readline()
            if not line:
                raise SystemExit(f"{name} did not start:\n{self._log(name)}")

    def _log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text(errors="replace")[-3_000:]


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, each with those from two below to one above it."""
    found: list[int] = []
    for port in random.sample(BELOW_OUTGOING_PORTS[2::4], 500):
        if all(_is_free(each) for each in range(port - 2, port + 2)):
            found.append(port)
        if len(found) == count:
            return found
    raise SystemExit("found no free ports for the members")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
