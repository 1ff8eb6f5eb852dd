"""What a reader of the log sees of servers that are away and of requests that fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest
from scripted_cluster import NAME_SERVER, Broker, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client._async.connecting.troubles import Troubles
from orbitmq.client.options import ConsumeFrom, ConsumerOptions
from orbitmq.client.popping.pop_options import PopOptions
from orbitmq.client.pulling.lite_options import LiteConsumerOptions
from orbitmq.clock import ManualClock
from orbitmq.errors import ConnectionLostError, OrbitError
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.testing import EmbeddedBroker

Run = Callable[[Callable[[], object]], None]
FIRST = ConsumerOptions(consume_from=ConsumeFrom.FIRST)


@pytest.fixture
def eight(cluster: Cluster) -> Cluster:
    cluster.add_topic("T", queues=8)
    return cluster


def client(cluster: Cluster) -> Client:
    return Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]


def requests_since(broker: Broker, seen: int) -> list[int]:
    return [command.code for command in broker.log[seen:]]


@pytest.mark.parametrize("kind", ["consumer", "lite", "in order"])
def test_a_restart_of_a_broker_is_two_lines(
    run: Run, eight: Cluster, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    broker = eight.brokers["b-a"]

    async def restarted() -> None:
        await asyncio.sleep(30)
        before = len(broker.log)
        broker.stop()
        await asyncio.sleep(5)
        broker.up = True
        await asyncio.sleep(30)
        assert requests_since(broker, before)[0] == RequestCode.HEART_BEAT, "a broker learns first who is there"

    async def test() -> None:
        async with client(eight) as mq:
            if kind == "lite":
                async with mq.lite_consumer("g", LiteConsumerOptions(consume_from=ConsumeFrom.FIRST)) as lite:
                    await lite.subscribe("T")
                    await restarted()
            else:
                options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, orderly=kind == "in order")
                async with mq.consumer("g", "T", options=options):
                    await restarted()

    run(test)
    gone, back = lines(caplog)
    assert gone == "broker b-a (b-a:10911) is away: the connection was closed by the server"
    assert back.startswith("broker b-a (b-a:10911) is back after 5.")


def test_a_broker_that_stays_away_is_mentioned_ever_more_seldom(
    run: Run, eight: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with client(eight) as mq, mq.consumer("g", "T", options=FIRST):
            await asyncio.sleep(10)
            eight.brokers["b-a"].stop()
            await asyncio.sleep(300)

    run(test)
    said = lines(caplog)
    assert len(said) <= 7
    assert [line.split(":")[0] for line in said[:3]] == [
        "broker b-a (b-a",
        "broker b-a (b-a",
        "broker b-a (b-a",
    ]
    assert "has been away for 10 s" in said[1]
    assert "has been away for 30 s" in said[2]


def test_a_broker_whose_place_is_taken_is_back(run: Run, eight: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with client(eight) as mq, mq.consumer("g", "T", options=FIRST):
            await asyncio.sleep(10)
            former = eight.brokers["b-a"]
            eight.replace("b-a")
            former.stop()
            await asyncio.sleep(60)

    run(test)
    gone, back = lines(caplog)
    assert "(b-a:10911) is away" in gone
    assert "(b-a:10911) is back" in back


def test_a_broker_that_refuses_pulls_is_one_line_for_all_queues(
    run: Run, eight: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    broker = eight.brokers["b-a"]

    async def test() -> None:
        async with client(eight) as mq, mq.consumer("g", "T", options=FIRST):
            await asyncio.sleep(20)
            broker.script(RequestCode.PULL_MESSAGE, *[ResponseCode.SYSTEM_ERROR] * 27)
            for queue_id in range(8):
                broker.store("T", queue_id, b"x")
            await asyncio.sleep(60)

    run(test)
    said = [line for line in lines(caplog) if "pulling T from" in line]
    assert len(said) == 2
    assert said[0].startswith("pulling T from broker b-a for group g failed and is tried again: response code 1")
    assert "works again after" in said[1]


async def test_a_topic_that_is_deleted_is_missing_and_no_error_of_the_system(caplog: pytest.LogCaptureFixture) -> None:
    said_something = asyncio.Event()

    def see(record: logging.LogRecord) -> bool:
        if "pulling T" in record.getMessage():
            said_something.set()
        return True

    caplog.handler.addFilter(see)
    async with EmbeddedBroker() as broker, broker.connect() as mq:
        await mq.admin.create_topic("T", queues_count=8)
        async with mq.consumer("g", "T", options=FIRST):
            await mq.admin.delete_topic("T")
            await said_something.wait()
    (said,) = (line for line in lines(caplog) if "pulling T" in line)
    assert "TOPIC_NOT_EXIST" in said
    assert not any("SYSTEM_ERROR" in line for line in lines(caplog))


def test_a_name_server_that_is_away_for_a_moment_is_no_line(
    run: Run, eight: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with client(eight) as mq:
            await mq.send("T", b"x")
            eight.name_server.stop()
            await asyncio.sleep(31)
            eight.name_server.up = True
            await asyncio.sleep(31)
            assert lines(caplog) == []
            eight.name_server.stop()
            await asyncio.sleep(100)

    run(test)
    assert any(line.startswith("name server") and "is away" in line for line in lines(caplog))


def test_popping_is_told_like_pulling(run: Run, eight: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    broker = eight.brokers["b-a"]
    broker.script(RequestCode.QUERY_ASSIGNMENT, *[ResponseCode.SYSTEM_ERROR] * 100)

    async def test() -> None:
        async with client(eight) as mq, mq.pop_consumer("g", "T", options=PopOptions()):
            await asyncio.sleep(15)

    run(test)
    said = [line for line in lines(caplog) if "sharing the queues" in line]
    assert 1 <= len(said) <= 2
    assert said[0].startswith("sharing the queues of topic T in group g failed and is tried again")


def test_what_comes_and_goes_is_said_now_and_then(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        troubles = Troubles()
        for _ in range(100):
            troubles.failed("pulling", OrbitError("no"))
            await asyncio.sleep(0.2)
            troubles.worked("pulling")
            await asyncio.sleep(0.2)

    run(test)
    assert len(lines(caplog)) == 8


def test_what_fails_because_a_server_is_away_is_said_by_nobody_else(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        troubles = Troubles()
        troubles.failed("pulling", ConnectionLostError("gone"))
        troubles.failed("pulling", OrbitError("no"))
        troubles.failed("pulling", OrbitError("no"))
        troubles.worked("pulling")
        troubles.worked("pulling")
        troubles.worked("anything")

    run(test)
    assert lines(caplog) == ["pulling failed and is tried again: no", "pulling works again after 0.0 s"]


def test_a_broker_that_comes_back_to_the_routes_is_used_again_soon(
    run: Run, eight: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Name servers forget a broker that is started again at once, and another one serves the topic meanwhile."""
    eight.add_broker("b-b")
    eight.add_topic("T", queues=8)
    broker = eight.brokers["b-a"]

    async def test() -> None:
        async with client(eight) as mq, mq.consumer("g", "T", options=FIRST) as members:
            for queue_id in range(8):
                broker.store("T", queue_id, b"before")
                await (await anext(members)).ack()
            broker.stop()
            queues_count = eight.topics["T"].pop("b-a")
            await asyncio.sleep(4)
            assert {queue.broker_name for queue in members.queues if queue.topic == "T"} == {"b-b"}
            broker.up = True
            eight.topics["T"]["b-a"] = queues_count
            broker.store("T", 0, b"after")
            began = asyncio.get_running_loop().time()
            message = await anext(members)
            while message.body != b"after":
                message = await anext(members)
            assert asyncio.get_running_loop().time() - began < 3

    run(test)
    gone, back = lines(caplog)
    assert gone == "broker b-a (b-a:10911) is away: the connection was closed by the server"
    assert back.startswith("broker b-a (b-a:10911) is back after ")


