"""The official Java clients, as released: 4.9.8, 5.3.3 and 5.5.0, each one JVM for all checks; and the classic delayed message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rig.brokers import BrokerUnderTest
from rig.contract import (
    LATE_MS,
    BatchContract,
    ClientContract,
    DeadLetterContract,
    OnewayContract,
    UnknownTopicContract,
)
from rig.drivers import classic_program, java_driver
from rig.scenario import JAVA, Scenario
from rig.toolchain import BROKER_VERSION, NEW_VERSION, OLD_CLIENT_VERSION, java_build

pytestmark = pytest.mark.java

VERSIONS = (OLD_CLIENT_VERSION, BROKER_VERSION, NEW_VERSION)
CLASSIC_DELAY_MS = 10_000


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest, available: Callable[[Callable[[], object]], None]) -> str:
    name: str = request.param
    available(lambda: java_build(name))
    return name


@pytest.fixture(scope="module")
def scenario(version: str, broker: BrokerUnderTest, tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    name = f"Java{version.replace('.', '')}"
    with java_driver(version, broker.name_server, tmp_path_factory.mktemp(name)) as driver:
        return Scenario(name, broker, JAVA).run(driver)


class TestJavaClient(ClientContract, OnewayContract, UnknownTopicContract, DeadLetterContract, BatchContract):
    def test_ids_lead_back_to_the_messages(self, scenario: Scenario) -> None:
        """The unique id stands in the message, the offset id is its place in the log."""
        stored = {record.properties["UNIQ_KEY"]: record for record in scenario.stored("plain")}
        for event in scenario.sent["plain"]:
            record = stored[event["msgId"]]
            assert int(event["offsetMsgId"][16:], 16) == record.physical_offset
            assert (event["queueId"], event["queueOffset"]) == (record.queue_id, record.queue_offset)


def test_classic_delayed_message(version: str, broker: BrokerUnderTest, tmp_path: Path) -> None:
    events = classic_program(version, broker.name_server, tmp_path)
    sent = events[0]
    (received,) = [event for event in events[1:] if event["msgId"] == sent["msgId"]]
    assert sent["status"] == "SEND_OK"
    assert received["topic"] == "OneMoreTopic"
    assert received["tags"] == "DelayMessage"
    assert received["body"] == "This is a delay message."
    assert received["receivedAt"] - sent["sentAt"] >= CLASSIC_DELAY_MS
    assert received["receivedAt"] - sent["answeredAt"] < CLASSIC_DELAY_MS + LATE_MS
