"""Released clients of RocketMQ 5 at the gRPC port of a broker: what they send, receive, refuse, hide, recall and decide.

All of them run side by side ([rig/grpc_scenario.py](rig/grpc_scenario.py)); each test looks at what one of them heard. What they demand,
RocketMQ's broker with its proxy inside satisfies as well (`INTEROP_BROKERS=java`), with exceptions named here.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from rig.brokers import KINDS_UNDER_TEST, Kind
from rig.dispatched import until_routed
from rig.drivers import Driver, Event
from rig.grpc_clients import CLIENTS, GrpcBroker, GrpcClient
from rig.grpc_scenario import (
    AFTER_RESTART,
    HIDDEN_MS,
    INVISIBLE_MS,
    ORDERED,
    REMOTING,
    RETURN_LIMIT_S,
    SETTINGS,
    SHARED,
    GrpcScenario,
    own,
    said_by,
)
from rig.toolchain import java_build

import orbitmq
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig

pytestmark = pytest.mark.java

QUEUES_COUNT = 4

MARKS = {"node": pytest.mark.node, "go": pytest.mark.go}
EACH = [pytest.param(client, id=client.name, marks=MARKS.get(client.name, ())) for client in CLIENTS]
each_client = pytest.mark.parametrize("client", EACH)


@pytest.fixture(scope="module", params=KINDS_UNDER_TEST, ids=[kind.value for kind in KINDS_UNDER_TEST])
def scenario(
    request: pytest.FixtureRequest,
    available: Callable[[Callable[[], object]], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[GrpcScenario]:
    """The clients whose tests were asked for, all at once."""
    kind: Kind = request.param
    clients = [client for client in CLIENTS if client in asked_for(request.session.items)]
    available(lambda: [java_build(version) for version in REMOTING])
    for client in clients:
        available(client.command)
    folder = tmp_path_factory.mktemp("grpc")
    broker = GrpcBroker(kind, folder / "broker", SETTINGS)
    with ExitStack() as stack:
        stack.callback(broker.kill)
        broker.start()
        run = GrpcScenario(kind, broker, clients, folder)
        asyncio.run(create_topics_and_groups(run))
        run.run(stack)
        yield run
        if kind is Kind.ORBITMQ:
            broker.stop()


@each_client
def test_a_listener_gets_what_its_filter_lets_through(scenario: GrpcScenario, client: GrpcClient) -> None:
    assert agreed(scenario, client, "Red") == {"a": 1, "b": 1}
    assert agreed(scenario, client, "Dear") == {"c": 1, "d": 1}


@each_client
def test_what_a_listener_refuses_comes_again_counted(scenario: GrpcScenario, client: GrpcClient) -> None:
    assert attempts(scenario.heard(client.name), own(client.name, "Failing")) == {"e": [1, 2], "f": [1, 2]}
    assert agreed(scenario, client, "Failing") == {"e": 1, "f": 1}


@each_client
def test_a_message_that_failed_comes_again_before_the_next_of_its_order(
    scenario: GrpcScenario, client: GrpcClient
) -> None:
    heard = scenario.heard(client.name).events("received", group=own(client.name, "InOrder"))
    times = 2 if client.retries_in_order else 1
    for order in ("a", "b"):
        bodies = [event["body"] for event in heard if event["order"] == order]
        assert bodies == [body for body in ORDERED if body.startswith(order) for _ in range(times)]


@each_client
def test_a_timed_message_comes_when_it_is_due_unless_it_was_taken_back(
    scenario: GrpcScenario, client: GrpcClient
) -> None:
    driver = scenario.heard(client.name)
    taken_back = {"recalled"} if client.recalls else set()
    assert agreed(scenario, client, "Clock").keys() == {"recalled", "soon", "later"} - taken_back
    for event in driver.events("received", group=own(client.name, "Clock")):
        assert event["receivedAt"] >= event["deliverAt"] > 0
    (sent,) = driver.events("sent", body="recalled")
    assert [event["msgId"] for event in driver.events("recalled")] == [sent["msgId"] for _ in taken_back]
    assert not driver.events("recall_failed")


@each_client
def test_what_is_committed_comes_at_once_or_when_the_producer_was_asked(
    scenario: GrpcScenario, client: GrpcClient
) -> None:
    found, asked = (
        agreed(scenario, client, "Settled"),
        {event["body"] for event in scenario.heard(client.name).events("checked")},
    )
    if scenario.kind is Kind.JAVA:  # asks about what was decided, too, and stores what is committed twice
        assert found.keys() == {"commit", "later-commit"}
        return
    assert found == {"commit": 1, "later-commit": 1}
    assert asked == {"later-commit", "later-rollback"}


@each_client
def test_a_message_is_hidden_for_as_long_as_was_asked(scenario: GrpcScenario, client: GrpcClient) -> None:
    driver = scenario.heard(client.name)
    popped = driver.events("popped", group=own(client.name, "Slow"))
    assert [(event["body"], event["attempt"]) for event in popped] == [("slow", 1), ("slow", 2), ("slow", 3)]
    first, second, third = (event["receivedAt"] for event in popped)
    assert second - first >= INVISIBLE_MS - 100
    assert third - second >= (HIDDEN_MS if client.hides else INVISIBLE_MS) - 100
    assert ["INVALID_RECEIPT_HANDLE" in event["error"] for event in driver.events("refused")] == [
        True
    ] * client.tells_late


@each_client
def test_a_message_of_another_type_than_its_topic_is_not_sent(scenario: GrpcScenario, client: GrpcClient) -> None:
    driver = scenario.heard(client.name)
    assert not driver.events("sent", body="wrong")
    (failed,) = driver.events("send_failed", body="wrong") or driver.events("failed")
    assert "not match" in failed["error"]


@pytest.mark.parametrize("client", [each for each in EACH if each.values[0].prioritizes])  # type: ignore[union-attr]
def test_priorities(scenario: GrpcScenario, client: GrpcClient) -> None:
    """The highest first, and in the order of sending what shares a queue."""
    if "Urgent" not in scenario.types:
        pytest.skip("this broker is older than priorities")
    popped = scenario.heard(client.name).events("popped", group=own(client.name, "Lift"))
    assert [event["body"] for event in popped] == ["3", "7", "2", "1"]


@each_client
def test_everybody_hears_the_same(scenario: GrpcScenario, client: GrpcClient) -> None:
    """Ids, keys, tags, properties, due times and attempts, from clients of either protocol."""
    driver, group = scenario.heard(client.name), own(client.name, SHARED)
    heard = [event for event in driver.events("received", group=group) if event["body"] != AFTER_RESTART]
    assert sorted((event["body"], event["attempt"]) for event in heard) == sorted(
        (body, attempt) for body in sent_to_all(scenario) for attempt in (1, 2)
    )
    for event in heard:
        body = event["body"]
        assert (body, event["msgId"], event["deliverAt"]) == (body, *sent_to_all(scenario)[body])
        said = said_by(sender_of(body))
        assert (event["tag"], set(event["keys"].split())) == (said.tag, set(keys_of(body)))
        assert event["properties"] == {"note": said.note}


@pytest.mark.parametrize("version", REMOTING)
def test_older_clients_hear_the_same(scenario: GrpcScenario, version: str) -> None:
    group, everything = own(version, SHARED), sent_to_all(scenario)
    heard = [
        event for event in scenario.heard(version).events("received", group=group) if event["body"] != AFTER_RESTART
    ]
    assert sorted((event["body"], event["reconsumeTimes"]) for event in heard) == sorted(
        (body, attempt) for body in everything for attempt in (0, 1)
    )
    for event in heard:
        body, properties = event["body"], event["properties"]
        said, (unique_key, due_ms) = said_by(sender_of(body)), everything[body]
        # A message that such a client sends back loses its time, with either broker.
        due = properties.get("TIMER_DELIVER_MS", "0") if event["reconsumeTimes"] == 0 else str(due_ms)
        assert (body, properties["UNIQ_KEY"], due) == (body, unique_key, str(due_ms))
        assert (event["tags"], set(event["keys"].split())) == (said.tag, set(keys_of(body)))
        assert properties["note"] == said.note


@each_client
def test_a_client_consumes_again_soon_after_a_restart(scenario: GrpcScenario, client: GrpcClient) -> None:
    if scenario.kind is Kind.JAVA:
        pytest.skip("RocketMQ's broker is not restarted: that takes a minute")
    scenario.heard(client.name)
    assert scenario.back_s.get(client.name, float("inf")) < RETURN_LIMIT_S


async def create_topics_and_groups(run: GrpcScenario) -> None:
    in_order = SubscriptionGroupConfig(consume_message_orderly=True)
    async with orbitmq.connect(run.broker.name_server) as mq:
        for topic, kept in {
            topic: kept for client in run.clients for topic, kept in run.topics_of(client).items()
        }.items():
            await mq.admin.create_topic(topic, queues_count=QUEUES_COUNT, attributes={"message.type": kept})
            await until_routed(mq, topic)
        for client in run.clients:
            await mq.admin.create_group(own(client.name, "InOrder"), settings=in_order)


def asked_for(items: list[pytest.Item]) -> list[object]:
    """The clients whose tests are to run."""
    return [item.callspec.params.get("client") for item in items if hasattr(item, "callspec")]


def agreed(scenario: GrpcScenario, client: GrpcClient, part: str) -> Counter[str]:
    """How often the listener of a group has agreed to each body."""
    heard = scenario.heard(client.name).events("received", group=own(client.name, part), ok=True)
    return Counter(event["body"] for event in heard)


def attempts(driver: Driver, group: str) -> dict[str, list[int]]:
    """Numbers of the attempts at each body, as a listener heard them."""
    found: dict[str, list[int]] = defaultdict(list)
    for event in driver.events("received", group=group):
        found[event["body"]].append(event["attempt"])
    return found


def sent_to_all(scenario: GrpcScenario) -> dict[str, tuple[str, int]]:
    """Id and due time of each message that everybody is to hear, by its body."""
    found: dict[str, tuple[str, int]] = {}
    for name in scenario.names:
        first, second = shared_sends(scenario.heard(name), name)
        number = "-0" if name in REMOTING else ""
        found[f"{name}{number}"] = first["msgId"], 0
        found[f"{name}-timed{number}"] = second["msgId"], scenario.due_ms
    return found


def shared_sends(driver: Driver, name: str) -> list[Event]:
    if name in REMOTING:
        return driver.events("sent", topic=SHARED)
    return driver.events("sent", body=name) + driver.events("sent", body=f"{name}-timed")


def sender_of(body: str) -> str:
    return body.removesuffix("-0").removesuffix("-timed")


def keys_of(body: str) -> list[str]:
    """The older driver puts a number behind what it is told."""
    first, second = said_by(sender_of(body)).keys.split()
    return [first, f"{second}-0" if sender_of(body) in REMOTING else second]
