"""Receipts outside the program that sent: pickled for a database or another process, copied with what holds them."""

from __future__ import annotations

import asyncio
import copy
import pickle
from datetime import timedelta

import pytest

import orbitmq
import orbitmq.sync
from orbitmq.testing import EmbeddedBroker


def test_a_receipt_that_was_pickled_recalls_its_message_by_any_client() -> None:
    async def story() -> None:
        async with EmbeddedBroker() as broker:
            async with broker.connect() as mq:
                kept = pickle.dumps(await mq.send("orders", b"42", after=timedelta(minutes=30)))
            receipt = pickle.loads(kept)
            for call in (receipt.recall(), receipt.reschedule(after=1), receipt.status()):
                with pytest.raises(orbitmq.ClientError, match=r"knows no client.*mq\.timers\.\w+\(receipt"):
                    await call
            async with broker.connect() as mq:
                assert (await mq.timers.status(receipt)).verdict is orbitmq.TimerVerdict.PENDING
                assert (await mq.timers.recall(receipt)).verdict is orbitmq.TimerVerdict.RECALLED
                assert (await mq.timers.recall(receipt)).verdict is orbitmq.TimerVerdict.ALREADY_RECALLED

    asyncio.run(story())


def test_so_does_one_of_the_synchronous_client() -> None:
    with EmbeddedBroker.sync() as broker, broker.connect() as mq:
        receipt = pickle.loads(pickle.dumps(mq.send("orders", b"42", after=timedelta(minutes=30))))
        assert isinstance(receipt, orbitmq.sync.SendReceipt)
        with pytest.raises(orbitmq.ClientError, match="knows no client"):
            receipt.recall()
        assert mq.timers.recall(receipt).verdict is orbitmq.TimerVerdict.RECALLED


def test_a_receipt_without_a_time_says_so_also_when_it_was_pickled() -> None:
    with EmbeddedBroker.sync() as broker, broker.connect() as mq:
        sent = mq.send("orders", b"42")
        receipt = pickle.loads(pickle.dumps(sent))
        assert receipt == sent
        with pytest.raises(orbitmq.ClientError, match="without at and without after"):
            receipt.recall()


def test_a_deep_copy_is_the_receipt() -> None:
    """As `dataclasses.asdict` makes of what holds one."""
    with EmbeddedBroker.sync() as broker, broker.connect() as mq:
        receipt = copy.deepcopy(mq.send("orders", b"42", after=timedelta(minutes=30)))
        assert receipt.recall().verdict is orbitmq.TimerVerdict.RECALLED
