"""Messages that are sent together with what a program does: the client's transactions against a whole broker on a virtual calendar."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest

import orbitmq
from orbitmq.client._async.sending.transactions import GroupTransactions
from orbitmq.client.stored import StoredMessage
from orbitmq.errors import ClientError, RemoteError
from orbitmq.protocol.names import HALF_TOPIC, OP_HALF_TOPIC
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.testing import EmbeddedBroker, SyncEmbeddedBroker

SECOND = timedelta(seconds=1)


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker() as running:
        yield running


@pytest.fixture
async def mq(broker: EmbeddedBroker) -> AsyncIterator[orbitmq.Client]:
    async with broker.connect() as client:
        yield client


async def bodies(broker: EmbeddedBroker, topic: str = "orders") -> list[bytes]:
    return [message.body for message in await broker.messages(topic)]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Client and broker talk in real time: nothing but their talk is waited for, and the calendar stands still."""
    for _ in range(3_000):
        if await condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("they have not come to it")


async def test_a_message_counts_when_its_block_has_ended_well(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    async with mq.transaction("orders", b"created", tag="new", key="k", properties={"colour": "red"}) as tx:
        assert await bodies(broker) == []
        assert len(await broker.messages(HALF_TOPIC)) == 1
    (message,) = await broker.messages("orders")
    assert (message.body, message.tag, message.keys, message.message_id) == (b"created", "new", ("k",), tx.message_id)
    assert message.user_properties["colour"] == "red"


async def test_a_block_that_is_left_by_an_exception_sends_nothing(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    with pytest.raises(ZeroDivisionError):
        async with mq.transaction("orders", b"x"):
            raise ZeroDivisionError
    async with mq.transaction("orders", b"y") as tx:
        tx.roll_back()
    await broker.advance(60 * SECOND)
    assert await bodies(broker) == []


async def test_a_time_counts_from_the_end_of_the_block(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    async with mq.transaction("orders", b"late", after=30):
        await broker.advance(5 * SECOND)
    await broker.advance(29 * SECOND)
    assert await bodies(broker) == []
    await broker.advance(2 * SECOND)
    assert await bodies(broker) == [b"late"]


@pytest.mark.parametrize(
    "trouble",
    [ClientError("the connection broke"), RemoteError(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full")],
    ids=["lost", "disk full"],
)
async def test_a_decision_that_was_not_stored_is_given_when_the_broker_asks(
    broker: EmbeddedBroker, mq: orbitmq.Client, monkeypatch: pytest.MonkeyPatch, trouble: ClientError
) -> None:
    whole = mq.network.request

    async def lost(address: str, code: RequestCode, *args: object, **options: object) -> object:
        if code is RequestCode.END_TRANSACTION:
            raise trouble
        return await whole(address, code, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(mq.network, "request", lost)
    async with mq.transaction("orders", b"kept"):
        pass
    with pytest.raises(ZeroDivisionError):
        async with mq.transaction("orders", b"dropped"):
            raise ZeroDivisionError
    assert await bodies(broker) == []
    await broker.advance(7 * SECOND)

    async def there() -> bool:
        return await bodies(broker) == [b"kept"]

    await until(there)
    await broker.advance(120 * SECOND)
    assert await bodies(broker) == [b"kept"]


async def test_a_checker_answers_for_members_that_died(broker: EmbeddedBroker) -> None:
    async with broker.connect() as dying:
        left = dying.producer("shop")
        for body in (b"done", b"undone", b"running"):
            await left.transaction("orders", body).__aenter__()
    asked: list[bytes] = []

    async def checker(message: StoredMessage) -> bool | None:
        asked.append(message.body)
        assert message.topic == "orders"
        return {b"done": True, b"undone": False}.get(message.body)

    async with broker.connect() as living, living.producer("shop") as producer:
        producer.check_transactions(checker)
        await producer.send("others", b"so that the broker knows it")
        await broker.advance(7 * SECOND)

        async def decided() -> bool:
            return await bodies(broker) == [b"done"] and len(await broker.messages(OP_HALF_TOPIC)) == 3

        await until(decided)
        assert sorted(asked) == [b"done", b"running", b"undone"]
        await broker.advance(30 * SECOND)

        async def asked_again() -> bool:
            return len(asked) > 3

        await until(asked_again)
        assert asked[3:] == [b"running"]


async def test_a_checker_that_fails_leaves_the_question_open(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker.connect() as dying:
        await dying.producer("shop").transaction("orders", b"x").__aenter__()
    asked = 0

    async def checker(message: StoredMessage) -> bool | None:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise ZeroDivisionError
        return True

    async with broker.connect() as living, living.producer("shop") as producer:
        producer.check_transactions(checker)
        await producer.send("others", b"so that the broker knows it")
        await broker.advance(7 * SECOND)

        async def failed() -> bool:
            return asked == 1

        await until(failed)
        await broker.advance(30 * SECOND)

        async def decided() -> bool:
            return await bodies(broker) == [b"x"]

        await until(decided)
    assert "the broker will ask again" in caplog.text


async def test_a_decision_that_comes_too_late_is_refused(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    with pytest.raises(RemoteError, match="given up"):
        async with mq.transaction("orders", b"late"):
            await broker.advance(timedelta(minutes=20))
    assert await bodies(broker) == []


async def test_a_refused_roll_back_does_not_hide_why_the_block_was_left(
    broker: EmbeddedBroker, mq: orbitmq.Client
) -> None:
    async def fail_late() -> None:
        async with mq.transaction("orders", b"late"):
            await broker.advance(timedelta(minutes=20))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_late()


async def test_a_transaction_is_used_once_and_within_its_block(mq: orbitmq.Client) -> None:
    tx = mq.transaction("orders", b"x")
    with pytest.raises(ClientError, match="not begun"):
        _ = tx.message_id
    async with tx:
        pass
    with pytest.raises(ClientError, match="used once"):
        await tx.__aenter__()


async def test_unconfirmed_decisions_are_bounded(mq: orbitmq.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.client._async.sending.transactions.CLIENT_UNCONFIRMED_DECISIONS_MAX", 2)
    for number in range(4):
        await mq.transaction("orders", b"%d" % number).__aenter__()
    known: GroupTransactions = mq.producers["orbitmq-producer"].transactions
    assert len(known._known) == 2


def test_the_synchronous_client_has_transactions_too() -> None:
    with SyncEmbeddedBroker() as broker, broker.connect() as mq:
        with mq.transaction("orders", b"kept"):
            pass
        with pytest.raises(ZeroDivisionError), mq.transaction("orders", b"dropped"):
            raise ZeroDivisionError
        assert [message.body for message in broker.messages("orders")] == [b"kept"]


def test_a_plain_function_checks_in_the_synchronous_client() -> None:
    asked: list[bytes] = []

    def checker(message: StoredMessage) -> bool:
        asked.append(message.body)
        return message.body == b"done"

    with SyncEmbeddedBroker() as broker:
        with broker.connect() as dying:
            left = dying.producer("shop")
            for body in (b"done", b"undone"):
                left.transaction("orders", body).__enter__()
        with broker.connect() as living, living.producer("shop") as producer:
            producer.check_transactions(checker)
            producer.send("others", b"so that the broker knows it")
            broker.advance(7 * SECOND)
            for _ in range(3_000):
                if len(asked) == 2 and broker.messages("orders"):
                    break
                time.sleep(0.01)
        assert sorted(asked) == [b"done", b"undone"]
        assert [message.body for message in broker.messages("orders")] == [b"done"]
