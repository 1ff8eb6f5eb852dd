"""A store changes hands between orbitmq and RocketMQ 5.5 with everything that waits in it: timer messages, undecided transactions, and what
is popped and not acknowledged. The way back begins with a killed broker of RocketMQ's."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rig.brokers import KINDS_UNDER_TEST, BrokerUnderTest, Kind
from rig.drivers import Driver, transaction_driver
from rig.popping import GROUP, POP_SETTINGS, TOPIC, Consumer, consume, wait_stored
from rig.timer_account import KILLED_LATER, TimerAccount
from rig.toolchain import NEW_VERSION, java_build
from rig.wire import RUNTIME_INFO, Wire

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(Kind.ORBITMQ not in KINDS_UNDER_TEST, reason="orbitmq is not among the brokers under test"),
]

DECIDED = "Decided"
ALL_SETTINGS = KILLED_LATER | POP_SETTINGS | {"transactionTimeOut": "3000", "transactionCheckInterval": "2000"}
LAST_TIMER_MS = 110_000
WAIT_S = 120


def test_what_waits_goes_there_and_back(
    brokers: Callable[..., BrokerUnderTest], available: Callable[[Callable[[], object]], None], tmp_path: Path
) -> None:
    available(lambda: java_build(NEW_VERSION))
    timers, consumer = TimerAccount(), Consumer()
    first = brokers(Kind.ORBITMQ, "first", data=tmp_path / "data", settings=ALL_SETTINGS)
    place = {
        "data": first.data, "settings": ALL_SETTINGS, "release": NEW_VERSION, "ports": (first.nameserver_port, first.broker_port),
    }  # fmt: skip
    with transaction_driver(NEW_VERSION, first.start().name_server, tmp_path / "client") as driver:
        with first.wire() as wire:
            for topic in (TOPIC, DECIDED):
                wire.create_topic(topic, 1)
            wire.create_group(GROUP, 16)
            leave_undecided(driver, "ours")
            timers.fill(first, until_ms=LAST_TIMER_MS, moves=True)
            later, never, due_ms = consume(consumer, wire, "ours")
            wait_stored(wire)
        first.stop()

        java = brokers(Kind.JAVA, "java", **place).start()
        with java.wire() as wire:
            for popped in later:
                consumer.ack(wire, popped)
            java_later, java_never, java_due_ms = consume(consumer, wire, "java")
            timers.send_more(java, 1, until_ms=LAST_TIMER_MS - 30_000)
            wait_committed(wire, {"ours"})
            consumer.drain(wire, never)
            time.sleep(max(0.0, due_ms / 1000 + 5 - time.time()))
            leave_undecided(driver, "java")
            wait_stored(wire)
        java.kill()
        killed_ms = time.time_ns() // 1_000_000

        again = brokers(Kind.ORBITMQ, "again", **place).start()
        with again.wire() as wire:
            for popped in java_later:
                consumer.ack(wire, popped)
            consumer.drain(wire, java_never)
            wait_committed(wire, {"ours", "java"})
            assert committed(wire).count("java") == 1
            time.sleep(max(0.0, java_due_ms / 1000 + 1 - time.time()))
            consumer.finish(wire)
            table = wire.call(RUNTIME_INFO, {})[1]
        timers.judge(again, killed_ms=killed_ms)
    again.stop()
    consumer.judge(never | java_never)
    assert b'"orbitmqPopRecordsUnread":"0"' in table
    assert b'"orbitmqPopInFlight":"0"' in table


def leave_undecided(driver: Driver, name: str) -> None:
    """One transaction that its producer commits when it is asked, after twenty seconds; one that it rolls back then."""
    for state in ("commit", "rollback"):
        body = name if state == "commit" else f"not {name}"
        driver.command("half", topic=DECIDED, body=body, state="unknown", checked=state, immunity=20)


def wait_committed(wire: Wire, bodies: set[str]) -> None:
    """Until these are committed, and nothing else is. RocketMQ's broker may store one twice, when the answer to its question takes long."""
    ends = time.monotonic() + WAIT_S
    while not (found := set(committed(wire))) >= bodies:
        assert time.monotonic() < ends, f"only {found} of {bodies}"
        time.sleep(0.2)
    assert found == bodies


def committed(wire: Wire) -> list[str]:
    return [record.body.decode() for record in wire.read_queue(DECIDED, 0)]
