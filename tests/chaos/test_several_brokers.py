"""Three brokers with 6, 4 and 2 queues of one topic behind one name server: programs do not notice which broker does the work,
and go on when one of them dies and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from account import Account
from cluster import Cluster
from traffic import Producing, consume, count_copies, until

import orbitmq
from orbitmq.protocol.remoting.commands import RequestCode

pytestmark = pytest.mark.timeout(600)

QUEUES = {"broker-a": 6, "broker-b": 4, "broker-c": 2}
TOPIC = "orders"
QUICK = orbitmq.ClientOptions(route_refresh_ms=500, offset_persist_ms=300, connect_timeout_ms=1_000)
FROM_FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)


def start(cluster: Cluster) -> None:
    for name, queues in QUEUES.items():
        cluster.start_broker(name).create_topic(TOPIC, queues)


async def test_all_queues_of_all_brokers_are_written_and_shared_by_the_members_of_a_group(cluster: Cluster) -> None:
    await asyncio.to_thread(start, cluster)
    account = Account()
    async with (
        orbitmq.connect(cluster.address, options=QUICK) as sending,
        orbitmq.connect(cluster.address, options=QUICK) as first,
        orbitmq.connect(cluster.address, options=QUICK) as second,
    ):
        producing = Producing(account, TOPIC)
        async with (
            first.consumer("billing", TOPIC, options=FROM_FIRST) as one,
            second.consumer("billing", TOPIC, options=FROM_FIRST) as two,
            sending.producer("shop") as producer,
        ):
            work = [asyncio.ensure_future(consume(member, account)) for member in (one, two)]
            task = asyncio.ensure_future(producing.run(producer))
            await until(lambda: len(account.deliveries) > 200, account.summary)
            await until(
                lambda: sorted((len(of_topic(one)), len(of_topic(two)))) == [6, 6],
                lambda: f"queues: {one.queues} and {two.queues}",
            )
            assert not set(of_topic(one)) & set(of_topic(two))
            producing.stop()
            await task
            await until(lambda: not account.missing(), account.summary)
            one.stop()
            two.stop()
            await asyncio.gather(*work)
        await count_copies(account, sending, TOPIC)
    assert producing.brokers_used == set(QUEUES)
    assert not producing.errors
    assert account.findings() + account.duplicates() == []
    used = {(place.broker, place.queue_id) for place in account._places}
    assert used == {(name, number) for name, queues in QUEUES.items() for number in range(queues)}


def of_topic(consumer: orbitmq.Consumer) -> list[orbitmq.MessageQueue]:
    return [queue for queue in consumer.queues if queue.topic == TOPIC]


async def test_a_broker_dies_and_comes_back_and_nothing_is_lost(
    cluster: Cluster, figure: Callable[[str], None]
) -> None:
    await asyncio.to_thread(start, cluster)
    account = Account()
    async with (
        orbitmq.connect(cluster.address, options=QUICK) as sending,
        orbitmq.connect(cluster.address, options=QUICK) as first,
        orbitmq.connect(cluster.address, options=QUICK) as second,
    ):
        producing = Producing(account, TOPIC, pause_s=0.001)
        async with (
            first.consumer("billing", TOPIC, options=FROM_FIRST) as one,
            second.consumer("billing", TOPIC, options=FROM_FIRST) as two,
            sending.producer("shop") as producer,
        ):
            work = [asyncio.ensure_future(consume(member, account)) for member in (one, two)]
            tasks = [asyncio.ensure_future(producing.run(producer)) for _ in range(4)]
            await until(lambda: len(account.deliveries) > 300, account.summary)

            await asyncio.to_thread(cluster.kill_broker, "broker-b")
            died_with = len(account.fates)
            await until(lambda: len(account.fates) > died_with + 500, account.summary)
            await until(
                lambda: len(of_topic(one)) + len(of_topic(two)) == 8, lambda: f"{of_topic(one)} {of_topic(two)}"
            )
            producing.brokers_used.clear()
            sent = len(account.fates)
            await until(lambda: len(account.fates) > sent + 300, account.summary)
            assert producing.brokers_used == {"broker-a", "broker-c"}

            await asyncio.to_thread(cluster.start_broker, "broker-b")
            await until(lambda: "broker-b" in producing.brokers_used, lambda: f"used: {producing.brokers_used}")
            await until(
                lambda: len(of_topic(one)) + len(of_topic(two)) == 12, lambda: f"{of_topic(one)} {of_topic(two)}"
            )
            producing.stop()
            await asyncio.gather(*tasks)
            await until(lambda: not account.missing(), lambda: f"{account.summary()} missing {account.missing()[:5]}")
            one.stop()
            two.stop()
            await asyncio.gather(*work)
        await count_copies(account, sending, TOPIC)
    figure(f"a broker killed and back: {account.summary()}, {len(producing.errors)} failed sends")
    assert account.findings() + account.duplicates() == []
    assert len(producing.errors) <= 8, [str(error) for error in producing.errors[:3]]


async def test_programs_follow_a_route_that_changes(cluster: Cluster) -> None:
    await asyncio.to_thread(start, cluster)
    account = Account()
    async with (
        orbitmq.connect(cluster.address, options=QUICK) as sending,
        orbitmq.connect(cluster.address, options=QUICK) as receiving,
    ):
        producing = Producing(account, TOPIC, pause_s=0.001)
        async with (
            receiving.consumer("billing", TOPIC, options=FROM_FIRST) as consumer,
            sending.producer("shop") as producer,
        ):
            work = asyncio.ensure_future(consume(consumer, account))
            task = asyncio.ensure_future(producing.run(producer))
            await until(lambda: len(of_topic(consumer)) == 12, lambda: str(consumer.queues))

            # More queues at one broker: they are consumed, and written to.
            await asyncio.to_thread(cluster.brokers["broker-c"].create_topic, TOPIC, 5)
            await until(lambda: len(of_topic(consumer)) == 15, lambda: str(consumer.queues))
            await until(
                lambda: any(place.broker == "broker-c" and place.queue_id == 4 for place in account._places),
                account.summary,
            )

            # A broker that takes no more messages is drained, not forgotten.
            assert cluster.name_server is not None
            name_server = cluster.name_server.client(cluster.name_server.name_port)
            answer = name_server.call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
            assert answer.code == 0, answer.remark
            await asyncio.sleep(1.5)
            producing.brokers_used.clear()
            sent = len(account.fates)
            await until(lambda: len(account.fates) > sent + 200, account.summary)
            assert producing.brokers_used == {"broker-b", "broker-c"}
            assert len(of_topic(consumer)) == 15

            producing.stop()
            await task
            await until(lambda: not account.missing(), account.summary)
            consumer.stop()
            await work
        await count_copies(account, sending, TOPIC)
    assert account.findings() + account.duplicates() == []
    assert not producing.errors
