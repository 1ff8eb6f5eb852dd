"""One run of an edge: its folder, its chance, its servers, and the judgement at its end."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Final

from tests.edges.account import EdgeAccount
from tests.edges.faults import Faults
from tests.edges.traffic import Traffic
from tests.system.server_process import ServedProcess

from orbitmq.store.check import check_store
from orbitmq.store.files import OsFiles
from orbitmq.timing.rocketmq.check import check_timers

PLANTED: Final = Path(__file__).with_name("planted.py")

SMALL: Final = {
    "mappedFileSizeCommitLog": 4 << 20, "mappedFileSizeConsumeQueue": 20_000, "maxIndexNum": 20_000, "maxHashSlotNum": 5_000,
}  # fmt: skip
"""A store whose files are made in no time, and roll within a run."""


class CannotRunError(Exception):
    """This machine lacks what the edge needs; the text says what."""


class EdgeRun:
    def __init__(self, directory: Path, seed: int, plant: str | None = None) -> None:
        self.directory = directory
        self.random = Random(seed)
        self.account = EdgeAccount()
        self.traffic = Traffic(self.account)
        self.faults = Faults(directory / "faults", directory / "server" / "data")
        self.findings: list[str] = []
        """What went wrong beside the account."""
        self.notes: list[str] = []
        self._plant = plant
        self._ports: tuple[int, int] | None = None
        self._servers: list[ServedProcess] = []

    def say(self, text: str) -> None:
        self.notes.append(text)

    def expect(self, condition: bool, otherwise: str) -> None:
        if not condition:
            self.findings.append(otherwise)

    # --- servers ----------------------------------------------------------------------------------------------------------

    def start(
        self, *, folder: Path | None = None, shell_limits: str = "", preload: bool = True, **settings: object
    ) -> ServedProcess:
        """A server on the store of this run, with the planted bug. preload: with the library of faults."""
        program = ("-m", "orbitmq.cli.main") if self._plant is None else (str(PLANTED), self._plant)
        server = ServedProcess(
            folder or self.directory / "server",
            settings={**SMALL, **settings},
            shell_limits=shell_limits,
            program=program,
            environment=self.faults.environment() if preload else None,
            ports=self._ports,
            awaited=False,
        )
        self._ports = (server.name_port, server.port)  # message ids hold the port
        self._servers.append(server)
        server.await_line()
        return server

    def stop(self, server: ServedProcess, *, sound: bool = True) -> None:
        """SIGTERM. The exit code has to be 0, without a traceback, and the store sound."""
        self.expect(server.running, "the server had ended by itself")
        try:
            server.stop()
        except AssertionError as error:
            self.findings.append(f"SIGTERM: {error}")
        if sound:
            self.check_store(server.data)

    def check_store(self, data: Path) -> None:
        report = check_store(data, OsFiles(), timers=check_timers)
        self.findings += [f"store check: {finding}" for finding in report.findings[:3]]

    # --- the end ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        for server in self._servers:
            server.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def judgement(self) -> list[str]:
        """Everything that must not be; empty after a good run."""
        return self.findings + self.account.findings()
