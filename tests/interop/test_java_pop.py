"""The official Java push consumer 5.3.3 lets the broker assign its queues, and pops where mqadmin has said so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from rig.brokers import CLUSTER_NAME, BrokerUnderTest, Kind
from rig.drivers import Event, java_driver
from rig.mqadmin import MqAdmin
from rig.toolchain import BROKER_VERSION, java_build

pytestmark = pytest.mark.java

COUNT = 40
MODES = {"Content": "POP", "Failing": "POP", "Pulling": "PULL"}
FIRST_RETRY_MS = 10_000
"""The client's first pause after a failure."""
WAIT_S = 180


def test_everything_arrives_and_a_failing_listener_gets_it_again(
    brokers: Callable[..., BrokerUnderTest], available: Callable[[Callable[[], object]], None], tmp_path: Path
) -> None:
    available(lambda: java_build(BROKER_VERSION))
    broker = brokers(Kind.ORBITMQ, "pop").start()
    with (
        java_driver(BROKER_VERSION, broker.name_server, tmp_path / "client") as driver,
        MqAdmin(broker.name_server, tmp_path / "mqadmin") as tool,
    ):
        tool.run("updateTopic", "-c", CLUSTER_NAME, "-t", "Popped")
        driver.command("produce", topic="Popped", count=COUNT, prefix="before")
        for group, mode in MODES.items():
            tool.run("updateSubGroup", "-c", CLUSTER_NAME, "-g", group)
            told = tool.run("setConsumeMode", "-c", CLUSTER_NAME, "-t", "Popped", "-g", group, "-m", mode, "-q", "0")
            assert f"group[{group}] consume mode[{mode}]" in told
        for group in MODES:
            driver.command("consume", topic="Popped", group=group, asks=1, fail=0 if group == "Content" else 1)
        driver.command("produce", topic="Popped", count=COUNT, prefix="after")

        def received(group: str, ok: bool) -> list[Event]:
            return driver.events("received", group=group, ok=ok)

        driver.wait(
            lambda _: all(len(received(group, True)) >= 2 * COUNT for group in MODES),
            WAIT_S,
            "every message of every group",
        )
        bodies = {f"{prefix}-{number}" for prefix in ("before", "after") for number in range(COUNT)}
        for group in MODES:
            assert Counter(event["body"] for event in received(group, True)) == dict.fromkeys(bodies, 1)
        for group in ("Failing", "Pulling"):
            failed = {event["body"]: event["receivedAt"] for event in received(group, False)}
            assert failed.keys() == bodies
            for event in received(group, True):
                assert event["reconsumeTimes"] == 1
                assert event["receivedAt"] - failed[event["body"]] >= FIRST_RETRY_MS - 1
        topics = tool.run("topicList").split()
        assert "%RETRY%Failing_Popped" in topics
        assert "%RETRY%Pulling_Popped" not in topics
        driver.close()
    assert "popped" not in broker.logs(), "no message could not be stored again"
    broker.stop()
