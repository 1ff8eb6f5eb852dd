"""A synchronous master and its slave while one process and one link after the other fails: `PairRun(directory, seed).run(...)`.

Rules of this file
1. Every connection goes through a bad network: that of the senders, and that of the slave. What fails and when follows from the seed.
2. A send that was answered 0 is in the files of both logs from then on, at every moment at which a fault lets one look.
3. After each fault everything works again: a send is answered 0, and the logs are equal byte for byte up to the shorter end.
4. What was not answered 0 may be in a log or not, and is not judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Final

from tests.chaos.planted_pair import __file__ as planted_file
from tests.chaos.proxy import BadNetwork, Weather
from tests.system.server_process import ClosedByServer, RawClient, ServedProcess, free_ports, send_fields

from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode

TOPIC: Final = "pairs"
SENDERS: Final = 3
HEALED_LIMIT_S: Final = 60.0
ANSWER_LIMIT_S: Final = 8.0
PAUSE_S: Final = 0.02
PAUSE_AFTER_FAILURE_S: Final = 0.1
SMALL: Final = {"mappedFileSizeCommitLog": 1024 * 1024, "maxIndexNum": 200_000, "brokerName": "pair"}
STORMY: Final = {"delay": 0.1, "stall": 0.01, "cut": 0.05, "reset": 0.05, "swallow_answer": 0.02, "refuse": 0.3}


class Disaster(Enum):
    KILL_SLAVE = "slave killed"
    KILL_MASTER = "master killed"
    KILL_BOTH = "both killed"
    FREEZE_SLAVE = "slave stopped for a moment"
    FREEZE_SLAVE_LONG = "slave stopped for longer than slaveTimeout"
    STOP_SLAVE = "slave ended in order"
    BAD_LINK = "link cut and delayed"
    TAKE_OVER = "master killed and slave made the master, and a new copy begun"


class Place:
    """One of the two brokers: its directory, its ports, and the networks in front of them."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.ports = free_ports()
        self.ha_port = free_ports()[0]
        self.network = BadNetwork(f"127.0.0.1:{self.ports[1]}", Weather(seed, refuse=0.0))
        self.link = BadNetwork(f"127.0.0.1:{self.ha_port}", Weather(seed + 1, **STORMY))  # type: ignore[arg-type]
        self.process: ServedProcess | None = None

    @property
    def running(self) -> ServedProcess:
        assert self.process is not None
        return self.process

    def log(self) -> bytes:
        """All of the commit log's files, with what was preallocated."""
        files = sorted((self.directory / "data" / "commitlog").glob("[0-9]*"))
        return b"".join(file.read_bytes() for file in files)

    def end(self) -> int:
        """Of its log, asked for past the network."""
        return int(self.running.runtime()["commitLogMaxOffset"])


