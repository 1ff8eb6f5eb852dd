"""Timers that are pending change hands between RocketMQ 5.3.3 and orbitmq: each comes once, recalled ones never.

Messages fall due all the time, before, during and after the change of brokers, so that a slot is in progress when it
happens. Some are due beyond the roll window. Some were recalled, and some moved to another time.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rig.brokers import KINDS_UNDER_TEST, BrokerUnderTest, Kind, orbitmq_command
from rig.ledger import SMALL_FILES
from rig.toolchain import BROKER_VERSION, java_build
from rig.wire import Wire, encode_properties, send_fields

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(Kind.ORBITMQ not in KINDS_UNDER_TEST, reason="orbitmq is not among the brokers under test"),
]

TOPIC = "PendingTimers"
SEND_V2, RECALL_MESSAGE, RESCHEDULE_TIMERS = 310, 370, 20011
JAVA_STOP_MS = 15_000
"""The Java broker takes this long to stop, and goes on delivering meanwhile."""

REPEATED_MS = 10_000
"""RocketMQ delivers once more what fell due since the last durable save, which comes every five seconds, and a slot before."""

WHEEL_BYTES = 38_707_200
"""Of RocketMQ's wheel with a precision of a second."""

SETTINGS = SMALL_FILES | {
    "mappedFileSizeTimerLog": str(52 * 100),
    "timerRollWindowSlot": "30",
    "recallMessageEnable": "true",
}

Brokers = Callable[..., BrokerUnderTest]


@pytest.fixture(autouse=True)
def _java(available: Callable[[Callable[[], object]], None]) -> None:
    available(lambda: java_build(BROKER_VERSION))


class Account:
    """What was sent, and what must become of it."""

    def __init__(self) -> None:
        self.due: dict[bytes, int] = {}
        self.recalled: set[bytes] = set()
        self.handles: dict[bytes, str] = {}

    def send(self, wire: Wire, body: bytes, due_ms: int) -> None:
        values = {"UNIQ_KEY": f"{len(self.due):032X}", "TIMER_DELIVER_MS": str(due_ms)}
        fields, _ = wire.call(SEND_V2, send_fields(TOPIC, 0, 0, encode_properties(values)), body)
        self.due[body] = due_ms
        self.handles[body] = fields["recallHandle"]

    def send_delayed(self, wire: Wire, body: bytes, level: int, delay_ms: int) -> None:
        """With a delay level."""
        values = {"UNIQ_KEY": f"{len(self.due):032X}", "DELAY": str(level)}
        self.due[body] = time.time_ns() // 1_000_000 + delay_ms
        wire.call(SEND_V2, send_fields(TOPIC, 0, 0, encode_properties(values)), body)

    def recall(self, wire: Wire, body: bytes) -> None:
        fields = {"producerGroup": "judge", "topic": TOPIC, "recallHandle": self.handles[body]}
        wire.call(RECALL_MESSAGE, fields)
        self.recalled.add(body)

    def move(self, wire: Wire, body: bytes, due_ms: int) -> None:
        asked = {"selector": {"handle": self.handles[body]}, "deliverMs": due_ms}
        _, answer = wire.call(RESCHEDULE_TIMERS, {}, json.dumps(asked).encode())
        assert json.loads(answer)["answers"][0]["verdict"] == "rescheduled", answer
        self.due[body] = due_ms

    def fill(self, broker: BrokerUnderTest, *, until_ms: int, moves: bool) -> None:
        """Ten messages a second from soon until `until_ms` from now."""
        with broker.wire() as wire:
            wire.create_topic(TOPIC, 1)
            now = time.time_ns() // 1_000_000
            for number, after in enumerate(range(1_500, until_ms, 100)):
                self.send(wire, b"%d" % number, now + after)
            late = now + until_ms
            for number in range(10):
                self.send_delayed(wire, b"delayed %d" % number, 4, 30_000)
            for number in range(20):
                self.send(wire, b"recalled %d" % number, late - 4_000 + 150 * number)
                self.recall(wire, b"recalled %d" % number)
            slot_ms = (late - 6_000) // 1_000 * 1_000
            for number in range(10 if moves else 0):
                self.send(wire, b"within a slot %d" % number, slot_ms + 700)
                self.move(wire, b"within a slot %d" % number, slot_ms + 200 + number)
                self.send(wire, b"later in a slot %d" % number, slot_ms + 300)
                self.move(wire, b"later in a slot %d" % number, slot_ms + 800 + number)
            for number in range(20 if moves else 0):
                self.send(wire, b"earlier %d" % number, late)
                self.move(wire, b"earlier %d" % number, late - 3_000 + 100 * number)
                self.send(wire, b"later %d" % number, late - 5_000)
                self.move(wire, b"later %d" % number, late - 2_000 + 100 * number)
                self.send(wire, b"to and fro %d" % number, late - 1_000)
                self.move(wire, b"to and fro %d" % number, late)
                self.move(wire, b"to and fro %d" % number, late - 1_000)

    def send_more(self, broker: BrokerUnderTest, life: int, *, until_ms: int) -> None:
        """Five messages a second, and a recall of some that are due late enough for any broker."""
        with broker.wire() as wire:
            now = time.time_ns() // 1_000_000
            late = [body for body, due_ms in self.due.items() if body.isdigit() and due_ms > now + 30_000]
            for number, after in enumerate(range(1_500, until_ms, 200)):
                self.send(wire, b"%d in life %d" % (number, life), now + after)
            for body in late[life::20]:
                self.recall(wire, body)

    def judge(self, broker: BrokerUnderTest, *, killed_ms: int | None = None) -> None:
        """Wait until everything is due and has come to rest; then look at every delivery.

        Where a broker was killed, what was due shortly before may come twice.
        """
        last = max(self.due.values()) / 1000
        wanted = set(self.due) - self.recalled
        time.sleep(max(last - time.time(), 0))
        with broker.wire() as wire:
            while True:
                found = wire.read_queue(TOPIC, 0)
                if time.time() > last + 25 or (time.time() > last + 4 and wanted <= {s.body for s in found}):
                    break
                time.sleep(0.5)
        bodies = Counter(stored.body for stored in found)
        assert wanted - set(bodies) == set(), "lost"
        repeated = [body for body, count in bodies.items() if count > 1]
        if killed_ms is not None:
            repeated = [one for one in repeated if not killed_ms - REPEATED_MS < self.due[one] <= killed_ms + 1_000]
        assert repeated == [], "came twice"
        assert set(bodies) & self.recalled == set(), "came although recalled"
        assert [stored.body for stored in found if stored.store_at < self.due[stored.body]] == [], "came early"