def test_a_broker_that_left_for_good_is_looked_for_ever_more_seldom(run: Run, eight: Cluster) -> None:
    eight.add_broker("b-b")
    eight.add_topic("T", queues=8)

    async def test() -> None:
        async with client(eight) as mq, mq.consumer("g", "T", options=FIRST):
            del eight.topics["T"]["b-a"]
            await asyncio.sleep(60)
            before = len(eight.name_server.log)
            await asyncio.sleep(600)
            asked = len(eight.name_server.log) - before
            await asyncio.sleep(300)
            assert asked < 2 * 60, "two topics"
            assert len(eight.name_server.log) - before - asked < 2 * 15, "then every half a minute"

    run(test)


def test_a_broker_that_was_asked_before_it_stood_in_a_route_hears_of_the_groups(
    run: Run, eight: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as by administration, which finds brokers by their cluster."""
    other = eight.add_broker("b-b")

    async def test() -> None:
        async with client(eight) as mq, mq.consumer("g", "T", options=FIRST):
            await mq.network.connect(other.address, 1_000)
            await asyncio.sleep(1)
            assert other.log == []
            eight.add_topic("T", queues=8)
            await mq.routes.refresh_all()
            await asyncio.sleep(1)
            assert requests_since(other, 0)[0] == RequestCode.HEART_BEAT

    run(test)
    assert lines(caplog) == []
