"""The Rust client of RocketMQ 5 and its makers' example programs, unchanged, at the gRPC port of a broker: `make interop-rust`.

No part of the ordinary tests, because what it needs is compiled for five minutes. The client has no push consumer, changes no invisible
times and recalls nothing. The examples call port 8081 of localhost.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rig.brokers import KINDS_UNDER_TEST, Kind
from rig.dispatched import until_routed
from rig.drivers import Driver
from rig.grpc_clients import RUST, GrpcBroker
from rig.grpc_scenario import INVISIBLE_MS, ORDERED, SETTINGS
from rig.toolchain import grpc_rust_client

import orbitmq

LIMIT_S = 120
OWN = {"Plain": "NORMAL", "Ordered": "FIFO", "Timed": "DELAY", "Decided": "TRANSACTION"}
OF_EXAMPLES = {"test_topic": "NORMAL", "fifo_test": "FIFO", "delay_test": "DELAY", "transaction_test": "TRANSACTION"}
PRODUCERS = ["producer", "fifo_producer", "delay_producer", "transaction_producer"]


@pytest.fixture(scope="module", params=KINDS_UNDER_TEST, ids=[kind.value for kind in KINDS_UNDER_TEST])
def served(
    request: pytest.FixtureRequest,
    available: Callable[[Callable[[], object]], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[GrpcBroker]:
    kind: Kind = request.param
    available(grpc_rust_client)
    with GrpcBroker(kind, tmp_path_factory.mktemp("rust"), SETTINGS, grpc_port=8081) as server:
        asyncio.run(create_topics(server.name_server))
        yield server


async def create_topics(name_server: str) -> None:
    async with orbitmq.connect(name_server) as mq:
        for topic, kept in {**OWN, **OF_EXAMPLES}.items():
            await mq.admin.create_topic(topic, queues_count=4, attributes={"message.type": kept})
            await until_routed(mq, topic)


def test_client(served: GrpcBroker, tmp_path: Path) -> None:
    with RUST.drive(served.endpoint, list(OWN), tmp_path) as driver:
        now_ms = int(time.time() * 1000)
        driver.command("send", topic="Timed", body="timed", at=now_ms + 3_000)
        for state in ("commit", "rollback"):
            driver.command("transact", topic="Decided", body=state, state=state, checked=state)
            driver.command("transact", topic="Decided", body=f"later-{state}", state="unknown", checked=state)
        driver.command("send", topic="Ordered", body=",".join(ORDERED), order="o")
        driver.command("send", topic="Plain", body="a,b", tag="red", price=5, note="größer als ☕", key="k l")
        driver.command("send", topic="Plain", body="c", tag="blue", price=20)
        (failed,) = [
            e for e in driver.command("send", topic="Plain", body="wrong", order="o") if e["event"] == "send_failed"
        ]
        assert "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE" in failed["error"]

        assert popped(driver, 2, group="Red", topic="Plain", tags="red || crimson") == {"a": 1, "b": 1}
        for event in driver.events("popped", group="Red"):
            assert (event["keys"], event["properties"]) == ("k l", {"price": "5", "note": "größer als ☕"})
        assert popped(driver, 1, group="Dear", topic="Plain", sql="price > 10") == {"c": 1}
        assert list(popped(driver, 6, group="InOrder", topic="Ordered")) == list(ORDERED)
        assert popped(driver, 1, group="Clock", topic="Timed") == {"timed": 1}
        (timed,) = driver.events("popped", group="Clock")
        assert timed["receivedAt"] >= timed["deliverAt"] == (now_ms + 3_000) // 1000 * 1000
        assert popped(driver, 2, group="Settled", topic="Decided").keys() == {"commit", "later-commit"}
        driver.wait(lambda _: checked(driver) >= {"later-commit", "later-rollback"}, LIMIT_S, "both checks")

        again = {"group": "Slow", "topic": "Plain", "tags": "blue", "invisible": INVISIBLE_MS}
        driver.command("pop", then="keep", **again)
        time.sleep(INVISIBLE_MS / 1000 + 0.3)
        (refused,) = [e for e in driver.command("again", then="ack") if e["event"] == "refused"]
        assert "INVALID_RECEIPT_HANDLE" in refused["error"]
        assert popped(driver, 2, **again) == {"c": 2}
        driver.close()


def popped(driver: Driver, count: int, **options: object) -> dict[str, int]:
    """Pop until a group has had so many attempts; the number of the last one at each message. RocketMQ stores a commit more than once."""
    ends = time.monotonic() + LIMIT_S
    while len(found := attempts(driver, options["group"])) < count:
        assert time.monotonic() < ends, f"{options['group']} has not got {count} in {LIMIT_S} s"
        driver.command("pop", **options)
    return dict(found)


def attempts(driver: Driver, group: object) -> list[tuple[str, int]]:
    """Body and number of each attempt, the first time that it was seen."""
    return list(dict.fromkeys((event["body"], event["attempt"]) for event in driver.events("popped", group=group)))


def checked(driver: Driver) -> set[str]:
    return {event["body"] for event in driver.events("checked")}


def test_the_makers_examples(served: GrpcBroker) -> None:
    """The makers' producer of plain messages ends with a panic when its shutdown succeeds, so only what they print is looked at."""
    for name in PRODUCERS:
        assert "send message success" in example(name)
    said = example("simple_consumer")
    assert "receive message: MessageView" in said
    assert not re.search(r"receive message failed|ack message \S+ failed", said)


def example(name: str) -> str:
    """What an example program prints."""
    program = grpc_rust_client().parent / "examples" / name
    done = subprocess.run([program], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return done.stdout + done.stderr
