"""Timers that are pending change hands between RocketMQ 5.3.3 and orbitmq: each comes once, recalled ones never.

Messages fall due all the time, before, during and after the change of brokers, so that a slot is in progress when it
happens. Some are due beyond the roll window. Some were recalled, and some moved to another time.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rig.brokers import KINDS_UNDER_TEST, BrokerUnderTest, Kind, orbitmq_command
from rig.timer_account import KILLED_LATER, TIMER_SETTINGS, TIMER_TOPIC, TimerAccount
from rig.toolchain import BROKER_VERSION, java_build

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(Kind.ORBITMQ not in KINDS_UNDER_TEST, reason="orbitmq is not among the brokers under test"),
]

WHEEL_BYTES = 38_707_200
"""Of RocketMQ's wheel with a precision of a second."""

Brokers = Callable[..., BrokerUnderTest]


@pytest.fixture(autouse=True)
def _java(available: Callable[[Callable[[], object]], None]) -> None:
    available(lambda: java_build(BROKER_VERSION))


def test_orbitmq_to_java(brokers: Brokers, tmp_path: Path) -> None:
    account = TimerAccount()
    ours = brokers(Kind.ORBITMQ, "ours", data=tmp_path / "data", settings=TIMER_SETTINGS).start()
    account.fill(ours, until_ms=38_000, moves=True)
    time.sleep(6)
    ours.stop()
    account.judge(brokers(Kind.JAVA, "java", data=tmp_path / "data", settings=TIMER_SETTINGS).start())


