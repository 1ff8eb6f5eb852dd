"""The two brokers of a pair as processes: what is a master, a slave, promoted, without power, or back.

Rules of this file
1. Which process listens where never changes: a place keeps its directory, its ports and the networks in front of them.
2. Only processes started here are signalled.
3. A process whose files are recorded leaves, when its power is cut, what its disk may hold then: `recorded_broker`.
"""

from __future__ import annotations

import asyncio
import enum
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Final

from tests.chaos.proxy import BadNetwork, Weather
from tests.chaos.recorded_broker import AFTER
from tests.chaos.recorded_broker import __file__ as recorded_file
from tests.system.server_process import RawClient, ServedProcess, free_ports

from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.replication_bodies import ForgetRequest, PromoteRequest
from orbitmq.replication.kept_state import REPLICATION_FILE

SLAVE_ID: Final = 1
SMALL: Final = {
    "mappedFileSizeCommitLog": 1024 * 1024, "maxIndexNum": 200_000, "maxHashSlotNum": 50_000, "brokerName": "pair",
}  # fmt: skip
STORMY: Final = {"delay": 0.1, "stall": 0.01, "cut": 0.05, "reset": 0.05, "swallow_answer": 0.02, "refuse": 0.3}
VERDICT_LIMIT_S: Final = 30.0
REFUSED: Final = "empty the store of the slave"
"""What the log of a slave says whose own log its master does not take."""
FOLLOWS: Final = "following the master at"


class Verdict(enum.Enum):
    """What a slave with a log of its own was told."""

    FOLLOWS = enum.auto()
    REFUSED = enum.auto()


class Place:
    """One of the two brokers: its directory, its ports, and the networks in front of them."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.ports = free_ports()
        self.ha_port = free_ports()[0]
        self.network = BadNetwork(f"127.0.0.1:{self.ports[1]}", Weather(seed, refuse=0.0))
        self.link = BadNetwork(f"127.0.0.1:{self.ha_port}", Weather(seed + 1, **STORMY))  # type: ignore[arg-type]
        self.process: ServedProcess | None = None
        self.boots = 1
        """How often its machine was switched on."""

    @property
    def running(self) -> ServedProcess:
        assert self.process is not None
        return self.process

    def log(self) -> bytes:
        """All of the commit log's files, with what was preallocated."""
        files = sorted((self.data / "commitlog").glob("[0-9]*"))
        return b"".join(file.read_bytes() for file in files)

    def end(self) -> int:
        """Of its log, asked for past the network."""
        return int(self.running.runtime()["commitLogMaxOffset"])

    def kill(self) -> None:
        self.running.kill()

    def cut_power(self) -> None:
        """The process ends, and its directory is what the disk may hold then."""
        self.running.send_signal(signal.SIGUSR2)
        self.running.exit_code()
        self.running.kill()
        self.boots += 1
        shutil.rmtree(self.data)
        self.data.with_name(AFTER).rename(self.data)

    def is_no_master_any_more(self) -> None:
        """What an operator does who brings back as a slave what had been made master by a command."""
        file = self.data / "config" / REPLICATION_FILE
        if file.exists():
            table = json.loads(file.read_text())
            table.pop("promoted", None)
            file.write_text(json.dumps(table))

    def empty(self) -> None:
        shutil.rmtree(self.data)


