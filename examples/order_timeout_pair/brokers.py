"""The processes of the story: a name server, and two brokers of which one is the master.

Rules of this file
1. A broker that comes back has its own directory and port.
2. A slave takes over in one of two ways: it is stopped, and started again as a master by its configuration; or it is made the master
   while it runs, by `orbitmq replica promote`.
3. Only processes started here are signalled.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from types import TracebackType
from typing import Self

START_LIMIT_S = 60
STOP_LIMIT_S = 60
COMMAND_ATTEMPTS = 10
BELOW_OUTGOING_PORTS = range(15_000, 30_000)
"""Linux takes no port of this range for a connection that goes out, so that a broker which comes back finds its own port free."""


class Brokers:
    """`async with` starts the name server and kills what is left at the end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running: dict[str, Process] = {}
        self._name_server_port, *ports = _free_ports(3)
        self._ports = dict(zip(("one", "two"), ports, strict=True))
        self.name_server = f"127.0.0.1:{self._name_server_port}"

    async def __aenter__(self) -> Self:
        await self._start("nameserver", "nameserver", "--nameserver-port", str(self._name_server_port))
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in tuple(self._running):
            await self.kill(name)

    async def start_master(self, name: str) -> None:
        await self._start_broker(name, {"brokerRole": "SYNC_MASTER", "brokerId": 0})

    async def start_slave(self, name: str, of: str) -> None:
        master = f"127.0.0.1:{_slaves_port(self._ports[of])}"
        await self._start_broker(name, {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master})

    async def kill(self, name: str) -> None:
        """kill -9."""
        process = self._running.pop(name)
        process.kill()
        await process.wait()

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
        await self._start(name, "broker", *words)

    async def _start(self, name: str, command: str, *words: str) -> None:
        """Until it serves."""
        with (self._directory / f"{name}.log").open("ab") as log:
            # In a session of its own: Ctrl-C is for the story, which ends its processes when it no longer needs them.
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "orbitmq", command, "--data", str(self._directory / name), *words,
                stdin=DEVNULL, stdout=PIPE, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._running[name] = process
        assert process.stdout is not None
        async with asyncio.timeout(START_LIMIT_S):
            line = await process.stdout.readline()
        if not line:
            raise SystemExit(f"{name} did not start:\n{self._log(name)}")

    def _log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text(errors="replace")[-3_000:]


def _slaves_port(broker_port: int) -> int:
    """Where a broker takes slaves."""
    return broker_port + 1


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, each with those from two below to one above it."""
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
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
