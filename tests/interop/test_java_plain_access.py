"""Programs of RocketMQ 4.9.8 at a server with `plain_acl.yml`: its client with the ACL hook, and its mqadmin, which changes accounts.

RocketMQ's own broker of the release before, which Maven has, is the control (`INTEROP_BROKERS=java`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rig.brokers import KINDS_UNDER_TEST, BrokerUnderTest, Kind
from rig.drivers import Driver, java_driver
from rig.mqadmin import MqAdmin
from rig.toolchain import OLD_BROKER_VERSION, OLD_CLIENT_VERSION, java_build
from tests.system.server_process import until

pytestmark = pytest.mark.java

RECEIVED_LIMIT_S = 180
ROOT, APP = ("key-of-root", "secret-of-root"), ("key-of-app", "secret-of-app")
TOPIC, GROUP, HIDDEN = "PlainTopic", "PlainReaders", "HiddenTopic"
FILE = f"accounts:\n- accessKey: {ROOT[0]}\n  secretKey: {ROOT[1]}\n  admin: true\n"


@pytest.fixture(scope="module", params=KINDS_UNDER_TEST, ids=[kind.value for kind in KINDS_UNDER_TEST])
def served(
    request: pytest.FixtureRequest,
    available: Callable[[Callable[[], object]], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[BrokerUnderTest]:
    folder, kind = tmp_path_factory.mktemp("plain"), request.param
    needed = (OLD_CLIENT_VERSION,) if kind is Kind.ORBITMQ else (OLD_CLIENT_VERSION, OLD_BROKER_VERSION)
    available(lambda: [java_build(release) for release in needed])
    conf = folder / "broker" / "home" / "conf"  # where Java's broker looks; ours is told
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(FILE)
    settings = {"aclEnable": "true"} | ({"aclConfigPath": str(conf)} if kind is Kind.ORBITMQ else {})
    with BrokerUnderTest(kind, folder, settings=settings, release=OLD_BROKER_VERSION) as broker:
        yield broker
        if kind is Kind.ORBITMQ:
            broker.stop()


def refused(driver: Driver, topic: str) -> list[str]:
    """What a send is answered that is not taken."""
    events = driver.command("produce", topic=topic, mode="async")
    return [str(event["error"]) for event in events if event["event"] == "send_failed"]


def refusal(driver: Driver, topic: str) -> str:
    (said,) = refused(driver, topic)
    return said


def test_mqadmin_governs_accounts_and_a_client_does_what_they_say(
    served: BrokerUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run of each program: a JVM costs seconds."""
    # mqadmin 4.9 signs by a file of its own, and prints a stack trace where the one for its log is missing.
    home = tmp_path / "home" / "conf"
    home.mkdir(parents=True)
    (home / "tools.yml").write_text(f"accessKey: {ROOT[0]}\nsecretKey: {ROOT[1]}\n")
    (home / "logback_tools.xml").write_text("<configuration/>")
    monkeypatch.setenv("ROCKETMQ_HOME", str(home.parent))
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", APP[0])
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", APP[1])
    name_server, at = served.name_server, ("-b", f"127.0.0.1:{served.broker_port}")
    with (
        MqAdmin(name_server, tmp_path / "mqadmin", OLD_CLIENT_VERSION) as tool,
        java_driver(OLD_CLIENT_VERSION, name_server, tmp_path / "client") as driver,
    ):
        for topic in (TOPIC, HIDDEN):
            tool.run("updateTopic", *at, "-t", topic)
        assert "No acl config for key-of-app" in refusal(driver, TOPIC)

        def change(permissions: str) -> None:
            said = tool.run("updateAclConfig", *at, "-a", APP[0], "-s", APP[1], "-t", permissions, "-g", f"{GROUP}=SUB")
            assert "success" in said, said

        change(f"{HIDDEN}=SUB")
        assert f"No default permission for topic:{TOPIC}" in refusal(driver, TOPIC)
        change(f"{TOPIC}=PUB|SUB,{HIDDEN}=SUB")
        for mode in ("plain", "oneway", "async", "batch"):
            driver.command("produce", topic=TOPIC, mode=mode, count=5, tag=mode)
        driver.command("consume", group=GROUP, topic=TOPIC, fail=1, retryLevel=1)
        driver.wait(
            lambda _: len(driver.events("received", group=GROUP)) >= 40, RECEIVED_LIMIT_S, "messages that failed once"
        )
        assert f"No default permission for topic:{HIDDEN}" in refusal(driver, HIDDEN)

        versions = tool.run("clusterAclConfigVersion", *at)
        assert "plain_acl.yml" in versions, versions
        assert "success" in tool.run("deleteAclConfig", *at, "-a", APP[0])
        assert "No acl config for key-of-app" in refusal(driver, TOPIC)
        assert "success" in tool.run("updateGlobalWhiteAddr", *at, "-g", "127.0.0.1,10.1.0.*")
        # RocketMQ's broker reads its file again some seconds later.
        until(lambda: not refused(driver, HIDDEN), RECEIVED_LIMIT_S, "a white list in force")
        driver.close()
    for log in served.folder.glob("*.log"):  # those of ours
        assert not any(secret in log.read_text() for _, secret in (ROOT, APP))
