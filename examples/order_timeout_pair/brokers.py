"""The processes of the story: a name server, and two brokers of which one is the master.

Rules of this file
1. A broker that comes back has its own directory and port.
2. A slave takes over in one of two ways: it is stopped, and started again as a master by its configuration; or it is made the master
   while it runs, by `orbitmq replica promote`.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Self

from examples.order_timeout_pair.processes import START_LIMIT_S, Processes, free_ports

STOP_LIMIT_S = 60
COMMAND_ATTEMPTS = 10


class Brokers(Processes):
    """`async with` starts the name server and kills what is left at the end."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._name_server_port, *ports = free_ports(3)
        self._ports = dict(zip(("one", "two"), ports, strict=True))
        self.name_server = f"127.0.0.1:{self._name_server_port}"

    async def __aenter__(self) -> Self:
        await self._start_orbitmq("nameserver", "nameserver", "--nameserver-port", self._name_server_port)
        return self

    async def start_master(self, name: str) -> None:
        await self._start_broker(name, {"brokerRole": "SYNC_MASTER", "brokerId": 0})

    async def start_slave(self, name: str, of: str) -> None:
        master = f"127.0.0.1:{_slaves_port(self._ports[of])}"
        await self._start_broker(name, {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master})

    async def stop(self, name: str) -> None:
        process = self._running.pop(name)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(STOP_LIMIT_S):
            code = await process.wait()
        if code:
            raise SystemExit(f"broker {name} ended with exit code {code}:\n{self._log(name)}")

    async def promote(self, name: str) -> None:
        """Make a slave the master while it runs, as soon as it has missed its own."""
        await self._command("replica", "promote", self._address(name), "--synchronous")

    async def readmit(self, slave_id: int, at: str) -> None:
        """Another directory may come to this master with that id."""
        await self._command("replica", "remove", self._address(at), str(slave_id))

    def _address(self, name: str) -> str:
        return f"127.0.0.1:{self._ports[name]}"

    async def _command(self, *words: str) -> None:
        """`orbitmq WORDS`, as an operator types it."""
        async with asyncio.timeout(START_LIMIT_S):
            for _ in range(COMMAND_ATTEMPTS):
                command = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "orbitmq", *words, "--namesrv", self.name_server,
                    stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, start_new_session=True,
                )  # fmt: skip
                _, said = await command.communicate()
                if not command.returncode:
                    return
        raise SystemExit(f"orbitmq {' '.join(words)}: {said.decode(errors='replace')}")

    async def forget(self, name: str) -> None:
        """Remove the store of a broker that is down: it begins anew as a copy."""
        assert name not in self._running
        await asyncio.to_thread(shutil.rmtree, self._directory / name)  # takes seconds, in which the shop goes on

    async def _start_broker(self, name: str, role: dict[str, object]) -> None:
        port = self._ports[name]
        settings = {
            "brokerName": "pair",
            "brokerIP1": "127.0.0.1",
            "haListenPort": _slaves_port(port),
            "grpcServerPort": 0,
            "metricsPromExporterPort": 0,
            **role,
        }
        words = ["--broker-port", str(port), "--namesrv", self.name_server]
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        await self._start_orbitmq(name, "broker", *words)


def _slaves_port(broker_port: int) -> int:
    """Where a broker takes slaves."""
    return broker_port + 1
