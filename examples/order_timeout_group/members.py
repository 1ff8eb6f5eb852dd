"""The processes of the story: an etcd, a name server, and the three members of a replicated group.

Rules of this file
1. A member that comes back has its own directory and port.
2. All of them meet through `network`: the shop as well.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from examples.order_timeout_group.etcd import etcd_command, view_at
from examples.order_timeout_group.network import Network
from examples.order_timeout_pair.processes import Processes, free_ports

GROUP = "orders"
MEMBERS = ("one", "two", "three")
OUTSIDE = {"nameserver": "127.0.1.8", "etcd": "127.0.1.9"}


class Members(Processes):
    """`async with` starts what the members need, and kills what is left at the end."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.network = Network()
        self._names, self._etcd, *ports = free_ports(2 + len(MEMBERS))
        self._ports = dict(zip(MEMBERS, ports, strict=True))
        self.name_server = f"{OUTSIDE['nameserver']}:{self._names}"

    async def __aenter__(self) -> Self:
        await self._start("etcd", etcd_command(self._directory / "etcd", self._etcd, self._etcd + 1), is_told=False)
        await self._start_orbitmq("nameserver", "nameserver", "--nameserver-port", self._names)
        await self.network.open("etcd", OUTSIDE["etcd"], self._etcd)
        await self.network.open("nameserver", OUTSIDE["nameserver"], self._names)
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(error_type, error, trace)
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
        await self._start_orbitmq(name, "broker", *words)

    async def kill(self, name: str) -> None:
        """kill -9."""
        self.network.close(name)
        await super().kill(name)

    def freeze(self, name: str) -> None:
        """SIGSTOP: its connections stay, and nothing comes of them."""
        self._running[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._running[name].send_signal(signal.SIGCONT)

    async def view(self) -> dict[str, Any]:
        """Who leads, and who is in sync, as the engine says it."""
        return await asyncio.to_thread(view_at, self._etcd, f"orbitmq/groups/{GROUP}/view")

    def _has_begun(self, name: str, pid: int) -> None:
        self.network.processes[name] = pid
