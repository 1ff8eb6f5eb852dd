"""Brokers each of which has a machine of its own: masters, slaves and the members of replicated groups, ours and RocketMQ's DLedger.

Rules of this file
1. Clients, the name server and the etcd of a group are on another machine, which does not fail.
2. A node keeps its directory and its address over all its runs.
3. Who leads a group is who takes a message.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import rigpath

# isort: split
from examples.order_timeout_group.etcd import MISSING, etcd_program
from rig.brokers import CLUSTER_NAME, JvmProfile, Kind, java_settings, launch_java, orbitmq_command
from rig.process import ServerProcess
from rig.toolchain import BROKER_VERSION, Missing
from rig.wire import PULL, RUNTIME_INFO, SUCCESS, Refused, Wire, pull_fields
from tests.worlds.etcd_process import EtcdCluster

from machines import OWN_ADDRESS, Machine
from measure import Invalid

PORT, NAME_SERVER_PORT, DLEDGER_PORT = 10911, 9876, 40911
TOPIC, QUEUES = "accounted", 4
READY_LIMIT_S: Final = 120.0
POWER_LIMIT_S: Final = 60.0
SHARED: Final = {"slaveReadEnable": "true", "waitTimeMillsInSendQueue": "60000"}
LEVEL_BYTES: Final = 1 << 20
"""So much less than the leader RocketMQ's followers may have while others send."""
SMALL: Final = {"mappedFileSizeCommitLog": "67108864", "maxHashSlotNum": "10000", "maxIndexNum": "40000"}
Settings = dict[str, str]
Found = TypeVar("Found")


class Node:
    """A broker on its machine. `identity`: the settings by which others know it."""

    program: Sequence[str | Path] = ()
    """Words before the arguments of `orbitmq`; by default the command itself."""

    def __init__(self, folder: Path, number: int, kind: Kind, identity: Settings) -> None:
        """number: of the machine."""
        self.machine = Machine(number)
        self.kind, self.identity = kind, identity
        self.folder, self.data = folder / f"node{number}", folder / f"node{number}" / "data"
        self._runs = 0
        self.process: ServerProcess | None = None
        self.after_power = self.folder / "after-power"

    @property
    def address(self) -> str:
        return self.machine.address

    def start(self, settings: Settings, *, recorded: bool = False) -> None:
        """recorded: its power can fail."""
        run = self.folder / f"run{self._runs}"
        run.mkdir(parents=True)
        self._runs += 1
        settings = {**SHARED, **self.identity, **settings}
        name_server = f"{OWN_ADDRESS}:{NAME_SERVER_PORT}"
        if self.kind is Kind.JAVA:
            settings |= dict.fromkeys(("bindAddress", "brokerIP1", "brokerIP2"), self.address)
            conf = run / "broker.conf"
            keys = java_settings(self.data, PORT, name_server, settings)
            conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
            heap, main_class = JvmProfile.MEASURE.value[0], "org.apache.rocketmq.broker.BrokerStartup"
            options = ("-c", conf)
            self.process = launch_java(
                BROKER_VERSION, run, heap, main_class, "broker.log", *options, before=self.machine.inside
            )
            return
        program = list(self.program or orbitmq_command())
        if recorded:
            script = rigpath.REPOSITORY / "benchmarks" / "recorded_broker.py"
            program = [sys.executable, script, self.data, self.after_power]
        words = ["broker", "--data", self.data, "--host", self.address, "--broker-port", str(PORT)]
        settings |= {"namesrvAddr": name_server, "brokerClusterName": CLUSTER_NAME, **SMALL}
        sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        self.process = self.machine.start([*program, *words, "--no-grpc", "--no-http", *sets], run / "broker.log")

    def kill(self) -> None:
        if self.process is not None and self.process.running:
            self.process.kill()

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def fail_power(self) -> None:
        """Only of a process that was started `recorded`. It answers nobody from the signal on, while it still writes what is left."""
        assert self.process is not None
        self.signal(signal.SIGUSR2)
        self.machine.cut()
        ends = time.monotonic() + POWER_LIMIT_S
        while self.process.running:
            if time.monotonic() > ends:
                raise Invalid(f"the recorded process does not end:\n{self.process.tail()}")
            time.sleep(0.05)
        shutil.rmtree(self.data)
        self.after_power.rename(self.data)

    def close(self) -> None:
        self.kill()
        self.machine.close()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def log(self) -> str:
        return self.process.tail(1500) if self.process is not None else ""

    # --- what it answers ------------------------------------------------------------------------------------------------

    def wire(self, timeout_s: float = 20) -> Wire:
        return Wire(PORT, self.address, timeout_s)

    def makes_topic(self) -> bool:
        with self.wire(2) as wire:
            wire.create_topic(TOPIC, QUEUES)
        return True

    def takes(self) -> bool:
        """Whether it takes a message: it leads, or is a master. SEND_OK: those that are waited for have it."""
        with contextlib.suppress(OSError, Refused), self.wire(4) as wire:
            wire.send(TOPIC, 0, b"first")
            return True
        return False

    def reads(self) -> bool:
        """Whether the first message of its group can be had here."""
        with contextlib.suppress(OSError), self.wire(1.0) as wire:
            head, _ = wire.ask(PULL, pull_fields(TOPIC, 0, 0, "probe", suspend_ms=0))
            return int(head["code"]) == SUCCESS
        return False

    def runtime(self) -> dict[str, str]:
        """Empty where it does not answer."""
        with contextlib.suppress(OSError, Refused), self.wire(4) as wire:
            table: dict[str, str] = json.loads(wire.call(RUNTIME_INFO, {})[1])["table"]
            return table
        return {}

    def log_end(self) -> int:
        """0 where it does not answer."""
        return int(self.runtime().get("commitLogMaxOffset", 0))


