"""mqadmin 5.3.3 governs users and policies: its ten commands at a running broker, and the two that copy between it and a Java broker; what
it grants counts for the Node client ali-ons, which signs a field of its own and writes numbers bare."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from rig.brokers import INNER_PASSWORD, KINDS_UNDER_TEST, BrokerUnderTest, Kind, known_callers
from rig.drivers import DriverFailed, node_driver
from rig.mqadmin import MqAdmin
from rig.toolchain import BROKER_VERSION, java_build, node_modules

pytestmark = pytest.mark.java

ROOT, PASSWORD = "root", "root-password"
SETTINGS = known_callers(ROOT, PASSWORD)


class Governed:
    """A broker that asks everybody who they are, a Java broker that does so too, and the tool, which signs as a super user of both."""

    def __init__(self, broker: BrokerUnderTest, other: BrokerUnderTest, tool: MqAdmin) -> None:
        self._tool = tool
        self.name_server = broker.name_server
        self.here, self.there = f"127.0.0.1:{broker.broker_port}", f"127.0.0.1:{other.broker_port}"

    def run(self, command: str, *words: str, at: str = "") -> list[list[str]]:
        """The columns of each line that a command prints; of a list without its heading."""
        return self._tool.rows(command, "-b", at or self.here, *words)

    def refused(self, command: str, *words: str) -> str:
        """What the broker says with code 16."""
        text = self._tool.try_run(command, "-b", self.here, *words)
        reason = re.search(r"CODE: 16 +DESC: (.*)", text)
        assert reason is not None, text
        return reason[1]

    def copy(self, command: str, begin: str, end: str) -> str:
        return self._tool.run(command, "-f", begin, "-t", end)

    def users(self, *words: str, at: str = "") -> list[str]:
        """Name, password, type and status of each."""
        return sorted(" ".join(row) for row in self.run("listUser", *words, at=at) if len(row) == 4)

    def policies(self, *words: str, at: str = "") -> list[str]:
        """Subject, policy type, resource, actions, sources and decision of each entry."""
        return sorted(" ".join(row) for row in self.run("listAcl", *words, at=at) if row[0].startswith("User:"))


@pytest.fixture(scope="module", params=KINDS_UNDER_TEST, ids=[kind.value for kind in KINDS_UNDER_TEST])
def governed(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    available: Callable[[Callable[[], object]], None],
) -> Iterator[Governed]:
    available(lambda: java_build(BROKER_VERSION))
    folder = tmp_path_factory.mktemp(f"access-{request.param.value}")
    with (
        pytest.MonkeyPatch.context() as patch,
        BrokerUnderTest(request.param, folder / "here", settings=SETTINGS) as broker,
        BrokerUnderTest(Kind.JAVA, folder / "there", settings=SETTINGS) as other,
    ):
        patch.setenv("ROCKETMQ_ACCESS_KEY", ROOT)
        patch.setenv("ROCKETMQ_SECRET_KEY", PASSWORD)
        with MqAdmin(broker.name_server, folder / "tool") as tool:
            yield Governed(broker, other, tool)


SUPER = [f"inner {INNER_PASSWORD} Super enable", f"{ROOT} {PASSWORD} Super enable"]
"""Users that the configuration of each broker names."""


def test_users_are_created_changed_listed_and_deleted(governed: Governed) -> None:
    name = f"user-{uuid4().hex[:8]}"
    governed.run("createUser", "-u", name, "-p", "first")
    assert "existed" in governed.refused("createUser", "-u", name, "-p", "second")
    assert governed.run("getUser", "-u", name) == [[name, "first", "Normal", "enable"]]
    governed.run("updateUser", "-u", name, "-p", "second")
    governed.run("updateUser", "-u", name, "-s", "disable")
    governed.run("updateUser", "-u", name, "-t", "Super")
    assert governed.users("-f", name[2:]) == [f"{name} second Super disable"]
    assert governed.users() == sorted([*SUPER, f"{name} second Super disable"])
    assert governed.run("getUser", "-u", "nobody") == []
    assert "not exist" in governed.refused("updateUser", "-u", "nobody", "-s", "disable")
    for _ in range(2):
        governed.run("deleteUser", "-u", name)
        assert governed.users() == SUPER


def test_policies_are_merged_listed_and_deleted(governed: Governed) -> None:
    name = f"user-{uuid4().hex[:8]}"
    subject = f"User:{name}"

    def put(command: str, resources: str, actions: str, decision: str, *sources: str, of: str = subject) -> list[str]:
        words = [command, "-s", of, "-r", resources, "-a", actions, "-d", decision]
        return [*words, "-i", ",".join(sources)] if sources else words

    governed.run("createUser", "-u", name, "-p", "password")
    governed.run(*put("createAcl", "Topic:orders,Group:pre*", "Pub,Sub", "Allow", "10.0.0.0/8", "127.0.0.1"))
    group = f"{subject} Custom Group:pre* [Pub, Sub] [10.0.0.0/8, 127.0.0.1] Allow"
    assert governed.policies() == [group, f"{subject} Custom Topic:orders [Pub, Sub] [10.0.0.0/8, 127.0.0.1] Allow"]
    governed.run(*put("updateAcl", "Topic:orders", "All", "Deny"))
    topic = f"{subject} Custom Topic:orders [All] null Deny"
    assert governed.policies("-s", name) == [group, topic]
    rows = [row for row in governed.run("getAcl", "-s", subject) if row[0] == subject]
    assert sorted(" ".join(row) for row in rows) == [group, topic]
    assert "not exist" in governed.refused(*put("createAcl", "Topic:orders", "Pub", "Allow", of="User:nobody"))
    governed.refused(*put("createAcl", "Shelf:orders", "Pub", "Allow"))
    governed.refused(*put("createAcl", "Topic:orders", "Pub", "Allow", "here"))
    governed.run("deleteAcl", "-s", subject, "-r", "Topic:orders")
    assert governed.policies() == [group]
    governed.run("deleteUser", "-u", name)
    assert governed.policies() == []


def test_users_and_policies_are_copied_to_a_java_broker_and_back(governed: Governed) -> None:
    here, there = governed.here, governed.there
    names = [f"{letter}-{uuid4().hex[:8]}" for letter in "ab"]
    for number, name in enumerate(names):
        governed.run("createUser", "-u", name, "-p", f"password-{number}")
        words = ("-r", f"Topic:{name}*,Cluster:*", "-a", "Pub,Get", "-d", "Allow", "-i", "127.0.0.1")
        governed.run("createAcl", "-s", f"User:{name}", *words)
    users, policies = governed.users(), governed.policies()
    assert len(users) == len(policies) == 4
    governed.copy("copyUser", here, there)
    governed.copy("copyAcl", here, there)
    assert governed.users(at=there) == users
    assert governed.policies(at=there) == policies
    for name in names:
        governed.run("deleteUser", "-u", name)
    assert governed.policies() == []
    governed.copy("copyUser", there, here)
    governed.copy("copyAcl", there, here)
    assert governed.users() == users
    assert governed.policies() == policies
    for name in names:
        governed.run("deleteUser", "-u", name)
        governed.run("deleteUser", "-u", name, at=there)


@pytest.mark.node
def test_a_client_of_another_maker_does_what_it_may(
    governed: Governed, available: Callable[[Callable[[], object]], None], tmp_path: Path
) -> None:
    available(node_modules)
    name, secret = f"node-{uuid4().hex[:8]}", "secret-of-node"
    topic, hidden = f"{name}-topic", f"hidden-{name}"
    governed.run("createUser", "-u", name, "-p", secret)
    words = ("-r", f"Topic:{name}*,Group:{name}*", "-a", "Pub,Sub,Get", "-d", "Allow")
    governed.run("createAcl", "-s", f"User:{name}", *words)
    for each in (topic, hidden):
        governed.run("updateTopic", "-t", each)
    with node_driver(governed.name_server, tmp_path / "client", (name, secret)) as driver:
        driver.command("produce", topic=topic, count=5, tag="m", size=5_000)
        driver.command("consume", group=f"{name}-readers", topic=topic)
        driver.wait(lambda _: len(driver.events("received")) >= 5, 180, "messages")
        with pytest.raises(DriverFailed, match="still failed"):  # it tries again and keeps the reason to itself
            driver.command("produce", topic=hidden)
        driver.close()
    with (
        node_driver(governed.name_server, tmp_path / "stranger", (name, "wrong")) as driver,
        pytest.raises(DriverFailed, match="still failed"),
    ):
        driver.command("produce", topic=topic)
    governed.run("deleteUser", "-u", name)
