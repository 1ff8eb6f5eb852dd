"""Pop consumers: what is popped, renewed, acknowledged and given back, and who decides which queues."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from popping_broker import PoppingBroker
from scripted_cluster import CUT, NAME_SERVER, Cluster, Pipe

from orbitmq.client._async.client import Client
from orbitmq.client._async.consuming.delivery import ReceivedMessage
from orbitmq.client.options import ClientOptions, ConsumeFrom
from orbitmq.client.popping.pop_options import PopOptions
from orbitmq.clock import ManualClock
from orbitmq.errors import ClientError, ConfigurationError, RemoteError
from orbitmq.protocol.pop_receipts import decode_receipt
from orbitmq.protocol.remoting.bodies import MessageQueue, MessageQueueAssignment, MessageRequestMode
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command

Run = Callable[[Callable[[], Awaitable[None]]], None]
CHANGE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
ACK = RequestCode.BATCH_ACK_MESSAGE
QUICK = PopOptions(invisible_ms=10_000)


def client(cluster: Cluster) -> Client:
    return Client(NAME_SERVER, options=ClientOptions(instance_name="me"), clock=ManualClock(), dial=cluster.dial)


@pytest.fixture
def broker(cluster: Cluster) -> PoppingBroker:
    broker = cluster.brokers["b-a"] = PoppingBroker(cluster, "b-a")
    return broker


def test_messages_of_all_queues_arrive_once_and_are_acknowledged(
    run: Run, cluster: Cluster, broker: PoppingBroker
) -> None:
    async def test() -> None:
        for number in range(100):
            broker.put(number % 4, b"%d" % number)
        async with client(cluster) as mq, mq.pop_consumer("g", "T") as consumer:
            assert consumer.queues == (MessageQueue("T", "b-a", -1),)
            bodies = []
            async for message in consumer:
                bodies.append(int(message.body))
                assert await message.ack()
                if len(bodies) == 100:
                    break
        assert sorted(bodies) == list(range(100))
        assert len(broker.settled) == 100
        assert not broker.in_flight
        assert not broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET)
        assert [each.text("consumerGroup") for each in broker.requests(RequestCode.UNREGISTER_CLIENT)] == ["g"]

    run(test)


def test_a_pop_waits_at_the_broker_and_brings_a_new_message_at_once(
    run: Run, cluster: Cluster, broker: PoppingBroker
) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with client(cluster) as mq, mq.pop_consumer("g", "T", tags="a || b") as consumer:
            await asyncio.sleep(40)  # several pops have waited in vain
            before = loop.time()
            broker.put(2, b"new", TAGS="b")
            message = await anext(consumer)
            assert (message.body, loop.time()) == (b"new", before)
            assert message.queue == MessageQueue("T", "b-a", 2)
            await message.ack()
        pop = broker.requests(RequestCode.POP_MESSAGE)[0]
        assert (pop.text("exp"), pop.text("expType"), pop.text("order")) == ("a || b", "TAG", "false")
        assert (pop.text("queueId"), pop.text("initMode"), pop.text("invisibleTime")) == ("-1", "1", "60000")

    run(test)


def test_a_message_is_renewed_while_its_handler_works(run: Run, cluster: Cluster, broker: PoppingBroker) -> None:
    async def test() -> None:
        seen = []
        async with client(cluster) as mq, mq.pop_consumer("g", "T", options=QUICK) as consumer:

            async def slow(message: ReceivedMessage) -> None:
                seen.append(message.reconsume_times)
                await asyncio.sleep(32)
                consumer.stop()

            broker.put(0, b"x")
            await consumer.run(slow)
        assert seen == [0]
        assert broker.settled == [("T", 0, 0)]
        pops = [decode_receipt(each.text("extraInfo")).popped_ms for each in broker.requests(CHANGE)]
        assert len(pops) == len(set(pops)) == 6  # every half of its time, each with the newest receipt

    run(test)


def test_what_waits_for_a_handler_is_renewed_as_well(run: Run, cluster: Cluster, broker: PoppingBroker) -> None:
    async def test() -> None:
        seen = []
        for number in range(4):
            broker.put(0, b"%d" % number)
        async with client(cluster) as mq, mq.pop_consumer("g", "T", options=QUICK) as consumer:

            async def slow(message: ReceivedMessage) -> None:
                seen.append((message.body, message.reconsume_times))
                await asyncio.sleep(15)
                if len(seen) == 4:
                    consumer.stop()

            await consumer.run(slow, concurrency=1)
        assert seen == [(b"%d" % number, 0) for number in range(4)]

    run(test)


def test_two_renewals_of_a_message_are_never_under_way(run: Run, cluster: Cluster, broker: PoppingBroker) -> None:
    """The broker's first answer is lost for as long as a request may take: nothing else is asked about the message meanwhile."""

    async def test() -> None:
        broker.put(0, b"x")
        broker.script(CHANGE, "no answer")
        async with client(cluster) as mq, mq.pop_consumer("g", "T", options=QUICK) as consumer:
            message = await anext(consumer)
            await asyncio.sleep(7.9)  # renewed after 5 s, and unanswered for 3
            assert len(broker.requests(CHANGE)) == 1
            await asyncio.sleep(1.5)
            assert len(broker.requests(CHANGE)) == 2
            assert await message.ack()
        assert broker.settled == [("T", 0, 0)]

    run(test)


