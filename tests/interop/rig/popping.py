"""A consumer that pops, speaks the wire itself, and keeps account: what was delivered to it, and what it acknowledged in time."""

from __future__ import annotations

import time
from collections.abc import Set
from typing import Final, NamedTuple

from rig.wire import SUCCESS, Stored, Wire, records

POP, ACK, CHANGE = 200050, 200051, 200053
TOPIC, GROUP = "Popped", "Poppers"
POP_SETTINGS: Final = {
    "popCkStayBufferTime": "200",
    "flushConsumerOffsetInterval": "500",
    "popFromRetryProbability": "0",
}
SHORT_MS, LONG_MS = 8_000, 30_000
RETURN_LIMIT_S = 60
SOON_MS = 3_000
"""An acknowledgement so short before the time at which its message returns may be too late."""


class Popped(NamedTuple):
    message: Stored
    topic: str
    receipt: str
    due_ms: int

    @property
    def body(self) -> str:
        return self.message.body.decode()


class Consumer:
    """Of the group, at whichever broker serves the topic."""

    def __init__(self) -> None:
        self.deliveries: dict[str, list[int]] = {}
        """By body: the attempt of each delivery."""
        self.acknowledged: set[str] = set()
        """Bodies that were acknowledged in time."""
        self.too_late: set[str] = set()
        """Bodies whose acknowledgement may have come too late, on a machine that takes its time; they are not judged."""

    def pop(self, wire: Wire, count: int, invisible_ms: int) -> list[Popped]:
        fields = {
            "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "maxMsgNums": str(count), "invisibleTime": str(invisible_ms),
            "pollTime": "0", "bornTime": str(int(time.time() * 1000)), "initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
        }  # fmt: skip
        head, body = wire.ask(POP, fields)
        if head["code"] != SUCCESS:
            return []
        said = head["extFields"]
        starts = {entry.split(" ")[0]: entry.split(" ")[2] for entry in said["startOffsetInfo"].split(";")}
        found = []
        for message in records(body):
            receipt = message.properties.get("POP_CK") or (
                f"{starts['0']} {said['popTime']} {said['invisibleTime']} {said['reviveQid']} 0 broker-a 0 {message.queue_offset}"
            )
            words = receipt.split(" ")
            topic = TOPIC if words[4] == "0" else f"%RETRY%{GROUP}_{TOPIC}"
            popped = Popped(message, topic, receipt, int(words[1]) + int(words[2]))
            assert popped.body not in self.acknowledged, f"{popped.body} was acknowledged"
            self.deliveries.setdefault(popped.body, []).append(message.reconsume_times)
            found.append(popped)
        return found

    def ack(self, wire: Wire, popped: Popped) -> None:
        wire.call(ACK, self._about(popped))
        if time.time() * 1000 < popped.due_ms - SOON_MS:
            self.acknowledged.add(popped.body)
        else:
            self.too_late.add(popped.body)

    def renew(self, wire: Wire, popped: Popped, invisible_ms: int) -> Popped:
        said, _ = wire.call(CHANGE, self._about(popped) | {"invisibleTime": str(invisible_ms)})
        words = popped.receipt.split(" ")
        words[0] = str(popped.message.queue_offset)
        words[1:4] = said["popTime"], said["invisibleTime"], said["reviveQid"]
        return popped._replace(receipt=" ".join(words), due_ms=int(words[1]) + int(words[2]))

    def _about(self, popped: Popped) -> dict[str, str]:
        return {
            "consumerGroup": GROUP, "topic": popped.topic, "queueId": "0", "extraInfo": popped.receipt,
            "offset": popped.receipt.split(" ")[7],
        }  # fmt: skip

    def drain(self, wire: Wire, bodies: set[str]) -> None:
        """Pop and acknowledge until these have been delivered a second time."""
        ends = time.monotonic() + RETURN_LIMIT_S
        while any(len(self.deliveries[body]) < 2 for body in bodies):
            assert time.monotonic() < ends, f"of {bodies} only {self.deliveries} came"
            for popped in self.pop(wire, 8, LONG_MS):
                self.ack(wire, popped)
            time.sleep(0.1)

    def finish(self, wire: Wire) -> None:
        """Only what was acknowledged too late may still come."""
        for popped in self.pop(wire, 8, LONG_MS):
            assert popped.body in self.too_late
            self.ack(wire, popped)

    def judge(self, never: Set[str]) -> None:
        """Everything was delivered once, and what is `never` acknowledged at its first delivery once more."""
        judged = self.deliveries.keys() - self.too_late
        assert {body: self.deliveries[body] for body in judged} == {
            body: [0, 1] if body in never else [0] for body in judged
        }


def consume(consumer: Consumer, wire: Wire, name: str) -> tuple[list[Popped], set[str], int]:
    """A consumer's work at one broker; what it acknowledges later, what it never does, and when all of that is due."""
    for number in range(9):
        last = wire.send(TOPIC, 0, f"{name}-{number}".encode())
    while wire.max_offset(TOPIC, 0) <= last.queue_offset:  # RocketMQ shows a message a moment after it was answered
        time.sleep(0.05)
    first, second, lost = (consumer.pop(wire, 1, ms)[0] for ms in (LONG_MS, LONG_MS, SHORT_MS))
    (renewed,) = consumer.pop(wire, 1, SHORT_MS)
    together = consumer.pop(wire, 5, LONG_MS)
    assert [one.body for one in (first, second, lost, renewed, *together)] == [f"{name}-{n}" for n in range(9)]
    renewed = consumer.renew(wire, renewed, LONG_MS)
    for one in (second, together[3], together[1]):
        consumer.ack(wire, one)
    never = {lost.body, together[4].body}
    return [first, renewed, together[0], together[2]], never, max(together[0].due_ms, renewed.due_ms)


def wait_stored(wire: Wire) -> None:
    """Until the checkpoints are durable, and the offset that says so is saved."""
    while (wire.committed(GROUP, TOPIC, 0) or 0) < wire.max_offset(TOPIC, 0):
        time.sleep(0.1)
    time.sleep(2)