class PairRun:
    """`findings` is empty when every promise was kept. bug: a planted one."""

    def __init__(self, directory: Path, seed: int, bug: str | None = None) -> None:
        self._chance = random.Random(seed)
        self.seed = seed
        self._program = ("-m", "orbitmq.cli.main") if bug is None else (planted_file, bug)
        self._flush = self._chance.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
        self.master = Place(directory / "one", 10 * seed)
        self.slave = Place(directory / "two", 10 * seed + 5)
        self.findings: list[str] = []
        self.answers: dict[bytes, int | None] = {}
        """By message: what its sender was answered, None for nothing."""
        self.faults: Counter[Disaster] = Counter()
        self._directory = directory
        self._name_server: ServedProcess | None = None
        self._sends = threading.Event()
        self._ends = threading.Event()

    # --- the run --------------------------------------------------------------------------------------------------

    async def run(self, disasters: Sequence[Disaster]) -> None:
        """Until the first finding."""
        self._name_server = await asyncio.to_thread(
            lambda: ServedProcess(self._directory / "nameserver", command="nameserver")
        )
        async with contextlib.AsyncExitStack() as networks:
            for place in (self.master, self.slave):
                for network in (place.network, place.link):
                    network.is_fair = True
                    await networks.enter_async_context(network)
            threads = [threading.Thread(target=self._send_all, args=(number,)) for number in range(SENDERS)]
            try:
                await self._start_master(self.master)
                await asyncio.to_thread(self.master.running.create_topic, TOPIC, 4)
                await self._start_slave(self.slave)
                for thread in threads:
                    thread.start()
                self._sends.set()
                await self._healed("the start")
                for disaster in disasters:
                    if self.findings:
                        break
                    await self._play(disaster)
            finally:
                self._ends.set()
                self._sends.set()
                for place in (self.master, self.slave):
                    if place.process is not None:
                        place.process.kill()
                        self._judge_log(place)
                self._name_server.kill()
                for thread in threads:
                    if thread.ident is not None:
                        await asyncio.to_thread(thread.join)

    def drawn(self, count: int) -> list[Disaster]:
        """Each once before any twice."""
        drawn: list[Disaster] = []
        while len(drawn) < count:
            drawn += self._chance.sample(list(Disaster), len(Disaster))
        return drawn[:count]

    async def _play(self, disaster: Disaster) -> None:
        self.faults[disaster] += 1
        await asyncio.sleep(self._chance.uniform(0.2, 1.2))
        await self._fail(disaster)
        await self._healed(disaster.value)

    async def _fail(self, disaster: Disaster) -> None:
        master, slave = self.master, self.slave
        match disaster:
            case Disaster.KILL_SLAVE:
                slave.running.kill()
                await self._look(disaster)
                await self._start_slave(slave)
            case Disaster.KILL_MASTER:
                master.running.kill()
                await self._look(disaster)
                await self._start_master(master)
            case Disaster.KILL_BOTH:
                for place in self._chance.sample((master, slave), 2):
                    place.running.kill()
                await self._look(disaster)
                await self._start_master(master)
                await self._start_slave(slave)
            case Disaster.FREEZE_SLAVE | Disaster.FREEZE_SLAVE_LONG:
                slave.running.send_signal(signal.SIGSTOP)
                await asyncio.sleep(0.5 if disaster is Disaster.FREEZE_SLAVE else 4)
                await self._look(disaster)
                slave.running.send_signal(signal.SIGCONT)
            case Disaster.STOP_SLAVE:
                await self._stop(slave)
                await self._look(disaster)
                await self._start_slave(slave)
            case Disaster.BAD_LINK:
                master.link.is_fair = master.network.is_fair = False
                await asyncio.sleep(self._chance.uniform(1.5, 3))
                await self._look(disaster)
                master.link.is_fair = master.network.is_fair = True
            case Disaster.TAKE_OVER:
                master.running.kill()
                await self._look(disaster)
                await self._stop(slave)
                self.master, self.slave = slave, master
                await self._start_master(slave)
                shutil.rmtree(master.directory / "data")
                await self._start_slave(master)

    # --- processes ------------------------------------------------------------------------------------------------

    async def _start_master(self, place: Place) -> None:
        await self._start(place, brokerRole="SYNC_MASTER", brokerId=0)

    async def _start_slave(self, place: Place) -> None:
        await self._start(place, brokerRole="SLAVE", brokerId=1, haMasterAddress=self.master.link.address)

    async def _start(self, place: Place, **role: object) -> None:
        settings = {**SMALL, "flushDiskType": self._flush, "haListenPort": place.ha_port}
        assert self._name_server is not None
        settings |= {"namesrvAddr": f"127.0.0.1:{self._name_server.name_port}", **role}
        place.process = await asyncio.to_thread(
            lambda: ServedProcess(
                place.directory, command="broker", settings=settings, ports=place.ports, program=self._program
            )
        )

    async def _stop(self, place: Place) -> None:
        """SIGTERM."""
        place.running.send_signal(signal.SIGTERM)
        if code := await asyncio.to_thread(place.running.exit_code):
            self.findings.append(f"an orderly end with exit code {code}")

    # --- sends ----------------------------------------------------------------------------------------------------

    def _send_all(self, sender: int) -> None:
        """A thread: one send after the other through the network of whoever is the master."""
        number = 0
        while not self._ends.is_set():
            self._sends.wait()
            port = int(self.master.network.address.rpartition(":")[2])
            with contextlib.suppress(OSError, ClosedByServer), RawClient(port, limit_s=ANSWER_LIMIT_S) as client:
                while self._sends.is_set() and not self._ends.is_set():
                    number += 1
                    name = b"<%d-%d-%d>" % (self.seed, sender, number)
                    self.answers[name] = None
                    body = name + b"x" * (number * 977 % 20_000)
                    self.answers[name] = client.call(
                        RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC, e=number % 4), body
                    ).code
                    time.sleep(PAUSE_S)
            time.sleep(PAUSE_AFTER_FAILURE_S)

    def _acknowledged(self) -> set[bytes]:
        return {name for name, code in self.answers.copy().items() if code == ResponseCode.SUCCESS}

    # --- judging --------------------------------------------------------------------------------------------------

    async def _look(self, disaster: Disaster) -> None:
        """Everything that was answered 0 stands in both logs, whatever state they are in."""
        acknowledged = self._acknowledged()
        for role, place in (("master", self.master), ("slave", self.slave)):
            there = set(re.findall(rb"<\d+-\d+-\d+>", await asyncio.to_thread(place.log)))
            if missing := acknowledged - there:
                self.findings.append(
                    f"{disaster.value}: {len(missing)} sends answered 0 are not in the log of the {role}, such as "
                    f"{min(missing).decode()}"
                )

    def _judge_log(self, place: Place) -> None:
        """Nothing failed in a way that nobody had thought of."""
        if "Traceback" in (log := place.running.log()):
            self.findings.append(f"a traceback:\n{log[max(0, log.index('Traceback') - 300) :][:3_000]}")

    async def _healed(self, after: str) -> None:
        """Sends are answered 0 again; then the logs become equal while nobody sends."""
        count = len(self._acknowledged())
        await self._until(lambda: len(self._acknowledged()) >= count + 2 * SENDERS, f"sends answered 0 after {after}")
        self._sends.clear()
        await self._until(lambda: self.slave.end() == self.master.end(), f"both logs of one length after {after}")
        end = min(self.slave.end(), self.master.end())
        logs = [await asyncio.to_thread(place.log) for place in (self.master, self.slave)]
        if logs[0][:end] != logs[1][:end]:
            at = next(at for at in range(end) if logs[0][at] != logs[1][at])
            self.findings.append(f"the logs differ at {at} after {after}")
        self._sends.set()

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        ends = time.monotonic() + HEALED_LIMIT_S
        while not await asyncio.to_thread(condition):
            if time.monotonic() > ends:
                self.findings.append(f"no {what} within {HEALED_LIMIT_S} s")
                return
            await asyncio.sleep(0.05)

    def summary(self) -> str:
        codes = Counter(self.answers.copy().values())
        told = ", ".join(f"{count} x {code}" for code, count in sorted(codes.items(), key=str))
        faults = ", ".join(f"{count} {disaster.value}" for disaster, count in self.faults.items())
        return f"seed {self.seed}, {self._flush}: {faults}; sends answered {told}"
