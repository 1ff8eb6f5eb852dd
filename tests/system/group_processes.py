"""A name server, an etcd and members of a replicated group in processes of their own.

Rules of this file
1. A member keeps its directory and its ports over restarts.
2. What is waited for is what the members say of themselves.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tests.system.server_process import (
    ClosedByServer,
    RawClient,
    ServedProcess,
    free_ports,
    pull_fields,
    send_fields,
    until,
)
from tests.worlds.etcd_process import EtcdCluster

from orbitmq.protocol.records import decode_records
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode

SMALL: Final = {"mappedFileSizeCommitLog": 16 * 1024 * 1024, "maxIndexNum": 200_000, "maxHashSlotNum": 50_000}
LIMIT_S: Final = 60.0
APART: Final = 4
"""Ports of members: a broker has others beside those that are chosen, and none is listened on yet."""


class Group:
    """`members` are the processes that run, by name."""

    program: Sequence[str] = ("-m", "orbitmq.cli.main")
    environment: Mapping[str, str] = MappingProxyType({})
    """Variables of every member's process."""

    def __init__(self, directory: Path, *names: str, **settings: object) -> None:
        self.directory = directory
        self.settings = settings
        (directory / "etcd").mkdir()
        self.engine = EtcdCluster(directory / "etcd")
        self.names = ServedProcess(directory / "names", command="nameserver")
        self.members: dict[str, ServedProcess] = {}
        self._ports: dict[str, tuple[tuple[int, int], int]] = {}
        try:
            for name in names:
                self.start(name, awaited=False)
            for member in self.members.values():
                member.await_line()
            self.until_level(*names)
        except BaseException:
            self.end()
            raise

    def start(self, name: str, *, awaited: bool = True) -> ServedProcess:
        ports, ha_port = self.ports_of(name)
        settings = {
            **SMALL, "brokerName": "trio", "replicaName": name, "replicationEngine": self.engine_of(name), "haListenPort": ha_port,
            "namesrvAddr": f"127.0.0.1:{self.names.name_port}", "slaveReadEnable": "true", **self.settings,
            **self.settings_of(name),
        }  # fmt: skip
        made = self.members[name] = ServedProcess(
            self.directory / name, command="broker", settings=settings, ports=ports, awaited=awaited,
            program=self.program, environment=self.environment_of(name),
        )  # fmt: skip
        return made

    def ports_of(self, name: str) -> tuple[tuple[int, int], int]:
        """For clients, and the one for members."""
        while name not in self._ports:
            chosen = free_ports(), free_ports()[0]
            taken = [port for ports, for_members in self._ports.values() for port in (*ports, for_members)]
            if all(abs(port - other) > APART for port in (*chosen[0], chosen[1]) for other in taken):
                self._ports[name] = chosen
        return self._ports[name]

    def settings_of(self, name: str) -> Mapping[str, object]:
        """Of this member alone."""
        return {}

    def environment_of(self, name: str) -> Mapping[str, str]:
        """Variables of this member's process."""
        return self.environment

    def engine_of(self, name: str) -> str:
        """How this member reaches it."""
        return self.engine.url()

    def kill(self, name: str) -> None:
        self.members.pop(name).kill()

    def end(self) -> None:
        for process in (self.names, *self.members.values()):
            process.kill()
        self.engine.end()

    # --- what they say --------------------------------------------------------------------------------------------------

    def told(self, name: str, limit_s: float = 3.0) -> Mapping[str, str]:
        """Empty where it does not answer."""
        with (
            contextlib.suppress(KeyError, OSError, ClosedByServer),
            RawClient(self.members[name].port, limit_s=limit_s) as client,
        ):
            answer = client.call(RequestCode.GET_BROKER_RUNTIME_INFO)
            table: dict[str, str] = json.loads(bytes(answer.body))["table"]
            return {key.removeprefix("orbitmqReplica"): text for key, text in table.items()}
        return {}

    def leader(self, *, but: str = "") -> str:
        """Who serves, apart from one that is frozen; empty where nobody does."""
        return next((name for name in self.members if name != but and self.told(name).get("Role") == "LEADER"), "")

    def until_leader(self, *, but: str = "", limit_s: float = LIMIT_S) -> str:
        until(lambda: bool(self.leader(but=but)), limit_s, "a leader")
        return self.leader(but=but)

    def until_level(self, *names: str) -> str:
        """All of these in sync, with one log, all of it confirmed; answers who leads."""

        def is_so() -> bool:
            told = [self.told(name) for name in names]
            ends = {one.get("LogEnd") for one in told} | {one.get("ConfirmedEnd") for one in told}
            return len(ends) == 1 and self.in_sync(*names)

        until(is_so, LIMIT_S, f"{names} in sync, and nobody sends")
        return self.leader()

    def in_sync(self, *names: str) -> bool:
        """Whether all of these say that they all are, and one that it leads."""
        told = [self.told(name) for name in names]
        roles = Counter(one.get("Role") for one in told)
        return {one.get("InSync") for one in told} == {",".join(sorted(names))} and roles["LEADER"] == 1

    # --- messages -------------------------------------------------------------------------------------------------------

    def send(self, name: str, body: bytes, limit_s: float = 20.0, **properties: str) -> int:
        """The code of the answer; -1 for none."""
        with (
            contextlib.suppress(OSError, ClosedByServer),
            RawClient(self.members[name].port, limit_s=limit_s) as client,
        ):
            return client.call(RequestCode.SEND_MESSAGE_V2, send_fields("orders", properties or None), body).code
        return -1

    def bodies(self, name: str) -> list[bytes]:
        return bodies_at(self.members[name].port)

    def logs(self, *names: str) -> set[bytes]:
        """The bytes of the logs of stopped or idle members."""
        return {
            b"".join(path.read_bytes() for path in sorted((self.directory / name / "data" / "commitlog").iterdir()))
            for name in names
        }