@pytest.mark.parametrize("waits", [True, False], ids=["consuming on", "leaving at once"])
def test_what_is_settled_while_its_renewal_is_under_way_is_acknowledged_with_the_new_receipt(
    run: Run, cluster: Cluster, broker: PoppingBroker, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """Where the old one was named, the broker would know nothing of it, and the message came again."""
    at_once = broker.handle

    def late(pipe: Pipe, command: Command) -> Command | None:
        answer = at_once(pipe, command)
        if command.code != CHANGE:
            return answer
        asyncio.get_running_loop().call_later(1, pipe.send, answer)
        return None

    async def test() -> None:
        monkeypatch.setattr(broker, "handle", late)
        broker.put(0, b"x")
        async with client(cluster) as mq, mq.pop_consumer("g", "T", options=QUICK) as consumer:
            message = await anext(consumer)
            await asyncio.sleep(5.5)
            assert len(broker.requests(CHANGE)) == 1
            assert await message.ack()
            if waits:
                await asyncio.sleep(1)
                assert broker.settled == [("T", 0, 0)]
        assert broker.settled == [("T", 0, 0)]
        assert broker.in_flight == {}

    run(test)


def test_a_renewal_that_is_refused_is_said_and_the_message_comes_again(
    run: Run, cluster: Cluster, broker: PoppingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        broker.put(0, b"x")
        broker.script(CHANGE, ResponseCode.NO_MESSAGE)
        async with client(cluster) as mq, mq.pop_consumer("g", "T", options=QUICK) as consumer:
            message = await anext(consumer)
            await asyncio.sleep(6)
            assert "was not renewed, and may come again" in caplog.text
            assert not message.held
            assert not await message.ack()
            again = await anext(consumer)
            assert (again.body, again.reconsume_times) == (b"x", 1)
            await again.ack()

    with caplog.at_level(logging.WARNING, "orbitmq.client"):
        run(test)


@pytest.mark.parametrize(("delays", "waits"), [((), (10, 40)), ((3, 20), (3, 23)), ((3,), (3, 6))])
def test_a_failed_message_waits_longer_with_each_attempt_or_as_it_is_told(
    run: Run, cluster: Cluster, broker: PoppingBroker, delays: tuple[int, ...], waits: tuple[int, int]
) -> None:
    options = PopOptions(retry_delays=delays)

    async def test() -> None:
        loop = asyncio.get_running_loop()
        attempts = []
        async with client(cluster) as mq, mq.pop_consumer("g", "T", options=options) as consumer:

            async def failing(message: ReceivedMessage) -> None:
                attempts.append((message.reconsume_times, round(loop.time())))
                if message.reconsume_times == 2:
                    consumer.stop()
                    return
                raise ValueError("not yet")

            broker.put(0, b"x")
            await consumer.run(failing)
        began = attempts[0][1]
        assert [(times, at - began) for times, at in attempts] == [(0, 0), (1, waits[0]), (2, waits[1])]

    run(test)


def test_a_message_may_be_tried_again_after_a_time_of_its_own(
    run: Run, cluster: Cluster, broker: PoppingBroker
) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        broker.put(0, b"x")
        async with client(cluster) as mq, mq.pop_consumer("g", "T") as consumer:
            before = loop.time()
            assert await (await anext(consumer)).retry(after=7)
            await (await anext(consumer)).ack()
            assert loop.time() - before == pytest.approx(7, abs=0.1)

    run(test)


def test_a_message_that_failed_too_often_goes_to_the_dead_letters(
    run: Run, cluster: Cluster, broker: PoppingBroker
) -> None:
    cluster.add_topic("%RETRY%g", queues=1)

    async def test() -> None:
        broker.put(0, b"bad", POP_CK="left from before")
        options = PopOptions(max_retries_count=0)
        broker.queues["T", 0][0].properties = b"UNIQ_KEY\x01ID\x02"
        async with client(cluster) as mq, mq.pop_consumer("g", "T", options=options) as consumer:
            assert await (await anext(consumer)).retry()
        [copy] = broker.requests(RequestCode.SEND_MESSAGE_V2)
        assert (copy.text("b"), copy.text("l")) == ("%RETRY%g", "0")  # no attempt more: a dead letter
        assert "POP_CK" not in copy.text("i")
        assert "RETRY_TOPIC\x01T" in copy.text("i")
        assert broker.settled == [("T", 0, 0)]

    run(test)


def test_what_is_not_settled_is_given_back_when_the_consumer_leaves(
    run: Run, cluster: Cluster, broker: PoppingBroker
) -> None:
    async def test() -> None:
        for number in range(3):
            broker.put(0, b"%d" % number)
        async with client(cluster) as mq, mq.pop_consumer("g", "T") as consumer:
            await (await anext(consumer)).ack()
            await anext(consumer)  # in hand, not settled; the third waits
        await asyncio.sleep(16)
        assert sorted(record.body for record in broker.again) == [b"1", b"2"]
        hidden = [each.integer("invisibleTime") for each in broker.requests(CHANGE)]
        assert all(14_000 < each <= 14_500 for each in hidden), "until no pop of this consumer waits there any more"
        told = {each.text("offset"): each.text("suspend") for each in broker.requests(CHANGE)}
        assert told == {"1": "", "2": "true"}, "what was in hand has had an attempt"

    run(test)


def test_what_is_given_back_comes_again_at_once_where_no_pop_waits(
    run: Run, cluster: Cluster, broker: PoppingBroker
) -> None:
    async def test() -> None:
        for number in range(3):
            broker.put(0, b"%d" % number)
        options = PopOptions(held_messages_max=2)
        async with client(cluster) as mq, mq.pop_consumer("g", "T", options=options) as consumer:
            await anext(consumer)
        await asyncio.sleep(0.1)
        assert sorted(record.body for record in broker.again) == [b"0", b"1"]
        assert [each.text("invisibleTime") for each in broker.requests(CHANGE)] == ["0", "0"]

    run(test)


def test_what_is_in_hand_when_the_program_fails_waits_as_a_failed_message_does(
    run: Run, cluster: Cluster, broker: PoppingBroker
) -> None:
    async def failing(mq: Client) -> None:
        async with mq.pop_consumer("g", "T") as consumer:
            await anext(consumer)
            raise ValueError("broken")

    async def test() -> None:
        for number in range(2):
            broker.put(0, b"%d" % number)
        async with client(cluster) as mq:
            with pytest.raises(ValueError, match="broken"):
                await failing(mq)
        assert broker.requests(CHANGE)[0].text("invisibleTime") == "10000"

    run(test)


def test_an_acknowledgement_is_repeated_until_the_broker_has_it(
    run: Run, cluster: Cluster, broker: PoppingBroker
) -> None:
    async def test() -> None:
        broker.put(0, b"x")
        broker.script(ACK, CUT, CUT)
        async with client(cluster) as mq, mq.pop_consumer("g", "T") as consumer:
            assert await (await anext(consumer)).ack()
            await asyncio.sleep(5)
            assert broker.settled == [("T", 0, 0)]
            assert not broker.in_flight

    run(test)


def test_no_more_is_popped_than_may_be_held(run: Run, cluster: Cluster, broker: PoppingBroker) -> None:
    async def test() -> None:
        for number in range(50):
            broker.put(0, b"%d" % number)
        options = PopOptions(held_messages_max=12, pop_messages_count=8)
        async with client(cluster) as mq, mq.pop_consumer("g", "T", options=options) as consumer:
            await asyncio.sleep(3)
            assert len(broker.in_flight) == 12
            asked = [each.integer("maxMsgNums") for each in broker.requests(RequestCode.POP_MESSAGE)]
            assert asked == [8, 4]
            for _ in range(50):
                await (await anext(consumer)).ack()
        assert len(broker.settled) == 50

    run(test)


def test_a_message_that_is_never_settled_is_not_renewed_for_ever(
    run: Run, cluster: Cluster, broker: PoppingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        broker.put(0, b"x")
        options = PopOptions(invisible_ms=10_000, settle_timeout_ms=20_000)
        async with client(cluster) as mq, mq.pop_consumer("g", "T", options=options) as consumer:
            stuck = await anext(consumer)
            again = await anext(consumer)
            assert (again.body, again.reconsume_times) == (b"x", 1)
            assert not await stuck.ack()
            await again.ack()
            assert "was not settled within 20000 ms" in caplog.text

    with caplog.at_level(logging.WARNING, "orbitmq.client"):
        run(test)


def test_the_broker_decides_which_queues_are_popped(run: Run, cluster: Cluster, broker: PoppingBroker) -> None:
    async def test() -> None:
        broker.assignment = [
            MessageQueueAssignment(message_queue=MessageQueue("T", "b-a", number), mode=MessageRequestMode.POP)
            for number in (1, 2)
        ]
        async with client(cluster) as mq, mq.pop_consumer("g", "T") as consumer:
            assert [queue.queue_id for queue in consumer.queues] == [1, 2]
            broker.assignment = broker.assignment[1:]
            broker.tell_members("g")
            await asyncio.sleep(1)
            assert [queue.queue_id for queue in consumer.queues] == [2]
            broker.assignment = None  # "skip this round"
            broker.tell_members("g")
            await asyncio.sleep(1)
            assert [queue.queue_id for queue in consumer.queues] == [2]

    run(test)


def test_where_the_broker_assigns_by_pull_every_queue_is_popped(
    run: Run, cluster: Cluster, broker: PoppingBroker
) -> None:
    async def test() -> None:
        broker.assignment = [MessageQueueAssignment(message_queue=MessageQueue("T", "b-a", 3))]
        async with client(cluster) as mq, mq.pop_consumer("g", "T") as consumer:
            assert consumer.queues == (MessageQueue("T", "b-a", -1),)

    run(test)


def test_a_broker_that_knows_no_assignment_is_an_error_at_the_start(
    run: Run, cluster: Cluster, broker: PoppingBroker
) -> None:
    async def test() -> None:
        broker.script(RequestCode.QUERY_ASSIGNMENT, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        async with client(cluster) as mq:
            with pytest.raises(RemoteError, match="asking broker b-a for the queues"):
                await mq.pop_consumer("g", "T").start()

    run(test)


def test_a_pop_that_fails_is_tried_again(run: Run, cluster: Cluster, broker: PoppingBroker) -> None:
    async def test() -> None:
        broker.put(0, b"x")
        broker.script(RequestCode.POP_MESSAGE, CUT, ResponseCode.SYSTEM_ERROR, ResponseCode.POLLING_FULL)
        async with client(cluster) as mq, mq.pop_consumer("g", "T") as consumer:
            await (await anext(consumer)).ack()

    run(test)


def test_settings_say_what_is_wrong(cluster: Cluster) -> None:
    with pytest.raises(ConfigurationError, match="invisible_ms=1"):
        PopOptions(invisible_ms=1)
    with pytest.raises(ConfigurationError, match="TIMESTAMP, which brokers do not know for pops"):
        PopOptions(consume_from=ConsumeFrom.TIMESTAMP)


def test_a_consumer_that_is_not_running_gives_nothing(run: Run, cluster: Cluster, broker: PoppingBroker) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            consumer = mq.pop_consumer("g", "T")
            with pytest.raises(ClientError, match="is not started"):
                await anext(consumer)
            await consumer.start()
            with pytest.raises(ClientError, match="it starts once"):
                await consumer.start()
            await consumer.close()
            await consumer.close()

    run(test)
