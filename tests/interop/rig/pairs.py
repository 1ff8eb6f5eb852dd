"""A master and a slave of one broker name, each of either kind, with a name server of ours between them.

Rules of this file
1. Both have one name, and a data directory and ports of their own. Either can be killed and started again, as what it was or as a master.
2. Logs are compared as bytes on the disk, up to where a broker says that its log ends.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from rig.brokers import BROKER_NAME, CLUSTER_NAME, BrokerRole, JvmProfile, Kind, NameServerRole, wait_registered
from rig.process import free_ports
from rig.toolchain import BROKER_VERSION
from rig.wire import RUNTIME_INFO, SEND_V2, Refused, Wire, encode_properties, send_fields

LIMIT_S: Final = 60

Found = TypeVar("Found")


def until(ask: Callable[[], Found], what: str, limit_s: float = LIMIT_S) -> Found:
    """The first answer that is true; AssertionError after `limit_s`. A server that is not there yet counts as no answer."""
    end, found = time.monotonic() + limit_s, None
    while time.monotonic() < end:
        try:
            if found := ask():
                return found
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {limit_s} s, the last answer was {found!r}")


OFTEN_FLUSHED = {"timerFlushIntervalMs": "2000"}
"""Half as often as RocketMQ does it by itself: what a killed one delivered since the last time comes again."""

_used: list[int] = []


def _unused_port() -> int:
    """With its neighbours of no other member: what is chosen is not listened on yet."""
    while True:
        port = free_ports()[1]
        if all(abs(port - other) > 8 for other in _used):
            _used.append(port)
            return port


class Member:
    """One broker of a pair."""

    def __init__(self, pair: Pair, name: str, kind: Kind, release: str) -> None:
        self._pair = pair
        self.name, self.kind, self._release = name, kind, release
        self.data = pair.folder / name / "data"
        self.port = _unused_port()
        self.role: BrokerRole | None = None
        self._logs: list[Path] = []

    @property
    def ha_port(self) -> int:
        return self.port + 1

    def launch(self, settings: Mapping[str, str]) -> Member:
        """Start its process; `wait` for it."""
        folder = self._pair.folder / self.name / f"run-{len(self._logs)}"
        named = {
            "brokerName": BROKER_NAME,
            "brokerClusterName": CLUSTER_NAME,
            "haListenPort": str(self.ha_port),
            **settings,
        }
        name_server = f"127.0.0.1:{self._pair.names.port}"
        self.role = BrokerRole(
            self.kind, folder, self.data, self.port, name_server, named, self._pair.profile, self._release
        )
        self._logs.append(folder / "broker.log")
        self.role.start()
        return self

    def launch_master(self, **settings: str) -> Member:
        return self.launch({"brokerRole": "ASYNC_MASTER", "brokerId": "0", **OFTEN_FLUSHED, **settings})

    def launch_slave(self, **settings: str) -> Member:
        return self.launch(
            {"brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true", **OFTEN_FLUSHED, **settings}
        )

    def wait(self) -> Member:
        """Return when the name server knows it and it answers."""
        assert self.role is not None, "it was not launched"
        wait_registered(self._pair.names.port, self.port, [self._pair.names, self.role])
        return self

    def kill(self) -> None:
        if self.role is not None:
            self.role.kill()

    @property
    def pid(self) -> int:
        assert self.role is not None, "it was not launched"
        return self.role.pids()[0]

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in self._logs if path.exists())

    # --- what it holds ------------------------------------------------------------------------------------------------

    def wire(self, timeout_s: float = 30) -> Wire:
        return Wire(self.port, timeout_s=timeout_s)

    def log_end(self) -> int:
        """RocketMQ answers with an exception of its own while its figures of the last minutes are being moved on."""
        for tries_left in (2, 1, 0):
            try:
                with self.wire() as wire:
                    return int(json.loads(wire.call(RUNTIME_INFO, {})[1])["table"]["commitLogMaxOffset"])
            except Refused:
                if not tries_left:
                    raise
                time.sleep(0.2)
        raise AssertionError("the last try returned or raised")

    def log_bytes(self, end: int) -> bytes:
        """Of the first log file, up to `end`."""
        with open(self.data / "commitlog" / f"{0:020d}", "rb") as file:
            return file.read(end)

    def config(self, name: str) -> dict[str, Any]:
        """A table as its file holds it; empty while there is none. RocketMQ writes keys that are numbers without quotes."""
        path = self.data / "config" / name
        if not path.exists():
            return {}
        found: dict[str, Any] = json.loads(_quoted(path.read_text() or "{}"))
        return found

    def bodies(self, topic: str, queue_id: int = 0) -> list[bytes]:
        with self.wire() as wire:
            return [record.body for record in wire.read_queue(topic, queue_id)]


def _quoted(text: str) -> str:
    """fastjson's keys that are numbers, in quotes."""
    return re.sub(r"([{,]\s*)(\d+)\s*:", r'\1"\2":', text)


class Pair:
    """`first` and `second` are made and not started. `release` is RocketMQ's."""

    def __init__(
        self,
        folder: Path,
        first: Kind,
        second: Kind,
        release: str = BROKER_VERSION,
        profile: JvmProfile = JvmProfile.TEST,
    ) -> None:
        self.folder, self.profile = folder, profile
        self.names = NameServerRole(Kind.ORBITMQ, folder / "names", _unused_port())
        self.names.start()
        self.first = Member(self, "first", first, release)
        self.second = Member(self, "second", second, release)

    def kill(self) -> None:
        for member in (self.first, self.second):
            member.kill()
        self.names.kill()

    def logs(self) -> str:
        return "\n".join(f"--- {member.name}\n{member.log()[-3000:]}" for member in (self.first, self.second))

    def wait_equal(self, limit_s: float = LIMIT_S) -> int:
        """Wait until both logs end at one place, and compare them byte for byte; how long they are."""
        end = until(lambda: (at := self.first.log_end()) == self.second.log_end() and at, "logs of one length", limit_s)
        one, other = self.first.log_bytes(end), self.second.log_bytes(end)
        differs = next((at for at in range(end) if one[at] != other[at]), None) if one != other else None
        assert differs is None, f"the logs differ at byte {differs} of {end}"
        return end


def send(
    member: Member, topic: str, body: bytes, properties: Mapping[str, str] | None = None, *, queue_id: int = 0
) -> int:
    """Code of the answer to one message with a unique key."""
    values = {"UNIQ_KEY": f"KEY{body.decode()}", "WAIT": "true", **(properties or {})}
    with member.wire() as wire:
        head, _ = wire.ask(SEND_V2, send_fields(topic, queue_id, 0, encode_properties(values)), body)
    return int(head["code"])
