"""A group that reads in order, under locks of the broker, while its slave becomes the master: of one that is killed, or in exchange."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import orbitmq
from orbitmq.protocol.records import decode_records
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode

from .promoted_pair import LIMIT_S, PromotedPair
from .server_process import RawClient, ServedProcess, pull_fields

TOPIC, GROUP = "orders", "in-order"
QUEUES, KEYS = 4, 8
MEMBERS = ("one", "other")
SHARE = 60
"""Messages that come before the fault, and again after it."""

AHEAD = 12
"""Messages that an asynchronous master takes, and its group reads, while its slave is away: they are lost with it."""

QUICK = orbitmq.ClientOptions(route_refresh_ms=2_000, offset_persist_ms=200, close_timeout_ms=500)
OPTIONS = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST, orderly=True)
PRODUCER = orbitmq.ProducerOptions(attempt_timeout_ms=1_000)


class Came(NamedTuple):
    """One message as a member got it."""

    queue_id: int
    offset: int
    body: bytes
    member: str


class Orders:
    """Programs at a pair: each key's numbers are sent one after the other; both members of the group write down what comes."""

    def __init__(self, pair: PromotedPair) -> None:
        self.pair = pair
        self.came: list[Came] = []
        self.acknowledged: dict[bytes, int] = {}
        """By body: where it lies in the log of the master that took it."""
        self.is_open = True

    async def send_all(self, mq: orbitmq.Client, key: int) -> None:
        number = 0
        async with mq.producer(f"orders-{key}", options=PRODUCER) as producer:
            while self.is_open:
                number += 1
                body = b"%d:%d" % (key, number)
                await self._send(producer, key, body)
                await asyncio.sleep(0.05)

    async def _send(self, producer: orbitmq.Producer, key: int, body: bytes) -> None:
        queue = orbitmq.MessageQueue(TOPIC, "pair", key % QUEUES)
        while True:
            try:
                receipt = await producer.send(TOPIC, body, queue=queue)
            except orbitmq.ClientError:
                await asyncio.sleep(0.1)
                continue
            if receipt.send_status is orbitmq.SendStatus.SEND_OK:
                self.acknowledged[body] = int(receipt.offset_message_id[16:], 16)
            return

    async def read(self, mq: orbitmq.Client, member: str, is_there: asyncio.Event) -> None:
        async with mq.consumer(GROUP, TOPIC, options=OPTIONS) as consumer:
            is_there.set()

            async def handle(message: orbitmq.ReceivedMessage) -> None:
                if message.queue.topic == TOPIC:
                    self.came.append(Came(message.queue.queue_id, message.queue_offset, message.body, member))

            await consumer.run(handle)

    def counts(self) -> dict[str, int]:
        return {member: sum(one.member == member for one in self.came) for member in MEMBERS}

    async def more(self) -> None:
        """Until both members have got more, and the senders have been told so."""
        wanted = {member: count + SHARE // 2 for member, count in self.counts().items()}
        sent = len(self.acknowledged) + SHARE
        await until(
            lambda: (
                all(self.counts()[one] >= count for one, count in wanted.items()) and len(self.acknowledged) >= sent
            ),
            "messages for both members",
        )


async def until(condition: Callable[[], object], what: str) -> None:
    ends = time.monotonic() + LIMIT_S
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < ends, f"no {what} within {LIMIT_S} s"
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def running(orders: Orders) -> AsyncIterator[list[asyncio.Task[None]]]:
    """The senders, while all members of the group read."""
    async with contextlib.AsyncExitStack() as stack:
        servers = orders.pair.name_server
        clients = [await stack.enter_async_context(orbitmq.connect(servers, options=QUICK)) for _ in range(3)]
        there = [asyncio.Event() for _ in MEMBERS]
        reading = [
            asyncio.create_task(orders.read(mq, member, event))
            for mq, member, event in zip(clients, MEMBERS, there, strict=False)
        ]
        await asyncio.gather(*(event.wait() for event in there))
        yield [asyncio.create_task(orders.send_all(clients[2], key)) for key in range(KEYS)]
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)


def committed(server: ServedProcess) -> dict[int, int]:
    """By queue, up to where the group has read; 0 where the broker knows nothing."""
    found: dict[int, int] = {}
    with RawClient(server.port) as client:
        for queue_id in range(QUEUES):
            fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id)}
            answer = client.call(RequestCode.QUERY_CONSUMER_OFFSET, fields)
            found[queue_id] = int(answer.fields["offset"]) if answer.code == ResponseCode.SUCCESS else 0
    return found


def stored(server: ServedProcess) -> dict[int, list[bytes]]:
    """All bodies by queue."""
    found: dict[int, list[bytes]] = defaultdict(list)
    with RawClient(server.port) as client:
        for queue_id in range(QUEUES):
            bodies = found[queue_id]
            while (
                answer := client.call(RequestCode.PULL_MESSAGE, pull_fields(TOPIC, queue_id, len(bodies)))
            ).code == ResponseCode.SUCCESS:
                bodies += [bytes(record.body) for record in decode_records(bytes(answer.body))]
    return found