class Pair:
    """Starts and changes roles. `bug`: a planted one. recorded: power can be cut."""

    def __init__(self, directory: Path, seed: int, flush: str, bug: str | None, *, recorded: bool) -> None:
        self._directory = directory
        self._settings = {**SMALL, "flushDiskType": flush}
        self._bug = bug
        self._recorded = recorded
        self._seed = seed
        self.master = Place(directory / "one", 10 * seed)
        self.slave = Place(directory / "two", 10 * seed + 5)
        self.name_server: ServedProcess | None = None

    @property
    def places(self) -> tuple[Place, Place]:
        return (self.master, self.slave)

    @property
    def name_server_address(self) -> str:
        assert self.name_server is not None
        return f"127.0.0.1:{self.name_server.name_port}"

    async def start_name_server(self) -> None:
        self.name_server = await asyncio.to_thread(
            lambda: ServedProcess(self._directory / "nameserver", command="nameserver")
        )

    async def start_master(self) -> None:
        await self._start(self.master, brokerRole="SYNC_MASTER", brokerId=0)

    async def start_slave(self) -> None:
        await self._start(self.slave, brokerRole="SLAVE", brokerId=SLAVE_ID, haMasterAddress=self.master.link.address)

    async def start_slave_of_nobody(self, place: Place) -> None:
        """A slave that was promoted starts again with the settings of a slave."""
        await self._start(place, brokerRole="SLAVE", brokerId=SLAVE_ID, haMasterAddress=self.slave.link.address)

    async def _start(self, place: Place, **role: object) -> None:
        settings = {**self._settings, "haListenPort": place.ha_port, "namesrvAddr": self.name_server_address, **role}
        program: tuple[str, ...] = ("-m", "orbitmq.cli.main")
        environment = {}
        if self._recorded or self._bug:
            program = (recorded_file,)
            root = str(Path(recorded_file).parents[2])  # the program imports what is beside it here
            environment = {
                "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
                "PAIR_BUG": self._bug or "",
                "PAIR_RECORDED": f"{self._seed}:{place.boots}" if self._recorded else "",
            }
        place.process = await asyncio.to_thread(
            lambda: ServedProcess(
                place.directory,
                command="broker",
                settings=settings,
                ports=place.ports,
                program=program,
                environment=environment,
            )
        )

    def swap(self) -> None:
        """The slave is going to be the master."""
        self.master, self.slave = self.slave, self.master

    async def promote(self) -> float:
        """By a request, as soon as the slave does not follow any more. How long the answer took, in seconds."""
        body = PromoteRequest(synchronous=True).encode()
        ends = time.monotonic() + VERDICT_LIMIT_S
        while True:
            began = time.monotonic()
            answer = await asyncio.to_thread(self.ask_slave, RequestCode.PROMOTE_SLAVE, body)
            if answer == ResponseCode.SUCCESS:
                break
            if time.monotonic() > ends:
                raise AssertionError(f"the slave was not made master within {VERDICT_LIMIT_S} s: {answer}")
            await asyncio.sleep(0.1)
        took_s = time.monotonic() - began
        self.swap()
        return took_s

    def ask_slave(self, code: RequestCode, body: bytes) -> int:
        with RawClient(self.slave.running.port) as client:
            return client.call(code, {}, body).code

    async def empty_slave_returns(self) -> None:
        """The slave begins anew with nothing, under its old id."""
        await asyncio.to_thread(self.slave.empty)
        await asyncio.to_thread(self._forget)
        await self.start_slave()

    def _forget(self) -> None:
        with RawClient(self.master.running.port) as client:
            client.call(RequestCode.FORGET_SLAVE, {}, ForgetRequest(broker_id=SLAVE_ID).encode())

    async def slave_returns(self) -> Verdict | None:
        """The slave comes with the log that it has. None where it was told nothing."""
        said = len(self.slave.running.log())
        await asyncio.to_thread(self.slave.is_no_master_any_more)
        await asyncio.to_thread(self._forget)
        await self.start_slave()
        ends = time.monotonic() + VERDICT_LIMIT_S
        while time.monotonic() < ends:
            told = self.slave.running.log()[said:]
            if FOLLOWS in told:
                return Verdict.FOLLOWS
            if REFUSED in told:
                return Verdict.REFUSED
            await asyncio.sleep(0.05)
        return None

    def end(self) -> None:
        for place in self.places:
            if place.process is not None:
                place.process.kill()
        if self.name_server is not None:
            self.name_server.kill()
