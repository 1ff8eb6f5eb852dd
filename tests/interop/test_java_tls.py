"""The official Java clients over TLS, with a server that takes nothing else, and with one that takes both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rig.drivers import DriverFailed, java_driver
from rig.toolchain import BROKER_VERSION, OLD_CLIENT_VERSION, java_build
from tests.system.server_process import ServedProcess

pytestmark = pytest.mark.java

RECEIVED_LIMIT_S = 180


@pytest.mark.parametrize(
    ("version", "mode", "tls"),
    [
        (OLD_CLIENT_VERSION, "enforcing", True),
        (BROKER_VERSION, "enforcing", True),
        (BROKER_VERSION, "permissive", False),
    ],
)
def test_the_java_client_sends_and_receives(
    version: str,
    mode: str,
    tls: bool,
    available: Callable[[Callable[[], object]], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    available(lambda: java_build(version))
    server = ServedProcess(
        tmp_path / "server", settings={"tls.test.mode.enable": "true", "tls.server.mode": mode, "httpEnable": "false"}
    )
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dtls.enable={str(tls).lower()}")
    with java_driver(version, f"127.0.0.1:{server.name_port}", tmp_path / "client") as driver:
        for last in (False, False, True):  # the first handshake of a cold JVM can outlast the 3 s of a send
            try:
                driver.command("produce", topic="encrypted", mode="plain", count=20, prefix="m", size=5_000)
                break
            except DriverFailed:
                if last:
                    raise
        driver.command("consume", group="readers", topic="encrypted", **{"from": "first"})
        driver.wait(lambda events: sum(e["event"] == "received" for e in events) >= 20, RECEIVED_LIMIT_S, "messages")
        driver.close()
    assert "plain connection is closed" not in server.log()
    server.stop()
