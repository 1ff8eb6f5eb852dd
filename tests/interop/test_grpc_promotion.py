"""Released clients of RocketMQ 5, producers and consumers, while their brokers exchange the roles, and when the master is killed then.

They know the gRPC ports of both brokers, of which only the master's is open.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from rig.brokers import KINDS_UNDER_TEST, Kind
from rig.dispatched import until_routed
from rig.drivers import Driver
from rig.grpc_clients import CLIENTS
from rig.pairs import Member, Pair, until
from rig.process import free_ports

import orbitmq

pytestmark = [
    pytest.mark.go,
    pytest.mark.skipif(Kind.ORBITMQ not in KINDS_UNDER_TEST, reason="orbitmq is not among the brokers under test"),
]

PLAYED = [client for client in CLIENTS if client.name in ("python", "go")]
"""Those that begin quickly: what is asked here of a client, all of them do alike."""
TOPIC, TIMED = "orders", "reminders"
TWO_COPIES = {"brokerRole": "SYNC_MASTER", "totalReplicas": "2", "inSyncReplicas": "2"}
PROMOTE_SLAVE, DEMOTE_MASTER = 20061, 20065
LIMIT_S = 60
"""Twice the time after which the clients ask for routes."""


class Program:
    """One client: what its sends were answered, and what its group got of them."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._numbers = itertools.count()
        driver.command("push", group=f"{driver.name}-readers", topic=TOPIC)
        driver.command("push", group=f"{driver.name}-reminded", topic=TIMED)

    def send(self, topic: str = TOPIC, **more: object) -> bool:
        body = f"{self.driver.name}-{next(self._numbers)}"
        self.driver.command("send", topic=topic, body=body, **more)
        return bool(self.driver.events("sent", body=body))

    def missing(self) -> set[str]:
        """Of what was taken."""
        acknowledged = {event["body"] for event in self.driver.events("sent")}
        return acknowledged - {event["body"] for event in self.driver.events("received", ok=True)}

    def early(self) -> list[str]:
        return [one["body"] for one in self.driver.events("received") if one["receivedAt"] < one["deliverAt"]]


async def create_topics(name_server: str) -> None:
    async with orbitmq.connect(name_server) as mq:
        for topic, kept in ((TOPIC, "NORMAL"), (TIMED, "DELAY")):
            await mq.admin.create_topic(topic, queues_count=4, attributes={"message.type": kept})
            await until_routed(mq, topic)


def asked(member: Member, code: int, **wanted: object) -> bool:
    with member.wire() as wire:
        answer, _ = wire.ask(code, {}, json.dumps(wanted).encode())
    return int(answer["code"]) == 0


def test_every_acknowledged_message_arrives_and_none_early(
    tmp_path: Path, available: Callable[[Callable[[], object]], None], figure: Callable[[str], None]
) -> None:
    for client in PLAYED:
        available(client.command)
    pair = Pair(tmp_path, Kind.ORBITMQ, Kind.ORBITMQ)
    first_port, second_port, *_ = free_ports()
    with ExitStack() as stack:
        stack.callback(pair.kill)
        pair.first.launch_master(grpcServerPort=str(first_port), **TWO_COPIES).wait()
        pair.second.launch_slave(grpcServerPort=str(second_port)).wait()
        asyncio.run(create_topics(f"127.0.0.1:{pair.names.port}"))
        endpoints = f"127.0.0.1:{first_port};127.0.0.1:{second_port}"
        programs = [
            Program(stack.enter_context(client.drive(endpoints, [TOPIC, TIMED], tmp_path / client.name)))
            for client in PLAYED
        ]

        def send_all(due_s: int) -> None:
            """One that waits, and others that do not."""
            due_ms = int(time.time() + due_s) * 1_000
            for program in programs:
                assert all(program.send() for _ in range(4))
                assert program.send(TIMED, at=due_ms)

        def until_taken(since: str) -> None:
            began = time.monotonic()
            for program in programs:
                until(program.send, f"a send of {program.driver.name} {since}", LIMIT_S)
                figure(f"{program.driver.name}: sends are taken {time.monotonic() - began:.1f} s {since}")

        until_taken("after the start")
        send_all(15)
        until(lambda: asked(pair.first, DEMOTE_MASTER, handsOver=True), "the exchange")
        until_taken("after the exchange")
        send_all(8)
        pair.second.kill()
        until(lambda: asked(pair.first, PROMOTE_SLAVE), "the promotion")
        until_taken("after the promotion")
        send_all(2)
        for program in programs:
            until(lambda: not program.missing(), "all that was acknowledged", LIMIT_S)  # noqa: B023
            assert program.early() == []
