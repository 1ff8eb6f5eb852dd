"""Lite consumers: who gets which queue, what a poll gives and finishes, seeks, pauses, commits, misuse."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from scripted_cluster import CUT, NAME_SERVER, SILENCE, Broker, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client._async.pulling.lite_pull import LiteConsumer
from orbitmq.client.options import ClientOptions, ConsumeFrom
from orbitmq.client.pulling.lite_options import LiteConsumerOptions
from orbitmq.client.stored import StoredMessage
from orbitmq.clock import ManualClock
from orbitmq.errors import ClientError, ConfigurationError, NotFoundError, RemoteError, RouteNotFoundError
from orbitmq.protocol.remoting.bodies import (
    ConsumeFromWhere,
    ConsumerRunningInfo,
    ConsumerStatusBody,
    ConsumeType,
    MessageQueue,
    ResetOffsetBody,
)
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response

Run = Callable[[Callable[[], Awaitable[None]]], None]
FIRST = LiteConsumerOptions(consume_from=ConsumeFrom.FIRST)
MANUAL = LiteConsumerOptions(consume_from=ConsumeFrom.FIRST, auto_commit=False)
PULL = RequestCode.LITE_PULL_MESSAGE
QUEUE = MessageQueue("T", "b-a", 0)
QUEUES = tuple(MessageQueue("T", "b-a", number) for number in range(4))


def client(cluster: Cluster, name: str = "me") -> Client:
    return Client(NAME_SERVER, options=ClientOptions(instance_name=name), clock=ManualClock(), dial=cluster.dial)


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    return cluster.brokers["b-a"]


def fill(broker: Broker, count: int, queue_id: int = 0) -> None:
    for number in range(count):
        broker.store("T", queue_id, b"%d" % number)


def bodies(messages: list[StoredMessage]) -> list[int]:
    return [int(message.body) for message in messages]


async def drain(consumer: LiteConsumer, count: int) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    while len(found) < count:
        found += await consumer.poll()
    return found


# --- subscribing ----------------------------------------------------------------------------------------------------


def test_a_subscriber_polls_all_queues_and_joins_the_group(run: Run, cluster: Cluster, broker: Broker) -> None:
    for queue_id in range(4):
        fill(broker, 25, queue_id)

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            assert consumer.assignment == ()
            await consumer.subscribe("T")
            assert consumer.assignment == QUEUES
            found = await drain(consumer, 100)
            assert await consumer.poll(0) == []
        for queue in QUEUES:
            assert [m.queue_offset for m in found if m.queue == queue] == list(range(25))

    run(test)
    (pull, *_) = broker.requests(PULL)
    assert (pull.text("sysFlag"), pull.text("ReqT"), pull.text("commitOffset")) == ("22", "0", "0")
    assert (pull.text("suspendTimeoutMillis"), pull.text("subscription")) == ("20000", "*")
    assert [left.text("consumerGroup") for left in broker.requests(RequestCode.UNREGISTER_CLIENT)] == ["g"]
    assert {broker.offsets["g", "T", queue_id] for queue_id in range(4)} == {25}


def test_the_heartbeat_says_that_it_consumes_actively(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.subscribe("T", "a || b")
            (data,) = broker.members.values()
            (group,) = data.consumer_data_set
            assert (group.group_name, group.consume_type) == ("g", ConsumeType.CONSUME_ACTIVELY)
            assert group.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET  # whatever is configured
            (subscription,) = group.subscription_data_set
            assert (subscription.topic, subscription.sub_string) == ("T", "a || b")  # no retry topic

    run(test)


def test_members_share_the_queues_and_hand_them_over_without_a_repeat(
    run: Run, cluster: Cluster, broker: Broker
) -> None:
    for queue_id in range(4):
        fill(broker, 40, queue_id)

    async def test() -> None:
        options = LiteConsumerOptions(consume_from=ConsumeFrom.FIRST, pull_messages_count=5)
        async with client(cluster, "a") as one, one.lite_consumer("g", options) as first:
            await first.subscribe("T")
            seen = await drain(first, 20)
            async with client(cluster, "b") as two, two.lite_consumer("g", options) as second:
                assert await first.poll(0, max_messages=1)  # what it had in hand before is finished, this is not
                await first.commit()
                seen_between = consumer_position_sum(first)
                joining = asyncio.create_task(second.subscribe("T"))
                broker.tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
                await joining
                await asyncio.sleep(25)
                assert (len(first.assignment), len(second.assignment)) == (2, 2)
                assert set(first.assignment) | set(second.assignment) == set(QUEUES)
                seen += await drain(first, 10)
                seen += await drain(second, 10)
                await second.commit()
            await asyncio.sleep(25)
            assert first.assignment == QUEUES
            seen += await drain(first, 160 - len(seen) - 1)
            assert seen_between == 21
        places = [(message.queue, message.queue_offset) for message in seen]
        assert len(places) == len(set(places)) == 159

    run(test)


def consumer_position_sum(consumer: LiteConsumer) -> int:
    return sum(consumer.position(queue) for queue in consumer.assignment)


def test_a_topic_that_does_not_exist_yet_is_waited_for(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.subscribe("later")
            assert consumer.assignment == ()
            cluster.add_topic("later", queues=1)
            broker.store("later", 0, b"x")
            assert [message.body for message in await consumer.poll(60_000)] == [b"x"]

    run(test)


def test_a_subscription_is_left_with_its_queues(run: Run, cluster: Cluster, broker: Broker) -> None:
    cluster.add_topic("U", queues=1)
    fill(broker, 3)

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.subscribe("T")
            await consumer.subscribe("U")
            await consumer.poll()
            await consumer.unsubscribe("T")
            assert consumer.assignment == (MessageQueue("U", "b-a", 0),)
            broker.store("T", 1, b"unwanted")
            assert await consumer.poll(40_000) == []
            (data,) = broker.members.values()
            assert [body.topic for body in data.consumer_data_set[0].subscription_data_set] == ["U"]
            with pytest.raises(ClientError, match="does not subscribe to topic 'T'"):
                await consumer.unsubscribe("T")

    run(test)


def test_a_topic_is_left_while_its_share_is_worked_out(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.subscribe("T")
            broker.script(RequestCode.GET_CONSUMER_LIST_BY_GROUP, SILENCE)
            consumer.rebalance_soon()
            await asyncio.sleep(1)
            leaving = asyncio.create_task(consumer.unsubscribe("T"))
            await asyncio.sleep(0.1)
            broker.store("T", 0, b"ends the pull that waits")
            await leaving
            assert consumer.assignment == ()
            await consumer.subscribe("T")
            assert len(await consumer.poll()) == 1

    run(test)


def test_closing_while_subscribing_leaves_nothing_behind(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            consumer = mq.lite_consumer("g", FIRST)
            await consumer.start()
            broker.script(RequestCode.QUERY_CONSUMER_OFFSET, SILENCE)
            subscribing = asyncio.create_task(consumer.subscribe("T"))
            await asyncio.sleep(1)
            await consumer.close()
            with pytest.raises(ClientError, match="is closed"):
                await subscribing
            assert (consumer.assignment, len(consumer.tasks)) == ((), 0)
            assert not broker.requests(PULL)

    run(test)


def test_a_failed_first_subscription_may_be_tried_again(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 1)
    cluster.name_server.script(RequestCode.GET_ROUTEINFO_BY_TOPIC, ResponseCode.SYSTEM_ERROR)

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            with pytest.raises(RemoteError):
                await consumer.subscribe("T")
            await consumer.assign([QUEUE])  # no mode was entered
            assert len(await consumer.poll()) == 1

    run(test)


def test_tags_are_compared_by_text(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.store("T", 0, b"wrong", TAGS="BB")  # same Java hash as "Aa"
    broker.store("T", 0, b"right", TAGS="Aa")
    broker.store("T", 0, b"none")

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.subscribe("T", "Aa || x")
            assert [message.body for message in await consumer.poll()] == [b"right"]
            await consumer.poll(0)
        assert broker.offsets["g", "T", 0] == 3  # what was filtered out behind it is done as well

    run(test)


@pytest.mark.parametrize("body", [b"", b"rubbish", b'{"consumerIdList":[]}', b'{"consumerIdList":null}'])
def test_rubbish_for_a_member_list_keeps_what_is_read(run: Run, cluster: Cluster, broker: Broker, body: bytes) -> None:
    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.subscribe("T")
            broker.script(
                RequestCode.GET_CONSUMER_LIST_BY_GROUP, *[lambda command: response(command, 0, body=body)] * 50
            )
            consumer.rebalance_soon()
            await asyncio.sleep(30)
            assert consumer.assignment == QUEUES

    run(test)


def test_members_that_subscribe_differently_are_told(
    run: Run, cluster: Cluster, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with (
            client(cluster, "a") as one,
            client(cluster, "b") as two,
            one.lite_consumer("g", FIRST) as first,
            two.lite_consumer("g", FIRST) as second,
        ):
            await first.subscribe("T", "a")
            await second.subscribe("T", "b")
            await asyncio.sleep(400)

    run(test)
    assert "members of group g differ" in caplog.text
    assert "use another group" in caplog.text


# --- assigning ------------------------------------------------------------------------------------------------------


def test_assigned_queues_are_read_without_joining_the_group(run: Run, cluster: Cluster, broker: Broker) -> None:
    for queue_id in range(4):
        fill(broker, 3, queue_id)
    broker.offsets["g", "T", 1] = 2

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            assert await consumer.fetch_queues("T") == QUEUES
            await consumer.assign([QUEUES[1], QUEUES[0], QUEUES[1]])
            assert consumer.assignment == QUEUES[:2]
            found = await drain(consumer, 4)
            assert sorted((message.queue.queue_id, message.queue_offset) for message in found) == [
                (0, 0), (0, 1), (0, 2), (1, 2),
            ]  # fmt: skip

    run(test)
    assert not broker.requests(RequestCode.HEART_BEAT)
    assert not broker.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    assert not broker.requests(RequestCode.UNREGISTER_CLIENT)


def test_another_assignment_keeps_what_is_in_both(run: Run, cluster: Cluster, broker: Broker) -> None:
    for queue_id in range(3):
        fill(broker, 4, queue_id)

    async def test() -> None:
        options = LiteConsumerOptions(consume_from=ConsumeFrom.FIRST, pull_messages_count=2)
        async with client(cluster) as mq, mq.lite_consumer("g", options) as consumer:
            await consumer.assign(QUEUES[:2])
            await drain(consumer, 8)
            await consumer.commit()
            fill(broker, 1, 1)
            await consumer.assign(QUEUES[1:3])
            assert consumer.assignment == QUEUES[1:3]
            found = await drain(consumer, 5)
            assert sorted((message.queue.queue_id, message.queue_offset) for message in found) == [
                (1, 4), (2, 0), (2, 1), (2, 2), (2, 3),
            ]  # fmt: skip
            await consumer.assign([])
            assert consumer.assignment == ()
            assert await consumer.poll(30_000) == []

    run(test)


def test_a_queue_that_cannot_be_taken_now_is_taken_later(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 1)
    broker.script(RequestCode.QUERY_CONSUMER_OFFSET, CUT, ResponseCode.SYSTEM_BUSY)

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.assign([QUEUE])
            assert consumer.assignment == ()
            assert len(await consumer.poll(30_000)) == 1

    run(test)


def test_unknown_queues_and_topics_are_refused(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            with pytest.raises(NotFoundError, match="no readable queue b-a/4"):
                await consumer.assign([QUEUE, MessageQueue("T", "b-a", 4)])
            with pytest.raises(RouteNotFoundError):
                await consumer.assign([MessageQueue("missing", "b-a", 0)])
            with pytest.raises(RouteNotFoundError):
                await consumer.fetch_queues("missing")
            assert consumer.assignment == ()

    run(test)


# --- polling --------------------------------------------------------------------------------------------------------


def test_a_poll_waits_as_long_as_it_is_told(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.subscribe("T")
            began = loop.time()
            assert await consumer.poll(0) == []
            assert loop.time() == began
            assert await consumer.poll() == []
            assert loop.time() == pytest.approx(began + 5)
            waiting = asyncio.create_task(consumer.poll(100_000))
            await asyncio.sleep(50)
            broker.store("T", 2, b"new")
            assert [message.body for message in await waiting] == [b"new"]
            assert loop.time() == pytest.approx(began + 55)

    run(test)


def test_a_poll_gives_at_most_what_it_is_asked_for(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 40)

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.assign([QUEUE])
            assert bodies(await consumer.poll(max_messages=3)) == [0, 1, 2]
            assert bodies(await consumer.poll()) == list(range(3, 32))  # the rest of the first pull
            assert bodies(await consumer.poll()) == list(range(32, 40))

    run(test)


def test_iterating_finishes_the_message_before(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 5)

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.assign([QUEUE])
            async for message in consumer:
                if message.body == b"3":
                    break
        assert broker.offsets["g", "T", 0] == 3  # the fourth was in hand

    run(test)


def test_stop_ends_a_waiting_poll_and_an_iteration(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.subscribe("T")
            waiting = asyncio.create_task(consumer.poll(1_000_000))
            await asyncio.sleep(1)
            consumer.stop()
            assert await waiting == []
            assert [message async for message in consumer] == []

    run(test)


# --- commits --------------------------------------------------------------------------------------------------------


def test_automatic_commit_covers_earlier_polls_only(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 6)

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.assign([QUEUE])
            await consumer.poll(max_messages=2)
            await asyncio.sleep(6)
            assert broker.offsets["g", "T", 0] == 0, "what is in hand is not finished"
            await consumer.poll(max_messages=2)
            assert broker.offsets["g", "T", 0] == 0, "written by the timer, not by the poll"
            await asyncio.sleep(6)
            assert broker.offsets["g", "T", 0] == 2
            await consumer.poll(max_messages=2)
        assert broker.offsets["g", "T", 0] == 4, "the end writes what earlier polls gave, not what is in hand"

    run(test)


def test_a_group_that_began_at_the_end_skips_nothing_later(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 6)

    async def test() -> None:
        for expected in ([], [6, 7]):
            async with client(cluster) as mq, mq.lite_consumer("g") as consumer:
                await consumer.assign([QUEUE])
                assert [message.queue_offset for message in await consumer.poll(1_000)] == expected
            fill(broker, 2)

    run(test)


def test_a_reset_beside_a_run_of_the_share_goes_on_committing(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 6)

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.assign([QUEUE])
            await consumer.poll(1_000)
            broker.script(RequestCode.UPDATE_CONSUMER_OFFSET, SILENCE)  # the new offset is long on its way
            await asyncio.gather(consumer.reset({QUEUE: 2}), consumer._share.run())
            assert bodies(await consumer.poll(3_000))[-1] == 5
            await consumer.poll(0)
            await asyncio.sleep(6)
            assert broker.offsets["g", "T", 0] == 6

    run(test)


def test_a_commit_of_the_program_covers_what_is_in_hand(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 6)

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", MANUAL) as consumer:
            await consumer.assign([QUEUE])
            await consumer.poll(max_messages=4)
            await asyncio.sleep(10)
            await consumer.poll(0, max_messages=1)
            assert ("g", "T", 0) not in broker.offsets
            await consumer.commit()
            assert broker.offsets["g", "T", 0] == 5
            assert await consumer.committed(QUEUE) == 5
            written = len(broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET))
            await consumer.commit()
            assert len(broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET)) == written, "nothing changed"
            await consumer.poll()
        assert broker.offsets["g", "T", 0] == 5, "without automatic commit the end writes nothing"

    run(test)


def test_given_offsets_are_written_exactly(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 6)

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", MANUAL) as consumer:
            await consumer.assign([QUEUE])
            await drain(consumer, 6)
            await consumer.commit({QUEUE: 4})
            await consumer.commit({QUEUE: 2})
            assert broker.offsets["g", "T", 0] == 2
            with pytest.raises(ClientError, match="T b-a/1 is not assigned"):
                await consumer.commit({QUEUE: 3, QUEUES[1]: 0})
            with pytest.raises(ConfigurationError, match="count from 0"):
                await consumer.commit({QUEUE: -1})
            assert broker.offsets["g", "T", 0] == 2
            broker.script(RequestCode.UPDATE_CONSUMER_OFFSET, ResponseCode.SYSTEM_ERROR)
            with pytest.raises(RemoteError, match="committing offset 6"):
                await consumer.commit()
            await consumer.commit()
            assert broker.offsets["g", "T", 0] == 6

    run(test)


def test_an_offset_that_cannot_be_read_skips_nothing(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 3)
    broker.script(RequestCode.QUERY_CONSUMER_OFFSET, *[lambda command: response(command, 0, fields={})] * 2)

    async def test() -> None:
        async with (
            client(cluster) as mq,
            mq.lite_consumer("g") as consumer,
        ):  # without an offset it would begin at the end
            await consumer.assign([QUEUE])
            assert consumer.assignment == ()
            broker.offsets["g", "T", 0] = 1
            assert bodies(await consumer.poll(30_000)) == [1, 2]

    run(test)


def test_closing_takes_no_longer_than_it_may(run: Run, cluster: Cluster, broker: Broker) -> None:
    for queue_id in range(4):
        fill(broker, 1, queue_id)

    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with client(cluster) as mq:
            async with mq.lite_consumer("g", FIRST) as consumer:
                await consumer.assign(QUEUES)
                await drain(consumer, 4)
                await consumer.poll(0)
                broker.script(RequestCode.UPDATE_CONSUMER_OFFSET, *[SILENCE] * 9)
                began = loop.time()
            assert loop.time() - began == pytest.approx(3)

    run(test)


def test_a_failed_automatic_commit_is_made_up_for(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 2)
    broker.script(RequestCode.UPDATE_CONSUMER_OFFSET, ResponseCode.SYSTEM_ERROR)

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.assign([QUEUE])
            await consumer.poll()
            await consumer.poll(0)
            await asyncio.sleep(6)
            assert ("g", "T", 0) not in broker.offsets
            await asyncio.sleep(5)
            assert broker.offsets["g", "T", 0] == 2

    run(test)


def test_an_offset_beyond_the_end_is_corrected(
    run: Run, cluster: Cluster, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker, 3)
    broker.offsets["g", "T", 0] = 99

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.assign([QUEUE])
            await asyncio.sleep(1)
            assert consumer.position(QUEUE) == 3
            broker.store("T", 0, b"3")
            assert bodies(await consumer.poll()) == [3]
        assert broker.offsets["g", "T", 0] == 3

    run(test)
    assert "broker has no offset 99 of T b-a/0; going on at 3" in caplog.text


@pytest.mark.parametrize("options", [FIRST, MANUAL], ids=["automatic", "by the program"])
def test_a_group_moved_by_its_broker_commits_anew_what_it_reads_anew(
    run: Run, cluster: Cluster, broker: Broker, options: LiteConsumerOptions
) -> None:
    fill(broker, 5)

    def moved(command: Command) -> Command:
        broker.offsets["g", "T", 0] = 2
        fields = {"nextBeginOffset": "2", "minOffset": "0", "maxOffset": "5", "suggestWhichBrokerId": "0"}
        return response(command, ResponseCode.PULL_OFFSET_MOVED, fields=fields)

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", options) as consumer:
            await consumer.assign([QUEUE])
            assert len(await drain(consumer, 5)) == 5
            await consumer.commit()
            assert broker.offsets["g", "T", 0] == 5
            broker.script(PULL, moved)
            assert bodies(await consumer.poll(60_000)) == [2, 3, 4]
            await consumer.commit()
            assert broker.offsets["g", "T", 0] == 5

    run(test)


def test_what_is_in_hand_when_a_group_is_moved_back_does_not_hide_what_comes_again(
    run: Run, cluster: Cluster, broker: Broker
) -> None:
    fill(broker, 5)

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.assign([QUEUE])
            assert bodies(await consumer.poll(max_messages=4)) == [0, 1, 2, 3]
            await consumer.poll(max_messages=1)
            owned = consumer.queues.owned[QUEUE]
            consumer.queues.correct(owned, 1)
            assert consumer.progress("T")[QUEUE] == 1  # not 4, the offset in hand

    run(test)


def test_without_automatic_commit_a_correction_is_not_written(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 3)
    broker.offsets["g", "T", 0] = 99

    async def test() -> None:
        async with client(cluster) as mq:
            async with mq.lite_consumer("g", MANUAL) as consumer:
                await consumer.assign([QUEUE])
                await asyncio.sleep(1)
            assert broker.offsets["g", "T", 0] == 99
            async with mq.lite_consumer("g", MANUAL) as consumer:
                await consumer.assign([QUEUE])
                await asyncio.sleep(1)
                await consumer.commit()
            assert broker.offsets["g", "T", 0] == 3

    run(test)


# --- seeking --------------------------------------------------------------------------------------------------------


def test_a_seek_forgets_what_is_pulled_and_in_hand(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 10)

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.assign([QUEUE])
            assert bodies(await consumer.poll(max_messages=4)) == [0, 1, 2, 3]
            assert consumer.position(QUEUE) == 4
            await consumer.seek(QUEUE, 8)
            assert consumer.position(QUEUE) == 8
            assert bodies(await consumer.poll()) == [8, 9]
            await consumer.seek(QUEUE, 2)
            await asyncio.sleep(6)
            assert broker.offsets["g", "T", 0] == 2, "with automatic commit the group's offset follows, also backwards"
            assert bodies(await consumer.poll()) == list(range(2, 10))

    run(test)


def test_a_seek_while_a_pull_waits_is_obeyed_at_once(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 3)
    broker.offsets["g", "T", 0] = 3

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", MANUAL) as consumer:
            await consumer.assign([QUEUE])
            await asyncio.sleep(1)  # the pull at the end is held by the broker
            assert await consumer.seek_to_begin(QUEUE) == 0
            broker.store("T", 0, b"3")  # answers the held pull, which belongs to nobody any more
            assert bodies(await drain(consumer, 4)) == [0, 1, 2, 3]
            assert broker.offsets["g", "T", 0] == 3, "without automatic commit a seek writes nothing"
            assert await consumer.seek_to_end(QUEUE) == 4
            await consumer.commit()
            assert broker.offsets["g", "T", 0] == 4

    run(test)


def test_a_seek_must_stay_within_the_queue(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 10)
    broker.min_offsets["T", 0] = 4

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.assign([QUEUE])
            for wrong in (-1, 3, 11):
                with pytest.raises(ClientError, match=rf"offset {wrong} .* does not exist: the queue has 4 to 10"):
                    await consumer.seek(QUEUE, wrong)
            await consumer.seek(QUEUE, 10)
            await consumer.seek(QUEUE, 4)
            with pytest.raises(ClientError, match="T b-a/3 is not assigned"):
                await consumer.seek(QUEUES[3], 0)
            broker.script(
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                lambda command: response(command, ResponseCode.SUCCESS, fields={"offset": "7"}),
            )
            assert await consumer.seek_to_time(QUEUE, 1_000) == 7
            assert bodies(await consumer.poll()) == [7, 8, 9]

    run(test)


# --- pausing --------------------------------------------------------------------------------------------------------


def test_a_paused_queue_is_not_pulled_but_gives_what_it_has(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 2)

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.assign(QUEUES[:2])
            await asyncio.sleep(1)
            consumer.pause([QUEUE])
            assert consumer.paused == (QUEUE,)
            assert bodies(await consumer.poll()) == [0, 1]
            await asyncio.sleep(40)  # the pull that was under way has ended
            broker.store("T", 0, b"2")
            assert await consumer.poll(60_000) == []
            consumer.resume([QUEUE])
            assert bodies(await consumer.poll(0)) == []
            assert bodies(await consumer.poll(1_000)) == [2]
            assert consumer.paused == ()
            with pytest.raises(ClientError, match="not assigned"):
                consumer.pause([QUEUES[3]])
            with pytest.raises(ClientError, match="not assigned"):
                consumer.resume([QUEUES[3]])

    run(test)


# --- bounds ---------------------------------------------------------------------------------------------------------


def test_a_program_that_does_not_poll_bounds_what_is_pulled(run: Run, cluster: Cluster, broker: Broker) -> None:
    for queue_id in range(4):
        fill(broker, 500, queue_id)

    async def test() -> None:
        options = LiteConsumerOptions(
            consume_from=ConsumeFrom.FIRST, pull_messages_count=10, queue_messages_max=50, messages_max=100
        )
        async with client(cluster) as mq, mq.lite_consumer("g", options) as consumer:
            await consumer.subscribe("T")
            await asyncio.sleep(100)
            held = sum(len(owned.messages) for owned in consumer.queues.owned.values())
            assert 100 < held <= 100 + 4 * 10
            assert len(await drain(consumer, 2000)) == 2000

    run(test)


# --- what others do -------------------------------------------------------------------------------------------------


def test_listeners_hear_of_changes_and_may_fail(
    run: Run, cluster: Cluster, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[tuple[int, int]] = []
    topics: list[tuple[str, int]] = []

    async def assignment(taken: tuple[MessageQueue, ...], given_up: tuple[MessageQueue, ...]) -> None:
        heard.append((len(taken), len(given_up)))
        raise RuntimeError("as asked")

    async def changed(topic: str, queues: tuple[MessageQueue, ...]) -> None:
        topics.append((topic, len(queues)))

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST, on_assignment=assignment) as consumer:
            consumer.watch_queues("T", changed)
            with pytest.raises(ClientError, match="watched already"):
                consumer.watch_queues("T", changed)
            await consumer.assign(QUEUES[:3])
            await asyncio.sleep(1)
            await consumer.assign(QUEUES[2:])
            await asyncio.sleep(1)
            cluster.add_topic("T", queues=6)
            await asyncio.sleep(70)

    run(test)
    assert (sum(taken for taken, _ in heard), sum(lost for _, lost in heard)) == (4, 2)
    assert topics == [("T", 6)]
    assert "assignment listener of group g failed" in caplog.text


def test_an_administrator_resets_a_group(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 10)

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.subscribe("T")
            assert len(await drain(consumer, 10)) == 10
            body = ResetOffsetBody(offset_table={QUEUE: 7}).encode()
            broker.tell(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {"topic": "T", "group": "g"}, body, oneway=True)
            assert bodies(await consumer.poll(10_000)) == [7, 8, 9]

    run(test)


def test_administrators_see_how_far_it_is(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 10)

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.subscribe("T", "*")
            await consumer.poll(max_messages=4)
            await consumer.poll(max_messages=2)
            broker.tell(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "T", "group": "g"})
            await asyncio.sleep(0.1)
            broker.tell(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": mq.client_id})
            await asyncio.sleep(0.1)
            status, info = broker.answers(7)
            assert ConsumerStatusBody.decode(status.body).message_queue_table[QUEUE] == 4
            told = ConsumerRunningInfo.decode(info.body)
            assert told.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
            assert [subscription.topic for subscription in told.subscription_set] == ["T"]
            state = told.mq_table[QUEUE]
            assert (state.cached_msg_count, state.cached_msg_min_offset, state.cached_msg_max_offset) == (6, 4, 9)

    run(test)


def test_a_broken_broker_is_asked_again(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 2)
    broker.script(PULL, CUT, ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL)

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.assign([QUEUE])
            assert bodies(await consumer.poll(30_000)) == [0, 1]

    run(test)


def test_a_message_that_cannot_be_restored_goes_to_the_dead_letters(
    run: Run, cluster: Cluster, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.store("T", 0, b"good")
    broker.store("T", 0, b"no zlib").sys_flag |= 1 | 3 << 8
    broker.store("T", 0, b"later")
    broker.script(RequestCode.CONSUMER_SEND_MSG_BACK, ResponseCode.SYSTEM_BUSY)

    async def test() -> None:
        async with client(cluster) as mq, mq.lite_consumer("g", FIRST) as consumer:
            await consumer.assign([QUEUE])
            assert [message.body for message in await consumer.poll(30_000)] == [b"good", b"later"]
            await consumer.commit()
        assert [record.body for record in broker.queues["%DLQ%g", 0]] == [b"no zlib"]
        assert broker.offsets["g", "T", 0] == 3

    with caplog.at_level(logging.ERROR):
        run(test)
    assert "goes to the dead letters of group g" in caplog.text


# --- misuse ---------------------------------------------------------------------------------------------------------


def test_the_two_modes_exclude_each_other(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            async with mq.lite_consumer("g", FIRST) as consumer:
                await consumer.subscribe("T")
                with pytest.raises(ClientError, match=r"works by subscribe\(\); it cannot assign\(\) as well"):
                    await consumer.assign([QUEUE])
            async with mq.lite_consumer("g", FIRST) as consumer:
                await consumer.assign([QUEUE])
                with pytest.raises(ClientError, match=r"works by assign\(\); it cannot subscribe\(\) as well"):
                    await consumer.subscribe("T")
                with pytest.raises(ClientError, match=r"cannot subscribe\(\)"):
                    await consumer.unsubscribe("T")

    run(test)


def test_misuse_is_an_error_of_the_call(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            consumer = mq.lite_consumer("g", FIRST)
            with pytest.raises(ClientError, match="not started"):
                await consumer.poll()
            async with consumer:
                with pytest.raises(ClientError, match=r"call subscribe\(\) or assign\(\) first"):
                    await consumer.poll()
                with pytest.raises(ClientError, match="starts once"):
                    await consumer.start()
                with pytest.raises(ClientError, match="a consumer of group 'g' already"):
                    await mq.lite_consumer("g").start()
                with pytest.raises(ClientError, match="a consumer of group 'g' already"):
                    await mq.consumer("g", "T").start()
                await consumer.subscribe("T")
                for wrong in ({"timeout_ms": -1}, {"max_messages": 0}, {"max_messages": 1025}):
                    with pytest.raises(ConfigurationError):
                        await consumer.poll(**wrong)
                with pytest.raises(ConfigurationError, match="has no tag"):
                    await consumer.subscribe("T", "||")
                waiting = asyncio.create_task(consumer.poll(1_000))
                await asyncio.sleep(0.5)
                with pytest.raises(ClientError, match="is being polled already"):
                    await consumer.poll()
                assert await waiting == []
            for call in (consumer.poll(), consumer.commit(), consumer.committed(QUEUE), consumer.seek(QUEUE, 0)):
                with pytest.raises(ClientError, match="is closed"):
                    await call
            with pytest.raises(ClientError, match="is closed"):
                consumer.position(QUEUE)
            await consumer.close()

    run(test)


def test_a_closing_client_closes_its_lite_consumers(run: Run, cluster: Cluster, broker: Broker) -> None:
    fill(broker, 2)

    async def test() -> None:
        async with client(cluster) as mq:
            consumer = mq.lite_consumer("g", FIRST)
            await consumer.start()
            await consumer.assign([QUEUE])
            await consumer.poll()
            await consumer.poll(0)
        assert broker.offsets["g", "T", 0] == 2
        assert len(consumer.tasks) == 0
        with pytest.raises(ClientError, match="is closed"):
            await consumer.poll()

    run(test)