def hand_over(data: Path) -> dict[str, Any]:
    """What the command says, in JSON."""
    sets = [word for key, value in TIMER_SETTINGS.items() for word in ("--set", f"{key}={value}")]
    command = [*orbitmq_command(), "store", "hand-over", data, *sets, "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def assert_refused(java: BrokerUnderTest) -> None:
    """RocketMQ ends while it starts, because of the wheel, and leaves it as it was."""
    wheel = java.data / "timerwheel"
    size = wheel.stat().st_size
    with pytest.raises(AssertionError, match="ended while starting"):
        java.start()
    java.kill()
    (log,) = java.folder.glob("broker/logs/**/broker.log")
    assert f"Timer wheel length:{size} != expected:{WHEEL_BYTES}" in log.read_text()
    assert wheel.stat().st_size == size


def test_killed_orbitmq_is_refused_by_java_until_it_is_handed_over(brokers: Brokers, tmp_path: Path) -> None:
    account = TimerAccount()
    data = tmp_path / "data"
    ours = brokers(Kind.ORBITMQ, "ours", data=data, settings=TIMER_SETTINGS).start()
    account.fill(ours, until_ms=45_000, moves=True)
    time.sleep(6.4)
    ours.kill()
    assert_refused(brokers(Kind.JAVA, "refused", data=data, settings=TIMER_SETTINGS))
    found = hand_over(data)
    assert found["is_exact"]
    assert not found["was_exact"]
    assert found["pending_count"] > 0
    account.judge(brokers(Kind.JAVA, "java", data=data, settings=TIMER_SETTINGS).start())


def test_there_and_back_after_the_hop(brokers: Brokers, tmp_path: Path) -> None:
    """What was changed hops in RocketMQ half a minute after it was sent, as if it had not been."""
    account = TimerAccount()
    data = tmp_path / "data"
    ours = brokers(Kind.ORBITMQ, "ours", data=data, settings=TIMER_SETTINGS).start()
    begin = time.monotonic()
    account.fill(ours, until_ms=60_000, moves=True)
    time.sleep(4)
    ours.stop()
    java = brokers(Kind.JAVA, "java", data=data, settings=TIMER_SETTINGS).start()
    time.sleep(max(begin + 33 - time.monotonic(), 3))
    java.stop()
    account.judge(brokers(Kind.ORBITMQ, "again", data=data, settings=TIMER_SETTINGS).start())


def test_there_and_back_killed_while_it_hops(brokers: Brokers, tmp_path: Path) -> None:
    account = TimerAccount()
    data = tmp_path / "data"
    ours = brokers(Kind.ORBITMQ, "ours", data=data, settings=TIMER_SETTINGS).start()
    begin = time.time()
    account.fill(ours, until_ms=60_000, moves=True)
    time.sleep(4)
    ours.stop()
    java = brokers(Kind.JAVA, "java", data=data, settings=KILLED_LATER).start()
    time.sleep(max((int(begin) + 31.12) - time.time(), 0))  # a Java broker that is up later hops as it starts
    java.kill()
    killed_ms = time.time_ns() // 1_000_000
    again = brokers(Kind.ORBITMQ, "again", data=data, settings=TIMER_SETTINGS).start()
    account.judge(again, killed_ms=killed_ms)


def test_back_and_forth_twice(brokers: Brokers, tmp_path: Path) -> None:
    """Each broker sends, and recalls what the other took; what falls due while one stops is the next one's to deliver."""
    account = TimerAccount()
    data = tmp_path / "data"
    for life, kind in enumerate([Kind.ORBITMQ, Kind.JAVA, Kind.ORBITMQ, Kind.JAVA]):
        broker = brokers(kind, f"life {life}", data=data, settings=TIMER_SETTINGS).start()
        if not life:
            account.fill(broker, until_ms=100_000, moves=True)
        else:
            account.send_more(broker, life, until_ms=100_000 - 20_000 * life)
        time.sleep(4)
        broker.stop()
    account.judge(brokers(Kind.ORBITMQ, "last", data=data, settings=TIMER_SETTINGS).start())


def test_java_is_refused_after_a_take_over_until_orbitmq_stops_in_order(brokers: Brokers, tmp_path: Path) -> None:
    """Java was killed, which is the harder; its orderly stop, which delivers for another 15 s, is in the lives that change hands."""
    account = TimerAccount()
    data = tmp_path / "data"
    java = brokers(Kind.JAVA, "java", data=data, settings=KILLED_LATER).start()
    account.fill(java, until_ms=60_000, moves=False)
    time.sleep(6.4)
    java.kill()
    killed_ms = time.time_ns() // 1_000_000
    taker = brokers(Kind.ORBITMQ, "taker", data=data, settings=TIMER_SETTINGS).start()
    time.sleep(3)
    taker.kill()
    assert_refused(brokers(Kind.JAVA, "refused", data=data, settings=TIMER_SETTINGS))
    again = brokers(Kind.ORBITMQ, "again", data=data, settings=TIMER_SETTINGS).start()
    time.sleep(3)
    again.stop()
    account.judge(brokers(Kind.JAVA, "judge", data=data, settings=TIMER_SETTINGS).start(), killed_ms=killed_ms)


def slots(account: TimerAccount, broker: BrokerUnderTest, begin: int, width_ms: int) -> list[int]:
    """Due times of what was delivered from queue offset `begin` on, in units of `width_ms`, without what had a delay level."""
    with broker.wire() as wire:
        found = wire.read_queue(TIMER_TOPIC, 0)[begin:]
    return [account.due[stored.body] // width_ms for stored in found if b"delayed" not in stored.body]


def test_java_delivers_what_is_overdue_slot_by_slot(brokers: Brokers, tmp_path: Path) -> None:
    account = TimerAccount()
    data = tmp_path / "data"
    held_back = TIMER_SETTINGS | {"timerStopDequeue": "true"}
    ours = brokers(Kind.ORBITMQ, "ours", data=data, settings=held_back).start()
    account.fill(ours, until_ms=8_000, moves=True)
    time.sleep(9)
    with ours.wire() as wire:
        assert wire.read_queue(TIMER_TOPIC, 0) == []
    ours.stop()
    java = brokers(Kind.JAVA, "java", data=data, settings=TIMER_SETTINGS).start()
    account.judge(java)
    came = slots(account, java, 0, 1_000)
    assert came == sorted(came)


def test_orbitmq_delivers_what_is_overdue_in_order(brokers: Brokers, tmp_path: Path) -> None:
    """RocketMQ was killed before anything was due, and everything is when we start."""
    account = TimerAccount()
    data = tmp_path / "data"
    java = brokers(Kind.JAVA, "java", data=data, settings=KILLED_LATER).start()
    account.fill(java, until_ms=14_000, moves=False)
    with java.wire() as wire:
        begin = wire.max_offset(TIMER_TOPIC, 0)
    java.kill()
    killed_ms = time.time_ns() // 1_000_000
    time.sleep(14)
    ours = brokers(Kind.ORBITMQ, "ours", data=data, settings=TIMER_SETTINGS).start()
    account.judge(ours, killed_ms=killed_ms)
    came = slots(account, ours, begin, 1)
    assert came == sorted(came)