def bodies_at(port: int, topic: str = "orders", begin: int = 0) -> list[bytes]:
    """Of the first queue, from that offset on."""
    found: list[bytes] = []
    with RawClient(port) as client:
        while (
            answer := client.call(RequestCode.PULL_MESSAGE, pull_fields(topic, offset=begin + len(found)))
        ).code == 0:
            found += [bytes(record.body) for record in decode_records(bytes(answer.body))]
    return found


class IdempotentSender:
    """Sends numbers, each until it is acknowledged, to whoever takes them."""

    def __init__(self, group: Group, scope: str, pause_s: float = 0.0) -> None:
        self._group = group
        self._pause_s = pause_s
        self._scope = scope
        self._over = threading.Event()
        self.acknowledged: list[bytes] = []
        self.codes: Counter[int] = Counter()
        self.longest_s = 0.0
        self.attempts = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number, last = 0, time.monotonic()
        client: RawClient | None = None
        ports: Iterator[int] = iter(())
        while not self._over.is_set():
            body = f"<{self._scope}-{number:06d}>".encode()
            properties = {"ORBITMQ_SCOPE": self._scope, "ORBITMQ_EPOCH": "1", "ORBITMQ_ONCE_KEY": body.decode()}
            try:
                if client is None:
                    port = next(ports, 0)
                    if not port:
                        ports = iter([one.port for one in list(self._group.members.values())])
                        continue
                    client = RawClient(port, limit_s=4)
                self.attempts += 1
                code = client.call(RequestCode.SEND_MESSAGE_V2, send_fields("orders", properties), body).code
            except (OSError, ClosedByServer):
                code = -1
            self.codes[code] += 1
            if code == ResponseCode.SUCCESS:
                now = time.monotonic()
                self.longest_s, last = max(self.longest_s, now - last), now
                self.acknowledged.append(body)
                number += 1
                time.sleep(self._pause_s)
            elif client is not None:
                client.close()
                client = None
                time.sleep(0.02)
        if client is not None:
            client.close()

    def end(self) -> None:
        self._over.set()
        self._thread.join(30)


def answer_of(server: ServedProcess, code: RequestCode, body: bytes) -> Any:
    with RawClient(server.port) as client:
        return client.call(code, {}, body)
