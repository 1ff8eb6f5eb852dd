"""Timer messages that stay pending while brokers change: they fall due all the time, before, during and after the change."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Final

from rig.brokers import BrokerUnderTest
from rig.ledger import SMALL_FILES
from rig.wire import Wire, encode_properties, send_fields

TIMER_TOPIC = "PendingTimers"
SEND_V2, RECALL_MESSAGE, RESCHEDULE_TIMERS = 310, 370, 20011

REPEATED_MS = 10_000
"""RocketMQ delivers once more what fell due since the last durable save, which comes every five seconds, and a slot before."""

TIMER_SETTINGS: Final = SMALL_FILES | {
    "mappedFileSizeTimerLog": str(52 * 100),
    "timerRollWindowSlot": "30",
    "recallMessageEnable": "true",
}
KILLED_LATER: Final = TIMER_SETTINGS | {"timerFlushIntervalMs": "2000"}
"""For a RocketMQ that is killed: how far back it has to begin again is bounded, as it is by itself."""


class TimerAccount:
    """Timer messages that were sent, recalled and moved, and what must become of each."""

    def __init__(self) -> None:
        self.due: dict[bytes, int] = {}
        self.recalled: set[bytes] = set()
        self.handles: dict[bytes, str] = {}

    def send(self, wire: Wire, body: bytes, due_ms: int) -> None:
        values = {"UNIQ_KEY": f"{len(self.due):032X}", "TIMER_DELIVER_MS": str(due_ms)}
        fields, _ = wire.call(SEND_V2, send_fields(TIMER_TOPIC, 0, 0, encode_properties(values)), body)
        self.due[body] = due_ms
        self.handles[body] = fields["recallHandle"]

    def send_delayed(self, wire: Wire, body: bytes, level: int, delay_ms: int) -> None:
        """With a delay level."""
        values = {"UNIQ_KEY": f"{len(self.due):032X}", "DELAY": str(level)}
        self.due[body] = time.time_ns() // 1_000_000 + delay_ms
        wire.call(SEND_V2, send_fields(TIMER_TOPIC, 0, 0, encode_properties(values)), body)

    def recall(self, wire: Wire, body: bytes) -> None:
        fields = {"producerGroup": "judge", "topic": TIMER_TOPIC, "recallHandle": self.handles[body]}
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
            wire.create_topic(TIMER_TOPIC, 1)
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
        time.sleep(max(last + 4 - time.time(), 0))
        with broker.wire() as wire:
            while True:
                found = wire.read_queue(TIMER_TOPIC, 0)
                if time.time() > last + 25 or wanted <= {s.body for s in found}:
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
