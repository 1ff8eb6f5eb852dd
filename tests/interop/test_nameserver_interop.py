"""Name server and broker of different makers: each registers with the other's, and the official client finds its way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rig.brokers import KINDS_UNDER_TEST, BrokerRole, Kind, NameServerRole, wait_registered, wait_unregistered
from rig.drivers import java_driver
from rig.process import free_ports
from rig.scenario import expected_bodies
from rig.toolchain import BROKER_VERSION, java_build

pytestmark = pytest.mark.java

COUNT = 10
PAIRS = [(Kind.ORBITMQ, Kind.JAVA), (Kind.JAVA, Kind.ORBITMQ)] if Kind.ORBITMQ in KINDS_UNDER_TEST else []
if Kind.JAVA in KINDS_UNDER_TEST:
    PAIRS.append((Kind.JAVA, Kind.JAVA))


@pytest.fixture(params=PAIRS, ids=[f"{names.value}-names-{broker.value}-broker" for names, broker in PAIRS])
def pair(
    request: pytest.FixtureRequest, tmp_path: Path, available: Callable[[Callable[[], object]], None]
) -> Iterator[tuple[NameServerRole, BrokerRole]]:
    available(lambda: java_build(BROKER_VERSION))
    names_kind, broker_kind = request.param
    names_port, broker_port = free_ports()
    names = NameServerRole(names_kind, tmp_path / "names", names_port)
    broker = BrokerRole(broker_kind, tmp_path / "broker", tmp_path / "data", broker_port, f"127.0.0.1:{names_port}", {})
    names.start()
    broker.start()
    try:
        wait_registered(names_port, broker_port, [names, broker])
        yield names, broker
    finally:
        broker.kill()
        names.kill()


def test_clients_meet_through_the_name_server(pair: tuple[NameServerRole, BrokerRole], tmp_path: Path) -> None:
    names, broker = pair
    with java_driver(BROKER_VERSION, f"127.0.0.1:{names.port}", tmp_path / "client") as driver:
        sent = [
            e
            for e in driver.command("produce", topic="MeetingPoint", count=COUNT, prefix="meet")
            if e["event"] == "sent"
        ]
        assert [e["status"] for e in sent] == ["SEND_OK"] * COUNT
        driver.command("consume", group="MeetingGroup", topic="MeetingPoint")
        driver.wait(lambda events: sum(e["event"] == "received" for e in events) >= COUNT, 180, "arrival")
        assert Counter(e["body"] for e in driver.events("received")) == expected_bodies("meet", COUNT)
        driver.close()
    if broker.kind is Kind.ORBITMQ:
        assert broker.stop() == 0
    else:
        broker.kill()
    wait_unregistered(names.port, broker.port)
    broker.start()
    wait_registered(names.port, broker.port, [names, broker])
