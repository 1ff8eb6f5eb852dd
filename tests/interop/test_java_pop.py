"""The official Java push consumer 5.3.3 lets the broker assign its queues, and pops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from rig.brokers import BrokerUnderTest, Kind
from rig.drivers import Event, java_driver
from rig.toolchain import BROKER_VERSION, java_build

pytestmark = pytest.mark.java

COUNT = 40
FIRST_RETRY_MS = 10_000
"""The client's first pause after a failure."""
WAIT_S = 180


def test_everything_arrives_and_a_failing_listener_gets_it_again(
    brokers: Callable[..., BrokerUnderTest], available: Callable[[Callable[[], object]], None], tmp_path: Path
) -> None:
    available(lambda: java_build(BROKER_VERSION))
    broker = brokers(Kind.ORBITMQ, "pop", settings={"defaultMessageRequestMode": "POP"}).start()
    with java_driver(BROKER_VERSION, broker.name_server, tmp_path / "client") as driver:
        driver.command("produce", topic="Popped", count=COUNT, prefix="before")
        driver.command("consume", topic="Popped", group="Content", asks=1)
        driver.command("consume", topic="Popped", group="Failing", asks=1, fail=1)
        driver.command("produce", topic="Popped", count=COUNT, prefix="after")

        def received(group: str, ok: bool) -> list[Event]:
            return driver.events("received", group=group, ok=ok)

        driver.wait(
            lambda _: len(received("Content", True)) >= 2 * COUNT and len(received("Failing", True)) >= 2 * COUNT,
            WAIT_S,
            "every message of both groups",
        )
        bodies = {f"{prefix}-{number}" for prefix in ("before", "after") for number in range(COUNT)}
        for group in ("Content", "Failing"):
            assert Counter(event["body"] for event in received(group, True)) == dict.fromkeys(bodies, 1)
        failed = {event["body"]: event["receivedAt"] for event in received("Failing", False)}
        assert failed.keys() == bodies
        for event in received("Failing", True):
            assert event["reconsumeTimes"] == 1
            assert event["receivedAt"] - failed[event["body"]] >= FIRST_RETRY_MS - 1
        driver.close()
    assert "popped" not in broker.logs(), "no message could not be stored again"
    broker.stop()
