"""A name server, a master and a slave of one name in processes of their own, for programs that work while the slave becomes the master.

Rules of this file
1. Programs ask the name server, which fails never.
2. `switch` needs both processes. `promote` begins when the master's process is gone, and ends when the slave says that it is the master.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from server_process import ClosedByServer, RawClient, ServedProcess, free_ports, until

from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.replication_bodies import DemoteRequest, PromoteRequest

SMALL: Final = {"mappedFileSizeCommitLog": 16 * 1024 * 1024, "maxIndexNum": 200_000, "maxHashSlotNum": 50_000}
LIMIT_S: Final = 60.0


class PromotedPair:
    """`master` is whoever is it now. role: of the first master; a synchronous one becomes synchronous at the slave as well."""

    def __init__(self, directory: Path, role: str, **settings: object) -> None:
        """settings: of both brokers."""
        self._directory = directory
        self._settings = settings
        self._role = role
        self._processes: list[ServedProcess] = []
        self._ha_port = free_ports()[0]
        self.names = self._kept(ServedProcess(directory / "names", command="nameserver"))
        self.master = self.restart_first()
        self._slave_ha_port = free_ports()[0]
        self.start_slave()
        until(lambda: self.master.runtime()["orbitmqReplicaCopiesCounted"] == "1", LIMIT_S, "a slave that counts")

    def _kept(self, process: ServedProcess) -> ServedProcess:
        self._processes.append(process)
        return process

    def _broker(
        self,
        name: str,
        program: Sequence[str] = ("-m", "orbitmq.cli.main"),
        environment: Mapping[str, str] | None = None,
        **role: object,
    ) -> ServedProcess:
        settings = {**SMALL, "brokerName": "pair", "namesrvAddr": self.name_server, **self._settings, **role}
        return self._kept(
            ServedProcess(
                self._directory / name, command="broker", settings=settings, program=program, environment=environment
            )
        )

    def restart_first(self) -> ServedProcess:
        """The broker that was the first master, on its directory."""
        return self._broker("first", brokerRole=self._role, brokerId=0, haListenPort=self._ha_port)

    def start_slave(self) -> None:
        self.slave = self.another("second", brokerId=1, haListenPort=self._slave_ha_port)

    def another(
        self,
        name: str,
        program: Sequence[str] = ("-m", "orbitmq.cli.main"),
        environment: Mapping[str, str] | None = None,
        **settings: object,
    ) -> ServedProcess:
        """One more slave of the first master. program, environment: as of `ServedProcess`."""
        settings = {"brokerRole": "SLAVE", "haMasterAddress": f"127.0.0.1:{self._ha_port}", **settings}
        return self._broker(name, program, environment, **settings)

    @property
    def name_server(self) -> str:
        return f"127.0.0.1:{self.names.name_port}"

    def create_topic(self, topic: str, queues: int) -> None:
        """At both brokers when this returns."""
        self.master.create_topic(topic, queues)
        until(lambda: self.slave.topic(topic) is not None, LIMIT_S, "the topic at the slave")

    def promote(self) -> float:
        """Make the slave of a master that is gone the master. Seconds until it said so."""
        began = time.monotonic()
        body = PromoteRequest().encode()
        until(lambda: _code(self.slave, RequestCode.PROMOTE_SLAVE, body) == ResponseCode.SUCCESS, LIMIT_S, "promotion")
        self.master = self.slave
        return time.monotonic() - began

    def switch(self, successor: int = 0) -> float:
        """Exchange master and slave, both of which run, as soon as slaves count. Seconds until the master said so. successor: the id of
        the slave, where there are others."""
        until(lambda: self.master.runtime()["orbitmqReplicaCopiesCounted"] != "0", LIMIT_S, "a slave that counts")
        began = time.monotonic()
        body = DemoteRequest(hands_over=True, successor=successor).encode()
        with RawClient(self.master.port) as client:
            answer = client.call(RequestCode.DEMOTE_MASTER, {}, body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        self.master, self.slave = self.slave, self.master
        return time.monotonic() - began

    def end(self) -> None:
        for process in self._processes:
            process.kill()


@contextlib.contextmanager
def promoted_pair(directory: Path, role: str, **settings: object) -> Iterator[PromotedPair]:
    pair = PromotedPair(directory, role, **settings)
    try:
        yield pair
    finally:
        pair.end()


def _code(server: ServedProcess, code: RequestCode, body: bytes) -> int:
    with contextlib.suppress(OSError, ClosedByServer), RawClient(server.port) as client:
        return client.call(code, {}, body).code
    return -1
