"""What a task of a redrive does: it settles the dead letters that Spark hands it, as `orbitmq message redrive` does.

Rules of this file
1. What a letter is sent as, and what its repeat is recognised by, is decided by the client's own code (`client/redrive.py`), so that
   command and pipeline are the same to the brokers.
2. Letters overtake each other, but not those with the same ordering key. With a rate or a count one goes after the other.
3. The account of a task is one row; a task that Spark repeats gives it again, and the brokers recognise what the first one sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.client._async.administration.redrive import Redrive
from orbitmq.client._async.client import Client
from orbitmq.client._async.sending.producer import Producer
from orbitmq.client.connect_settings import ConnectSettings
from orbitmq.client.options import ProducerOptions
from orbitmq.client.redrive import RedriveOrder, RedriveResult
from orbitmq.client.stored import StoredMessage
from orbitmq.columns.message_columns import ddl
from orbitmq.limits.client import REDRIVE_REFUSALS_KEPT_MAX
from orbitmq.limits.spark import REDRIVE_IN_FLIGHT_MAX
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.names import REDRIVE_GROUP
from orbitmq.protocol.records import MagicCode, Record
from orbitmq.protocol.remoting.bodies import MessageQueue

if TYPE_CHECKING:
    import pyarrow as pa

LETTER_SCHEMA: Final = ddl(
    ("topic", "flag", "body", "properties", "brokerName", "queueId", "queueOffset", "storeHost", "commitLogOffset")
)
"""The columns of a read that make a letter."""

ACCOUNT_SCHEMA: Final = "account binary"


class Account(msgspec.Struct):
    """What a task, or several of them, did. places: by queue, the letter behind the last one that was settled. came_back: whether the
    task ended early, because its letters become dead letters again."""

    result: RedriveResult
    places: list[tuple[MessageQueue, int]] = msgspec.field(default_factory=list)
    came_back: bool = False


def settle_batches(
    name_servers: tuple[str, ...], connect: ConnectSettings, order: RedriveOrder, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Settle all letters of a task; one row with its account."""
    import pyarrow as pa

    from orbitmq.spark.writing.sending import cluster

    account = cluster(name_servers, connect).run(lambda client: _settle(order, client, batches))
    yield pa.RecordBatch.from_pydict({"account": pa.array([msgspec.json.encode(account)], pa.binary())})


async def _settle(order: RedriveOrder, client: Client, batches: Iterable[pa.RecordBatch]) -> Account:
    part = Redrive(client, client.admin, order)
    places: dict[MessageQueue, int] = {}
    width = 1 if order.rate is not None or order.max_count is not None else REDRIVE_IN_FLIGHT_MAX
    async with Producer(client, REDRIVE_GROUP, ProducerOptions(send_timeout_ms=10_000)) as producer:
        going = _Going(part, producer, width)
        for batch in batches:
            for letter in letters(batch):
                if part.has_enough:
                    break
                await going.settle(letter)
                if order.only_group and not places:
                    await going.end()  # whether the first one comes back tells of the others
                places[letter.queue] = letter.queue_offset + 1
        await going.end()
        if part.result.redriven and not order.dry_run:
            await part.pause()  # the first letter of the next task keeps the rate as well
    return Account(part.result, sorted(places.items()), part.came_back)


class _Going:
    """Letters under way, at most `width`."""

    def __init__(self, part: Redrive, producer: Producer, width: int) -> None:
        self._part = part
        self._producer = producer
        self._width = width
        self._tasks: set[asyncio.Task[None]] = set()
        self._last: dict[str, asyncio.Task[None]] = {}
        """By ordering key."""

    async def settle(self, letter: StoredMessage) -> None:
        await self._wait(self._width - 1)
        key = letter.ordering_key
        before = None if key is None else self._last.get(key)
        task = asyncio.ensure_future(self._settle_behind(before, letter))
        self._tasks.add(task)
        if key is not None:
            self._last[key] = task
        if self._width == 1:
            await self._wait(0)

    async def end(self) -> None:
        await self._wait(0)

    async def _settle_behind(self, before: asyncio.Task[None] | None, letter: StoredMessage) -> None:
        if before is not None:
            await before
        await self._part.settle(letter, self._producer)

    async def _wait(self, room: int) -> None:
        """Until no more are under way. The first failure ends them all."""
        while len(self._tasks) > room:
            done, self._tasks = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            failures = [task.exception() for task in done]
            for failure in failures:
                if failure is not None:
                    for task in self._tasks:
                        task.cancel()
                    await asyncio.gather(*self._tasks, return_exceptions=True)
                    raise failure


def letters(batch: pa.RecordBatch) -> Iterator[StoredMessage]:
    """The rows of a read with `LETTER_SCHEMA` as the messages they were."""
    for row in batch.to_pylist():
        ip, _, port = row["storeHost"].rpartition(":")
        record = Record(
            magic=MagicCode.V1,
            body_crc=0,
            queue_id=row["queueId"],
            flag=row["flag"],
            queue_offset=row["queueOffset"],
            physical_offset=row["commitLogOffset"],
            sys_flag=0,
            born_timestamp=0,
            born_host=b"",
            store_timestamp=0,
            store_host=pack_host(ip.strip("[]"), int(port)),
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=row["body"],
            topic=row["topic"],
            properties=b"",
        )
        queue = MessageQueue(row["topic"], row["brokerName"] or "", row["queueId"])
        yield StoredMessage(record, row["body"], dict(row["properties"] or ()), queue)


def together(whole: RedriveResult, parts: Iterable[Account]) -> dict[MessageQueue, int]:
    """Add what tasks did to the account of the run; where they ended, by queue."""
    places: dict[MessageQueue, int] = {}
    for part in parts:
        one = part.result
        whole.looked_at += one.looked_at
        whole.redriven += one.redriven
        whole.passed_over += one.passed_over
        whole.refused += one.refused
        for topic, count in one.topics.items():
            whole.topics[topic] = whole.topics.get(topic, 0) + count
        whole.refusals += one.refusals[: REDRIVE_REFUSALS_KEPT_MAX - len(whole.refusals)]
        for queue, place in part.places:
            places[queue] = max(place, places.get(queue, 0))
    return places
