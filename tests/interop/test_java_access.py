"""The official Java clients, signing and encrypted, at a server that takes nothing else; mqadmin says who may do what while it runs.

The control, RocketMQ 5.3.3 (`INTEROP_BROKERS=java`), takes plain connections as well, and its name server asks nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from rig.brokers import KINDS_UNDER_TEST, BrokerUnderTest, JvmProfile, Kind, known_callers
from rig.drivers import Driver, DriverFailed, java_driver, transaction_driver
from rig.mqadmin import MqAdmin
from rig.toolchain import BROKER_VERSION, NEW_VERSION, OLD_CLIENT_VERSION, java_build
from tests.system.server_process import ServedProcess

pytestmark = pytest.mark.java

RECEIVED_LIMIT_S = 180
ROOT, APP = {"name": "root", "secret": "root-secret"}, {"name": "app", "secret": "app-secret"}
SETTINGS = known_callers(ROOT["name"], ROOT["secret"]) | {
    "recallMessageEnable": "true",
    "transactionTimeOut": "3000",
    "transactionCheckInterval": "2000",
}
OURS = {
    "tls.test.mode.enable": "true",
    "tls.server.mode": "enforcing",
    "nameserverAuthenticationEnabled": "true",
    "httpEnable": "false",
}


@contextmanager
def environment(monkeypatch: pytest.MonkeyPatch, who: Mapping[str, str] | None, *, tls: bool = True) -> Iterator[None]:
    """What Java programs that start within it are: a user, or nobody."""
    with monkeypatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Dtls.enable={str(tls).lower()}")
        if who is not None:
            patch.setenv("ROCKETMQ_ACCESS_KEY", who["name"])
            patch.setenv("ROCKETMQ_SECRET_KEY", who["secret"])
        yield


class Guarded(NamedTuple):
    """A server whose callers are known."""

    name_server: str
    broker: str
    kind: Kind


@contextmanager
def guarded(kind: Kind, folder: Path) -> Iterator[Guarded]:
    if kind is Kind.JAVA:
        with BrokerUnderTest(kind, folder, settings=SETTINGS, profile=JvmProfile.TLS) as broker:
            yield Guarded(broker.name_server, f"127.0.0.1:{broker.broker_port}", kind)
        return
    folder.mkdir()
    config = folder / "broker.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in (SETTINGS | OURS).items()))
    config.chmod(0o600)
    server = ServedProcess(folder / "server", options=("--config", config))
    yield Guarded(f"127.0.0.1:{server.name_port}", f"127.0.0.1:{server.port}", kind)
    server.stop()


@pytest.fixture(scope="module", params=KINDS_UNDER_TEST, ids=[kind.value for kind in KINDS_UNDER_TEST])
def served(
    request: pytest.FixtureRequest,
    available: Callable[[Callable[[], object]], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Guarded]:
    """A server with a user who may use topics and groups whose names begin with `app`."""
    available(lambda: java_build(BROKER_VERSION))
    folder = tmp_path_factory.mktemp("access")
    with guarded(request.param, folder / "served") as server:
        with (
            pytest.MonkeyPatch.context() as patch,
            environment(patch, ROOT),
            MqAdmin(server.name_server, folder / "mqadmin") as tool,
        ):
            at = ("-b", server.broker)
            tool.run("createUser", *at, "-u", APP["name"], "-p", APP["secret"])
            words = ("-r", "Topic:app*,Group:app*", "-a", "Pub,Sub", "-d", "Allow")
            tool.run("createAcl", *at, "-s", f"User:{APP['name']}", *words)
            assert APP["name"] in tool.run("listUser", *at)
            assert "Topic:app*" in tool.run("getAcl", *at, "-s", f"User:{APP['name']}")
            tool.run("updateTopic", *at, "-t", "appPopped")
            tool.run("updateSubGroup", *at, "-g", "appPopping")
            tool.run("setConsumeMode", *at, "-t", "appPopped", "-g", "appPopping", "-m", "POP", "-q", "0")
        yield server


def warmed(driver: Driver, topic: str) -> None:
    """The first handshake of a cold JVM can outlast the 3 s of a send."""
    for last in (False, False, True):
        try:
            driver.command("produce", topic=topic, tag="first")
            return
        except DriverFailed:
            if last:
                raise


def refusal(driver: Driver, topic: str) -> str:
    """What a send is answered that is not to be taken."""
    (failed,) = [e for e in driver.command("produce", topic=topic, mode="async") if e["event"] == "send_failed"]
    return str(failed["error"])


def received(driver: Driver, group: str) -> Counter[str]:
    """How many of each tag, which the senders here give by what they do."""
    return Counter(event["tags"] for event in driver.events("received", group=group))


@pytest.mark.parametrize("version", [OLD_CLIENT_VERSION, BROKER_VERSION, NEW_VERSION])
def test_a_user_sends_and_receives_what_it_may(
    version: str,
    served: Guarded,
    available: Callable[[Callable[[], object]], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    available(lambda: java_build(version))
    name = version.replace(".", "_")
    topic, group = f"appTopic{name}", f"appReaders{name}"
    with (
        environment(monkeypatch, APP),
        java_driver(version, served.name_server, tmp_path / "client") as driver,
    ):
        warmed(driver, topic)
        for mode in ("plain", "oneway", "async", "batch"):
            driver.command("produce", topic=topic, mode=mode, count=5, tag=mode, size=5_000)
        driver.command("produce", topic=topic, level=1, tag="delayed")
        driver.command("consume", group=group, topic=topic, fail=1, retryLevel=1)
        expected = {"first": 1, "plain": 5, "oneway": 5, "async": 5, "batch": 5, "delayed": 1}
        if version != OLD_CLIENT_VERSION:
            (timed,) = driver.command("produce", topic=topic, DelayTimeMs=60_000, tag="recalled")[:1]
            (recalled,) = driver.command("recall", topic=topic, handle=timed["handle"])[:1]
            assert recalled["event"] == "recalled", recalled
            driver.command("produce", topic=topic, DelayTimeMs=1_000, tag="timed")
            expected["timed"] = 1
        if version == BROKER_VERSION:
            driver.command("produce", topic="appPopped", count=5, tag="popped")
            driver.command("consume", group="appPopping", topic="appPopped", asks=1)
            driver.wait(lambda _: received(driver, "appPopping")["popped"] >= 5, RECEIVED_LIMIT_S, "popped messages")
        twice = {prefix: 2 * count for prefix, count in expected.items()}
        if served.kind is Kind.JAVA:  # gives all of a batch one unique id, so that only one of them fails
            twice["batch"] = expected["batch"] + 1
        driver.wait(
            lambda _: all(received(driver, group)[prefix] >= count for prefix, count in twice.items()),
            RECEIVED_LIMIT_S,
            "messages that failed once",
        )
        assert "CODE: 16" in refusal(driver, "secret")
        assert "User:app has no permission to access Topic:secret" in refusal(driver, "secret")
        driver.close()
    assert received(driver, group).keys() == expected.keys()


def test_a_transaction_is_decided_later(served: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        environment(monkeypatch, APP),
        transaction_driver(BROKER_VERSION, served.name_server, tmp_path / "client") as driver,
    ):
        for last in (False, False, True):
            try:
                driver.command("half", topic="appDecided", body="later", state="unknown", checked="commit")
                break
            except DriverFailed:
                if last:
                    raise
        driver.command("half", topic="appDecided", body="now", state="commit")
        driver.wait(lambda _: bool(driver.events("checked", body="later")), RECEIVED_LIMIT_S, "a check")
        driver.close()


def test_nobody_else_gets_in(served: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        environment(monkeypatch, None),
        java_driver(BROKER_VERSION, served.name_server, tmp_path / "client") as driver,
    ):
        assert "username cannot be null" in refusal(driver, "appTopic5_3_3")


def test_a_client_without_either_is_served_where_both_are_optional(
    available: Callable[[Callable[[], object]], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    available(lambda: java_build(BROKER_VERSION))
    settings = {"tls.test.mode.enable": "true", "tls.server.mode": "permissive", "httpEnable": "false"}
    server = ServedProcess(tmp_path / "server", settings=settings)
    with (
        environment(monkeypatch, None, tls=False),
        java_driver(BROKER_VERSION, f"127.0.0.1:{server.name_port}", tmp_path / "client") as driver,
    ):
        driver.command("produce", topic="plain", mode="plain", count=20, tag="m", size=5_000)
        driver.command("consume", group="readers", topic="plain")
        driver.wait(lambda _: received(driver, "readers")["m"] >= 20, RECEIVED_LIMIT_S, "messages")
        driver.close()
    server.stop()
