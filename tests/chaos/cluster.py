"""One name server and any number of brokers, each a process of its own.

Rules of this file
1. A broker that comes back has its old directory, name and ports.
2. Only processes started here are signalled.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from server_process import ServedProcess, free_ports

SMALL = {"mappedFileSizeCommitLog": 64 * 1024 * 1024, "maxIndexNum": 200_000}


class Cluster:
    """Servers in `directory`. `with` kills what is left of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports: dict[str, tuple[int, int]] = {}
        self._settings: dict[str, Mapping[str, object]] = {}
        self.brokers: dict[str, ServedProcess] = {}
        self.name_server: ServedProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in (*self.brokers.values(), self.name_server):
            if server is not None:
                server.kill()

    @property
    def address(self) -> str:
        """Of the name server."""
        assert self.name_server is not None
        return f"127.0.0.1:{self.name_server.name_port}"

    def start_name_server(self) -> None:
        self.name_server = ServedProcess(self._directory / "nameserver", command="nameserver")

    def start_broker(self, name: str, settings: Mapping[str, object] | None = None) -> ServedProcess:
        """Start a broker, or start it again. Without `settings` a broker that comes back has those it had."""
        if self.name_server is None:
            self.start_name_server()
        if settings is not None or name not in self._settings:
            self._settings[name] = settings or {}
        ports = self._ports.setdefault(name, free_ports())
        broker = ServedProcess(
            self._directory / name,
            command="broker",
            options=["--namesrv", self.address],
            settings={**SMALL, "brokerName": name, "brokerIP1": "127.0.0.1", **self._settings[name]},
            ports=ports,
        )
        self.brokers[name] = broker
        return broker

    def kill_broker(self, name: str) -> None:
        """kill -9."""
        self.brokers.pop(name).kill()

    def stop_broker(self, name: str) -> None:
        self.brokers.pop(name).stop()