def test_orbitmq_to_java(brokers: Brokers, tmp_path: Path) -> None:
    account = Account()
    ours = brokers(Kind.ORBITMQ, "ours", data=tmp_path / "data", settings=SETTINGS).start()
    account.fill(ours, until_ms=38_000, moves=True)
    time.sleep(6)
    ours.stop()
    account.judge(brokers(Kind.JAVA, "java", data=tmp_path / "data", settings=SETTINGS).start())


def test_killed_java_to_orbitmq(brokers: Brokers, tmp_path: Path) -> None:
    account = Account()
    java = brokers(Kind.JAVA, "java", data=tmp_path / "data", settings=SETTINGS).start()
    account.fill(java, until_ms=25_000, moves=False)
    time.sleep(6.4)
    java.kill()
    account.judge(brokers(Kind.ORBITMQ, "ours", data=tmp_path / "data", settings=SETTINGS).start())


def hand_over(data: Path) -> dict[str, Any]:
    """What the command says, in JSON."""
    sets = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
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
    account = Account()
    data = tmp_path / "data"
    ours = brokers(Kind.ORBITMQ, "ours", data=data, settings=SETTINGS).start()
    account.fill(ours, until_ms=45_000, moves=True)
    time.sleep(6.4)
    ours.kill()
    assert_refused(brokers(Kind.JAVA, "refused", data=data, settings=SETTINGS))
    found = hand_over(data)
    assert found["is_exact"]
    assert not found["was_exact"]
    assert found["pending_count"] > 0
    account.judge(brokers(Kind.JAVA, "java", data=data, settings=SETTINGS).start())


def test_there_and_back_after_the_hop(brokers: Brokers, tmp_path: Path) -> None:
    """What was changed hops in RocketMQ half a minute after it was sent, as if it had not been."""
    account = Account()
    data = tmp_path / "data"
    ours = brokers(Kind.ORBITMQ, "ours", data=data, settings=SETTINGS).start()
    begin = time.monotonic()
    account.fill(ours, until_ms=60_000, moves=True)
    time.sleep(4)
    ours.stop()
    java = brokers(Kind.JAVA, "java", data=data, settings=SETTINGS).start()
    time.sleep(max(begin + 33 - time.monotonic(), 3))
    java.stop()
    account.judge(brokers(Kind.ORBITMQ, "again", data=data, settings=SETTINGS).start())


