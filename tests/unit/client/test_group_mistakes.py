"""Mistakes users make with groups, and brokers that answer nonsense: reported, survived, never silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise

import pytest
from scripted_cluster import CUT, NAME_SERVER, SILENCE, Broker, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client._async.consuming.consumer import Consumer
from orbitmq.client._async.consuming.delivery import ReceivedMessage
from orbitmq.client.consuming.allocation import AllocateCircle
from orbitmq.client.options import ClientOptions, ConsumeFrom, ConsumerOptions
from orbitmq.clock import ManualClock
from orbitmq.errors import ConfigurationError
from orbitmq.protocol.remoting.bodies import ClientConnection, ConsumerConnection, MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, encode, response

Run = Callable[[Callable[[], Awaitable[None]]], None]
FIRST = ConsumerOptions(consume_from=ConsumeFrom.FIRST)
CONNECTIONS = RequestCode.GET_CONSUMER_CONNECTION_LIST


def client(cluster: Cluster, name: str = "me") -> Client:
    return Client(NAME_SERVER, options=ClientOptions(instance_name=name), clock=ManualClock(), dial=cluster.dial)


def consumer(mq: Client, options: ConsumerOptions = FIRST, tags: str = "*") -> Consumer:
    return mq.consumer("g", "T", tags=tags, options=options)


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    cluster.add_topic("%RETRY%g", queues=1)
    return cluster.brokers["b-a"]


def warnings(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records if record.levelname == "WARNING")


def test_members_that_subscribe_differently_are_told_once(
    run: Run, cluster: Cluster, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with client(cluster, "one") as one, client(cluster, "two") as two, consumer(one, tags="a"):
            await asyncio.sleep(30)
            assert warnings(caplog, "members of group g differ") == 0
            async with consumer(two, tags="b"):
                await asyncio.sleep(700)
                told = warnings(caplog, "members of group g differ")
                assert 1 <= told <= 2  # once by each of them that sees the other's
                assert "wants 'a', another 'b'" in caplog.text or "wants 'b', another 'a'" in caplog.text
                assert "use another group" in caplog.text

    run(test)


def test_a_member_that_joins_with_other_tags_is_told_within_seconds(
    run: Run, cluster: Cluster, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with client(cluster, "one") as one, client(cluster, "two") as two, consumer(one, tags="a"):
            await asyncio.sleep(30)
            async with consumer(two, tags="b"):
                broker.tell_members("g")
                await asyncio.sleep(2)
                assert warnings(caplog, "members of group g differ") == 1

    run(test)


def test_a_client_id_that_is_used_twice_is_reported_within_seconds(
    run: Run, cluster: Cluster, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with client(cluster, "same") as one, client(cluster, "same") as two, consumer(one):
            await asyncio.sleep(30)
            async with consumer(two):
                await asyncio.sleep(10)
                assert warnings(caplog, "share a client id") == 1
                broker.tell_members("g")
                await asyncio.sleep(10)
                assert warnings(caplog, "share a client id") == 2

    run(test)


def test_many_changes_of_the_members_are_looked_at_seldom(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster) as mq, consumer(mq):
            for _ in range(100):
                broker.tell_members("g")
                await asyncio.sleep(0.3)
        assert 8 <= len(broker.requests(CONNECTIONS)) <= 11

    run(test)


def test_a_client_id_that_is_used_twice_is_reported(
    run: Run, cluster: Cluster, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with (
            client(cluster, "same") as one,
            client(cluster, "same") as two,
            consumer(one) as first,
            consumer(two) as second,
        ):
            await asyncio.sleep(200)
            assert {queue.topic for queue in first.queues} == {queue.topic for queue in second.queues}
        assert warnings(caplog, "share a client id") == 2
        assert "instance_name" in caplog.text

    run(test)


def test_an_old_connection_that_a_broker_still_counts_is_no_second_client(
    run: Run, cluster: Cluster, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            twice = [ClientConnection(client_id=mq.client_id, client_addr=f"10.0.0.9:{port}") for port in (1, 2)]
            broker.connections = ConsumerConnection(connection_set=twice)
            await members._check.look()
            broker.connections = None
            await asyncio.sleep(300)
        assert warnings(caplog, "share a client id") == 0

    run(test)


def test_a_broker_that_cannot_list_connections_disturbs_nothing(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.script(
        CONNECTIONS,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        SILENCE,
        lambda command: response(command, 0, body=b"rubbish"),
        CUT,
    )

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            await asyncio.sleep(700)
            broker.store("T", 0, b"x")
            assert (await anext(members)).body == b"x"
        assert len(broker.requests(CONNECTIONS)) >= 4

    run(test)


def test_a_pull_that_names_another_subscription_starts_a_look(
    run: Run, cluster: Cluster, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with client(cluster) as mq, consumer(mq):
            await asyncio.sleep(30)
            looks = len(broker.requests(CONNECTIONS))
            broker.script(RequestCode.PULL_MESSAGE, ResponseCode.SUBSCRIPTION_NOT_LATEST)
            broker.store("T", 0, b"x")
            await asyncio.sleep(20)
            assert len(broker.requests(CONNECTIONS)) == looks + 1

    run(test)


@pytest.mark.parametrize("body", [b"", b"rubbish", b'{"consumerIdList":7}', b'{"consumerIdList":null}'])
def test_rubbish_for_a_member_list_keeps_what_is_owned(run: Run, cluster: Cluster, broker: Broker, body: bytes) -> None:
    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            owned = members.queues
            broker.script(
                RequestCode.GET_CONSUMER_LIST_BY_GROUP, *[lambda command: response(command, 0, body=body)] * 50
            )
            members.rebalance_soon()
            await asyncio.sleep(30)
            assert members.queues == owned

    run(test)


@pytest.mark.parametrize("offset", ["", "many", None, "99999999999999999999"])
def test_an_offset_that_cannot_be_read_is_asked_for_again_and_nothing_is_skipped(
    run: Run, cluster: Cluster, broker: Broker, offset: str | None
) -> None:
    for number in range(5):
        broker.store("T", 0, b"%d" % number)
    broker.offsets["g", "T", 0] = 2
    fields = {} if offset is None else {"offset": offset}
    broker.script(RequestCode.QUERY_CONSUMER_OFFSET, *[lambda command: response(command, 0, fields=dict(fields))] * 12)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq, ConsumerOptions()) as members:
            assert (await anext(members)).queue_offset == 2

    run(test)


@pytest.mark.parametrize("code", [ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY])
def test_a_broker_that_holds_no_pull_is_not_asked_without_end(
    run: Run, cluster: Cluster, broker: Broker, code: ResponseCode
) -> None:
    broker.script(
        RequestCode.PULL_MESSAGE,
        *[lambda command: response(command, code, fields={"nextBeginOffset": command.text("queueOffset")})] * 1000,
    )

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            await asyncio.sleep(20)
            assert len(broker.requests(RequestCode.PULL_MESSAGE)) <= 5 * (20 * 5 + 4)
            assert members.queues

    run(test)


def test_a_reset_to_where_the_pull_stands_is_no_mistake(
    run: Run, cluster: Cluster, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.offsets["g", "T", 0] = 3
    broker.script(
        RequestCode.PULL_MESSAGE,
        lambda command: response(
            command, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", {"nextBeginOffset": command.text("queueOffset")}
        ),
    )
    for number in range(5):
        broker.store("T", 0, b"%d" % number)

    async def test() -> None:
        options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, strategy=only_the_first)
        async with client(cluster) as mq, consumer(mq, options) as members:
            assert [(await anext(members)).queue_offset for _ in range(2)] == [3, 4]
        assert "has been reset; going on at 3 instead of 3" in caplog.text
        assert "would lead back" not in caplog.text

    run(test)


@pytest.mark.parametrize("code", [ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED])
def test_an_answer_that_leads_back_is_refused(
    run: Run, cluster: Cluster, broker: Broker, code: ResponseCode, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        broker.store("T", 0, b"%d" % number)
    broker.offsets["g", "T", 0] = 3
    back = 0 if code is ResponseCode.PULL_NOT_FOUND else 3
    broker.script(
        RequestCode.PULL_MESSAGE, lambda command: response(command, code, fields={"nextBeginOffset": str(back)})
    )

    async def test() -> None:
        options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, strategy=only_the_first)
        async with client(cluster) as mq, consumer(mq, options) as members:
            assert [(await anext(members)).queue_offset for _ in range(2)] == [3, 4]
        assert "would lead back" in caplog.text

    run(test)


@pytest.mark.parametrize("left_out", [1, 40, 1000])
def test_a_broker_that_stops_in_the_middle_of_a_frame(
    run: Run, cluster: Cluster, broker: Broker, left_out: int
) -> None:
    """Nothing that comes after the torn frame can be understood: the connection is given up, the message comes by another."""
    broker.store("T", 0, b"x" * 2000)

    async def test() -> None:
        loop = asyncio.get_running_loop()

        def torn(command: Command) -> None:
            answer = broker._pull(command, park=None)
            assert answer is not None
            for pipe in broker.pipes:
                pipe.send_bytes(encode(answer)[:-left_out])
                pipe.send = lambda command: None  # type: ignore[method-assign]

        broker.script(RequestCode.PULL_MESSAGE, torn)
        options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, strategy=only_the_first)
        async with client(cluster) as mq, consumer(mq, options) as members:
            began = loop.time()
            message = await anext(members)
            assert (message.queue_offset, len(message.body)) == (0, 2000)
            assert loop.time() - began <= 65

    run(test)


def only_the_first(own_id: str, ids: Sequence[str], queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
    return queues[:1] if queues[0].topic == "T" else []


def test_closing_takes_no_longer_than_it_may(run: Run, cluster: Cluster, broker: Broker) -> None:
    for number in range(4):
        broker.store("T", number, b"x")

    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with client(cluster) as mq:
            async with consumer(mq) as members:
                for _ in range(4):
                    await (await anext(members)).ack()
                broker.script(RequestCode.UPDATE_CONSUMER_OFFSET, *[SILENCE] * 10)
                broker.script(RequestCode.UNREGISTER_CLIENT, SILENCE)
                began = loop.time()
            assert loop.time() - began < 3 + 3.1  # close_timeout_ms, and one request to say goodbye

    run(test)


def test_a_strategy_that_fails_keeps_what_is_owned_and_is_reported(
    run: Run, cluster: Cluster, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broken = False

    def sometimes(own_id: str, ids: Sequence[str], queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        if broken:
            raise RuntimeError("no idea")
        return AllocateCircle()(own_id, ids, queues)

    async def test() -> None:
        nonlocal broken
        options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, strategy=sometimes)
        async with client(cluster) as mq, consumer(mq, options) as members:
            owned = members.queues
            assert len(owned) == 5
            broken = True
            members.rebalance_soon()
            await asyncio.sleep(5)
            assert members.queues == owned
            assert "no idea" in caplog.text
            broken = False
            broker.store("T", 0, b"x")
            assert (await anext(members)).body == b"x"

    run(test)


@pytest.mark.parametrize("returned", [None, 5, True, "done"])
def test_a_handler_that_is_not_asynchronous_is_refused_by_the_first_message(
    run: Run, cluster: Cluster, broker: Broker, returned: object
) -> None:
    broker.store("T", 0, b"x")

    async def test() -> None:
        def plain(message: ReceivedMessage) -> object:
            return returned

        async with client(cluster) as mq, consumer(mq) as members:
            with pytest.raises(ConfigurationError, match="async def"):
                await members.run(plain)  # type: ignore[arg-type]
        assert broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK) == []
        assert broker.offsets.get(("g", "T", 0), 0) == 0  # it comes again

    run(test)


def test_a_broker_that_takes_nothing_back_fills_no_log(
    run: Run, cluster: Cluster, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(50):
        broker.store("T", 0, b"%d" % number)
    for code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2):
        broker.script(code, *[ResponseCode.MESSAGE_ILLEGAL] * 50)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            for _ in range(50):
                assert await (await anext(members)).retry()
            assert warnings(caplog, "could not be sent back and comes again here") == 1
            await asyncio.sleep(6)
            assert (await anext(members)).reconsume_times == 1

    run(test)


def test_a_handler_that_always_fails_sends_everything_back_and_logs_little(
    run: Run, cluster: Cluster, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(200):
        broker.store("T", 0, b"%d" % number)

    async def test() -> None:
        calls = 0

        async def handle(message: ReceivedMessage) -> None:
            nonlocal calls
            calls += message.queue.topic == "T"
            if calls == 200:
                members.stop()
            raise RuntimeError("always")

        async with client(cluster) as mq, consumer(mq) as members:
            await members.run(handle)
        backs = broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
        assert len(backs) >= 200
        assert broker.offsets["g", "T", 0] == 200
        assert sum("always" in record.exc_text for record in caplog.records if record.exc_text) <= 2

    run(test)


def test_a_program_that_settles_nothing_holds_a_bounded_number(run: Run, cluster: Cluster, broker: Broker) -> None:
    for number in range(2000):
        broker.store("T", number % 4, b"x")
    options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, messages_max=100)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq, options) as members:
            held = [await anext(members) for _ in range(100)]
            await asyncio.sleep(120)
            unsettled = sum(len(owned.messages) for owned in members.owned.values())
            assert unsettled <= 100 + 4 * 32
            for message in held:
                await message.ack()
            rest = 2000 - 100
            for _ in range(rest):
                await (await anext(members)).ack()
        assert {broker.offsets["g", "T", queue] for queue in range(4)} == {500}

    run(test)


def test_a_topic_may_have_bounds_of_its_own(run: Run, cluster: Cluster, broker: Broker) -> None:
    for number in range(400):
        broker.store("T", number % 4, b"x" * 10)
    options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, topic_bytes_max=300, pull_messages_count=10)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq, options) as members:
            await asyncio.sleep(60)
            assert members.unsettled_bytes <= 300 + 4 * 100
            for _ in range(400):
                await (await anext(members)).ack()

    run(test)


def test_a_handler_that_never_waits_lets_others_run(run: Run, cluster: Cluster, broker: Broker) -> None:
    """Time only passes here while the loop waits, so the handler moves the clock itself."""
    for number in range(100):
        broker.store("T", 0, b"%d" % number)

    async def test() -> None:
        loop = asyncio.get_running_loop()
        handled = 0
        at_tick: list[int] = []

        async def handle(message: ReceivedMessage) -> None:
            nonlocal handled
            handled += 1
            loop._jumping.now += 0.002  # type: ignore[attr-defined]
            if handled == 100:
                members.stop()

        async def tick() -> None:
            while True:
                at_tick.append(handled)
                await asyncio.sleep(0)

        async with client(cluster) as mq, consumer(mq) as members:
            await asyncio.sleep(1)
            ticking = asyncio.ensure_future(tick())
            await members.run(handle)
            ticking.cancel()
        steps = [later - earlier for earlier, later in pairwise(at_tick)]
        assert max(steps) <= 4

    run(test)


def test_starting_at_a_time(run: Run, cluster: Cluster, broker: Broker) -> None:
    for number in range(6):
        record = broker.store("T", 0, b"%d" % number)
        record.store_timestamp = 1000 * number
    options = ConsumerOptions(consume_from=ConsumeFrom.TIMESTAMP, from_timestamp_ms=2500)

    async def test() -> None:
        retried = broker.store("%RETRY%g", 0, b"r", reconsume_times=1, RETRY_TOPIC="T")
        retried.store_timestamp = 1  # older than the time: no message that failed is skipped
        async with client(cluster) as mq, consumer(mq, options) as members:
            bodies = {(await anext(members)).body for _ in range(4)}
        assert bodies == {b"3", b"4", b"5", b"r"}

    run(test)
