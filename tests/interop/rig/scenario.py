"""One run of a client against a broker that exercises everything its driver can do; tests then look at what was heard.

A client process takes seconds to start and a retry takes ten, so all consumers run side by side in one process and the
waiting is shared. The steps: create the topics over the wire, start all consumers and wait until the broker knows them,
send, wait until everything expected has come (or the limit is reached), close the client, keep the broker for questions.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, Final, NamedTuple

from rig.brokers import BrokerUnderTest
from rig.drivers import Driver, Event
from rig.wire import Refused, Wire

COUNT: Final = 20
DELAYED_COUNT: Final = 4
FAILING_COUNT: Final = 3
DELAY_LEVEL: Final = 2
DELAY_MS: Final = 5000
RETRY_MS: Final = 10_000
"""First retry of a client that leaves the level to the broker: level 3."""
BIG_SIZE: Final = 20_000
"""Above the 4 KiB from which clients compress."""
JOIN_LIMIT_S: Final = 180
ARRIVAL_LIMIT_S: Final = 180
SETTLE_S: Final = 2.0
"""From heartbeat to standing pulls: the broker cannot show that a client has finished its first rebalance."""
QUEUES: Final = 4


class Abilities(NamedTuple):
    """What a client offers besides plain and tagged sends, delay levels and push consumers."""

    oneway: bool
    batch: bool
    unknown_topics: bool
    """Sends to a topic without a route by way of the auto-creation topic."""
    chooses_retry_level: bool
    limits_attempts: bool


JAVA: Final = Abilities(oneway=True, batch=True, unknown_topics=True, chooses_retry_level=True, limits_attempts=True)
# The batch of the wheel's C++ library arrives as one empty message at RocketMQ 5.3 too: nothing to compare.
CPP: Final = Abilities(oneway=True, batch=False, unknown_topics=True, chooses_retry_level=False, limits_attempts=False)
NODE: Final = Abilities(
    oneway=False, batch=False, unknown_topics=False, chooses_retry_level=False, limits_attempts=True
)


class Scenario:
    """The run and its findings. `sent[part]` and `received(part)` are the driver's events."""

    def __init__(self, name: str, broker: BrokerUnderTest, abilities: Abilities) -> None:
        self.name, self.broker, self.abilities = name, broker, abilities
        self.sent: dict[str, list[Event]] = {}
        self._received: dict[str, list[Event]] = {}
        self.client_errors: list[Event] = []
        self.expected = {
            "plain": COUNT,
            "tagged": COUNT,
            "delayed": DELAYED_COUNT,
            "big": 2,
            "retry": 2 * FAILING_COUNT,
        }
        if abilities.limits_attempts:
            self.expected["dead"] = 2 * FAILING_COUNT
        if abilities.oneway:
            self.expected["oneway"] = COUNT
        if abilities.batch:
            self.expected["batch"] = COUNT

    def topic(self, part: str) -> str:
        return f"{self.name}_{part}"

    def group(self, part: str) -> str:
        return f"G_{self.name}_{part}"

    def received(self, part: str) -> list[Event]:
        return self._received[part]

    def bodies(self, part: str) -> Counter[str]:
        """How often each body was received."""
        return Counter(event["body"] for event in self._received[part])

    def stored(self, part: str, queues: int = QUEUES) -> list[Any]:
        """What the broker holds of a topic, read over the wire."""
        with self.broker.wire() as wire:
            return [record for queue_id in range(queues) for record in wire.read_queue(self.topic(part), queue_id)]

    def run(self, driver: Driver) -> Scenario:
        self._create_topics()
        self._start_consumers(driver)
        self._send(driver)
        expected = self.expected
        driver.satisfied(
            lambda events: all(self._heard(events, part) >= count for part, count in expected.items()), ARRIVAL_LIMIT_S
        )
        if self.abilities.limits_attempts:
            self._await_dead_letters()
        # A duplicate would follow shortly.
        driver.satisfied(lambda _events: False, 1)
        for part in expected:
            self._received[part] = driver.events("received", group=self.group(part))
        self.client_errors = driver.events("client_error") + driver.events("send_failed")
        driver.close()
        return self

    def _heard(self, events: list[Event], part: str) -> int:
        group = self.group(part)
        return sum(1 for event in events if event["event"] == "received" and event["group"] == group)

    def _await_dead_letters(self) -> None:
        """A client sends a message back after it has printed the last attempt. What does not come is missed by the contract."""
        ends = time.monotonic() + ARRIVAL_LIMIT_S
        with self.broker.wire() as wire:
            while dead_letters_count(wire, self.group("dead")) < FAILING_COUNT and time.monotonic() < ends:
                time.sleep(0.1)

    def _create_topics(self) -> None:
        with self.broker.wire() as wire:
            for part in self.expected:
                wire.create_topic(self.topic(part), QUEUES)

    def _start_consumers(self, driver: Driver) -> None:
        # One retry, then the dead-letter topic. The other clients send a limit of 16 with each send-back, whatever the group says.
        dead: dict[str, object] = {"fail": -1, "maxReconsume": 1}
        if self.abilities.chooses_retry_level:
            dead["retryLevel"] = 1
        extra: dict[str, dict[str, object]] = {
            "tagged": {"expression": "TagA || TagC"},
            "retry": {"fail": 1},
            "dead": dead,
        }
        for part in self.expected:
            driver.command("consume", group=self.group(part), topic=self.topic(part), **extra.get(part, {}))
        end = time.monotonic() + JOIN_LIMIT_S
        with self.broker.wire() as wire:
            while not all(wire.members(self.group(part)) for part in self.expected):
                if time.monotonic() > end:
                    missing = [part for part in self.expected if not wire.members(self.group(part))]
                    raise AssertionError(
                        f"consumers unknown to the broker after {JOIN_LIMIT_S} s: {missing}\n{self.broker.logs()}"
                    )
                time.sleep(0.1)
        time.sleep(SETTLE_S)

    def _send(self, driver: Driver) -> None:
        self._produce(driver, "plain", count=COUNT, key=f"{self.name}key")
        for tag in ("TagA", "TagB", "TagC"):
            self._produce(driver, "tagged", count=COUNT // 2, tag=tag, prefix=tag)
        self._produce(driver, "delayed", count=DELAYED_COUNT, level=DELAY_LEVEL)
        self._produce(driver, "big", count=2, size=BIG_SIZE)
        self._produce(driver, "retry", count=FAILING_COUNT)
        if self.abilities.limits_attempts:
            self._produce(driver, "dead", count=FAILING_COUNT)
        if self.abilities.oneway:
            self._produce(driver, "oneway", count=COUNT, mode="oneway")
        if self.abilities.batch:
            self._produce(driver, "batch", count=COUNT, mode="batch")
        if self.abilities.unknown_topics:
            self._produce(driver, "auto", count=3)

    def _produce(self, driver: Driver, part: str, **arguments: object) -> None:
        arguments.setdefault("prefix", part)
        printed = driver.command("produce", topic=self.topic(part), **arguments)
        self.sent.setdefault(part, []).extend(event for event in printed if event["event"] == "sent")


def dead_letters_count(wire: Wire, group: str) -> int:
    """How many dead letters a group has; none before the topic is made."""
    try:
        return wire.max_offset(f"%DLQ%{group}", 0)
    except Refused:
        return 0


def expected_bodies(prefix: str, count: int, times: int = 1) -> Counter[str]:
    """Bodies that `produce` with this prefix and count makes, each received `times` times."""
    return Counter({f"{prefix}-{i}": times for i in range(count)})
