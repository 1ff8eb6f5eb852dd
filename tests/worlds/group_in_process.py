"""Members of a replicated group with their sockets and stores on one event loop, and an engine in memory, for tests.

Rules of this file
1. Everything is as in processes, but for the engine and the end of a process: `kill` leaves the files as they are.
2. Pauses after which somebody looks again are short here. For how long somebody is waited for before it is missed is as it is: a busy
   machine makes a member late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.worlds.engine_in_memory import EngineContents, MemoryEngine
from tests.worlds.listening_ports import ports_in_a_row

from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.protocol.remoting.commands import RequestCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.replication import member
from orbitmq.replication.view import View
from orbitmq.server.configuration.settings import Overrides, Role, load_settings
from orbitmq.server.connections.outbound import Outbound
from orbitmq.server.lifecycle import ServerProcess
from orbitmq.server.replication.group import broker_member, engine_calls, founding
from orbitmq.server.replication.group.broker_member import BrokerMember
from orbitmq.server.replication.group.group_role import GroupRole
from orbitmq.store.files import Files

SMALL: Final = (
    "mappedFileSizeCommitLog=1048576",
    "maxIndexNum=2000",
    "maxHashSlotNum=500",
    "grpcServerPort=0",
    "httpEnable=false",
)
LIMIT_S: Final = 30.0


def free_port() -> int:
    """With the next one free as well."""
    return ports_in_a_row(2)[0]


PAUSES: Final = {
    (founding, "FOUNDING_WAIT_MS"): 100,
    (founding, "JOINING_RETRY_MS"): 50,
    (engine_calls, "JOINING_RETRY_MS"): 50,
    (broker_member, "JOINING_RETRY_MS"): 50,
    (member, "ENGINE_RETRY_MS"): 100,
}


class GroupInProcess:
    def __init__(self, root: Path, monkeypatch: Any) -> None:
        self.root = root
        self.contents = EngineContents()
        self.engines: dict[str, MemoryEngine] = {}
        self.running: dict[str, ServerProcess] = {}
        self.ports: dict[str, int] = {}
        self.files: dict[str, Files] = {}
        """Of members whose disk is to fail."""
        for (module, name), pause_ms in PAUSES.items():
            monkeypatch.setattr(module, name, pause_ms)
        monkeypatch.setattr(broker_member, "opened_engine", lambda settings: self._engine(settings.replica_name))

    def _engine(self, name: str) -> MemoryEngine:
        return self.engines.setdefault(name, MemoryEngine(self.contents))

    async def start(self, *names: str, **settings: object) -> None:
        for name in names:
            port = self.ports.setdefault(name, free_port())
            flags = [f"{key}={value}" for key, value in settings.items()]
            own = load_settings(
                roles=[Role.BROKER],
                flags=[
                    *SMALL, "brokerName=trio", f"replicaName={name}", "replicationEngine=etcd://127.0.0.1:1", *flags,
                ],
                overrides=Overrides(data=self.root / name, host="127.0.0.1", broker_port=port),
            )  # fmt: skip
            process = self.running[name] = ServerProcess(own, files=self.files.get(name), second_port=False)
            await process.start()

    async def kill(self, name: str) -> None:
        await self.running.pop(name).kill()

    async def stop(self, name: str) -> None:
        await self.running.pop(name).stop()

    async def end(self) -> None:
        for name in list(self.running):
            await self.kill(name)

    def role(self, name: str) -> GroupRole:
        broker = self.running[name].broker
        assert broker is not None
        assert isinstance(broker.replication, GroupRole)
        return broker.replication

    def member(self, name: str) -> BrokerMember:
        return self.role(name).member

    @property
    def leader(self) -> str:
        """Who serves; empty where nobody does."""
        return next((name for name in self.running if self.member(name).duties.leads), "")

    def view(self) -> View:
        view = self.contents.views["trio"].view
        assert view is not None
        return view

    def in_sync(self) -> tuple[str, ...]:
        return self.view().in_sync if "trio" in self.contents.views else ()

    async def until(self, is_so: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_s
        while not is_so():
            assert loop.time() < end, f"not within {limit_s} s: {what}; {self.told()}"
            await asyncio.sleep(0.02)

    def told(self) -> dict[str, dict[str, str]]:
        return {name: self.role(name).facts() for name in self.running}

    async def until_level(self, *names: str) -> None:
        """Somebody leads, and all of these are in sync and have everything."""

        def is_so() -> bool:
            if not self.leader or set(self.in_sync()) != set(names):
                return False
            ends = {(self.member(name).store.log.written_end, self.member(name).store.confirm_offset) for name in names}
            return len({end for pair in ends for end in pair}) == 1

        await self.until(is_so, f"{names} in sync")

    async def call(self, name: str, command: Command) -> Command:
        process = self.running[name]
        outbound = Outbound(f"127.0.0.1:{self.ports[name]}", process.clock)
        try:
            return await outbound.call(command, 10_000)
        finally:
            await outbound.close()

    async def create_topic(self, topic: str) -> Command:
        config = TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1)
        fields = {
            "topic": config.topic_name, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        }  # fmt: skip
        return await self.call(self.leader, request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))

    async def send(self, name: str, body: bytes, topic: str = "orders", properties: str = "") -> int:
        """The code of the answer."""
        fields = {
            "a": "p",
            "b": topic,
            "c": "TBW102",
            "d": "4",
            "e": "0",
            "f": "0",
            "g": "0",
            "h": "0",
            "i": properties,
        }
        answer = await self.call(name, request(RequestCode.SEND_MESSAGE_V2, fields, body))
        return answer.code

    def bodies(self, name: str, topic: str = "orders") -> list[bytes]:
        """What consumers could read there."""
        from orbitmq.protocol.records import decode_record

        store = self.member(name).store
        found = []
        for entry in store.scan(store.log.start):
            if entry.topic == topic:
                record = store.log.read(entry.physical_offset, entry.size)
                assert record is not None
                found.append(bytes(decode_record(record).body))
        return found
