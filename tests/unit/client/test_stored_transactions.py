"""What is undecided on the brokers, seen through `Client.transactions`, against a whole broker on a virtual calendar."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

import orbitmq
from orbitmq.client import TransactionState
from orbitmq.errors import ClientError, ConfigurationError, NotFoundError
from orbitmq.testing import EmbeddedBroker, SyncEmbeddedBroker


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker() as running:
        yield running


@pytest.fixture
async def mq(broker: EmbeddedBroker) -> AsyncIterator[orbitmq.Client]:
    async with broker.connect() as client:
        yield client


async def left_open(mq: orbitmq.Client, body: bytes, topic: str = "orders") -> str:
    tx = mq.transaction(topic, body, tag="new", properties={"colour": "red"})
    await tx.__aenter__()
    return tx.message_id


async def test_what_is_undecided_is_listed_page_by_page(mq: orbitmq.Client) -> None:
    sent = [await left_open(mq, b"%d" % number) for number in range(5)]
    await left_open(mq, b"x", "others")
    found = [view async for view in mq.transactions.list(topic="orders", page_count=2)]
    assert [view.message_id for view in found] == sent
    assert {(view.state, view.group) for view in found} == {(TransactionState.UNDECIDED, "orbitmq-producer")}
    assert [view.topic async for view in mq.transactions.list(group="nobody's")] == []
    with pytest.raises(ConfigurationError, match="page_count=0"):
        await anext(mq.transactions.list(page_count=0))


async def test_one_is_shown_with_its_message(mq: orbitmq.Client) -> None:
    sent = await left_open(mq, b"whole" * 2_000)  # compressed on the wire
    found = await mq.transactions.get(sent)
    assert found is not None
    assert (found.body, found.tag, found.user_properties["colour"]) == (b"whole" * 2_000, "new", "red")
    assert await mq.transactions.get(found.transaction) == found
    assert await mq.transactions.get(found.transaction.offset_message_id) == found
    assert await mq.transactions.get("nobody's") is None


async def test_what_was_given_up_comes_back(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    sent = await left_open(mq, b"x")
    await broker.advance(timedelta(minutes=20))
    found = await mq.transactions.get(sent)
    assert found is not None
    assert found.transaction.state is TransactionState.GIVEN_UP
    assert (await mq.transactions.resume(sent)).state is TransactionState.GIVEN_UP
    again = await mq.transactions.get(sent)
    assert again is not None
    assert (again.transaction.state, again.transaction.check_count) == (TransactionState.UNDECIDED, 0)
    assert await mq.transactions.get(found.transaction.offset_message_id.lower()) == again


async def test_what_is_decided_is_not_resumed(mq: orbitmq.Client) -> None:
    async with mq.transaction("orders", b"x") as tx:
        pass
    with pytest.raises(ClientError, match="committed: nobody is asked"):
        await mq.transactions.resume(tx.message_id)
    with pytest.raises(NotFoundError, match="no broker knows"):
        await mq.transactions.resume("nobody's")


async def test_two_half_messages_with_one_id_are_named_by_their_places(
    mq: orbitmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(mq.unique_ids), "next", lambda ids: "0123456789ABCDEF" * 2)
    plain = orbitmq.ProducerOptions(idempotent=False)
    async with mq.producer("shop", plain) as producer:
        for _ in range(2):
            await producer.transaction("orders", b"x").__aenter__()
    first, second = [view async for view in mq.transactions.list()]
    assert first.message_id == second.message_id
    with pytest.raises(ClientError, match="2 undecided transactions") as raised:
        await mq.transactions.resume(first.message_id)
    assert second.offset_message_id in str(raised.value.remedy)
    assert (await mq.transactions.resume(second)) == second


def test_the_synchronous_client_looks_too() -> None:
    with SyncEmbeddedBroker() as broker, broker.connect() as mq:
        tx = mq.transaction("orders", b"x")
        tx.__enter__()
        (view,) = mq.transactions.list()
        found = mq.transactions.get(view)
        assert found is not None
        assert (view.message_id, found.body) == (tx.message_id, b"x")
        assert mq.transactions.resume(view.message_id) == view
