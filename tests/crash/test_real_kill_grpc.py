"""A real broker under load over gRPC, ended by kill -9 and started again: what was answered counts.

Producers send plain, timed and half messages and decide most of those; a group receives and acknowledges. Afterwards every message that was
stored is there once, decided half messages count once, undecided ones can still be decided; and the group gets whatever it has not
acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.crash.test_real_kill import consume_all
from tests.system.server_process import ServedProcess
from tests.worlds.grpc_client import Client

from orbitmq.protocol.grpc.merged_settings import duration_of
from orbitmq.protocol.grpc.message_prefix import MessageCutter
from orbitmq.protocol.grpc.messages import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    Code,
    Duration,
    EndTransactionRequest,
    EndTransactionResponse,
    Message,
    MessageQueue,
    MessageType,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    Resource,
    SendMessageRequest,
    SendMessageResponse,
    SystemProperties,
    TransactionResolution,
)

ROUNDS = 3
PRODUCERS = 6
CONSUMERS = 2
SETTLED_S = 60.0
HEAD_START_S = 0.3
"""Of the consumers: a new group begins at the end of its queues."""
PLAIN, TIMED, HALF = "plain", "timed", "half"
ENDED = (OSError, AssertionError, KeyError)
"""What clients see of a broker that is dead."""


class Account:
    def __init__(self) -> None:
        self.tried: set[str] = set()
        self.stored: dict[str, set[str]] = {PLAIN: set(), TIMED: set(), HALF: set()}
        """Topic -> messages that are to be there."""
        self.rolled_back: set[str] = set()
        self.undecided: set[str] = set()
        """Half messages about which nothing was said."""
        self.acknowledged: set[str] = set()
        self.received: set[str] = set()


async def ask(client: Client, rpc: str, request: Any, kind: Any) -> Any:
    stream_id = client.call(rpc, request.SerializeToString())
    await client.ended(stream_id)
    return kind.FromString(client.answers.pop(stream_id)[5:])


def message(topic: str, name: str) -> Message:
    system = SystemProperties(message_id=name, message_type=MessageType.NORMAL)
    if topic == TIMED:
        due = duration_of(int(time.time() * 1_000) + 1_000)
        system.delivery_timestamp.seconds, system.delivery_timestamp.nanos = due.seconds, due.nanos
    elif topic == HALF:
        system.message_type = MessageType.TRANSACTION
    return Message(topic=Resource(name=topic), body=name.encode(), system_properties=system)


async def decide(client: Client, name: str, resolution: TransactionResolution) -> bool:
    request = EndTransactionRequest(topic=Resource(name=HALF), transaction_id=name, resolution=resolution)
    answer = await ask(client, "EndTransaction", request, EndTransactionResponse)
    return bool(answer.status.code == Code.OK)


async def produce(port: int, account: Account, prefix: str) -> None:
    """Send until the broker is dead."""
    await asyncio.sleep(HEAD_START_S)
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    for number in range(1_000_000):
        topic, name = (PLAIN, PLAIN, TIMED, HALF)[number % 4], f"{prefix}-{number}"
        account.tried.add(name)
        answer = await ask(
            client, "SendMessage", SendMessageRequest(messages=[message(topic, name)]), SendMessageResponse
        )
        if answer.status.code != Code.OK:
            continue
        if topic != HALF:
            account.stored[topic].add(name)
        elif number % 16 == 3:
            account.undecided.add(name)
        elif number % 16 == 7:
            if await decide(client, name, TransactionResolution.ROLLBACK):
                account.rolled_back.add(name)
        elif await decide(client, name, TransactionResolution.COMMIT):
            account.stored[HALF].add(name)


async def receive(client: Client, account: Account, poll_s: int) -> int:
    """One receive, and the acknowledgement of what it brought; how many that were."""
    request = ReceiveMessageRequest(
        group=Resource(name="g"), message_queue=MessageQueue(topic=Resource(name=PLAIN)), batch_size=32,
        invisible_duration=Duration(seconds=10), long_polling_timeout=Duration(seconds=poll_s),
    )  # fmt: skip
    stream_id = client.call("ReceiveMessage", request.SerializeToString())
    await client.ended(stream_id)
    items = [
        ReceiveMessageResponse.FromString(item)
        for item in MessageCutter(1 << 24, is_single=False).feed(client.answers.pop(stream_id))
    ]
    messages = [item.message for item in items if item.WhichOneof("content") == "message"]
    if not messages:
        return 0
    names = [one.body.decode() for one in messages]
    account.received.update(names)
    entries = [AckMessageEntry(receipt_handle=one.system_properties.receipt_handle) for one in messages]
    request = AckMessageRequest(topic=Resource(name=PLAIN), group=Resource(name="g"), entries=entries)
    answer = await ask(client, "AckMessage", request, AckMessageResponse)
    account.acknowledged.update(
        name for name, entry in zip(names, answer.entries, strict=True) if entry.status.code == Code.OK
    )
    return len(names)


async def consume(port: int, account: Account) -> None:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    while True:
        await receive(client, account, 5)


async def until_killed(server: ServedProcess, account: Account, prefix: str, after_s: float) -> None:
    async def one(work: Any) -> None:
        with contextlib.suppress(*ENDED):
            await work

    port = server.grpc_port
    work = [produce(port, account, f"{prefix}-{number}") for number in range(PRODUCERS)]
    work += [consume(port, account) for _ in range(CONSUMERS)]
    asyncio.get_running_loop().call_later(after_s, server.kill)
    await asyncio.gather(*map(one, work))


async def rest(port: int, account: Account) -> None:
    """Decide what nobody has decided, and receive until nothing comes any more."""
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    for number, name in enumerate(sorted(account.undecided)):
        resolution = TransactionResolution.COMMIT if number % 2 else TransactionResolution.ROLLBACK
        assert await decide(client, name, resolution), name
        (account.stored[HALF] if number % 2 else account.rolled_back).add(name)
    end = time.monotonic() + SETTLED_S
    while account.stored[PLAIN] - account.received - account.acknowledged and time.monotonic() < end:
        await receive(client, account, 5)


def found(namesrv: str, account: Account) -> dict[str, Counter[str]]:
    """What lies in each topic, once all that is timed has come."""
    end = time.monotonic() + SETTLED_S
    while True:
        by_topic = {topic: consume_all(namesrv, topic) for topic in account.stored}
        if account.stored[TIMED] <= by_topic[TIMED].keys() or time.monotonic() > end:
            return by_topic
        time.sleep(0.5)


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_was_answered_over_grpc_outlives_a_killed_broker(tmp_path: Path, flush: str) -> None:
    settings = {"flushDiskType": flush, "mappedFileSizeCommitLog": 1_048_576, "enableTopicMessageTypeCheck": "false"}
    rng, account, ports = random.Random(flush), Account(), None
    for number in range(ROUNDS):
        server = ServedProcess(tmp_path, settings=settings, ports=ports)
        ports = server.name_port, server.port
        if not number:
            for topic in account.stored:
                server.create_topic(topic, queues=2)
        asyncio.run(until_killed(server, account, str(number), HEAD_START_S + rng.uniform(0.8, 1.5)))
    assert min(len(names) for names in (*account.stored.values(), account.rolled_back, account.undecided)) > 3
    server = ServedProcess(tmp_path, settings=settings, ports=ports)
    asyncio.run(rest(server.grpc_port, account))
    by_topic = found(f"127.0.0.1:{server.name_port}", account)
    for topic, names in account.stored.items():
        assert names - by_topic[topic].keys() == set(), f"lost in {topic}"
        assert {name for name, count in by_topic[topic].items() if count > 1} == set(), f"twice in {topic}"
        assert by_topic[topic].keys() <= account.tried
    assert by_topic[HALF].keys() & account.rolled_back == set(), "rolled back, and there"
    assert account.stored[PLAIN] - account.received - account.acknowledged == set(), "the group never got them"
    print(
        f"{flush}: {sum(map(len, account.stored.values()))} stored, {len(account.acknowledged)} acknowledged, {ROUNDS} kills"
    )
    server.stop()