def log_end(server: ServedProcess) -> int:
    return int(server.runtime()["commitLogMaxOffset"])


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
async def test_a_group_reads_on_in_order_when_the_slave_becomes_master(
    tmp_path: Path, role: str, figure: Callable[[str], None]
) -> None:
    pair = await asyncio.to_thread(PromotedPair, tmp_path, role)
    orders = Orders(pair)
    try:
        await asyncio.to_thread(pair.create_topic, TOPIC, QUEUES)
        async with running(orders) as sending:
            await orders.more()
            await until(lambda: all(committed(pair.master).values()), "an offset of every queue")
            known = await asyncio.to_thread(committed, pair.master)
            await until(
                lambda: all(at >= known[queue] for queue, at in committed(pair.slave).items()), "offsets at the slave"
            )

            if role == "ASYNC_MASTER":
                pair.slave.kill()
                before = len(orders.came)
                await until(lambda: len(orders.came) >= before + AHEAD, "messages that the slave does not have")
            at_fault = len(orders.came)
            pair.master.kill()
            if role == "ASYNC_MASTER":
                await asyncio.to_thread(pair.start_slave)
            end = await asyncio.to_thread(log_end, pair.slave)
            safe = await asyncio.to_thread(committed, pair.slave)
            at_slave = await asyncio.to_thread(stored, pair.slave)
            acknowledged = dict(orders.acknowledged)
            began = time.monotonic()
            await asyncio.to_thread(pair.promote)
            await until(lambda: len(orders.came) > at_fault, "a message after the promotion")
            again_s = time.monotonic() - began

            await orders.more()
            orders.is_open = False
            await asyncio.gather(*sending)
            there_now = await asyncio.to_thread(stored, pair.master)
            wanted = {(queue_id, body) for queue_id, bodies in there_now.items() for body in bodies}
            await until(lambda: wanted <= {(one.queue_id, one.body) for one in orders.came}, "all that is stored")
    finally:
        await asyncio.to_thread(pair.end)

    lost = acknowledged.keys() - {body for bodies in there_now.values() for body in bodies}
    figure(
        f"ordered group, {role}: read on after {again_s:.1f} s, {len(lost)} of {len(acknowledged)} lost with the master"
    )
    assert [body for body in lost if acknowledged[body] < end] == [], "what the slave had was lost"
    assert bool(lost) == (role == "ASYNC_MASTER")
    for queue_id in range(QUEUES):
        came = [one for one in orders.came if one.queue_id == queue_id]
        back_at = next((at for at in range(1, len(came)) if came[at].offset != came[at - 1].offset + 1), len(came))
        before, after = (
            came[:back_at],
            came[back_at:],
        )  # what was fetched from the old master is handled after its end, too
        assert [one.offset for one in before] == list(range(len(before)))
        if not after:
            assert [one.body for one in before] == there_now[queue_id]
            continue
        first = after[0].offset
        known_from = min(safe[queue_id], len(at_slave[queue_id]))  # the group read farther than the slave's log goes
        assert known_from <= first <= len(before), "it comes again from where the slave knows the group to be"
        assert [one.offset for one in after] == list(range(first, len(there_now[queue_id])))
        assert [one.body for one in after] == there_now[queue_id][first:]
        assert there_now[queue_id][: len(at_slave[queue_id])] == at_slave[queue_id]
    assert_in_order(orders)


def assert_in_order(orders: Orders) -> None:
    for key in range(KEYS):
        names = [one.body for one in orders.came if one.body.startswith(b"%d:" % key)]
        once = [int(name.partition(b":")[2]) for name in dict.fromkeys(names)]
        assert once == sorted(once), "each key in its order"


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
async def test_a_group_reads_on_in_order_when_roles_are_exchanged_there_and_back(
    tmp_path: Path, role: str, figure: Callable[[str], None]
) -> None:
    pair = await asyncio.to_thread(PromotedPair, tmp_path, role)
    orders = Orders(pair)
    again_s = []
    try:
        await asyncio.to_thread(pair.create_topic, TOPIC, QUEUES)
        async with running(orders) as sending:
            await orders.more()
            for _ in range(2):
                await asyncio.to_thread(pair.switch)
                began, sent, came = time.monotonic(), len(orders.acknowledged), len(orders.came)
                await until(lambda: len(orders.acknowledged) > sent + KEYS, "sends to the new master")  # noqa: B023
                await until(lambda: len(orders.came) > came + KEYS, "messages of the new master")  # noqa: B023
                again_s.append(time.monotonic() - began)
                await orders.more()
            orders.is_open = False
            await asyncio.gather(*sending)
            there = await asyncio.to_thread(stored, pair.master)
            wanted = {(queue_id, body) for queue_id, bodies in there.items() for body in bodies}
            await until(lambda: wanted <= {(one.queue_id, one.body) for one in orders.came}, "all that is stored")
    finally:
        await asyncio.to_thread(pair.end)
    assert not orders.acknowledged.keys() - {body for _, body in wanted}, "nothing that was answered is lost"
    times = Counter((one.queue_id, one.offset) for one in orders.came)
    figure(
        f"ordered group, {role}: read on after {', '.join(f'{one:.1f} s' for one in again_s)}; "
        f"{sum(count - 1 for count in times.values())} of {len(times)} came twice"
    )
    assert_in_order(orders)
