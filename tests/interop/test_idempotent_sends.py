"""Idempotent sends of programs that do not know them: the Java client says them in user properties, and the Java broker
stores what says them as it stores everything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rig.brokers import BrokerUnderTest, Kind
from rig.drivers import DriverFailed, java_driver
from rig.toolchain import BROKER_VERSION, OLD_CLIENT_VERSION, java_build
from rig.wire import Refused, Sent, Wire

pytestmark = pytest.mark.java

STALE_EPOCH = 20_001
Brokers = Callable[..., BrokerUnderTest]


def properties(epoch: int, key: str) -> dict[str, str]:
    return {"ORBITMQ_SCOPE": "job", "ORBITMQ_EPOCH": str(epoch), "ORBITMQ_ONCE_KEY": key}


@pytest.mark.parametrize("version", [OLD_CLIENT_VERSION, BROKER_VERSION])
def test_a_java_client_says_them_in_user_properties(
    version: str, brokers: Brokers, available: Callable[[Callable[[], object]], None], tmp_path: Path
) -> None:
    available(lambda: java_build(version))
    with brokers(Kind.ORBITMQ, "broker") as broker, java_driver(version, broker.name_server, tmp_path) as driver:
        with broker.wire() as wire:
            wire.create_topic("Once", 4)

        def produce(epoch: int, key: str, **more: object) -> dict[str, object]:
            user = "|".join(f"{name}:{value}" for name, value in properties(epoch, key).items())
            (sent,) = [e for e in driver.command("produce", topic="Once", user=user, **more) if e["event"] == "sent"]
            return {name: sent[name] for name in ("status", "offsetMsgId", "queueId", "queueOffset")}

        first, later = produce(1, "a"), produce(1, "late", level=1)
        assert first["status"] == "SEND_OK"
        assert produce(1, "a") == first
        assert produce(1, "late", level=1) == later
        assert produce(2, "a") != first
        produce(3, "a")
        with pytest.raises(DriverFailed, match=str(STALE_EPOCH)):
            produce(1, "a")
        with broker.wire() as wire:
            stored = [one for queue in range(4) for one in wire.read_queue("Once", queue)]
        plain = [one for one in stored if one.properties["ORBITMQ_ONCE_KEY"] == "a"]
        assert sorted(one.properties["ORBITMQ_EPOCH"] for one in plain) == ["1", "2", "3"]


def test_a_java_broker_stores_repeats_and_ours_knows_them_afterwards(
    brokers: Brokers, available: Callable[[Callable[[], object]], None], tmp_path: Path
) -> None:
    """The store goes from ours to Java's and back."""
    available(lambda: java_build(BROKER_VERSION))
    data = tmp_path / "data"
    with brokers(Kind.ORBITMQ, "first", data=data) as broker, broker.wire() as wire:
        wire.create_topic("Once", 1)
        ours = send(wire, 1, "ours")
        assert send(wire, 1, "ours") == ours
        broker.stop()
    with brokers(Kind.JAVA, "java", data=data) as broker, broker.wire() as wire:
        copy = send(wire, 1, "ours")
        assert copy.queue_offset == ours.queue_offset + 1, "RocketMQ does not know the properties"
        send(wire, 1, "theirs")
        theirs = send(wire, 1, "theirs")
    with brokers(Kind.ORBITMQ, "again", data=data) as broker, broker.wire() as wire:
        # Where a log has several, the last one counts: ours stores a second one only when the first counts no more.
        assert place(send(wire, 1, "ours")) == place(copy)
        assert place(send(wire, 1, "theirs")) == place(theirs)
        assert wire.max_offset("Once", 0) == 4
        send(wire, 2, "x")
        send(wire, 3, "x")
        with pytest.raises(Refused) as refused:
            send(wire, 1, "ours")
        assert refused.value.code == STALE_EPOCH


def send(wire: Wire, epoch: int, key: str) -> Sent:
    return wire.send("Once", 0, key.encode(), properties=properties(epoch, key))


def place(sent: Sent) -> tuple[int, int]:
    return sent.queue_id, sent.queue_offset
