"""RocketMQ's proxies in front of our broker and name server, with RocketMQ's gRPC client: how we answer a proxy is judged by programs that
nobody here wrote. What the test demands, RocketMQ's own broker satisfies as well (`INTEROP_BROKERS=java`), with one exception named below.

Everything is sent first, so that the waiting times pass together.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rig.brokers import KINDS_UNDER_TEST, BrokerUnderTest, Kind, ProxyRole
from rig.dispatched import until_routed
from rig.drivers import Driver, DriverFailed, Event, grpc_driver
from rig.toolchain import BROKER_VERSION, GRPC_CLIENT_VERSION, NEW_VERSION, java_build

import orbitmq
from orbitmq.protocol.remoting.bodies import CustomizedRetryPolicy, GroupRetryPolicy, SubscriptionGroupConfig

pytestmark = pytest.mark.java

SETTINGS = {"transactionTimeOut": "3000", "transactionCheckInterval": "2000", "recallMessageEnable": "true"}
PROXY_USER = json.dumps({"accessKey": "proxy", "secretKey": "proxy-secret"})
SIGNED = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "innerClientAuthenticationCredentials": PROXY_USER,
}
"""A broker of ours that knows its callers. The proxy of 5.3.3 calls it signed; that of 5.5.0 calls one that is open."""
TYPES = {"Plain": "NORMAL", "Ordered": "FIFO", "Timed": "DELAY", "Decided": "TRANSACTION"}
TYPES_OF_RELEASES = {BROKER_VERSION: TYPES, NEW_VERSION: {**TYPES, "Urgent": "PRIORITY"}}
QUEUES_COUNT = 4
OPTIONS = orbitmq.ClientOptions(credentials=orbitmq.Credentials("proxy", "proxy-secret"))
RETRY_MS = 1000
ORDERED = ["a1", "a2", "a3", "b1", "b2", "b3"]
DEAD = {"Hopeless": {"e", "f"}, "HopelessInOrder": set(ORDERED)}
"""Groups that refuse everything, and what they get."""
WAIT_S = 180


@pytest.fixture(params=KINDS_UNDER_TEST, ids=lambda kind: kind.value)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture(params=TYPES_OF_RELEASES)
def proxy(
    request: pytest.FixtureRequest,
    kind: Kind,
    available: Callable[[Callable[[], object]], None],
    brokers: Callable[..., BrokerUnderTest],
    tmp_path: Path,
) -> Iterator[ProxyRole]:
    release: str = request.param
    available(lambda: (java_build(release), java_build(GRPC_CLIENT_VERSION)))
    signs = kind is Kind.ORBITMQ and release == BROKER_VERSION
    broker = brokers(kind, "broker", settings=SETTINGS | (SIGNED if signs else {}), release=release).start()
    ports = broker.nameserver_port + 2, broker.nameserver_port + 5
    signing = {"enableAclRpcHookForClusterMode": True, "innerClientAuthenticationCredentials": PROXY_USER}
    role = ProxyRole(release, tmp_path / "proxy", ports, broker.name_server, signing if signs else None)
    role.start()
    try:
        role.wait_serving()
        yield role
    finally:
        role.kill()
    if kind is Kind.ORBITMQ:
        broker.stop()


def test_clients_of_a_proxy(proxy: ProxyRole, kind: Kind, tmp_path: Path) -> None:
    types = TYPES_OF_RELEASES[proxy.release]
    asyncio.run(create_topics_and_groups(proxy.name_server, types))
    with grpc_driver(proxy.address, list(types), tmp_path / "client") as driver:
        listen(driver)
        recalled_ms = send(driver)
        invisible_times(driver)
        ordered_pops(driver)
        if "Urgent" in types:
            priorities(driver)
        filters(driver)
        failures(driver)
        order(driver)
        times(driver, recalled_ms)
        transactions(driver, kind)
        asyncio.run(until_dead(proxy.name_server))
        dead_letters(driver)


async def create_topics_and_groups(name_server: str, types: dict[str, str]) -> None:
    soon = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=[RETRY_MS]))
    groups = {
        "Failing": SubscriptionGroupConfig(group_retry_policy=soon),
        "Hopeless": SubscriptionGroupConfig(group_retry_policy=soon, retry_max_times=1),
        "InOrder": SubscriptionGroupConfig(group_retry_policy=soon, consume_message_orderly=True),
        "HopelessInOrder": SubscriptionGroupConfig(
            group_retry_policy=soon, consume_message_orderly=True, retry_max_times=1
        ),
        "OrderedPops": SubscriptionGroupConfig(consume_message_orderly=True),
    }
    async with orbitmq.connect(name_server, options=OPTIONS) as mq:
        for topic, message_type in types.items():
            attributes = {"message.type": message_type}
            await mq.admin.create_topic(topic, queues_count=QUEUES_COUNT, attributes=attributes)
            await until_routed(mq, topic)
        for group, settings in groups.items():
            await mq.admin.create_group(group, settings=settings)


def listen(driver: Driver) -> None:
    driver.command("push", group="Red", topic="Plain", tags="red || crimson")
    driver.command("push", group="Dear", topic="Plain", sql="price > 10 AND TAGS IN ('blue', 'red')")
    driver.command("push", group="Failing", topic="Plain", tags="green", fail=1)
    driver.command("push", group="Hopeless", topic="Plain", tags="green", fail=-1)
    driver.command("push", group="InOrder", topic="Ordered", fail=1)
    driver.command("push", group="HopelessInOrder", topic="Ordered", fail=-1)
    driver.command("push", group="Clock", topic="Timed")
    driver.command("push", group="Settled", topic="Decided")


def send(driver: Driver) -> int:
    """When the message that is taken back would be due."""
    now = int(time.time() * 1000)
    (taken_back,) = sent(driver.command("send", topic="Timed", body="recalled", at=now + 10_000))
    driver.command("send", topic="Timed", body="soon", at=now + 4_000)
    driver.command("send", topic="Timed", body="later", at=now + 12_000)
    recalls = driver.command("recall", topic="Timed", handle=taken_back["handle"])
    assert [e["msgId"] for e in recalls if e["event"] == "recalled"] == [taken_back["msgId"]]
    for state in ("commit", "rollback"):
        driver.command("transact", topic="Decided", body=state, state=state)
        driver.command("transact", topic="Decided", body=f"later-{state}", state="unknown", checked=state)
    driver.command("send", topic="Ordered", body="a1,a2,a3", order="a")
    driver.command("send", topic="Ordered", body="b1,b2,b3", order="b")
    driver.command("send", topic="Plain", body="a,b", tag="red", price=5)
    driver.command("send", topic="Plain", body="c,d", tag="blue", price=20)
    driver.command("send", topic="Plain", body="e,f", tag="green")
    driver.command("send", topic="Plain", body="slow", tag="slow")
    with pytest.raises(DriverFailed, match="message type not match"):
        driver.command("send", topic="Plain", body="wrong", order="a")
    return now + 10_000


def sent(events: list[Event]) -> list[Event]:
    return [event for event in events if event["event"] == "sent"]


def invisible_times(driver: Driver) -> None:
    """What is left alone comes again, what is hidden for longer comes later, what is acknowledged never."""
    pop: dict[str, Any] = {"group": "Slow", "topic": "Plain", "tags": "slow", "invisible": 4000}
    for attempt, then in enumerate(("keep", "hide:6000", "ack"), 1):
        pop_until(driver, lambda popped, attempt=attempt: len(popped) >= attempt, then=then, **pop)  # type: ignore[misc]
    popped = driver.events("popped", group="Slow")
    assert [(event["body"], event["attempt"]) for event in popped] == [("slow", 1), ("slow", 2), ("slow", 3)]
    first, second, third = (event["receivedAt"] for event in popped)
    assert second - first > 3500
    assert third - second > 5500
    driver.command("again", then="ack")
    driver.command("pop", **pop)
    assert driver.events("popped", group="Slow") == popped
    assert not driver.events("refused")


def ordered_pops(driver: Driver) -> None:
    """A queue is blocked until all that was popped of it is acknowledged; what is not comes again before the rest."""
    driver.command("pop", group="OrderedPops", topic="Ordered", count=2, invisible=3000, then="keep")
    kept = driver.events("popped", group="OrderedPops")[0]["order"]
    pop_all(driver, "OrderedPops", "Ordered", set(ORDERED))
    for start in ("a", "b"):
        heard = [event for event in driver.events("popped", group="OrderedPops") if event["order"] == start]
        again = [1, 2] if start == kept else []
        assert [(event["body"], event["attempt"]) for event in heard] == [
            *((f"{start}{number}", 1) for number in again),
            *((f"{start}{number}", 2 if number in again else 1) for number in (1, 2, 3)),
        ]


def priorities(driver: Driver) -> None:
    """The highest first, and in the order of sending what shares a queue."""
    for priority in (0, 2, 1, 3, 7):
        driver.command("send", topic="Urgent", body=str(priority), priority=priority)
    pop_until(driver, lambda popped: len(popped) == 5, group="Lift", topic="Urgent", count=1)
    assert [event["body"] for event in driver.events("popped", group="Lift")] == ["3", "7", "2", "1", "0"]
    assert [event["priority"] for event in driver.events("popped", group="Lift")] == [3, 7, 2, 1, 0]


def filters(driver: Driver) -> None:
    wait_taken(driver, "Red", ["a", "b"])
    wait_taken(driver, "Dear", ["c", "d"])


def failures(driver: Driver) -> None:
    """What a listener refuses comes again, counted."""
    wait_taken(driver, "Failing", ["e", "f"])
    assert attempts(driver, "Failing") == {"e": [1, 2], "f": [1, 2]}


def order(driver: Driver) -> None:
    """A message that failed comes again before the next one of its order."""
    wait_taken(driver, "InOrder", ORDERED)
    for start in ("a", "b"):
        heard = [event for event in driver.events("received", group="InOrder") if event["order"] == start]
        assert [(event["body"], event["attempt"]) for event in heard] == [
            (body, attempt) for body in ORDERED if body.startswith(start) for attempt in (1, 2)
        ]


def times(driver: Driver, recalled_ms: int) -> None:
    wait_taken(driver, "Clock", ["soon", "later"])
    for event in driver.events("received", group="Clock"):
        assert event["receivedAt"] >= event["deliverAt"] > 0
    assert time.time() * 1000 > recalled_ms


def transactions(driver: Driver, kind: Kind) -> None:
    """What was committed arrives, at once or when the producer was asked."""
    driver.wait(lambda _: len({event["body"] for event in driver.events("checked")}) == 2, WAIT_S, "both checks")
    if kind is Kind.JAVA:  # asks again while the answer is under way, and stores what is committed twice
        driver.wait(lambda _: len(driver.events("received", group="Settled")) >= 2, WAIT_S, "both committed")
        return
    wait_taken(driver, "Settled", ["commit", "later-commit"])
    # An answer that is slower than the pause between checks is asked for again.
    assert {event["body"] for event in driver.events("checked")} == {"later-commit", "later-rollback"}


async def until_dead(name_server: str) -> None:
    async with orbitmq.connect(name_server, options=OPTIONS) as mq:
        for group in DEAD:
            await until_routed(mq, f"%DLQ%{group}")


def dead_letters(driver: Driver) -> None:
    """A group gets a message as often as it may fail, and once more; then it lies under the dead letters."""
    for group, bodies in DEAD.items():
        pop_all(driver, f"Undertaker-{group}", f"%DLQ%{group}", bodies)
        assert attempts(driver, group) == {body: [1, 2] for body in bodies}


def wait_taken(driver: Driver, group: str, bodies: list[str]) -> None:
    """Wait until the listener of a group has agreed to these bodies; it has to each one once, and to no other."""

    def taken() -> Counter[str]:
        return Counter(event["body"] for event in driver.events("received", group=group, ok=True))

    driver.wait(lambda _: taken() >= Counter(bodies), WAIT_S, f"{bodies} for {group}")
    assert taken() == Counter(bodies)


def pop_until(driver: Driver, condition: Callable[[list[Event]], bool], *, group: str, **options: Any) -> None:
    """Pop until what the group has had satisfies the condition."""
    ends = time.monotonic() + WAIT_S
    while not condition(driver.events("popped", group=group)):
        assert time.monotonic() < ends, f"{group} has got {driver.events('popped', group=group)} in {WAIT_S} s"
        driver.command("pop", group=group, **options)


def pop_all(driver: Driver, group: str, topic: str, bodies: set[str]) -> None:
    """Pop until the group has had these bodies."""
    pop_until(driver, lambda popped: {event["body"] for event in popped} >= bodies, group=group, topic=topic)


def attempts(driver: Driver, group: str) -> dict[str, list[int]]:
    """Numbers of the attempts at each body, as a listener heard them."""
    found: dict[str, list[int]] = defaultdict(list)
    for event in driver.events("received", group=group):
        found[event["body"]].append(event["attempt"])
    return found
