"""A synchronous master and its slave while one process and one link after the other fails: `PairRun(directory, seed).run(...)`.

Rules of this file
1. Every connection of the plain senders goes through a bad network, and that of the slave. What fails and when follows from the seed.
2. A send that was answered 0 is in the files of two logs from then on, at every moment at which a fault lets one look; where the disk is
   not waited for, a machine whose power was cut may have lost the end of its log, and the other one not.
3. After each fault everything works again: a send is answered 0, and the logs are equal byte for byte up to the shorter end.
4. What was not answered 0 may be in a log or not, and is not judged.
5. What other programs were promised and got stands in a ledger, which is judged when everything that waits has had its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from enum import Enum
from pathlib import Path
from typing import Final

from tests.chaos.faulty_run import HEALED_LIMIT_S, QUEUES, FaultyRun
from tests.chaos.pair_exchanges import Exchanges
from tests.chaos.pair_places import Pair, Place, Verdict
from tests.chaos.pair_programs import DUE_S, TICKS, TIMERS, Programs, now_ms
from tests.chaos.proxy import Way
from tests.system.server_process import ClosedByServer, RawClient, send_fields

from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode

TOPIC: Final = "pairs"
SENDERS: Final = 3
ANSWER_LIMIT_S: Final = 8.0
PAUSE_S: Final = 0.02
PAUSE_AFTER_FAILURE_S: Final = 0.1
ALONE_S: Final = 1.0
"""How long a master goes on that nobody copies."""
QUIET_S: Final = 1.0
"""How long nothing more may come before the account is closed."""
HELD_S: Final = 4.5
"""Longer than `slaveTimeout`."""


class Disaster(Enum):
    KILL_SLAVE = "slave killed"
    KILL_MASTER = "master killed"
    KILL_BOTH = "both killed"
    FREEZE_SLAVE = "slave stopped for a moment"
    FREEZE_SLAVE_LONG = "slave stopped for longer than slaveTimeout"
    STOP_SLAVE = "slave ended in order"
    BAD_LINK = "link cut and delayed"
    HOLD_LOG = "log does not reach the slave"
    HOLD_REPORTS = "reports do not reach the master"
    TAKE_OVER = "master killed, slave started as master, a new copy begun"
    PROMOTE = "master killed, slave promoted, a new copy begun"
    PROMOTE_AND_RETURN = "master killed, slave promoted, the old master back as it was"
    PROMOTE_AT_CUT = "link cut and the master alone, then killed; slave promoted, the old master refused and emptied"
    PROMOTE_AT_HOLD = "reports held and the master killed; slave promoted, the old master back as it was"
    PROMOTE_FROZEN = "master stopped and cut off, slave promoted, a new copy begun"
    PROMOTE_AND_KILL = "master killed, slave promoted and killed at once, back as master; a new copy begun"
    SWITCH = "roles exchanged by a switch"
    DEMOTE_AND_PROMOTE = "master made a slave, then the slave the master"
    SWITCH_KILL_SLAVE = "slave killed during a switch"
    SWITCH_KILL_MASTER = "master killed during a switch"
    SWITCH_AT_CUT = "link cut during a switch"
    SWITCH_AT_HOLD_LOG = "log does not reach the slave during a switch"
    SWITCH_AT_HOLD_REPORTS = "reports do not reach the master during a switch"
    SWITCH_KILL_OTHER = "another slave killed during a switch"
    SWITCH_POWER_SLAVE = "power of the slave cut during a switch"
    SWITCH_POWER_MASTER = "power of the master cut during a switch"
    POWER_SLAVE = "power of the slave cut"
    POWER_MASTER = "power of the master cut, slave promoted, the old master back as it was"
    POWER_BOTH = "power of both cut"


SWITCH_POWER: Final = frozenset({Disaster.SWITCH_POWER_SLAVE, Disaster.SWITCH_POWER_MASTER})
POWER: Final = frozenset({Disaster.POWER_SLAVE, Disaster.POWER_MASTER, Disaster.POWER_BOTH}) | SWITCH_POWER
SURVIVED_WHERE_SYNCED: Final = SWITCH_POWER | {Disaster.POWER_BOTH}
"""Nobody promised that these are survived where the disk is not waited for: whoever leads afterwards may lack what its slave has."""
EXCHANGES: Final = frozenset(
    {
        Disaster.SWITCH,
        Disaster.DEMOTE_AND_PROMOTE,
        Disaster.SWITCH_KILL_SLAVE,
        Disaster.SWITCH_KILL_MASTER,
        Disaster.SWITCH_AT_CUT,
        Disaster.SWITCH_AT_HOLD_LOG,
        Disaster.SWITCH_AT_HOLD_REPORTS,
        *SWITCH_POWER,
    }
)
OF_THREE: Final = EXCHANGES | {
    Disaster.SWITCH_KILL_OTHER,
    Disaster.KILL_SLAVE,
    Disaster.KILL_MASTER,
    Disaster.POWER_SLAVE,
}
"""What is done to a master and two slaves. The rest is about what a pair that lost one does."""


class PairRun(FaultyRun[Disaster]):
    """`findings` is empty when every promise was kept. bug: a planted one."""

    def __init__(self, directory: Path, seed: int, bug: str | None = None, *, brokers: int = 2) -> None:
        super().__init__(seed, bug)
        self._brokers = brokers
        self._flush = self._chance.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
        self.answers: dict[bytes, int | None] = {}
        """By message: what its sender was answered, None for nothing."""
        self.promotions_s: list[float] = []
        """How long each request to become master took to be answered."""
        self.verdicts: Counter[Verdict | None] = Counter()
        """What slaves that came back with a log were told."""
        self.told: Counter[str] = Counter()
        """What came of commands to exchange roles."""
        self._directory = directory
        self._sends = threading.Event()
        self._ends = threading.Event()

    @property
    def _slave(self) -> Place:
        return self._pair.slave

    @property
    def _master(self) -> Place:
        return self._pair.master

    # --- the run --------------------------------------------------------------------------------------------------

    async def run(self, disasters: Sequence[Disaster]) -> None:
        """Until the first finding."""
        recorded = not POWER.isdisjoint(disasters)
        self._pair = pair = Pair(
            self._directory, self.seed, self._flush, self._bug, recorded=recorded, brokers=self._brokers
        )
        await pair.start_name_server()
        self._programs = Programs(pair.name_server_address, self.ledger, self.seed, TOPIC)
        async with contextlib.AsyncExitStack() as networks:
            for place in pair.places:
                for network in (place.network, place.link):
                    network.is_fair = True
                    await networks.enter_async_context(network)
            threads = [threading.Thread(target=self._send_all, args=(number,)) for number in range(SENDERS)]
            try:
                await pair.start_master()
                for topic in (TOPIC, TIMERS, TICKS):
                    await asyncio.to_thread(self._master.running.create_topic, topic, QUEUES)
                await pair.start_slave()
                await pair.start_others()
                for thread in threads:
                    thread.start()
                self._sends.set()
                await self._healed("the start")
                await self._programs.begin()
                for disaster in disasters:
                    if self.findings:
                        break
                    await self._play(disaster)
                if not self.findings:
                    await self._settle()
            finally:
                self._ends.set()
                self._sends.set()
                await self._programs.close()
                pair.end()
                for place in pair.places:
                    if place.process is not None:
                        self._judge_log(place.running)
                for thread in threads:
                    if thread.ident is not None:
                        await asyncio.to_thread(thread.join)

    def drawn(self, count: int, names: Collection[str] | None = None) -> list[Disaster]:
        """Each once before any twice; only those with these names."""
        played = OF_THREE if self._brokers == 3 else frozenset(Disaster) - {Disaster.SWITCH_KILL_OTHER}
        possible = [one for one in Disaster if one in played and (self._syncs or one not in SURVIVED_WHERE_SYNCED)]
        possible = [one for one in possible if names is None or one.name in names]
        return self._each_once(possible, count)

    async def _play(self, disaster: Disaster) -> None:
        self.faults[disaster] += 1
        await asyncio.sleep(self._chance.uniform(0.1, 0.8))
        self.ledger.faults_ms.append(now_ms())
        await self._fail(disaster)
        if not (self._bug and self.findings):  # it is caught
            await self._healed(disaster.value)

    async def _fail(self, disaster: Disaster) -> None:
        pair, master, slave = self._pair, self._master, self._slave
        match disaster:
            case Disaster.KILL_SLAVE:
                slave.kill()
                await self._look(disaster)
                await pair.start_slave()
            case Disaster.KILL_MASTER:
                master.kill()
                await self._look(disaster)
                await self._programs.stop_reading()
                await pair.start_master()
                await self._programs.read_again()
            case Disaster.KILL_BOTH | Disaster.POWER_BOTH:
                for place in self._chance.sample((master, slave), 2):
                    await asyncio.to_thread(place.cut_power if disaster in POWER else place.kill)
                await self._look(disaster)
                await self._programs.stop_reading()
                await pair.start_master()
                await self._returns(None)
                await self._programs.read_again()
            case Disaster.FREEZE_SLAVE | Disaster.FREEZE_SLAVE_LONG:
                slave.running.send_signal(signal.SIGSTOP)
                await asyncio.sleep(0.5 if disaster is Disaster.FREEZE_SLAVE else 4)
                await self._look(disaster)
                slave.running.send_signal(signal.SIGCONT)
            case Disaster.STOP_SLAVE:
                await self._stop(slave)
                await self._look(disaster)
                await pair.start_slave()
            case Disaster.BAD_LINK:
                master.link.is_fair = master.network.is_fair = False
                await asyncio.sleep(self._chance.uniform(1.5, 3))
                await self._look(disaster)
                master.link.is_fair = master.network.is_fair = True
            case Disaster.HOLD_LOG | Disaster.HOLD_REPORTS:
                master.link.hold(Way.TO_CLIENT if disaster is Disaster.HOLD_LOG else Way.TO_SERVER)
                await asyncio.sleep(HELD_S)
                await self._look(disaster)
                master.link.let_go()
            case Disaster.TAKE_OVER:
                await self._end_master(disaster)
                await self._stop(slave)
                pair.swap()
                await asyncio.to_thread(slave.forget_commands)
                await pair.start_master()
                await self._programs.read_again()
                await pair.empty_slave_returns()
            case Disaster.POWER_SLAVE:
                await asyncio.to_thread(slave.cut_power)
                await self._look(disaster, lost=None if self._syncs else slave)
                await pair.start_slave()
            case _ if disaster in EXCHANGES or disaster is Disaster.SWITCH_KILL_OTHER:
                await self._exchange(disaster)
            case _:
                await self._promote(disaster)

    @property
    def _syncs(self) -> bool:
        return self._flush == "SYNC_FLUSH"

    async def _promote(self, disaster: Disaster) -> None:
        """The master goes in the way of this disaster, the slave is made master, and the old master comes back."""
        pair, old, new = self._pair, self._master, self._slave
        match disaster:
            case Disaster.PROMOTE_AT_CUT:
                old.link.cut()
                await asyncio.sleep(ALONE_S)
                await self._until(self._is_alone, "sends answered by the master alone")
            case Disaster.PROMOTE_AT_HOLD:
                old.link.hold(Way.TO_SERVER)
                await asyncio.sleep(self._chance.uniform(0, HELD_S))
            case Disaster.PROMOTE_FROZEN:
                old.running.send_signal(signal.SIGSTOP)
                old.link.cut()
                await self._programs.stop_reading()
        if disaster is not Disaster.PROMOTE_FROZEN:
            await self._end_master(disaster)
        self.promotions_s.append(await pair.promote())
        await self._programs.read_again()
        if disaster is Disaster.PROMOTE_AND_KILL:
            new.kill()
            await pair.start_again(new)
            await self._until(
                lambda: self._takes_sends(new), "sends taken by a slave that was promoted, and killed at once"
            )
        if disaster is Disaster.PROMOTE_FROZEN:
            await asyncio.sleep(ALONE_S)
            old.kill()
        old.link.mend()
        old.link.let_go()
        if disaster in (Disaster.PROMOTE, Disaster.PROMOTE_FROZEN, Disaster.PROMOTE_AND_KILL):
            await pair.empty_slave_returns()
        else:
            await self._returns(True if disaster is Disaster.PROMOTE_AT_CUT else None)

    async def _exchange(self, disaster: Disaster) -> None:
        """Whoever reads goes on doing so, unless its master is killed."""
        exchanges = Exchanges(self._pair, self._chance, self.findings, lambda: self._look(disaster))
        match disaster:
            case Disaster.SWITCH:
                await exchanges.undisturbed()
            case Disaster.DEMOTE_AND_PROMOTE:
                await exchanges.in_two_steps()
            case Disaster.SWITCH_KILL_SLAVE:
                await exchanges.killing(self._slave)
            case Disaster.SWITCH_KILL_MASTER:
                await exchanges.killing(self._master)
                await self._programs.read_again()
            case Disaster.SWITCH_KILL_OTHER:
                await exchanges.killing(self._chance.choice(self._pair.others))
            case Disaster.SWITCH_POWER_SLAVE:
                await exchanges.killing(self._slave, power=True)
            case Disaster.SWITCH_POWER_MASTER:
                await exchanges.killing(self._master, power=True)
                await self._programs.read_again()
            case Disaster.SWITCH_AT_CUT:
                await exchanges.while_cut()
            case _:
                await exchanges.while_held(log=disaster is Disaster.SWITCH_AT_HOLD_LOG)
        self.told += exchanges.told

    async def _end_master(self, disaster: Disaster) -> None:
        master = self._master
        await asyncio.to_thread(master.cut_power if disaster in POWER else master.kill)
        await self._look(disaster, lost=master if disaster in POWER and not self._syncs else None)
        await self._programs.stop_reading()

    async def _returns(self, parted: bool | None) -> None:
        """The slave comes back with its log, and without it where it is refused. `parted`: whether it must be; None where nobody knows."""
        pair = self._pair
        verdict = await pair.slave_returns()
        self.verdicts[verdict] += 1
        if verdict is None:
            self.findings.append("a slave that came back was told nothing")
        elif verdict is Verdict.FOLLOWS:
            if parted:
                self.findings.append("a log that has parted was taken for a beginning of the master's")
        else:
            end = await asyncio.to_thread(self._slave.end)
            logs = [await asyncio.to_thread(place.log) for place in pair.places]
            if end <= self._master.end() and logs[0][:end] == logs[1][:end]:
                self.findings.append(f"a slave was refused whose log, up to {end}, is a beginning of the master's")
            self._slave.kill()
            await pair.empty_slave_returns()

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
            port = int(self._master.network.address.rpartition(":")[2])
            with contextlib.suppress(OSError, ClosedByServer), RawClient(port, limit_s=ANSWER_LIMIT_S) as client:
                while self._sends.is_set() and not self._ends.is_set():
                    number += 1
                    name = b"<%d-%d-%d>" % (self.seed, sender, number)
                    self.answers[name] = None
                    body = name + b"x" * (number * 977 % 20_000)
                    self.answers[name] = code = client.call(
                        RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC, e=number % 4), body
                    ).code
                    if code == ResponseCode.SERVICE_NOT_AVAILABLE:
                        break  # somebody else leads
                    time.sleep(PAUSE_S)
            time.sleep(PAUSE_AFTER_FAILURE_S)

    def _acknowledged(self) -> set[bytes]:
        return {name for name, code in self.answers.copy().items() if code == ResponseCode.SUCCESS}

    # --- judging --------------------------------------------------------------------------------------------------

    async def _look(self, disaster: Disaster, lost: Place | None = None) -> None:
        """Everything that was answered 0 stands in two logs, whatever state they are in. `lost`: this one may lack it."""
        acknowledged, lacks = self._acknowledged(), dict[str, set[bytes]]()
        for place in self._pair.places:
            if place is not lost:
                role = "master" if place is self._master else "slave" if place is self._slave else "other slave"
                found = re.findall(rb"<\d+-\d+-\d+>", await asyncio.to_thread(place.log))
                lacks[role] = acknowledged - set(found)
        count = Counter(name for missing in lacks.values() for name in missing)
        for role, missing in lacks.items():
            if alone := {name for name in missing if count[name] > self._brokers - 2}:
                self.findings.append(
                    f"{disaster.value}: {len(alone)} sends answered 0 are not in the log of the {role}, such as "
                    f"{min(alone).decode()}"
                )

    async def _healed(self, after: str) -> None:
        """Sends are answered 0 again; then the logs become equal while nobody sends."""
        count = len(self._acknowledged())
        await self._until(lambda: len(self._acknowledged()) >= count + 2 * SENDERS, f"sends answered 0 after {after}")
        self._sends.clear()
        self._programs.pause()
        places = self._pair.places
        await self._until(lambda: len({place.end() for place in places}) == 1, f"logs of one length after {after}")
        end = await asyncio.to_thread(lambda: min(place.end() for place in places))
        first, *others = [(await asyncio.to_thread(place.log))[:end] for place in places]
        for log in others:
            if log != first:
                self.findings.append(f"the logs differ {_difference(first, log)} after {after}")
        self._sends.set()
        self._programs.go_on()

    async def _settle(self) -> None:
        """Nobody sends any more; what waits has its time. Then both logs are read as a whole."""
        self._sends.clear()
        await self._programs.finish(DUE_S[1] + HEALED_LIMIT_S)
        read = self.ledger.received[f"{TOPIC}-readers"]
        await self._until(lambda: self._acknowledged() <= read.keys(), "delivery of all sends answered 0")
        await asyncio.sleep(QUIET_S)
        await asyncio.to_thread(self._judge_ledger, self._master.running.port)

    def _is_alone(self) -> bool:
        """Whether the last sends were answered by a master without its slave."""
        return any(code == ResponseCode.SLAVE_NOT_AVAILABLE for code in list(self.answers.values())[-20:])

    def _takes_sends(self, place: Place) -> bool:
        with contextlib.suppress(OSError, ClosedByServer), RawClient(place.running.port) as client:
            return client.call(RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC), b"?").code in (
                ResponseCode.SUCCESS,
                ResponseCode.SLAVE_NOT_AVAILABLE,
            )
        return False

    def summary(self) -> str:
        codes = Counter(self.answers.copy().values())
        told = ", ".join(f"{count} x {code}" for code, count in sorted(codes.items(), key=str))
        faults = ", ".join(f"{count} {disaster.value}" for disaster, count in self.faults.items())
        returns = ", ".join(f"{count} {verdict.name.lower()}" for verdict, count in self.verdicts.items() if verdict)
        exchanges = ", ".join(f"{count} {what}" for what, count in self.told.items())
        promoted = f"; promoted in at most {max(self.promotions_s):.2f} s" if self.promotions_s else ""
        return (
            f"seed {self.seed}, {self._flush}: {faults}; sends answered {told}; {self.ledger.summary()}"
            f"{promoted}{f'; returns: {returns}' if returns else ''}"
            f"{f'; exchanges: {exchanges}' if exchanges else ''}"
        )


def _difference(one: bytes, two: bytes) -> str:
    """From where to where, and what each has there."""
    differs = [at for at in range(min(len(one), len(two))) if one[at] != two[at]]
    first, last = differs[0], differs[-1]
    there = "; ".join(
        f"...{log[max(first - 120, 0) : first]!r} then {log[first : first + 120]!r}" for log in (one, two)
    )
    return f"in {len(differs)} bytes from {first} to {last}: {there}"
