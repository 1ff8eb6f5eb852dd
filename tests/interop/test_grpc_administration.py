"""mqadmin looks at clients of RocketMQ 5: lists them, asks for their stacks, makes them consume a message at once.

The control, RocketMQ's broker with its proxy inside, finds no member of a group that has no retry topic, so the test makes one there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from rig.brokers import KINDS_UNDER_TEST, Kind
from rig.dispatched import until_routed
from rig.drivers import Driver
from rig.grpc_clients import CLIENTS, GrpcBroker
from rig.grpc_scenario import own
from rig.mqadmin import MqAdmin
from rig.toolchain import BROKER_VERSION, GRPC_CLIENT_VERSION, java_build

import orbitmq

pytestmark = [pytest.mark.java, pytest.mark.node, pytest.mark.go]

TOPIC = "Looked"
LIMIT_S = 60
JAVA = f"java-{GRPC_CLIENT_VERSION}"
SHOWN = {
    JAVA: ("JAVA", "TID: "),
    "node": ("HTTP", "mock stack"),
    "go": ("GO", "goroutine "),
    "python": ("PYTHON", None),
}
"""As which language each client says it speaks, and what stands in its stacks; the Python client gives none."""


class Scene:
    """Clients with a listener each in a group of its own, and the tool."""

    def __init__(self, kind: Kind, tool: MqAdmin, clients: dict[str, Driver]) -> None:
        self.kind, self.tool, self.clients = kind, tool, clients

    def members(self, name: str) -> list[list[str]]:
        """Id, address, language and version of each client in the group of a client: itself."""
        lines = self.tool.run("consumerConnection", "-g", own(name, "Group")).splitlines()
        return [line.split() for line in lines if "127.0.0.1:" in line]

    def client_id(self, name: str) -> str:
        (row,) = self.members(name)
        return row[0]


@pytest.fixture(scope="module", params=KINDS_UNDER_TEST, ids=[kind.value for kind in KINDS_UNDER_TEST])
def scene(
    request: pytest.FixtureRequest,
    available: Callable[[Callable[[], object]], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Scene]:
    kind: Kind = request.param
    folder = tmp_path_factory.mktemp("looked")
    looked_at = [client for client in CLIENTS if client.name in SHOWN]
    available(lambda: java_build(BROKER_VERSION))
    for client in looked_at:
        available(client.command)
    with ExitStack() as stack:
        broker = stack.enter_context(GrpcBroker(kind, folder / "broker", {}))
        asyncio.run(create_topic(broker.name_server))
        if kind is Kind.JAVA:
            with broker.wire() as wire:
                for name in SHOWN:
                    wire.create_topic(f"%RETRY%{own(name, 'Group')}", 1)
        drivers = {client.name: client.drive(broker.endpoint, [TOPIC], folder / client.name) for client in looked_at}
        tool = stack.enter_context(MqAdmin(broker.name_server, folder / "tool"))
        for name, driver in drivers.items():
            stack.enter_context(driver)
            driver.command("push", group=own(name, "Group"), topic=TOPIC)
        drivers[JAVA].command("send", topic=TOPIC, body="one")
        for name, driver in drivers.items():
            driver.wait(lambda _, heard=driver: bool(heard.events("received")), LIMIT_S, f"{name} hears the message")  # type: ignore[misc]
        yield Scene(kind, tool, drivers)


async def create_topic(name_server: str) -> None:
    async with orbitmq.connect(name_server) as mq:
        await mq.admin.create_topic(TOPIC, queues_count=1, attributes={"message.type": "NORMAL"})
        await until_routed(mq, TOPIC)


def test_clients_are_listed(scene: Scene) -> None:
    producers = scene.tool.run("producerConnection", "-g", TOPIC, "-t", TOPIC)
    for name, (language, _) in SHOWN.items():
        consumers = scene.tool.run("consumerConnection", "-g", own(name, "Group"))
        assert [row[2] for row in scene.members(name)] == [language]
        assert re.search(rf"^{TOPIC}\s+\*$", consumers, re.MULTILINE)
        for line in ("CONSUME_PASSIVELY", "CLUSTERING"):
            assert line in consumers
        assert re.search(rf"\s{language}\s", producers)


def test_a_group_has_no_lag(scene: Scene) -> None:
    for name in SHOWN:
        assert "Consume Diff Total: 0" in scene.tool.run("consumerProgress", "-g", own(name, "Group"))


def test_a_client_tells_what_it_does(scene: Scene) -> None:
    of_the_broker(scene)
    for name, (_, stack) in SHOWN.items():
        if stack is not None:
            said = scene.tool.run("consumerStatus", "-g", own(name, "Group"), "-i", scene.client_id(name), "-s", "true")
            assert stack in said
            assert f"Topic: {TOPIC} " in said


def test_a_client_is_made_to_consume_a_message_again(scene: Scene) -> None:
    """The Java client; the others do not, and say so or nothing."""
    of_the_broker(scene)
    (event,) = scene.clients[JAVA].events("sent")
    whom = ("-g", own(JAVA, "Group"), "-d", scene.client_id(JAVA))
    assert "CR_SUCCESS" in scene.tool.run("queryMsgByUniqueKey", "-t", TOPIC, "-i", event["msgId"], *whom)
    driver = scene.clients[JAVA]
    driver.wait(lambda _: len(driver.events("received", body="one")) == 2, LIMIT_S, "the message again")


def of_the_broker(scene: Scene) -> None:
    if scene.kind is Kind.JAVA:
        pytest.skip("RocketMQ's proxy inside its broker passes no questions on to its clients")
