"""Programs of users of RocketMQ 5 at a broker that knows its callers: unpaid orders are cancelled, and the makers' examples run unchanged.

The examples call foobar.com:8080 over TLS, as `yourAccessKey`; a file of hosts sends them to this machine. The control, RocketMQ's broker
with its proxy inside, asks nobody over gRPC.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rig.brokers import KINDS_UNDER_TEST, Kind, known_callers
from rig.dispatched import until_routed
from rig.drivers import JVM_FLAGS, Driver, DriverFailed
from rig.grpc_clients import CLIENTS, GrpcBroker, GrpcClient
from rig.process import ServerProcess
from rig.toolchain import GRPC_CLIENT_VERSION, GRPC_CLIENT_VERSIONS, java_build

import orbitmq
from orbitmq.client.admin import PolicyEntryInfo, PolicyInfo

pytestmark = pytest.mark.java

ROOT, APP = ("root", "root-secret"), ("yourAccessKey", "yourSecretKey")
SETTINGS = known_callers(*ROOT) | {
    "recallMessageEnable": "true",
    "transactionTimeOut": "3000",
    "transactionCheckInterval": "2000",
}
EXAMPLES = "org.apache.rocketmq.client.java.example."
TOPICS = {
    "Normal": "NORMAL",
    "Fifo": "FIFO",
    "Delay": "DELAY",
    "Transaction": "TRANSACTION",
    "": "NORMAL",
    "Priority": "PRIORITY",
}
DUE_S = 10
LIMIT_S = 120
SIGNING = [
    client for client in CLIENTS if not client.name.startswith("java") or client.name.endswith(GRPC_CLIENT_VERSION)
]


@pytest.fixture(scope="module", params=KINDS_UNDER_TEST, ids=[kind.value for kind in KINDS_UNDER_TEST])
def guarded(
    request: pytest.FixtureRequest,
    available: Callable[[Callable[[], object]], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[GrpcBroker]:
    """A broker with a user who may use topics whose names begin with `your`, `Orders` and every group."""
    kind: Kind = request.param
    for client in SIGNING:
        available(client.command)
    available(lambda: [java_build(version) for version in GRPC_CLIENT_VERSIONS])
    with GrpcBroker(kind, tmp_path_factory.mktemp("guarded"), SETTINGS, grpc_port=8080) as broker:
        create_topic(broker, "Orders", "DELAY")
        asyncio.run(create_user_and_topics(broker))
        yield broker


def create_topic(broker: GrpcBroker, name: str, kept: str) -> None:
    """With the command that the documentation names."""
    variables = {"ORBITMQ_NAMESRV": broker.name_server, "ORBITMQ_ACCESS_KEY": ROOT[0], "ORBITMQ_SECRET_KEY": ROOT[1]}
    command = [sys.executable, "-m", "orbitmq.cli.main", "topic", "create", name, "--type", kept.lower()]
    subprocess.run(command, env={**os.environ, **variables}, timeout=LIMIT_S, check=True, capture_output=True)


async def create_user_and_topics(broker: GrpcBroker) -> None:
    options = orbitmq.ClientOptions(credentials=orbitmq.Credentials(*ROOT))
    async with orbitmq.connect(broker.name_server, options=options) as mq:
        for name, kept in {**{f"your{part}Topic": kept for part, kept in TOPICS.items()}, "Hidden": "NORMAL"}.items():
            if kept != "PRIORITY" or broker.kind is Kind.ORBITMQ:
                await mq.admin.create_topic(name, queues_count=4, attributes={"message.type": kept})
                await until_routed(mq, name)
        await until_routed(mq, "Orders")
        await mq.admin.create_user(*APP)
        everything = ["Topic:your*", "Topic:Orders", "Group:*"]
        entries = [PolicyEntryInfo(what, ["Pub", "Sub"], None, "Allow") for what in everything]
        await mq.admin.set_policies(APP[0], [PolicyInfo("Custom", entries)])


def test_unpaid_orders_are_cancelled_when_they_are_due(guarded: GrpcBroker, tmp_path: Path) -> None:
    (java,) = [client for client in SIGNING if client.name.startswith("java")]
    with java.drive(guarded.endpoint, ["Orders"], tmp_path, APP, tls=True) as program:
        program.command("push", group="Cancelling", topic="Orders")
        due_ms = int((time.time() + DUE_S) * 1000)
        program.command("send", topic="Orders", body="order-1,order-2,order-3,order-4", at=due_ms)
        for paid in ("order-2", "order-3"):
            (order,) = program.events("sent", body=paid)
            program.command("recall", topic="Orders", handle=order["handle"])
            assert program.events("recalled")[-1]["msgId"] == order["msgId"]
        program.wait(lambda _: len(program.events("received")) == 2, LIMIT_S, "the unpaid orders")
        cancelled = program.events("received")
        assert {event["body"] for event in cancelled} == {"order-1", "order-4"}
        assert all(event["receivedAt"] >= event["deliverAt"] == due_ms for event in cancelled)
        (too_late,) = program.events("sent", body="order-1")
        program.command("recall", topic="Orders", handle=too_late["handle"])
        assert len(program.events("recall_failed")) == 1


def test_a_client_sends_what_its_user_may_send(guarded: GrpcBroker, tmp_path: Path) -> None:
    """One with a wrong secret does not start, or (Python) sends nothing."""
    if guarded.kind is Kind.JAVA:
        pytest.skip("the control asks nobody over gRPC")

    def start(secret: str) -> list[tuple[GrpcClient, Driver]]:
        known = APP[0], secret
        return [
            (it, it.drive(guarded.endpoint, ["yourTopic"], tmp_path / f"{it.name}-{secret}", known)) for it in SIGNING
        ]

    started, refused = start(APP[1]), start("wrong")
    for client, driver in started:
        with driver:
            assert [event["event"] for event in driver.command("send", topic="yourTopic", body=client.name)] == [
                "sent",
                "done",
            ]
            assert not sent(driver, client, "Hidden")
    for client, driver in refused:
        if driver.satisfied(lambda events: bool(events), LIMIT_S):
            assert not sent(driver, client, "yourTopic")
        driver.__exit__()


def sent(driver: Driver, client: GrpcClient, topic: str) -> bool:
    try:
        return any(event["event"] == "sent" for event in driver.command("send", topic=topic, body=client.name))
    except DriverFailed:
        return False


@pytest.mark.parametrize("version", GRPC_CLIENT_VERSIONS)
def test_the_makers_examples(guarded: GrpcBroker, version: str, tmp_path: Path) -> None:
    """Producers of all kinds, one after the other, and both kinds of consumers, which share a group."""
    kinds = ["Normal", "Fifo", "Delay", "Transaction"]
    if guarded.kind is Kind.ORBITMQ and version == GRPC_CLIENT_VERSION:
        kinds.append("Priority")
    consumers = "PushConsumerExample", "SimpleConsumerExample"
    producers = [f"Producer{kind}MessageExample" for kind in kinds]
    running = [run(version, tmp_path / name, name) for name in consumers]
    running.append(run(version, tmp_path / "producers", *producers, "AsyncProducerExample"))
    try:
        said = until(
            tmp_path / "producers", lambda said: said.count("essage successfully, messageId=") == len(kinds) + 1
        )
        assert "Failed to send" not in said
        asyncio.run(until_both_consume(guarded, *(tmp_path / name for name in consumers)))
    finally:
        for program in running:
            program.kill()


async def until_both_consume(broker: GrpcBroker, pushed: Path, simple: Path) -> None:
    """Send until either has had a message: they share a group."""
    ends = time.monotonic() + LIMIT_S
    options = orbitmq.ClientOptions(credentials=orbitmq.Credentials(*ROOT))
    async with orbitmq.connect(broker.name_server, options=options) as mq:
        while "Consume message=" not in log_of(pushed) or "Message is acknowledged successfully" not in log_of(simple):
            assert time.monotonic() < ends, (
                f"they said in {LIMIT_S} s:\n{log_of(pushed)[-2000:]}\n{log_of(simple)[-2000:]}"
            )
            await mq.send("yourTopic", b"more", tag="yourMessageTagA")
            await asyncio.sleep(0.5)


def run(version: str, folder: Path, *names: str) -> ServerProcess:
    """Example programs, one after the other; the last one goes on for ever."""
    folder.mkdir()
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 foobar.com\n")
    build = java_build(version)
    options = [f"-Duser.home={folder}", f"-Djdk.net.hosts.file={hosts}"]
    classes = [EXAMPLES + name for name in names]
    command = [build.java, *JVM_FLAGS, *options, "-cp", build.classpath, "interop.Programs", *classes]
    return ServerProcess(command, folder / "out")


def until(folder: Path, satisfied: Callable[[str], bool]) -> str:
    """Wait until what a program has logged satisfies a condition; what it has logged."""
    ends = time.monotonic() + LIMIT_S
    while not satisfied(said := log_of(folder)):
        assert time.monotonic() < ends, f"{folder.name} said in {LIMIT_S} s:\n{said[-3000:]}"
        time.sleep(0.1)
    return said


def log_of(folder: Path) -> str:
    return "".join(file.read_text(errors="replace") for file in sorted(folder.rglob("*.log")))
