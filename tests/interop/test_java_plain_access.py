"""Programs of RocketMQ 4.9.8 at a server with `plain_acl.yml`: its client with the ACL hook, and its mqadmin, which changes accounts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rig.drivers import Driver, java_driver
from rig.mqadmin import MqAdmin
from rig.toolchain import OLD_CLIENT_VERSION, java_build
from tests.system.server_process import ServedProcess

pytestmark = pytest.mark.java

RECEIVED_LIMIT_S = 180
ROOT, APP = ("key-of-root", "secret-of-root"), ("key-of-app", "secret-of-app")
TOPIC, GROUP, HIDDEN = "PlainTopic", "PlainReaders", "HiddenTopic"
FILE = f"accounts:\n- accessKey: {ROOT[0]}\n  secretKey: {ROOT[1]}\n  admin: true\n"


@pytest.fixture(scope="module")
def served(
    available: Callable[[Callable[[], object]], None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedProcess]:
    available(lambda: java_build(OLD_CLIENT_VERSION))
    folder = tmp_path_factory.mktemp("plain")
    (folder / "plain_acl.yml").write_text(FILE)
    server = ServedProcess(folder / "server", settings={"aclEnable": "true", "aclConfigPath": folder})
    yield server
    server.stop()


def refusal(driver: Driver, topic: str) -> str:
    """What a send is answered that is not to be taken."""
    (failed,) = [e for e in driver.command("produce", topic=topic, mode="async") if e["event"] == "send_failed"]
    return str(failed["error"])


def test_mqadmin_governs_accounts_and_a_client_does_what_they_say(
    served: ServedProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    name_server, at = f"127.0.0.1:{served.name_port}", ("-b", f"127.0.0.1:{served.port}")
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
        driver.command("produce", topic=HIDDEN, count=1)
        driver.close()
    assert not any(secret in served.log() for _, secret in (ROOT, APP))