def test_there_and_back_killed_while_it_hops(brokers: Brokers, tmp_path: Path) -> None:
    account = Account()
    data = tmp_path / "data"
    ours = brokers(Kind.ORBITMQ, "ours", data=data, settings=SETTINGS).start()
    begin = time.time()
    account.fill(ours, until_ms=60_000, moves=True)
    time.sleep(4)
    ours.stop()
    java = brokers(Kind.JAVA, "java", data=data, settings=SETTINGS).start()
    time.sleep(max((int(begin) + 31.12) - time.time(), 0))  # a Java broker that is up later hops as it starts
    java.kill()
    killed_ms = time.time_ns() // 1_000_000
    again = brokers(Kind.ORBITMQ, "again", data=data, settings=SETTINGS).start()
    account.judge(again, killed_ms=killed_ms)


def test_back_and_forth_twice(brokers: Brokers, tmp_path: Path) -> None:
    """Each broker sends, and recalls what the other took; what falls due while one stops is the next one's to deliver."""
    account = Account()
    data = tmp_path / "data"
    for life, kind in enumerate([Kind.ORBITMQ, Kind.JAVA, Kind.ORBITMQ, Kind.JAVA]):
        broker = brokers(kind, f"life {life}", data=data, settings=SETTINGS).start()
        if not life:
            account.fill(broker, until_ms=100_000, moves=True)
        else:
            account.send_more(broker, life, until_ms=100_000 - 20_000 * life)
        time.sleep(4)
        broker.stop()
    account.judge(brokers(Kind.ORBITMQ, "last", data=data, settings=SETTINGS).start())


@pytest.mark.parametrize("ends", ["stopped", "killed"])
def test_java_is_refused_after_a_take_over_until_orbitmq_stops_in_order(
    brokers: Brokers, tmp_path: Path, ends: str
) -> None:
    account = Account()
    data = tmp_path / "data"
    java = brokers(Kind.JAVA, "java", data=data, settings=SETTINGS).start()
    account.fill(java, until_ms=60_000 + (JAVA_STOP_MS if ends == "stopped" else 0), moves=False)
    time.sleep(6.4)
    killed_ms = None
    if ends == "stopped":
        java.stop()
    else:
        java.kill()
        killed_ms = time.time_ns() // 1_000_000
    taker = brokers(Kind.ORBITMQ, "taker", data=data, settings=SETTINGS).start()
    time.sleep(3)
    taker.kill()
    assert_refused(brokers(Kind.JAVA, "refused", data=data, settings=SETTINGS))
    again = brokers(Kind.ORBITMQ, "again", data=data, settings=SETTINGS).start()
    time.sleep(3)
    again.stop()
    account.judge(brokers(Kind.JAVA, "judge", data=data, settings=SETTINGS).start(), killed_ms=killed_ms)


def slots(account: Account, broker: BrokerUnderTest, begin: int, width_ms: int) -> list[int]:
    """Due times of what was delivered from queue offset `begin` on, in units of `width_ms`, without what had a delay level."""
    with broker.wire() as wire:
        found = wire.read_queue(TOPIC, 0)[begin:]
    return [account.due[stored.body] // width_ms for stored in found if b"delayed" not in stored.body]


def test_java_delivers_what_is_overdue_slot_by_slot(brokers: Brokers, tmp_path: Path) -> None:
    account = Account()
    data = tmp_path / "data"
    held_back = SETTINGS | {"timerStopDequeue": "true"}
    ours = brokers(Kind.ORBITMQ, "ours", data=data, settings=held_back).start()
    account.fill(ours, until_ms=8_000, moves=True)
    time.sleep(9)
    with ours.wire() as wire:
        assert wire.read_queue(TOPIC, 0) == []
    ours.stop()
    java = brokers(Kind.JAVA, "java", data=data, settings=SETTINGS).start()
    account.judge(java)
    came = slots(account, java, 0, 1_000)
    assert came == sorted(came)


def test_orbitmq_delivers_what_is_overdue_in_order(brokers: Brokers, tmp_path: Path) -> None:
    """RocketMQ was killed before anything was due, and everything is when we start."""
    account = Account()
    data = tmp_path / "data"
    java = brokers(Kind.JAVA, "java", data=data, settings=SETTINGS).start()
    account.fill(java, until_ms=14_000, moves=False)
    with java.wire() as wire:
        begin = wire.max_offset(TOPIC, 0)
    java.kill()
    killed_ms = time.time_ns() // 1_000_000
    time.sleep(14)
    ours = brokers(Kind.ORBITMQ, "ours", data=data, settings=SETTINGS).start()
    account.judge(ours, killed_ms=killed_ms)
    came = slots(account, ours, begin, 1)
    assert came == sorted(came)
