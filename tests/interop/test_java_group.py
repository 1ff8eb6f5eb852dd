"""Released clients go on through changes of leader of a replicated group: RocketMQ's Java clients 4.9.8 and 5.3.3, and that for gRPC.

Each Java program is a producer, a push consumer, a member of a group in order that both share, and where it can a consumer that pops. Java
clients look for other routes every 30 s, and know of no other leader before. In the end a member's directory is RocketMQ's.
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from rig.brokers import KINDS_UNDER_TEST, BrokerUnderTest, Kind, orbitmq_command
from rig.drivers import Driver, DriverFailed, Event, java_driver
from rig.grpc_clients import CLIENTS
from rig.pairs import until
from rig.toolchain import BROKER_VERSION, OLD_CLIENT_VERSION, java_build
from rig.wire import Wire
from tests.system.group_processes import SMALL, Group, answer_of
from tests.system.server_process import free_ports
from tests.worlds.etcd_process import MISSING, etcd_program

from orbitmq.protocol.remoting.bodies import MessageRequestMode, SetMessageRequestModeRequest
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.replication_bodies import DemoteRequest
from orbitmq.replication.kept_state import REPLICATION_FILE

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(Kind.ORBITMQ not in KINDS_UNDER_TEST, reason="orbitmq is not among the brokers under test"),
    pytest.mark.skipif(etcd_program() is None, reason=MISSING),
]

NAMES = ("a", "b", "c")
TOPIC, QUEUES = "orders", 4
IN_ORDER, POPPING = "in-order", "popping"
ROUTES_S = 30
"""So often Java clients look for other routes."""
LIMIT_S = 3 * ROUTES_S
SENT_AT_ONCE = 8
HOLDERS_MAX = 6
"""Of a queue: its members come one after the other, and each change of leader may give it to another one for a while."""
(GRPC,) = [client for client in CLIENTS if client.name == "python"]


class OpenGroup(Group):
    """Each member has a port for gRPC, of which only the leader's is open."""

    def __init__(self, directory: Path) -> None:
        self.grpc_ports = {name: free_ports()[0] for name in NAMES}
        directory.mkdir()
        super().__init__(directory, *NAMES)

    def settings_of(self, name: str) -> Mapping[str, object]:
        return {"grpcServerPort": self.grpc_ports[name]}

    @property
    def endpoints(self) -> str:
        return ";".join(f"127.0.0.1:{port}" for port in self.grpc_ports.values())


class Program:
    """What one program sends, and what its groups get."""

    def __init__(self, driver: Driver, groups: tuple[str, ...]) -> None:
        self.driver = driver
        self.groups = groups
        self._numbers = itertools.count()

    def send(self) -> bool:
        """Some messages; whether all were taken."""
        prefix, before = f"{self.driver.name}-{next(self._numbers)}", len(self.acknowledged())
        try:
            if self.driver.name == GRPC.name:
                bodies = ",".join(f"{prefix}-{number}" for number in range(SENT_AT_ONCE))
                self.driver.command("send", topic=TOPIC, body=bodies)
            else:
                self.driver.command("produce", topic=TOPIC, prefix=prefix, count=SENT_AT_ONCE)
        except DriverFailed:
            return False
        return len(self.acknowledged()) == before + SENT_AT_ONCE

    def acknowledged(self) -> set[str]:
        return {event["msgId"] for event in self.driver.events("sent") if event.get("status", "SEND_OK") == "SEND_OK"}

    def received(self, group: str) -> list[Event]:
        return self.driver.events("received", group=group)


def unique_id(event: Event) -> str:
    """By which its sender knows a message: clients for gRPC are told it as the message's own."""
    properties = event["properties"]
    found: str = (json.loads(properties) if isinstance(properties, str) else properties).get("UNIQ_KEY", event["msgId"])
    return found


class Account:
    """What was acknowledged to any of them has to come to each group."""

    def __init__(self, programs: list[Program]) -> None:
        self._programs = programs

    def missing(self) -> dict[str, set[str]]:
        """By group."""
        came: defaultdict[str, set[str]] = defaultdict(set)
        for program in self._programs:
            for group in program.groups:
                came[group] |= {unique_id(event) for event in program.received(group)}
        acknowledged = set().union(*(program.acknowledged() for program in self._programs))
        return {group: acknowledged - ids for group, ids in came.items() if acknowledged - ids}

    def wrong_order(self) -> list[str]:
        """Of each queue the next message came, or one that had come before; and its members took turns, not the same messages at once."""
        found: list[str] = []
        came: defaultdict[int, list[tuple[int, int, str]]] = defaultdict(list)
        for program in self._programs:
            for event in program.received(IN_ORDER):
                came[event["queueId"]].append((event["receivedAt"], event["queueOffset"], program.driver.name))
        for queue, events in came.items():
            latest, holders = -1, [name for name, _ in itertools.groupby(sorted(events), key=lambda event: event[2])]
            for _, offset, name in sorted(events):
                if offset > latest + 1:
                    found.append(f"{name} got {offset} of queue {queue} after {latest}")
                latest = max(latest, offset)
            if len(holders) > HOLDERS_MAX:
                found.append(f"queue {queue} went between {holders}")
        return found


