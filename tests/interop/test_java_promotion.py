"""Programs with RocketMQ's Java client, a producer and a consumer, while their master is killed and its slave promoted."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rig.brokers import KINDS_UNDER_TEST, Kind
from rig.drivers import Driver, DriverFailed, Event, java_driver
from rig.pairs import Member, Pair, until
from rig.toolchain import BROKER_VERSION, java_build

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(Kind.ORBITMQ not in KINDS_UNDER_TEST, reason="orbitmq is not among the brokers under test"),
]

TOPIC, GROUP = "orders", "readers"
TWO_COPIES = {"brokerRole": "SYNC_MASTER", "totalReplicas": "2", "inSyncReplicas": "2"}
PROMOTE_SLAVE = 20061
KINDS = ({}, {"level": 2}, {"level": 3}, {"DelayTimeMs": 7_000})
LEVELS_MS = {2: 5_000, 3: 10_000}
ROUTES_S = 30
"""Clients of RocketMQ ask for routes so often, and know of no other master before."""


class Account:
    """What the producer was told, and what came."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.due_ms: dict[str, int] = {}
        """By unique key of each acknowledged message, when it may come at the earliest."""
        self._numbers = itertools.count()

    def send(self, **kind: int) -> bool:
        """Three messages of this kind; whether all were taken."""
        number, at_ms = next(self._numbers), int(time.time() * 1_000)
        before = len(self.driver.events("sent"))
        try:
            self.driver.command("produce", topic=TOPIC, prefix=f"sent-{number}", count=3, **kind)
            is_taken = True
        except DriverFailed:
            is_taken = False
        for told in self.driver.events("sent")[before:]:
            if told["status"] == "SEND_OK":
                self.due_ms[told["msgId"]] = at_ms + LEVELS_MS.get(kind.get("level", 0), kind.get("DelayTimeMs", 0))
        return is_taken

    def send_each_kind(self) -> None:
        for kind in KINDS:
            assert self.send(**kind)

    def missing(self) -> set[str]:
        return self.due_ms.keys() - {key_of(event) for event in self.driver.events("received")}

    def early(self) -> list[Event]:
        return [
            event
            for event in self.driver.events("received")
            if event["receivedAt"] < self.due_ms.get(key_of(event), 0)
            or event["storeAt"] < self.due_ms.get(key_of(event), 0)
        ]


def key_of(event: Event) -> str:
    properties = event["properties"]
    found: str = (json.loads(properties) if isinstance(properties, str) else properties)["UNIQ_KEY"]
    return found


def promoted(slave: Member) -> bool:
    """Asked for again while the slave still finds the master's connection there."""
    with slave.wire() as wire:
        answer, _ = wire.ask(PROMOTE_SLAVE, {}, b"{}")
    return int(answer["code"]) == 0


def test_every_acknowledged_message_arrives_and_none_early(
    tmp_path: Path, available: Callable[[Callable[[], object]], None], figure: Callable[[str], None]
) -> None:
    available(lambda: java_build(BROKER_VERSION))
    pair = Pair(tmp_path, Kind.ORBITMQ, Kind.ORBITMQ)
    try:
        pair.first.launch_master(**TWO_COPIES).wait()
        pair.second.launch_slave().wait()
        with pair.first.wire() as wire:
            wire.create_topic(TOPIC, 4)
            wire.create_group(GROUP, 16)
        with java_driver(BROKER_VERSION, f"127.0.0.1:{pair.names.port}", tmp_path / "java") as driver:
            account = Account(driver)
            driver.command("consume", group=GROUP, topic=TOPIC)
            until(lambda: account.send() and account.due_ms, "a send that both have")
            account.send_each_kind()
            until(lambda: len(driver.events("received")) >= 3, "the first messages")
            account.send_each_kind()
            pair.first.kill()
            assert not account.send(), "nobody is there"
            until(lambda: promoted(pair.second), "the promotion")
            began = time.monotonic()
            before = len(account.due_ms)
            until(lambda: account.send(), "a send at the new master", ROUTES_S + 30)
            again_s = time.monotonic() - began
            account.send_each_kind()
            until(lambda: not account.missing(), "all that was acknowledged", ROUTES_S + 30)
            received = driver.events("received")
            figure(
                f"Java client: {before} messages acknowledged before the promotion, sends taken again {again_s:.1f} s after it, "
                f"{len(received)} deliveries of {len(account.due_ms)} messages"
            )
            assert account.early() == []
            stored = [body for queue_id in range(4) for body in pair.second.bodies(TOPIC, queue_id)]
            assert len(stored) == len(set(stored)), "each is in its topic once"
    finally:
        pair.kill()
