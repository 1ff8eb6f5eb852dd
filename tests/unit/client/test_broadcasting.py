"""Broadcasting: every member gets everything, offsets are in a file, failed messages are left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from scripted_cluster import NAME_SERVER, Broker, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client._async.consuming.consumer import Consumer
from orbitmq.client._async.consuming.delivery import ReceivedMessage
from orbitmq.client.identity import local_ip
from orbitmq.client.options import ClientOptions, ConsumeFrom, ConsumerOptions
from orbitmq.clock import ManualClock
from orbitmq.errors import ConfigurationError
from orbitmq.protocol.remoting.bodies import HeartbeatData, MessageModel, ResetOffsetBody
from orbitmq.protocol.remoting.bodies import MessageQueue as Queue
from orbitmq.protocol.remoting.codes import RequestCode

Run = Callable[[Callable[[], Awaitable[None]]], None]
PULL = RequestCode.PULL_MESSAGE


def client(cluster: Cluster, name: str | None = "me") -> Client:
    return Client(NAME_SERVER, options=ClientOptions(instance_name=name), clock=ManualClock(), dial=cluster.dial)


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    return cluster.brokers["b-a"]


@pytest.fixture
def options(tmp_path: Path) -> ConsumerOptions:
    return ConsumerOptions(consume_from=ConsumeFrom.FIRST, broadcasting=True, offsets_folder=str(tmp_path))


def consumer(mq: Client, options: ConsumerOptions) -> Consumer:
    return mq.consumer("g", "T", options=options)


def file_of(tmp_path: Path, name: str = "me") -> Path:
    return tmp_path / f"{local_ip()}@{name}" / "g" / "offsets.json"


def test_every_member_gets_every_message(
    run: Run, cluster: Cluster, broker: Broker, options: ConsumerOptions, tmp_path: Path
) -> None:
    for number in range(20):
        broker.store("T", number % 4, b"%d" % number)

    async def test() -> None:
        async with (
            client(cluster, "one") as one,
            client(cluster, "two") as two,
            consumer(one, options) as first,
            consumer(two, options) as second,
        ):
            for each in (first, second):
                assert len(each.queues) == 4  # and no retry topic
                bodies = []
                for _ in range(20):
                    message = await anext(each)
                    bodies.append(int(message.body))
                    await message.ack()
                assert sorted(bodies) == list(range(20))
        heartbeat = HeartbeatData.decode(broker.requests(RequestCode.HEART_BEAT)[0].body)
        (group,) = heartbeat.consumer_data_set
        assert group.message_model is MessageModel.BROADCASTING
        assert [data.topic for data in group.subscription_data_set] == ["T"]
        assert broker.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP) == []
        assert broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET) == []
        assert {command.integer("sysFlag") & 1 for command in broker.requests(PULL)} == {0}
        for name in ("one", "two"):
            table = ResetOffsetBody.decode(file_of(tmp_path, name).read_bytes()).offset_table
            assert table == {Queue("T", "b-a", queue): 5 for queue in range(4)}

    run(test)


def test_a_member_goes_on_where_its_file_says(
    run: Run, cluster: Cluster, broker: Broker, options: ConsumerOptions
) -> None:
    for number in range(5):
        broker.store("T", 0, b"%d" % number)

    async def test() -> None:
        for expected in (0, 1, 2):
            # Each time another process: the client id that brokers see differs, the file stays.
            async with client(cluster, None) as mq, consumer(mq, options) as members:
                message = await anext(members)
                assert message.queue_offset == expected
                await message.ack()

    run(test)


def test_what_comes_while_a_member_is_away_is_not_skipped(
    run: Run, cluster: Cluster, broker: Broker, tmp_path: Path
) -> None:
    """A member that began at the end and got nothing there goes on from that end, not from a later one."""
    options = ConsumerOptions(broadcasting=True, offsets_folder=str(tmp_path))
    broker.store("T", 0, b"before")

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq, options):
            await asyncio.sleep(1)
        broker.store("T", 0, b"while it was away")
        async with client(cluster) as mq, consumer(mq, options) as members:
            assert (await anext(members)).body == b"while it was away"

    run(test)


def test_the_file_is_written_while_consuming(
    run: Run, cluster: Cluster, broker: Broker, options: ConsumerOptions, tmp_path: Path
) -> None:
    for _ in range(3):
        broker.store("T", 0, b"x")

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq, options) as members:
            await (await anext(members)).ack()
            await asyncio.sleep(6)
            assert ResetOffsetBody.decode(file_of(tmp_path).read_bytes()).offset_table[Queue("T", "b-a", 0)] == 1
            await (await anext(members)).ack()
            await asyncio.sleep(6)
            kept = file_of(tmp_path).with_name("offsets.json.bak")
            assert ResetOffsetBody.decode(kept.read_bytes()).offset_table[Queue("T", "b-a", 0)] == 1

    run(test)


def test_many_failures_are_one_line_a_second(
    run: Run, cluster: Cluster, broker: Broker, options: ConsumerOptions, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(60):
        broker.store("T", 0, b"%d" % number)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq, options) as members:
            for number in range(60):
                assert not await (await anext(members)).retry()
                if number == 49:
                    await asyncio.sleep(2)
        said = [record.getMessage() for record in caplog.records if "does not come again" in record.getMessage()]
        assert len(said) == 2
        assert "nor do 49 before it that were not logged" in said[1]

    run(test)


def test_a_failed_message_is_counted_and_left_behind(
    run: Run, cluster: Cluster, broker: Broker, options: ConsumerOptions, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(4):
        broker.store("T", 0, b"%d" % number)

    async def test() -> None:
        seen: list[bytes] = []

        async def handle(message: ReceivedMessage) -> None:
            seen.append(message.body)
            if message.body == b"1":
                raise RuntimeError("no")
            if message.body == b"2":
                assert not await message.retry()
            if message.body == b"3":
                members.stop()

        async with client(cluster) as mq, consumer(mq, options) as members:
            await members.run(handle, concurrency=1)
            (status,) = members.statistics.statuses(0).values()
            assert status.consume_failed_msgs == 2
        assert seen == [b"0", b"1", b"2", b"3"]
        assert broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK) == []
        assert "does not come again" in caplog.text

    run(test)


def test_a_message_not_settled_in_time_is_left_behind(
    run: Run, cluster: Cluster, broker: Broker, tmp_path: Path
) -> None:
    broker.store("T", 0, b"x")
    options = ConsumerOptions(
        consume_from=ConsumeFrom.FIRST, broadcasting=True, offsets_folder=str(tmp_path), settle_timeout_ms=10_000
    )

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq, options) as members:
            await anext(members)
            await asyncio.sleep(30)
        assert ResetOffsetBody.decode(file_of(tmp_path).read_bytes()).offset_table[Queue("T", "b-a", 0)] == 1

    run(test)


def test_in_order_without_locks(run: Run, cluster: Cluster, broker: Broker, tmp_path: Path) -> None:
    for number in range(3):
        broker.store("T", 0, b"%d" % number)
    options = ConsumerOptions(
        consume_from=ConsumeFrom.FIRST, broadcasting=True, orderly=True, offsets_folder=str(tmp_path)
    )

    async def test() -> None:
        seen: list[tuple[bytes, int]] = []

        async def handle(message: ReceivedMessage) -> None:
            seen.append((message.body, message.reconsume_times))
            if message.body == b"1" and message.reconsume_times == 0:
                raise RuntimeError("once")
            if message.body == b"2":
                members.stop()

        async with client(cluster) as mq, consumer(mq, options) as members:
            await members.run(handle)
        assert seen == [(b"0", 0), (b"1", 0), (b"1", 1), (b"2", 0)]
        assert broker.requests(RequestCode.LOCK_BATCH_MQ) == []

    run(test)


def test_a_file_of_the_java_client_is_read(
    run: Run, cluster: Cluster, broker: Broker, options: ConsumerOptions, tmp_path: Path
) -> None:
    for number in range(5):
        broker.store("T", 0, b"%d" % number)
    path = file_of(tmp_path, "DEFAULT")
    path.parent.mkdir(parents=True)
    path.write_text('{\n\t"offsetTable":{{\n\t\t"brokerName":"b-a",\n\t\t"queueId":0,\n\t\t"topic":"T"\n\t}:3\n\t}\n}')

    async def test() -> None:
        async with client(cluster, None) as mq, consumer(mq, options) as members:
            assert (await anext(members)).queue_offset == 3

    run(test)


def test_two_consumers_cannot_share_a_file(
    run: Run, cluster: Cluster, broker: Broker, options: ConsumerOptions
) -> None:
    async def test() -> None:
        async with client(cluster) as one, client(cluster) as two, consumer(one, options):
            with pytest.raises(ConfigurationError, match="instance_name"):
                await consumer(two, options).start()
        async with client(cluster) as three, consumer(three, options) as members:
            assert members.queues

    run(test)


def test_resetting_moves_the_offset_in_the_file(
    run: Run, cluster: Cluster, broker: Broker, options: ConsumerOptions, tmp_path: Path
) -> None:
    for number in range(5):
        broker.store("T", 0, b"%d" % number)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq, options) as members:
            for _ in range(5):
                await (await anext(members)).ack()
            body = ResetOffsetBody(offset_table={Queue("T", "b-a", 0): 1}).encode()
            broker.tell(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {"topic": "T", "group": "g"}, body, oneway=True)
            assert (await anext(members)).queue_offset == 1
        assert ResetOffsetBody.decode(file_of(tmp_path).read_bytes()).offset_table[Queue("T", "b-a", 0)] == 1

    run(test)


def test_a_file_needs_a_broadcasting_consumer() -> None:
    with pytest.raises(ConfigurationError, match="offsets_folder"):
        ConsumerOptions(offsets_folder="x")