def commands(group: Group) -> None:
    """The topic, and a group that pops."""
    leader = group.members[group.until_level(*NAMES)]
    leader.create_topic(TOPIC, QUEUES)
    mode = SetMessageRequestModeRequest(topic=TOPIC, consumer_group=POPPING, mode=MessageRequestMode.POP)
    assert answer_of(leader, RequestCode.SET_MESSAGE_REQUEST_MODE, mode.encode()).code == 0


def test_clients_go_on_and_a_member_becomes_rocketmqs(
    tmp_path: Path,
    brokers: Callable[..., BrokerUnderTest],
    available: Callable[[Callable[[], object]], None],
    figure: Callable[[str], None],
) -> None:
    for build in (lambda: java_build(BROKER_VERSION), lambda: java_build(OLD_CLIENT_VERSION), GRPC.command):
        available(build)
    with ExitStack() as stack:
        group = OpenGroup(tmp_path / "group")
        stack.callback(group.end)
        commands(group)
        names = f"127.0.0.1:{group.names.name_port}"
        new = stack.enter_context(java_driver(BROKER_VERSION, names, tmp_path / "new"))
        old = stack.enter_context(java_driver(OLD_CLIENT_VERSION, names, tmp_path / "old"))
        grpc = stack.enter_context(GRPC.drive(group.endpoints, [TOPIC], tmp_path / "grpc"))
        programs = [Program(new, ("new", IN_ORDER, POPPING)), Program(old, ("old", IN_ORDER)), Program(grpc, ("grpc",))]
        account = Account(programs)
        for driver in (new, old):
            driver.command("consume", group="new" if driver is new else "old", topic=TOPIC)
            driver.command("consume", group=IN_ORDER, topic=TOPIC, orderly=1)
        new.command("consume", group=POPPING, topic=TOPIC, asks=1)
        grpc.command("push", group="grpc", topic=TOPIC)

        def go_on(after: str) -> None:
            began = time.monotonic()
            waiting = list(programs)
            while waiting:
                for program in waiting.copy():
                    if program.send():
                        figure(f"{program.driver.name}: sends are taken {time.monotonic() - began:.1f} s after {after}")
                        waiting.remove(program)
                assert time.monotonic() < began + LIMIT_S, [program.driver.name for program in waiting]
            until(lambda: not account.missing(), f"all that was acknowledged after {after}", LIMIT_S)

        go_on("the start")
        killed = group.leader()
        group.kill(killed)
        group.until_leader()
        go_on("the leader was killed")
        group.start(killed)
        former = group.until_level(*NAMES)
        answer = answer_of(group.members[former], RequestCode.DEMOTE_MASTER, DemoteRequest(hands_over=True).encode())
        assert answer.code == 0, answer.remark
        group.until_leader(but=former)
        go_on("a switch")
        assert account.wrong_order() == []
        for driver in (new, old):
            driver.close()

        leader = group.members[group.until_level(*NAMES)]
        wanted = [message for queue in range(QUEUES) for message in bodies_of(leader.port, queue)]
        left = next(name for name in NAMES if name != group.leader())
        group.members.pop(left).stop(signal.SIGTERM)
        data = handed_over(group.directory / left / "data")
        sizes = {key: str(size) for key, size in SMALL.items()}
        java = brokers(Kind.JAVA, "java", data=data, settings=sizes).start()
        assert [message for queue in range(QUEUES) for message in bodies_of(java.broker_port, queue)] == wanted


def bodies_of(port: int, queue: int) -> list[bytes]:
    with Wire(port) as wire:
        return [record.body for record in wire.read_queue(TOPIC, queue)]


def handed_over(data: Path) -> Path:
    """As the guide says: no member any more, and what is pending in RocketMQ's files."""
    kept = data / "config" / REPLICATION_FILE
    table = json.loads(kept.read_text())
    del table["member"]
    kept.write_text(json.dumps(table))
    sizes = [word for key, size in SMALL.items() for word in ("--set", f"{key}={size}")]
    words = [*map(str, orbitmq_command()), "store", "hand-over", str(data), *sizes]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return data
