"""Transactions of the official Java producer: with our broker, and in a store that changes hands between ours and RocketMQ's.

One producer lives through a chain of brokers over one directory and one pair of ports. Each broker gets transactions that are decided
at once, and some that are decided when the next broker asks. Brokers end in order and by a kill, ours and RocketMQ's, whose consume queues
have extended units. In the end every committed message is there once and nothing else is.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from rig.brokers import BrokerUnderTest, Kind
from rig.drivers import Driver, Event, transaction_driver
from rig.toolchain import BROKER_VERSION, OLD_CLIENT_VERSION, java_build

pytestmark = pytest.mark.java

SOON = {"transactionTimeOut": "3000", "transactionCheckInterval": "2000"}
SETTLE_LIMIT_S = 180
Brokers = Callable[..., BrokerUnderTest]


@pytest.fixture(params=[OLD_CLIENT_VERSION, BROKER_VERSION])
def version(request: pytest.FixtureRequest, available: Callable[[Callable[[], object]], None]) -> str:
    name: str = request.param
    available(lambda: java_build(name))
    return name


def half(driver: Driver, topic: str, body: str, state: str, **options: object) -> Event:
    (sent,) = [
        event
        for event in driver.command("half", topic=topic, body=body, state=state, **options)
        if event["event"] == "sent"
    ]
    assert sent["status"] == "SEND_OK"
    return sent


def stored(broker: BrokerUnderTest, topic: str) -> Counter[str]:
    with broker.wire() as wire:
        return Counter(record.body.decode() for record in wire.read_queue(topic, 0))


def wait_stored(broker: BrokerUnderTest, topic: str, expected: set[str]) -> None:
    end = time.monotonic() + SETTLE_LIMIT_S
    while (found := stored(broker, topic)).keys() < expected and time.monotonic() < end:
        time.sleep(0.2)
    assert found == Counter(expected)


def test_commit_rollback_and_unknown_of_each_client(brokers: Brokers, version: str, tmp_path: Path) -> None:
    broker = brokers(Kind.ORBITMQ, "ours", settings=SOON).start()
    with broker.wire() as wire:
        wire.create_topic("Decided", 1)
    with transaction_driver(version, broker.name_server, tmp_path / "client") as driver:
        sent = half(driver, "Decided", "commit", "commit")
        half(driver, "Decided", "rollback", "rollback")
        half(driver, "Decided", "later-commit", "unknown", checked="commit")
        half(driver, "Decided", "later-rollback", "unknown", checked="rollback")
        half(driver, "Decided", "patient", "unknown", checked="commit", immunity=5)
        half(driver, "Decided", "never", "unknown")
        wait_stored(broker, "Decided", {"commit", "later-commit", "patient"})
        driver.wait(
            lambda events: len([e for e in events if e["event"] == "checked" and e["body"] == "never"]) > 1,
            SETTLE_LIMIT_S,
            "checks",
        )
        checks = driver.events("checked")
        # An answer that takes longer than the interval of the checks is asked for once more.
        assert {event["body"] for event in checks} == {"later-commit", "later-rollback", "patient", "never"}
        assert {event["topic"] for event in checks} == {"Decided"}
        with broker.wire() as wire:
            (message,) = [record for record in wire.read_queue("Decided", 0) if record.body == b"commit"]
        assert message.properties["UNIQ_KEY"] == sent["msgId"] == sent["transactionId"]
        assert stored(broker, "Decided").total() == 3
        driver.close()
    broker.stop()


CHAIN = [
    (Kind.ORBITMQ, "kill"), (Kind.JAVA, "kill"), (Kind.ORBITMQ, "stop"), (Kind.JAVA, "stop"), (Kind.ORBITMQ, "stop"),
]  # fmt: skip
"""Who serves, and how it ends."""


def test_undecided_transactions_change_hands(
    brokers: Brokers, available: Callable[[Callable[[], object]], None], tmp_path: Path
) -> None:
    available(lambda: java_build(BROKER_VERSION))
    first = brokers(Kind.ORBITMQ, "first")
    data = tmp_path / "data"
    settings = SOON | {"enableConsumeQueueExt": "true"}
    place = {"data": data, "ports": (first.nameserver_port, first.broker_port), "settings": settings}
    expected: set[str] = set()
    with transaction_driver(BROKER_VERSION, first.name_server, tmp_path / "client") as driver:
        for number, (kind, end) in enumerate(CHAIN):
            broker = brokers(kind, f"broker-{number}", **place).start()
            if not number:
                with broker.wire() as wire:
                    wire.create_topic("Handed", 1)
                half(driver, "Handed", "never", "unknown")
            wait_stored(broker, "Handed", expected)
            half(driver, "Handed", f"commit-{number}", "commit")
            half(driver, "Handed", f"rollback-{number}", "rollback")
            half(driver, "Handed", f"later-rollback-{number}", "unknown", checked="rollback")
            half(driver, "Handed", f"later-{number}", "unknown", checked="commit")
            half(driver, "Handed", f"patient-{number}", "unknown", checked="commit", immunity=8)
            wait_stored(broker, "Handed", {*expected, f"commit-{number}"})
            expected |= {f"commit-{number}", f"later-{number}", f"patient-{number}"}
            if number == len(CHAIN) - 1:
                wait_stored(broker, "Handed", expected)
            assert (data / "consumequeue_ext").exists() is (kind is Kind.JAVA)
            if end == "kill":
                broker.kill()
            else:
                broker.stop()
        driver.close()
