"""Explicit pulls: exactly what was asked for, offsets of one's own, and clear refusals."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable

import pytest
from scripted_cluster import CUT, NAME_SERVER, Broker, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client._async.pulling.pull_consumer import PullConsumer
from orbitmq.client.consuming.pull_plan import PullStatus
from orbitmq.client.options import ClientOptions
from orbitmq.clock import ManualClock
from orbitmq.errors import ClientError, ConfigurationError, ConnectionLostError, RemoteError, RouteNotFoundError
from orbitmq.protocol.records import iter_records
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response

Run = Callable[[Callable[[], Awaitable[None]]], None]
QUEUE = MessageQueue("T", "b-a", 0)


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    return cluster.brokers["b-a"]


@pytest.fixture
def reading(run: Run, cluster: Cluster) -> Callable[[Callable[[PullConsumer], Awaitable[None]]], None]:
    """Runs a test with a pull consumer of group `g`."""

    def run_test(test: Callable[[PullConsumer], Awaitable[None]]) -> None:
        async def whole() -> None:
            options = ClientOptions(instance_name="me")
            client = Client(NAME_SERVER, options=options, clock=ManualClock(), dial=cluster.dial)
            async with client as mq, mq.pull_consumer("g") as reader:
                await test(reader)

        run(whole)

    return run_test


Reading = Callable[[Callable[[PullConsumer], Awaitable[None]]], None]


def test_a_pull_gives_what_lies_at_the_offset(reading: Reading, broker: Broker) -> None:
    for number in range(5):
        broker.store("T", 0, b"%d" % number, TAGS="a")

    async def test(reader: PullConsumer) -> None:
        assert await reader.queues("T") == tuple(MessageQueue("T", "b-a", number) for number in range(4))
        pulled = await reader.pull(QUEUE, 1, max_messages=2)
        assert pulled.status is PullStatus.FOUND
        assert [(message.body, message.queue_offset) for message in pulled.messages] == [(b"1", 1), (b"2", 2)]
        assert (pulled.next_offset, pulled.min_offset, pulled.max_offset) == (3, 0, 5)
        end = await reader.pull(QUEUE, 5)
        assert (end.status, end.messages, end.next_offset) == (PullStatus.NO_NEW_MESSAGE, [], 5)
        beyond = await reader.pull(QUEUE, 9)
        assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, 5)
        broker.min_offsets["T", 0] = 3
        before = await reader.pull(QUEUE, 1)
        assert (before.status, before.next_offset, before.min_offset) == (PullStatus.OFFSET_ILLEGAL, 3, 3)

    reading(test)
    assert not broker.requests(RequestCode.HEART_BEAT), "a pull consumer is no member of its group"


def test_a_pull_waits_for_a_message_if_asked_to(reading: Reading, broker: Broker) -> None:
    async def test(reader: PullConsumer) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert (await reader.pull(QUEUE, 0)).messages == []
        assert loop.time() == began
        assert (await reader.pull(QUEUE, 0, wait_ms=60_000)).messages == []
        assert loop.time() == began + 60
        waiting = asyncio.create_task(reader.pull(QUEUE, 0, wait_ms=60_000))
        await asyncio.sleep(7)
        broker.store("T", 0, b"new")
        assert [message.body for message in (await waiting).messages] == [b"new"]
        assert loop.time() == began + 67

    reading(test)


def test_tags_that_share_a_hash_are_told_apart(reading: Reading, broker: Broker) -> None:
    broker.store("T", 0, b"wrong", TAGS="BB")  # same Java hash as "Aa"
    broker.store("T", 0, b"right", TAGS="Aa")

    async def test(reader: PullConsumer) -> None:
        pulled = await reader.pull(QUEUE, 0, tags="Aa || x")
        assert ([message.body for message in pulled.messages], pulled.next_offset) == ([b"right"], 2)
        raw = await reader.pull_raw(QUEUE, 0, tags="Aa || x")
        assert [record.body for record in iter_records(raw.data)] == [b"wrong", b"right"]

    reading(test)
    assert [pull.text("subscription") for pull in broker.requests(RequestCode.PULL_MESSAGE)] == ["Aa || x"] * 2


def test_a_raw_pull_gives_the_records_as_they_are_stored(reading: Reading, broker: Broker) -> None:
    compressed = broker.store("T", 0, zlib.compress(b"x" * 1000))
    compressed.sys_flag |= 1 | 3 << 8
    broker.store("T", 0, b"plain")

    async def test(reader: PullConsumer) -> None:
        raw = await reader.pull_raw(QUEUE, 0, max_messages=1000, max_bytes=1 << 20)
        first, second = iter_records(raw.data)
        assert (first.body, second.body) == (compressed.body, b"plain")
        assert (raw.status, raw.next_offset, raw.min_offset, raw.max_offset) == (PullStatus.FOUND, 2, 0, 2)
        assert raw.offset_delta == 0
        restored = await reader.pull(QUEUE, 0)
        assert [message.body for message in restored.messages] == [b"x" * 1000, b"plain"]

    reading(test)
    (asked, _) = broker.requests(RequestCode.PULL_MESSAGE)
    assert (asked.text("maxMsgNums"), asked.text("maxMsgBytes")) == ("1000", str(1 << 20))


def test_a_message_that_cannot_be_restored_stops_before_itself(reading: Reading, broker: Broker) -> None:
    broker.store("T", 0, b"good")
    broker.store("T", 0, b"no zlib").sys_flag |= 1 | 3 << 8
    broker.store("T", 0, b"later")

    async def test(reader: PullConsumer) -> None:
        pulled = await reader.pull(QUEUE, 0)
        assert ([message.body for message in pulled.messages], pulled.next_offset) == ([b"good"], 1)
        with pytest.raises(ClientError, match="offset 1 of T b-a/0 cannot be restored") as caught:
            await reader.pull(QUEUE, pulled.next_offset)
        assert "go on at offset 2" in str(caught.value)
        assert [message.body for message in (await reader.pull(QUEUE, 2)).messages] == [b"later"]

    reading(test)


def test_a_damaged_answer_is_an_error(reading: Reading, broker: Broker) -> None:
    def rubbish(command: Command) -> Command:
        fields = {"nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1", "suggestWhichBrokerId": "0"}
        return response(command, ResponseCode.SUCCESS, fields=fields, body=b"rubbish")

    async def test(reader: PullConsumer) -> None:
        broker.script(RequestCode.PULL_MESSAGE, rubbish)
        with pytest.raises(ClientError, match="answer to a pull of T b-a/0 is damaged"):
            await reader.pull(QUEUE, 0)

    reading(test)


def test_offsets_are_stored_in_either_direction(reading: Reading, broker: Broker) -> None:
    broker.store("T", 0, b"x")
    broker.min_offsets["T", 0] = 0

    async def test(reader: PullConsumer) -> None:
        assert await reader.committed(QUEUE) is None
        await reader.commit(QUEUE, 7)
        assert (await reader.committed(QUEUE), broker.offsets["g", "T", 0]) == (7, 7)
        await reader.commit(QUEUE, 3)
        assert await reader.committed(QUEUE) == 3
        assert (await reader.min_offset(QUEUE), await reader.max_offset(QUEUE)) == (0, 1)
        broker.script(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            lambda command: response(command, ResponseCode.SUCCESS, fields={"offset": command.text("timestamp")}),
        )
        assert await reader.offset_at(QUEUE, 42) == 42

    reading(test)


def test_failures_are_the_callers(reading: Reading, broker: Broker) -> None:
    async def test(reader: PullConsumer) -> None:
        broker.script(RequestCode.PULL_MESSAGE, CUT, ResponseCode.NO_PERMISSION)
        with pytest.raises(ConnectionLostError):
            await reader.pull(QUEUE, 0)
        with pytest.raises(RemoteError, match="pulling T b-a/0"):
            await reader.pull(QUEUE, 0)
        assert (await reader.pull(QUEUE, 0)).messages == []
        broker.script(RequestCode.UPDATE_CONSUMER_OFFSET, ResponseCode.SYSTEM_ERROR)
        with pytest.raises(RemoteError, match="committing offset 1 of group 'g' on T b-a/0"):
            await reader.commit(QUEUE, 1)
        with pytest.raises(RouteNotFoundError, match="know no topic 'missing'"):
            await reader.queues("missing")
        with pytest.raises(RouteNotFoundError, match="'missing'"):
            await reader.pull(MessageQueue("missing", "b-a", 0), 0)
        with pytest.raises(RouteNotFoundError, match="no broker 'b-x'"):
            await reader.pull(MessageQueue("T", "b-x", 0), 0)

    reading(test)
    assert len(broker.requests(RequestCode.PULL_MESSAGE)) == 3, "nothing is repeated behind the caller's back"


def test_misuse_is_refused_before_anything_is_sent(reading: Reading, broker: Broker) -> None:
    async def test(reader: PullConsumer) -> None:
        for wrong in (
            {"max_messages": 0},
            {"max_messages": 1025},
            {"wait_ms": -1},
            {"wait_ms": 110_001},
            {"tags": "||"},
        ):
            with pytest.raises(ConfigurationError):
                await reader.pull(QUEUE, 0, **wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="offsets count from 0"):
            await reader.pull(QUEUE, -1)
        with pytest.raises(ConfigurationError, match="max_bytes=0"):
            await reader.pull_raw(QUEUE, 0, max_bytes=0)
        with pytest.raises(ConfigurationError, match="offsets count from 0"):
            await reader.commit(QUEUE, -1)
        with pytest.raises(ConfigurationError, match="fit 64 bits"):
            await reader.commit(QUEUE, 2**63)
        await reader.close()
        with pytest.raises(ClientError, match="closed"):
            await reader.pull(QUEUE, 0)
        with pytest.raises(ClientError, match="closed"):
            await reader.committed(QUEUE)

    reading(test)
    assert broker.log == []


def test_a_group_name_is_checked(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        client = Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial)
        with pytest.raises(ClientError, match="not started"):
            client.pull_consumer("g")
        async with client as mq:
            for group in ("", "no spaces", "DEFAULT_CONSUMER"):
                with pytest.raises(ConfigurationError):
                    mq.pull_consumer(group)

    run(test)
