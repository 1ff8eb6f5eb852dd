"""Months and years of an embedded broker, with the real process that keeps the far tier's files."""

from __future__ import annotations

from datetime import timedelta

import pytest

pytest.importorskip("pyarrow", reason="the far tier's files are written with pyarrow")

from orbitmq.client import TimerVerdict
from orbitmq.testing import EmbeddedBroker

FAR = {"timerFarEnable": "true"}


async def test_a_message_due_next_year_comes_in_its_millisecond() -> None:
    async with EmbeddedBroker(settings=FAR) as broker, broker.connect() as mq:
        due = broker.now + timedelta(days=400)
        await mq.send("orders", b"renewal", at=due)
        await broker.advance(timedelta(days=200))
        [state] = (await mq.timers.far_tier()).values()
        assert (state.pending, state.files, state.trouble) == (1, 1, None)
        await broker.advance_to(due - timedelta(milliseconds=1))
        assert await broker.messages("orders") == []
        await broker.advance_to(due)
        [message] = await broker.messages("orders")
        assert message.body == b"renewal"


async def test_far_messages_are_recalled_and_rescheduled_over_restarts() -> None:
    async with EmbeddedBroker(settings=FAR) as broker, broker.connect() as mq:
        start = broker.now
        recalled = await mq.send("orders", b"recalled", after=timedelta(days=30))
        moved = await mq.send("orders", b"moved", after=timedelta(days=31))
        await broker.advance(timedelta(days=1))
        assert (await recalled.recall()).verdict is TimerVerdict.RECALLED
        assert (await moved.reschedule(at=start + timedelta(days=60))).verdict is TimerVerdict.RESCHEDULED
        await broker.crash()
        await broker.advance(timedelta(days=45))
        assert await broker.messages("orders") == []
        await broker.restart(down=timedelta(days=30))
        await broker.advance(timedelta(0))
        assert [message.body for message in await broker.messages("orders")] == [b"moved"]
