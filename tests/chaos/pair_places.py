"""The two or three brokers of a group as processes: what is a master, a slave, promoted, without power, or back.

Rules of this file
1. Which process listens where never changes: a place keeps its directory, its ports and the networks in front of them.
2. Only processes started here are signalled.
3. A process whose files are recorded leaves, when its power is cut, what its disk may hold then: `recorded_broker`.
4. A broker is known with the network in front of its port for slaves: whoever follows it, by settings or by a command, goes through that.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from tests.system.server_process import ClosedByServer, RawClient, ServedProcess, free_ports

from orbitmq.protocol.remoting.bodies import HaRuntimeInfo
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.replication_bodies import DemoteRequest, ForgetRequest, PromoteRequest
from orbitmq.replication.kept_state import REPLICATION_FILE

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
    """One of the brokers: its directory, its ports, and the networks in front of them."""

    def __init__(self, directory: Path, seed: int, slave_id: int) -> None:
        """`slave_id`: its brokerId whenever it is a slave."""
        self.directory = directory
        self.slave_id = slave_id
        self.data = directory / "data"
        self.ports = free_ports()
        self.ha_port = free_ports()[0]
        self.network = BadNetwork(f"127.0.0.1:{self.ports[1]}", Weather(seed, refuse=0.0))
        self.link = BadNetwork(f"127.0.0.1:{self.ha_port}", Weather(seed + 1, **STORMY))  # type: ignore[arg-type]
        self.process: ServedProcess | None = None
        self.boots = 1
        """How often its machine was switched on."""
        self.role: dict[str, object] = {}
        """What its settings said of its role when it last started."""

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

    def leads(self) -> bool:
        """Whether it says that it is a master."""
        with contextlib.suppress(OSError, ClosedByServer), RawClient(self.running.port) as client:
            return HaRuntimeInfo.decode(client.call(RequestCode.GET_BROKER_HA_STATUS).body).master
        return False

    def demote(self, **wanted: object) -> Command | None:
        """None where it ended before it answered."""
        body = DemoteRequest(broker_id=self.slave_id, **wanted).encode()  # type: ignore[arg-type]
        with contextlib.suppress(OSError, ClosedByServer), RawClient(self.running.port) as client:
            return client.call(RequestCode.DEMOTE_MASTER, {}, body)
        return None

    def promote(self) -> Command:
        with RawClient(self.running.port) as client:
            return client.call(RequestCode.PROMOTE_SLAVE, {}, PromoteRequest(synchronous=True).encode())

    def forget_commands(self) -> None:
        """What an operator does who wants the next start to be what its settings say, whatever a command had made of it."""
        file = self.data / "config" / REPLICATION_FILE
        if file.exists():
            table = json.loads(file.read_text())
            table.pop("promoted", None)
            table.pop("demoted", None)
            file.write_text(json.dumps(table))

    def empty(self) -> None:
        shutil.rmtree(self.data)


class Pair:
    """Starts and changes roles. `bug`: a planted one. recorded: power can be cut. Of three `brokers` the third is another slave."""

    def __init__(
        self, directory: Path, seed: int, flush: str, bug: str | None, *, recorded: bool, brokers: int = 2
    ) -> None:
        self._directory = directory
        self._settings = {**SMALL, "flushDiskType": flush}
        self._bug = bug
        self._recorded = recorded
        self._seed = seed
        self.master = Place(directory / "one", 10 * seed, slave_id=2)
        self.slave = Place(directory / "two", 10 * seed + 5, slave_id=1)
        self.others = [Place(directory / "three", 10 * seed + 7, slave_id=3)] if brokers == 3 else []
        """Slaves that find their master by the name server."""
        self.name_server: ServedProcess | None = None

    @property
    def places(self) -> list[Place]:
        return [self.master, self.slave, *self.others]

    @property
    def slaves(self) -> list[Place]:
        return [self.slave, *self.others]

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
        await self._start(
            self.slave, brokerRole="SLAVE", brokerId=self.slave.slave_id, haMasterAddress=self.master.link.address
        )

    async def start_others(self) -> None:
        for place in self.others:
            await self._start(place, brokerRole="SLAVE", brokerId=place.slave_id)

    async def start_again(self, place: Place) -> None:
        """With the settings that it had."""
        await self._start(place, **place.role)

    async def _start(self, place: Place, **role: object) -> None:
        place.role = role
        settings = {**self._settings, "haListenPort": place.ha_port, "namesrvAddr": self.name_server_address, **role}
        root = str(Path(recorded_file).parents[2])  # the program imports what is beside it here
        environment = {
            "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
            "PAIR_BUG": self._bug or "",
            "PAIR_LINK": place.link.address,
            "PAIR_RECORDED": f"{self._seed}:{place.boots}" if self._recorded else "",
        }
        place.process = await asyncio.to_thread(
            lambda: ServedProcess(
                place.directory,
                command="broker",
                settings=settings,
                ports=place.ports,
                program=(recorded_file,),
                environment=environment,
            )
        )

    def swap(self) -> None:
        """The slave is going to be the master."""
        self.leads_now(self.slave)

    def leads_now(self, place: Place) -> None:
        """It is the master, and the one before it the slave."""
        former, slaves = self.master, [one for one in self.slaves if one is not place]
        self.master, self.slave, self.others = place, former, slaves

    async def promote(self) -> float:
        """By a request, as soon as the slave does not follow any more. How long the answer took, in seconds."""
        ends = time.monotonic() + VERDICT_LIMIT_S
        while True:
            began = time.monotonic()
            answer = await asyncio.to_thread(self.slave.promote)
            if answer.code == ResponseCode.SUCCESS:
                break
            if time.monotonic() > ends:
                raise AssertionError(f"the slave was not made master within {VERDICT_LIMIT_S} s: {answer}")
            await asyncio.sleep(0.1)
        took_s = time.monotonic() - began
        self.swap()
        return took_s

    async def empty_slave_returns(self) -> None:
        """The slave begins anew with nothing, under its old id."""
        await asyncio.to_thread(self.slave.empty)
        await asyncio.to_thread(self._forget)
        await self.start_slave()

    def _forget(self) -> None:
        with RawClient(self.master.running.port) as client:
            client.call(RequestCode.FORGET_SLAVE, {}, ForgetRequest(broker_id=self.slave.slave_id).encode())

    async def slave_returns(self) -> Verdict | None:
        """The slave comes with the log that it has. None where it was told nothing."""
        said = len(self.slave.running.log())
        await asyncio.to_thread(self.slave.forget_commands)
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
