"""A replicated group in processes, each of which is reached through networks: by other members, by clients, and the engine by it.

Rules of this file
1. A member listens at 127.0.0.1 and is known with another address of the loopback, where a network listens at the same ports.
2. Networks end with their member, so that who dials a dead one is refused, as without them. Only that to the engine stays.
3. What one member says to another one is told apart by its hello: a connection between members carries one direction.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from tests.chaos.group_broker import __file__ as broker_file
from tests.chaos.proxy import BadNetwork, Way, Weather
from tests.chaos.recorded_broker import AFTER
from tests.system.group_processes import Group
from tests.system.server_process import ServedProcess

from orbitmq.protocol.replication.member_frames import GROUP_MAGIC, FrameReader, MemberHello

TOLD: Final = f"127.{10 + os.getpid() // 250 % 200}.{os.getpid() % 250}.2"
"""Of this process: campaigns side by side choose ports while those of members that are down are free."""


class MemberNetwork(BadNetwork):
    """In front of a member's port for others."""

    def __init__(self, target: str, address: str) -> None:
        self._gates: dict[str, asyncio.Event] = {}
        super().__init__(target, Weather(0), address)
        self.is_fair = True
        self._begun: WeakKeyDictionary[asyncio.StreamReader, bytes] = WeakKeyDictionary()
        self._callers: WeakKeyDictionary[asyncio.StreamReader, str] = WeakKeyDictionary()

    def hold_from(self, caller: str) -> None:
        """What this one says is late until it is let go, on old connections and new ones."""
        self._gates.setdefault(caller, asyncio.Event())

    def let_go(self) -> None:
        super().let_go()
        for gate in self._gates.values():
            gate.set()
        self._gates.clear()

    async def _pass(self, way: Way, source: asyncio.StreamReader, data: bytes) -> None:
        await super()._pass(way, source, data)
        if way is Way.TO_SERVER and (gate := self._gates.get(self._caller(source, data))) is not None:
            await gate.wait()

    def _caller(self, source: asyncio.StreamReader, data: bytes) -> str:
        """Empty before it has said who it is."""
        if source not in self._callers:
            begun = self._begun[source] = self._begun.get(source, b"") + data
            reader = FrameReader({})
            reader.receive(begun[len(GROUP_MAGIC) :])
            hello = reader.take()
            if not isinstance(hello, MemberHello):
                return ""
            self._callers[source] = hello.sender
            del self._begun[source]
        return self._callers[source]


class Networks:
    """Of one member."""

    def __init__(self, ports: tuple[int, int], engine: str) -> None:
        """`ports`: for clients and for members. engine: its address."""
        for_clients, for_members = ports
        self.clients = BadNetwork(f"127.0.0.1:{for_clients}", Weather(0), f"{TOLD}:{for_clients}")
        self.members = MemberNetwork(f"127.0.0.1:{for_members}", f"{TOLD}:{for_members}")
        self.engine = BadNetwork(engine, Weather(0))
        self.clients.is_fair = self.engine.is_fair = True


class NetworkedGroup(Group):
    """Made and used by other threads than that of `loop`, where its networks run."""

    program = (broker_file,)

    def __init__(
        self,
        directory: Path,
        names: Iterable[str],
        loop: asyncio.AbstractEventLoop,
        bug: str | None,
        seed: int | None,
        **settings: object,
    ) -> None:
        """seed: of disks that are recorded, so that power can be cut; without it they are not."""
        self._loop = loop
        self._networks: dict[str, Networks] = {}
        self._open = contextlib.AsyncExitStack()
        self._life: dict[str, contextlib.AsyncExitStack] = {}
        root = str(Path(broker_file).parents[2])  # the program imports what is beside it here
        self._environment = {
            "GROUP_BUG": bug or "",
            "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
        }
        self._seed = seed
        self._boots: Counter[str] = Counter()
        super().__init__(directory, *names, brokerIP1=TOLD, **settings)

    def environment_of(self, name: str) -> Mapping[str, str]:
        recorded = "" if self._seed is None else f"{self._seed}:{name}:{self._boots[name]}"
        return {**self._environment, "GROUP_RECORDED": recorded}

    def cut_power(self, name: str) -> None:
        """The process ends, and its directory is what the disk may hold then."""
        member = self.members[name]
        member.send_signal(signal.SIGUSR2)
        member.exit_code()
        self.kill(name)
        self._boots[name] += 1
        data = self.directory / name / "data"
        shutil.rmtree(data)
        data.with_name(AFTER).rename(data)

    def engine_of(self, name: str) -> str:
        return f"etcd://{self._networks[name].engine.address}/"

    def start(self, name: str, *, awaited: bool = True) -> ServedProcess:
        self._wait(self._begin(name))
        return super().start(name, awaited=awaited)

    def kill(self, name: str) -> None:
        super().kill(name)
        self._wait(self._life.pop(name).aclose())

    def stop(self, name: str) -> None:
        """In order. AssertionError where it did not end so."""
        self.members.pop(name).stop()
        self._wait(self._life.pop(name).aclose())

    def signal(self, name: str, number: signal.Signals) -> None:
        self.members[name].send_signal(number)

    def end(self) -> None:
        for member in self.members.values():
            with contextlib.suppress(ProcessLookupError):
                member.send_signal(signal.SIGCONT)
        super().end()
        for life in (*self._life.values(), self._open):
            self._wait(life.aclose())

    # --- networks -------------------------------------------------------------------------------------------------------

    def hold(self, sender: str, receiver: str) -> None:
        """What one member says to the other one does not arrive until `let_go`."""
        self._loop.call_soon_threadsafe(self._networks[receiver].members.hold_from, sender)

    def hold_engine(self, name: str) -> None:
        """That member and the engine hear nothing of each other until `let_go`."""
        for way in Way:
            self._loop.call_soon_threadsafe(self._networks[name].engine.hold, way)

    def let_go(self) -> None:
        for one in self._networks.values():
            for network in (one.members, one.engine):
                self._loop.call_soon_threadsafe(network.let_go)

    async def _begin(self, name: str) -> None:
        if name not in self._networks:
            ports, for_members = self.ports_of(name)
            made = self._networks[name] = Networks((ports[1], for_members), self.engine.members[0].endpoint)
            await self._open.enter_async_context(made.engine)
        life = self._life[name] = contextlib.AsyncExitStack()
        for network in (self._networks[name].clients, self._networks[name].members):
            await life.enter_async_context(network)

    def _wait(self, work: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()
