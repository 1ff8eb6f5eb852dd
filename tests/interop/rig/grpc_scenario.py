"""One run of several clients of RocketMQ 5 and of two older ones against one broker; tests then look at what each heard.

Every client has topics and groups of its own, and a thread here that gives its commands. All share one topic, into which each sends what
all hear. Nobody sends before everybody listens. At the end a broker of ours is stopped and started, under running clients.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from rig.brokers import Kind
from rig.drivers import Driver, DriverFailed, Event, java_driver
from rig.grpc_clients import GrpcBroker, GrpcClient
from rig.toolchain import BROKER_VERSION, OLD_CLIENT_VERSION

SETTINGS: Final = {
    "transactionTimeOut": "3000",
    "transactionCheckInterval": "2000",
    "recallMessageEnable": "true",
    "enableMixedMessageType": "true",
}
TYPES: Final = {"Plain": "NORMAL", "Ordered": "FIFO", "Timed": "DELAY", "Decided": "TRANSACTION", "Urgent": "PRIORITY"}
SHARED: Final = "Everybody"
REMOTING: Final = (OLD_CLIENT_VERSION, BROKER_VERSION)
"""Releases of the client of the older protocol."""
ORDERED: Final = ("a1", "a2", "a3", "b1", "b2", "b3")
PRIORITIES: Final = (1, 3, 2, 7)
"""One message each; none has 0, which the client for Node.js takes for none."""
EXPECTED: Final = {"Red": 2, "Dear": 2, "Failing": 2, "InOrder": len(ORDERED), "Clock": 2, "Settled": 2}
"""How much the listener of each group agrees to."""
INVISIBLE_MS: Final = 10_000
"""The shortest that a receive may ask for."""
HIDDEN_MS: Final = 3_000
NOTE: Final = "größer als ☕"
AFTER_RESTART: Final = "after the restart"
WAIT_S: Final = 120
ARRIVAL_LIMIT_S: Final = 60
RETURN_LIMIT_S: Final = 15


class Said(NamedTuple):
    """What one client sends to all, once at once and once timed."""

    tag: str
    keys: str
    note: str = NOTE


def said_by(name: str) -> Said:
    return Said(f"Tag-{name}", f"key-{name} second-{name}")


def own(name: str, part: str) -> str:
    """A topic or group of a client; versions have dots, which these may not have."""
    return f"{name.replace('.', '_')}-{part}"


class GrpcScenario:
    """`types`: those with topics. `due_ms`: when what is timed is due. `back_s`: how long each client needed to hear something after
    the restart."""

    def __init__(self, kind: Kind, broker: GrpcBroker, clients: Sequence[GrpcClient], folder: Path) -> None:
        self.kind, self.broker, self.clients = kind, broker, clients
        self.types = [part for part in TYPES if part != "Urgent" or kind is Kind.ORBITMQ]
        self.due_ms = 0
        self.back_s: dict[str, float] = {}
        self._folder = folder
        self._drivers: dict[str, Driver] = {}
        self._runs: dict[str, Future[None]] = {}

    @property
    def names(self) -> list[str]:
        return [client.name for client in self.clients] + list(REMOTING)

    def topics_of(self, client: GrpcClient) -> dict[str, str]:
        """Its own topics and the shared one, and their types. A client that is older than a type does not start with a topic of it."""
        kept = {own(client.name, part): TYPES[part] for part in self.types if part != "Urgent" or client.prioritizes}
        return {**kept, SHARED: "MIXED"}

    def heard(self, name: str) -> Driver:
        """The driver of a client, for its events. Raises what went wrong in its run."""
        self._runs[name].result()
        return self._drivers[name]

    def run(self, stack: ExitStack) -> None:
        """Raises nothing that a client did. There are the topics that it takes; the drivers end with the stack."""
        for client in self.clients:
            driver = client.drive(self.broker.endpoint, self.topics_of(client), self._folder / client.name)
            self._drivers[client.name] = driver
            stack.push(driver.__exit__)
        for version in REMOTING:
            driver = self._drivers[version] = java_driver(version, self.broker.name_server, self._folder / version)
            stack.push(driver.__exit__)
        everybody = _Gathering(len(self.names))
        with ThreadPoolExecutor(len(self.names)) as pool:
            for client in self.clients:
                self._runs[client.name] = pool.submit(self._run, client, everybody)
            for version in REMOTING:
                self._runs[version] = pool.submit(self._run_remoting, version, everybody)
        well = [name for name, run in self._runs.items() if run.exception() is None]
        if self.kind is Kind.ORBITMQ:
            self._restart([client.name for client in self.clients if client.name in well])
        for name in well:
            try:
                self._drivers[name].close()
            except DriverFailed as failed:
                self._runs[name] = Future()
                self._runs[name].set_exception(failed)

    def _run(self, client: GrpcClient, everybody: _Gathering) -> None:
        driver = self._drivers[client.name]
        with everybody.arriving():
            driver.wait(_is_ready, WAIT_S, "start")
            if client.pushes:
                _listen(driver, client)
        self.due_ms = everybody.began_ms // 1000 * 1000 + 8_000
        said = said_by(client.name)
        for body, more in ((client.name, {}), (f"{client.name}-timed", {"at": self.due_ms})):
            driver.command("send", topic=SHARED, body=body, tag=said.tag, key=said.keys, note=said.note, **more)
        _send(driver, client)
        _invisible_times(driver, client)
        if "Urgent" in self.types and client.prioritizes:
            _priorities(driver, client)
        if client.pushes:
            counts = {own(client.name, part): count for part, count in EXPECTED.items()}
            _wait_agreed(driver, {**counts, own(client.name, SHARED): 2 * len(self.names)})

    def _run_remoting(self, version: str, everybody: _Gathering) -> None:
        driver, group = self._drivers[version], own(version, SHARED)
        with everybody.arriving():
            driver.wait(_is_ready, WAIT_S, "start")
            driver.command("consume", group=group, topic=SHARED, fail=1, retryLevel=1)
        self.due_ms = everybody.began_ms // 1000 * 1000 + 8_000
        said = said_by(version)
        note = f"note:{said.note}"
        timed: dict[str, object] = {"DeliverTimeMs": self.due_ms}
        if version == OLD_CLIENT_VERSION:  # it has no name for the property, and lets a program set it
            timed = {"user": f"{note}|TIMER_DELIVER_MS:{self.due_ms}"}
        for body, more in ((version, {}), (f"{version}-timed", timed)):
            sent = {"prefix": body, "tag": said.tag, "key": said.keys, "user": note, **more}
            driver.command("produce", topic=SHARED, **sent)
        _wait_agreed(driver, {group: 2 * len(self.names)})

    def _restart(self, names: Sequence[str]) -> None:
        """Stop and start the broker, then send; each client is to hear it soon."""
        self.broker.stop()
        self.broker.start()
        began = time.monotonic()
        with self.broker.wire() as wire:
            wire.send(SHARED, 0, AFTER_RESTART.encode(), {"UNIQ_KEY": "0" * 32})
        for name in names:
            driver, group = self._drivers[name], own(name, SHARED)
            left = max(0.1, began + RETURN_LIMIT_S - time.monotonic())
            if driver.satisfied(lambda _: driver.events("received", group=group, body=AFTER_RESTART), left):  # noqa: B023
                self.back_s[name] = time.monotonic() - began


class _Gathering:
    """Nobody goes on before everybody has arrived, or failed on the way. `began_ms`: when they went on."""

    def __init__(self, count: int) -> None:
        self._missing, self._changed = count, threading.Condition()
        self.began_ms = 0

    @contextmanager
    def arriving(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._arrive()
            raise
        self._arrive()
        with self._changed:
            if not self._changed.wait_for(lambda: self._missing == 0, WAIT_S):
                raise TimeoutError(f"{self._missing} clients did not start within {WAIT_S} s")

    def _arrive(self) -> None:
        with self._changed:
            self._missing -= 1
            if self._missing == 0:
                self.began_ms = int(time.time() * 1000)
                self._changed.notify_all()


def _is_ready(events: list[Event]) -> bool:
    return any(event["event"] == "ready" for event in events)


def _listen(driver: Driver, client: GrpcClient) -> None:
    def push(part: str, topic: str, **options: object) -> None:
        driver.command("push", group=own(client.name, part), topic=own(client.name, topic), **options)

    push("Red", "Plain", tags="red || crimson")
    push("Dear", "Plain", sql="price > 10 AND TAGS IN ('blue', 'red')")
    push("Failing", "Plain", tags="green", fail=1)
    push("InOrder", "Ordered", fail=1 if client.retries_in_order else 0)
    push("Clock", "Timed")
    push("Settled", "Decided")
    driver.command("push", group=own(client.name, SHARED), topic=SHARED, fail=1)


def _send(driver: Driver, client: GrpcClient) -> None:
    def send(part: str, body: str, **more: object) -> list[Event]:
        sent = driver.command("send", topic=own(client.name, part), body=body, **more)
        return [event for event in sent if event["event"] == "sent"]

    now_ms = int(time.time() * 1000)
    (taken_back,) = send("Timed", "recalled", at=now_ms + 9_000)
    send("Timed", "soon", at=now_ms + 4_000)
    send("Timed", "later", at=now_ms + 12_000)
    if client.recalls:
        driver.command("recall", topic=own(client.name, "Timed"), handle=taken_back["handle"])
    for state in ("commit", "rollback"):
        decided = {"topic": own(client.name, "Decided"), "checked": state}
        driver.command("transact", body=state, state=state, **decided)
        driver.command("transact", body=f"later-{state}", state="unknown", **decided)
    for order in ("a", "b"):
        send("Ordered", ",".join(body for body in ORDERED if body.startswith(order)), order=order)
    send("Plain", "a,b", tag="red", price=5)
    send("Plain", "c,d", tag="blue", price=20)
    send("Plain", "e,f", tag="green")
    send("Plain", "slow", tag="slow")
    with suppress(DriverFailed):  # some refuse it themselves, and say so by an exception
        send("Plain", "wrong", order="a")


def _invisible_times(driver: Driver, client: GrpcClient) -> None:
    """A message that is left alone, and one whose receipt has expired; then hidden, then acknowledged, then acknowledged again."""
    pop = _Popping(driver, client, "Slow", "Plain", tags="slow", invisible=INVISIBLE_MS)
    pop.until(1, then="keep")
    time.sleep(INVISIBLE_MS / 1000 + 0.3)
    driver.command("again", then="ack")
    pop.until(2, then=f"hide:{HIDDEN_MS}" if client.hides else "keep")
    pop.until(3, then="ack")
    driver.command("again", then="ack")
    pop.once()


def _priorities(driver: Driver, client: GrpcClient) -> None:
    for priority in PRIORITIES:
        driver.command("send", topic=own(client.name, "Urgent"), body=str(priority), priority=priority)
    _Popping(driver, client, "Lift", "Urgent", count=1).until(len(PRIORITIES))


class _Popping:
    """Receive calls of a group of a client."""

    def __init__(self, driver: Driver, client: GrpcClient, group: str, topic: str, **options: object) -> None:
        self._driver, self._group = driver, own(client.name, group)
        self._options = {"topic": own(client.name, topic), **options}

    def once(self, **more: object) -> None:
        self._driver.command("pop", group=self._group, **self._options, **more)

    def until(self, count: int, **more: object) -> None:
        """Pop until the group has had so many. RocketMQ's proxy knows a client only some time after it has begun: it may ask again."""
        ends = time.monotonic() + WAIT_S
        while len(self._driver.events("popped", group=self._group)) < count:
            assert time.monotonic() < ends, f"{self._group} has not got {count} in {WAIT_S} s"
            try:
                self.once(**more)
            except DriverFailed as failed:
                if "Settings" not in str(failed):
                    raise


def _wait_agreed(driver: Driver, counts: dict[str, int]) -> None:
    """Wait until the listeners of these groups have agreed to so much, or for long enough: the tests see what is missing."""

    def agreed(_: list[Event]) -> bool:
        heard = Counter(event["group"] for event in driver.events("received", ok=True))
        return all(heard[group] >= count for group, count in counts.items())

    driver.satisfied(agreed, ARRIVAL_LIMIT_S)