class NodeGroup:
    """A replicated group. Made, and not started: its engine runs, where it has one."""

    def __init__(self, folder: Path, kind: Kind, count: int, **settings: str) -> None:
        """settings: of every member. Raises `Missing` where ours has no etcd."""
        self.kind, self._settings = kind, settings
        self._engine: EtcdCluster | None = None
        numbers = range(1, count + 1)
        if kind is Kind.ORBITMQ:
            if etcd_program() is None:
                raise Missing(MISSING)
            (folder / "etcd").mkdir(parents=True)
            self._engine = EtcdCluster(folder / "etcd", host=OWN_ADDRESS)
            identities = [self._identity(number, self._engine) for number in numbers]
        else:
            identities = [dledger_identity(number, numbers) for number in numbers]
        self.nodes = [Node(folder, number, kind, named) for number, named in zip(numbers, identities, strict=True)]

    @staticmethod
    def _identity(number: int, engine: EtcdCluster) -> Settings:
        return {"brokerName": "broker-0", "replicaName": f"n{number}", "replicationEngine": engine.url()}

    def start(self, *, recorded: bool = False) -> None:
        """Until all have what the first one was sent. recorded: the power of the first one, who leads then, can fail."""
        first, *others = self.nodes
        first.start(self._settings, recorded=recorded)
        if self.kind is Kind.ORBITMQ:
            until(first.makes_topic, "the first member", self.logs)
        for node in others:
            node.start(self._settings)
        if self.kind is Kind.JAVA:  # its followers take no tables from a leader at once
            for node in self.nodes:
                until(node.makes_topic, "a member", self.logs)
        until(lambda: self.leader() is not None, "a leader", self.logs)
        self.until_level()

    def start_again(self, node: Node) -> None:
        node.start(self._settings)

    def leader(self) -> Node | None:
        return next((node for node in self.nodes if node.takes()), None)

    def until_leader(self) -> Node:
        """It was one when it was asked."""
        return until(self.leader, "a leader", self.logs)

    def until_level(self) -> Node:
        """Until all have one log, and ours are all in sync; answers who leads."""
        until(self._is_level, "members that have all", self.logs)
        return self.until_leader()

    def until_equal(self) -> None:
        """Until all have one log, while nobody sends."""
        until(lambda: len({node.log_end() for node in self.nodes}) == 1, "logs of one length", self.logs)

    def _is_level(self) -> bool:
        told = [node.runtime() for node in self.nodes]
        if self.kind is Kind.JAVA:
            ends = [int(one.get("commitLogMaxOffset", 0)) for one in told]
            return min(ends) > 0 and max(ends) - min(ends) < LEVEL_BYTES
        names = ",".join(sorted(node.identity["replicaName"] for node in self.nodes))
        return all(one.get("orbitmqReplicaInSync") == names for one in told)

    def close(self) -> None:
        for node in self.nodes:
            node.close()
        if self._engine is not None:
            self._engine.end()

    def logs(self) -> str:
        """Their ends, and where their logs of messages end."""
        return "\n".join(f"{node.address}, log up to {node.log_end()}\n{node.log()}" for node in self.nodes)


def dledger_identity(number: int, numbers: Sequence[int]) -> Settings:
    """Of a member of RocketMQ's DLedger, whose ids are a letter and a number from 0."""
    peers = [f"n{each - 1}-{Machine.address_of(each)}:{DLEDGER_PORT}" for each in numbers]
    return {
        "brokerName": "broker-0",
        "enableDLegerCommitLog": "true",
        "dLegerGroup": "broker-0",
        "dLegerPeers": ";".join(peers),
        "dLegerSelfId": f"n{number - 1}",
    }


def name_server(folder: Path) -> ServerProcess:
    """Ours, at the address of the clients."""
    folder.mkdir(parents=True, exist_ok=True)
    ports = ["--host", OWN_ADDRESS, "--nameserver-port", str(NAME_SERVER_PORT)]
    words = ["nameserver", *ports, "--data", folder / "names", "--no-http"]
    return ServerProcess([*orbitmq_command(), *words], folder / "names.log")


def until(ask: Callable[[], Found | None], what: str, logs: Callable[[], str], limit_s: float = READY_LIMIT_S) -> Found:
    """The first answer that is true. Raises `Invalid` with the logs after the limit; who is not there, or refuses, counts as no answer."""
    ends = time.monotonic() + limit_s
    while True:
        with contextlib.suppress(OSError, Refused):
            if found := ask():
                return found
        if time.monotonic() > ends:
            raise Invalid(f"not within {limit_s:g} s: {what}\n{logs()}")
        time.sleep(0.1)
