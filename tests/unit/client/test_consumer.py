"""Consuming: delivery, settling, what happens to messages left unsettled, rebalance, resets, broken brokers."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from scripted_cluster import CUT, NAME_SERVER, Broker, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client._async.consuming.consumer import Consumer
from orbitmq.client._async.consuming.delivery import ReceivedMessage, Settlement
from orbitmq.client.options import ClientOptions, ConsumeFrom, ConsumerOptions
from orbitmq.clock import ManualClock
from orbitmq.errors import ClientError, ConfigurationError, ConnectionLostError
from orbitmq.protocol.records import decode_record, encode_record
from orbitmq.protocol.remoting.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumerStatusBody,
    MessageQueue,
    ResetOffsetBody,
)
from orbitmq.protocol.remoting.codes import NOT_READ, RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response

Run = Callable[[Callable[[], Awaitable[None]]], None]
FIRST = ConsumerOptions(consume_from=ConsumeFrom.FIRST)
PULL = RequestCode.PULL_MESSAGE
BACK = RequestCode.CONSUMER_SEND_MSG_BACK


def client(cluster: Cluster, name: str = "me") -> Client:
    return Client(NAME_SERVER, options=ClientOptions(instance_name=name), clock=ManualClock(), dial=cluster.dial)


def consumer(mq: Client, options: ConsumerOptions = FIRST, tags: str = "*") -> Consumer:
    return mq.consumer("g", "T", tags=tags, options=options)


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    cluster.add_topic("%RETRY%g", queues=1)
    return cluster.brokers["b-a"]


async def take(consumer: Consumer, count: int) -> list[ReceivedMessage]:
    return [await anext(consumer) for _ in range(count)]


def test_messages_of_all_queues_arrive_once(run: Run, cluster: Cluster, broker: Broker) -> None:
    for number in range(100):
        broker.store("T", number % 4, b"%d" % number)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            assert len(members.queues) == 5  # four, and the retry topic's
            bodies = []
            async for message in members:
                bodies.append(int(message.body))
                await message.ack()
                if len(bodies) == 100:
                    break
        assert sorted(bodies) == list(range(100))
        assert {broker.offsets["g", "T", queue] for queue in range(4)} == {25}
        left = broker.requests(RequestCode.UNREGISTER_CLIENT)
        assert [command.text("consumerGroup") for command in left] == ["g"]

    run(test)


def test_a_slave_that_was_the_master_and_serves_no_pulls_is_found_out_soon(
    run: Run, cluster: Cluster, broker: Broker
) -> None:
    def not_read(command: Command) -> Command:
        at = {
            "nextBeginOffset": command.text("queueOffset"),
            "minOffset": "0",
            "maxOffset": "0",
            "suggestWhichBrokerId": "0",
        }
        return response(command, ResponseCode.PULL_RETRY_IMMEDIATELY, NOT_READ, fields=at)

    broker.script(PULL, *[not_read] * 1_000_000)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            await asyncio.sleep(0.3)
            leads = cluster.brokers["b-a"] = Broker(cluster, "b-a", "other:10911")
            leads.store("T", 0, b"at the new master")
            async with asyncio.timeout(5):
                (message,) = await take(members, 1)
            assert message.body == b"at the new master"

    run(test)


def test_a_parked_pull_brings_new_messages_at_once(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with client(cluster) as mq, consumer(mq) as members:
            await asyncio.sleep(40)  # several pulls have expired empty
            before = loop.time()
            broker.store("T", 2, b"new")
            message = await anext(members)
            assert (message.body, message.queue_offset, message.queue.queue_id) == (b"new", 0, 2)
            assert loop.time() == before
        assert not broker.requests(RequestCode.SEND_MESSAGE_V2)

    run(test)


def test_what_a_message_carries(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.store("T", 0, b"x", KEYS="a b", TAGS="paid", UNIQ_KEY="ID", p="q", __SHARDINGKEY="s")

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            message = await anext(members)
            assert (message.topic, message.tag, message.keys, message.ordering_key) == ("T", "paid", ("a", "b"), "s")
            assert (message.message_id, message.reconsume_times, message.properties["p"]) == ("ID", 0, "q")
            assert message.offset_message_id == "0A00000100002A9F00000000000003E8"
            assert (message.born_host, message.store_host) == ("10.0.0.9:1", "10.0.0.1:10911")
            assert "ID" in repr(message)

    run(test)


def test_the_client_filters_tags_that_share_a_hash(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.store("T", 0, b"wrong", TAGS="BB")  # same Java hash as "Aa"
    broker.store("T", 0, b"none")

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq, tags="Aa || x") as members:
            await asyncio.sleep(1)
            broker.store("T", 0, b"right", TAGS="Aa")
            assert (await anext(members)).body == b"right"
        assert broker.offsets["g", "T", 0] == 2  # progress over what was filtered is kept

    run(test)


def test_offsets_are_committed_up_to_the_first_unsettled_message(run: Run, cluster: Cluster, broker: Broker) -> None:
    for _ in range(3):
        broker.store("T", 0, b"x")

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            first, second, third = await take(members, 3)
            await second.ack()
            await asyncio.sleep(6)  # the timer for offsets is 5 s
            assert broker.offsets.get(("g", "T", 0), 0) == 0
            await first.ack()
            await asyncio.sleep(6)
            assert broker.offsets["g", "T", 0] == 2
            assert await third.ack()
            assert await third.ack()  # again is harmless
            with pytest.raises(ClientError, match="settle a message once"):
                await third.retry()
        assert broker.offsets["g", "T", 0] == 3

    run(test)


def test_retry_sends_back_and_the_message_comes_again(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.store("T", 0, b"x", UNIQ_KEY="ID")

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            message = await anext(members)
            assert await message.retry(delay_level=2)
            assert message.settlement is Settlement.RETRIED
            again = await anext(members)
            assert (again.message_id, again.topic, again.reconsume_times) == ("ID", "T", 1)
            assert again.queue.topic == "%RETRY%g"
            await again.dead_letter()
            with pytest.raises(ValueError, match="dead_letter"):
                await again.retry(-1)
        first, second = broker.requests(BACK)
        assert (first.text("delayLevel"), first.text("originTopic"), first.text("group")) == ("2", "T", "g")
        assert "maxReconsumeTimes" not in first.fields
        assert second.text("delayLevel") == "-1"
        assert len(broker.queues["%DLQ%g", 0]) == 1
        assert (broker.offsets["g", "T", 0], broker.offsets["g", "%RETRY%g", 0]) == (1, 1)

    run(test)


def test_without_the_send_back_request_a_copy_goes_to_the_retry_topic(
    run: Run, cluster: Cluster, broker: Broker
) -> None:
    broker.store("T", 0, b"x", UNIQ_KEY="ID", TAGS="t")
    broker.script(BACK, ResponseCode.SYSTEM_ERROR)
    options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, max_retries_count=7)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq, options) as members:
            await (await anext(members)).retry()
            again = await anext(members)
            assert (again.topic, again.reconsume_times, again.message_id, again.tag) == ("T", 1, "ID", "t")
        (sent,) = broker.requests(RequestCode.SEND_MESSAGE_V2)
        assert (sent.text("a"), sent.text("b")) == ("CLIENT_INNER_PRODUCER", "%RETRY%g")
        assert (sent.text("j"), sent.text("l")) == ("1", "7")
        assert again.properties["DELAY"] == "3"
        assert again.properties["ORIGIN_MESSAGE_ID"]

    run(test)


def test_a_message_no_broker_takes_back_is_delivered_here_again(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.store("T", 0, b"x")
    broker.script(BACK, ResponseCode.SYSTEM_ERROR)
    broker.script(RequestCode.SEND_MESSAGE_V2, ResponseCode.NO_PERMISSION)

    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with client(cluster) as mq, consumer(mq) as members:
            message = await anext(members)
            before = loop.time()
            assert await message.retry()
            again = await anext(members)
            assert loop.time() - before == pytest.approx(5)
            assert (again.reconsume_times, again.queue_offset) == (1, 0)
            assert await again.ack()
        assert broker.offsets["g", "T", 0] == 1

    run(test)


class Poison(Exception):
    pass


async def fail_with_one_in_hand(mq: Client) -> None:
    async with consumer(mq) as members:
        first, _second = await take(members, 2)
        await first.ack()
        raise Poison


def test_leaving_by_an_exception_sends_back_what_is_in_hand(run: Run, cluster: Cluster, broker: Broker) -> None:
    for _ in range(5):
        broker.store("T", 0, b"x")

    async def test() -> None:
        async with client(cluster) as mq:
            with pytest.raises(Poison):
                await fail_with_one_in_hand(mq)
        (back,) = broker.requests(BACK)
        assert back.text("delayLevel") == "0"
        assert broker.offsets["g", "T", 0] == 2  # what was pulled and not begun stays for the next member

    run(test)


def test_leaving_in_any_other_way_releases_what_is_in_hand(run: Run, cluster: Cluster, broker: Broker) -> None:
    for _ in range(3):
        broker.store("T", 0, b"x")

    async def begin_and_hang(mq: Client) -> None:
        async with consumer(mq) as members:
            await (await anext(members)).ack()
            await anext(members)
            await asyncio.sleep(1000)

    async def test() -> None:
        async with client(cluster) as mq:
            task = asyncio.ensure_future(begin_and_hang(mq))
            await asyncio.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert broker.offsets["g", "T", 0] == 1
            async with consumer(mq) as members:
                message = await anext(members)
                assert (message.queue_offset, message.reconsume_times) == (1, 0)
        assert broker.requests(BACK) == []

    run(test)


def test_messages_not_settled_in_time_are_sent_back(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.store("T", 0, b"x")
    options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, settle_timeout_ms=60_000)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq, options) as members:
            stuck = await anext(members)
            await asyncio.sleep(59)
            assert broker.requests(BACK) == []
            await asyncio.sleep(17)
            assert stuck.settlement is Settlement.RETRIED
            assert (await anext(members)).reconsume_times == 1
        assert [command.text("delayLevel") for command in broker.requests(BACK)] == ["3"]

    run(test)


def test_the_handler_style(run: Run, cluster: Cluster, broker: Broker) -> None:
    for number in range(20):
        broker.store("T", number % 4, b"%d" % number)

    async def test() -> None:
        running = 0
        peak = 0
        seen: list[tuple[int, int]] = []

        async def handle(message: ReceivedMessage) -> None:
            nonlocal running, peak
            running += 1
            peak = max(peak, running)
            await asyncio.sleep(1)
            running -= 1
            seen.append((int(message.body), message.reconsume_times))
            if int(message.body) == 7 and message.reconsume_times == 0:
                raise Poison
            if int(message.body) == 8:
                await message.dead_letter()
            if len(seen) == 21:
                members.stop()

        async with client(cluster) as mq, consumer(mq) as members:
            await members.run(handle, concurrency=3)
        assert peak == 3
        assert sorted(seen) == sorted([*((number, 0) for number in range(20)), (7, 1)])
        assert len(broker.queues["%DLQ%g", 0]) == 1
        assert {broker.offsets["g", "T", queue] for queue in range(4)} == {5}

    run(test)


def test_cancelling_a_run_cancels_its_handlers(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.store("T", 0, b"x")

    async def test() -> None:
        cancelled = []

        async def handle(message: ReceivedMessage) -> None:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                cancelled.append(message)
                raise

        async with client(cluster) as mq, consumer(mq) as members:
            task = asyncio.ensure_future(members.run(handle))
            await asyncio.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(cancelled) == 1
            with pytest.raises(ConfigurationError):
                await members.run(handle, concurrency=0)
        assert broker.requests(BACK) == []

    run(test)


def test_nothing_is_pulled_while_too_much_is_unsettled(run: Run, cluster: Cluster, broker: Broker) -> None:
    for _ in range(100):
        broker.store("T", 0, b"x" * 10)
    options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, queue_messages_max=20, pull_messages_count=8)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq, options) as members:
            held = await take(members, 24)  # three pulls of eight: the third found 16, not above 20
            await asyncio.sleep(100)
            pulled = [command for command in broker.requests(PULL) if command.text("topic") == "T"]
            assert max(command.integer("queueOffset") for command in pulled) == 16
            for message in held[:4]:
                await message.ack()
            assert (await anext(members)).queue_offset == 24

    run(test)


def test_all_queues_together_are_bounded(run: Run, cluster: Cluster, broker: Broker) -> None:
    for number in range(100):
        broker.store("T", number % 2, b"x" * 1000)
    options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, bytes_max=8_000, pull_messages_count=5)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq, options) as members:
            await asyncio.sleep(60)
            assert members.unsettled_bytes <= 8_000 + 2 * 5_000
            for _ in range(100):
                await (await anext(members)).ack()

    run(test)


def test_members_share_the_queues_and_take_over_from_each_other(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster, "one") as one, client(cluster, "two") as two, consumer(one) as first:
            assert len([queue for queue in first.queues if queue.topic == "T"]) == 4
            async with consumer(two) as second:
                broker.tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
                await asyncio.sleep(3)
                shares = [{queue for queue in each.queues if queue.topic == "T"} for each in (first, second)]
                assert [len(share) for share in shares] == [2, 2]
                assert not shares[0] & shares[1]
                for queue in range(4):
                    broker.store("T", queue, b"x")
                for each in (first, second):
                    for message in await take(each, 2):
                        await message.ack()
            # the second is gone: its connection closes with its client, its offsets are written
            for pipe in [pipe for pipe, member in broker.members.items() if member.client_id == two.client_id]:
                del broker.members[pipe]
            broker.tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
            await asyncio.sleep(3)
            assert len([queue for queue in first.queues if queue.topic == "T"]) == 4
            broker.store("T", 3, b"after")
            assert (await anext(first)).body == b"after"  # and nothing twice

    run(test)


@pytest.mark.parametrize("after_last_run_s", [0.01, 0.2, 5])
def test_the_queues_of_a_member_that_left_are_taken_within_a_second(
    run: Run, cluster: Cluster, broker: Broker, after_last_run_s: float
) -> None:
    """Whenever the last rebalance was, and although others stay who might still have to write their offsets."""

    async def test() -> None:
        async with (
            client(cluster, "one") as one,
            client(cluster, "two") as two,
            consumer(one) as first,
            consumer(two) as second,
        ):
            broker.foreign_members.append(one.client_id + "-left")
            for each in (first, second):
                each.rebalance_soon()
            await asyncio.sleep(3)
            assert len({*first.queues, *second.queues}) < 5
            for each in (first, second):
                each.rebalance_soon()
            await asyncio.sleep(after_last_run_s)
            broker.foreign_members.clear()
            broker.tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
            await asyncio.sleep(1)
            assert len({*first.queues, *second.queues}) == 5
            assert not set(first.queues) & set(second.queues)

    run(test)


def test_settling_after_the_queue_moved_says_so(run: Run, cluster: Cluster, broker: Broker) -> None:
    for queue in range(4):
        broker.store("T", queue, b"x")

    async def test() -> None:
        async with client(cluster, "me") as mq, consumer(mq) as members:
            messages = await take(members, 4)
            broker.foreign_members.append(mq.client_id[:-2] + "a")  # sorts first: takes the first two queues
            members.rebalance_soon()
            await asyncio.sleep(3)
            outcome = {message.queue.queue_id: await message.ack() for message in messages}
            assert outcome == {0: False, 1: False, 2: True, 3: True}
            for message in messages:
                assert await message.ack()  # settled, and nothing more to say

    run(test)


def test_a_topic_that_does_not_exist_yet_is_waited_for(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster) as mq, mq.consumer("g", {"T": "*", "late": "a || b"}, options=FIRST) as members:
            cluster.add_topic("late", queues=1)
            broker.store("late", 0, b"x", TAGS="b")
            assert (await anext(members)).topic == "late"

    run(test)


def test_a_restarted_broker_is_introduced_to_the_group_again(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            await asyncio.sleep(2)
            broker.stop()
            await asyncio.sleep(5)
            assert broker.members == {}
            broker.up = True
            await asyncio.sleep(2)
            assert len(broker.members) == 1
            broker.store("T", 1, b"x")
            assert (await anext(members)).body == b"x"

    run(test)


def test_a_broker_that_forgot_the_group_gets_a_heartbeat(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster) as mq, consumer(mq):
            await asyncio.sleep(2)
            beats = len(broker.requests(RequestCode.HEART_BEAT))
            broker.script(PULL, ResponseCode.SUBSCRIPTION_NOT_EXIST)
            broker.store("T", 0, b"x")
            await asyncio.sleep(16)
            assert len(broker.requests(RequestCode.HEART_BEAT)) > beats

    run(test)


def test_an_offset_the_broker_does_not_have_is_corrected(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.offsets["g", "T", 0] = 50
    broker.store("T", 0, b"x")

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            await asyncio.sleep(5)
            broker.store("T", 0, b"y")
            assert (await anext(members)).body == b"y"
        assert broker.offsets["g", "T", 0] == 1

    run(test)


@pytest.mark.parametrize("stored", [None, 3])
def test_a_new_group_starts_at_the_end_and_an_old_one_where_it_was(
    run: Run, cluster: Cluster, broker: Broker, stored: int | None
) -> None:
    for number in range(5):
        broker.store("T", 0, b"%d" % number)
    if stored is not None:
        broker.offsets["g", "T", 0] = stored

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq, ConsumerOptions()) as members:
            broker.store("T", 0, b"5")
            assert (await anext(members)).queue_offset == (5 if stored is None else stored)

    run(test)


def test_rubbish_in_a_pull_answer_is_asked_for_again(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.store("T", 0, b"x")

    async def test() -> None:
        for rubbish in (b"\0\0\0\x10nonsense", b"\xff" * 200):
            broker.script(
                PULL,
                *[lambda command, body=rubbish: response(command, 0, fields={"nextBeginOffset": "9"}, body=body)] * 5,
            )
        broker.script(PULL, CUT, lambda command: response(command, 0, fields={}))
        async with client(cluster) as mq, consumer(mq) as members:
            assert (await anext(members)).queue_offset == 0
        assert len(broker.requests(PULL)) < 40

    run(test)


def test_a_body_that_cannot_be_restored_goes_to_the_dead_letters(run: Run, cluster: Cluster, broker: Broker) -> None:
    good = zlib.compress(b"hello" * 10)
    for body in (b"no zlib at all", zlib.compress(b"\0" * 67_150_000), good):
        broker.store("T", 0, body)
    broker.queues["T", 0] = [msgspec.structs.replace(record, sys_flag=0x301) for record in broker.queues["T", 0]]

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            message = await anext(members)
            assert message.body == b"hello" * 10
            await message.ack()
            await asyncio.sleep(1)
        assert len(broker.queues["%DLQ%g", 0]) == 2
        assert broker.offsets["g", "T", 0] == 3

    run(test)


def test_resetting_offsets(run: Run, cluster: Cluster, broker: Broker) -> None:
    for number in range(5):
        broker.store("T", 0, b"%d" % number)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            messages = await take(members, 5)
            for message in messages[:4]:
                await message.ack()
            body = ResetOffsetBody(offset_table={MessageQueue("T", "b-a", 0): 1}).encode()
            broker.tell(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {"topic": "T", "group": "g"}, body, oneway=True)
            assert (await anext(members)).queue_offset == 1
            assert not await messages[4].ack()
        assert broker.offsets["g", "T", 0] == 1

    run(test)


@pytest.mark.parametrize("reset_first", [False, True])
def test_a_reset_amid_rebalancing_is_not_undone(run: Run, cluster: Cluster, broker: Broker, reset_first: bool) -> None:
    """Whoever comes first, the queue goes on at the offset that was set, and its progress from there is written."""
    for number in range(5):
        broker.store("T", 0, b"%d" % number)

    def stored_and_not_answered(command: Command) -> None:
        broker.handle(next(iter(broker.pipes)), command)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            for message in await take(members, 5):
                await message.ack()
            broker.script(RequestCode.UPDATE_CONSUMER_OFFSET, stored_and_not_answered)
            resetting = asyncio.ensure_future(members.reset({MessageQueue("T", "b-a", 0): 1}))
            if reset_first:
                await asyncio.sleep(0)
            await members._rebalance.run()
            await resetting
            message = await anext(members)
            assert message.queue_offset == 1
            await message.ack()
            await asyncio.sleep(6)
            assert broker.offsets["g", "T", 0] == 2

    run(test)


def test_queues_that_come_and_go_leave_nothing_behind_for_a_slow_program(
    run: Run, cluster: Cluster, broker: Broker
) -> None:
    for number in range(20):
        broker.store("T", 0, b"%d" % number)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            for _ in range(5):
                await asyncio.sleep(2)
                assert len(members._feed) == 20
                await members.reset({MessageQueue("T", "b-a", 0): 0})
            assert [message.queue_offset for message in await take(members, 20)] == list(range(20))

    run(test)


def test_what_a_consumer_tells_about_itself(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.store("T", 0, b"x" * 100)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            await anext(members)
            await asyncio.sleep(1)
            broker.tell(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g"})
            broker.tell(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"group": "g", "topic": "T"})
            broker.tell(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "other"})
            broker.tell(RequestCode.POP_MESSAGE, {})
            broker.tell(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g"}, oneway=True)
            await asyncio.sleep(1)
            broker.tell(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "jstackEnable": "true"})
            await asyncio.sleep(1)
            *_, with_stacks = broker.answers(0)
            assert "pull_forever" in (ConsumerRunningInfo.decode(with_stacks.body).jstack or "")
            info, status, unknown, unsupported, _ = broker.answers(0)
            running = ConsumerRunningInfo.decode(info.body)
            assert running.jstack is None
            assert set(running.status_table) == {"T", "%RETRY%g"}
            assert running.status_table["T"].pull_tps > 0
            assert running.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            queue = MessageQueue("T", "b-a", 0)
            assert running.mq_table[queue].cached_msg_count == 1
            assert {data.topic for data in running.subscription_set} == {"T", "%RETRY%g"}
            assert ConsumerStatusBody.decode(status.body).message_queue_table[queue] == 0
            assert unknown.code == ResponseCode.SYSTEM_ERROR
            assert unsupported.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    run(test)


def test_consuming_directly_runs_the_handler_and_moves_no_offset(run: Run, cluster: Cluster, broker: Broker) -> None:
    record = broker.store("T", 0, b"bad")
    broker.offsets["g", "T", 0] = 1

    async def test() -> None:
        async def handle(message: ReceivedMessage) -> None:
            if message.body == b"bad":
                raise Poison("no")

        body = encode_record(record)
        fields = {"consumerGroup": "g", "brokerName": "b-a"}
        async with client(cluster) as mq, consumer(mq) as members:
            broker.tell(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, body)
            await asyncio.sleep(1)
            task = asyncio.ensure_future(members.run(handle))
            await asyncio.sleep(1)
            good = encode_record(msgspec.structs.replace(decode_record(body), body=b"good"))
            for each in (body, good, b"rubbish"):
                broker.tell(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, each)
                await asyncio.sleep(1)
            members.stop()
            await task
        iterating, failed, fine, broken = broker.answers(0)
        assert iterating.code == ResponseCode.SYSTEM_ERROR
        result = ConsumeMessageDirectlyResult.decode(failed.body)
        assert (result.consume_result, result.remark) == ("CR_THROW_EXCEPTION", "Poison('no')")
        assert ConsumeMessageDirectlyResult.decode(fine.body).consume_result == "CR_SUCCESS"
        assert broken.code == ResponseCode.SYSTEM_ERROR
        assert broker.offsets["g", "T", 0] == 1

    run(test)


def test_one_member_of_a_group_per_client(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            with pytest.raises(ClientError, match="client of its own"):
                await consumer(mq).start()
            with pytest.raises(ClientError, match="starts once"):
                await members.start()
            fresh = consumer(mq)
            with pytest.raises(ClientError, match="with block"):
                await anext(fresh)
            for group in ("", "DEFAULT_CONSUMER"):
                with pytest.raises(ConfigurationError):
                    mq.consumer(group, "T")
            with pytest.raises(ConfigurationError):
                mq.consumer("h", {})
            with pytest.raises(ConfigurationError, match="each topic its own"):
                mq.consumer("h", {"T": "*"}, tags="a")  # type: ignore[call-overload]
            with pytest.raises(ConfigurationError, match="tags=None is no text"):
                mq.consumer("h", "T", tags=None)  # type: ignore[call-overload]

    run(test)


def test_a_start_without_name_server_fails_and_leaves_nothing(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        cluster.name_server.up = False
        async with client(cluster) as mq:
            members = consumer(mq)
            with pytest.raises(ConnectionLostError, match="no name server answered"):
                await members.start()
            assert mq.consumers == {}
            cluster.name_server.up = True
            async with consumer(mq) as members:
                assert members.queues

    run(test)


def test_a_broker_that_is_down_at_the_start_is_taken_when_it_comes(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.store("T", 0, b"x")

    async def test() -> None:
        broker.up = False
        async with client(cluster) as mq, consumer(mq) as members:
            assert not members.queues
            await asyncio.sleep(10)
            broker.up = True
            assert (await anext(members)).body == b"x"

    run(test)


def test_a_crash_of_the_client_itself_reaches_the_program(
    run: Run, cluster: Cluster, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            monkeypatch.setattr("orbitmq.client._async.consuming.consumer.hold", broken)
            with pytest.raises(ClientError, match="defect") as caught:
                await anext(members)
            assert isinstance(caught.value.__cause__, ZeroDivisionError)
            monkeypatch.undo()

    run(test)


def test_closing_the_client_closes_its_consumers(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.store("T", 0, b"x")

    async def test() -> None:
        mq = client(cluster)
        await mq.start()
        members = consumer(mq)
        await members.start()
        await (await anext(members)).ack()
        await mq.close()
        assert broker.offsets["g", "T", 0] == 1
        with pytest.raises(ClientError, match="closed"):
            await anext(members)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(test)
