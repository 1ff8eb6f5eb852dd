"""The order-cancel program over gRPC on the virtual clock: what is unpaid is cancelled at its time, what was paid is taken back.

An order is sent with the time at which it is to be cancelled, and the recall handle of its send is kept. Whoever pays recalls it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.worlds.grpc_client import Client

from orbitmq.protocol.grpc import messages
from orbitmq.protocol.grpc.delivered_messages import timestamp_of
from orbitmq.protocol.grpc.message_prefix import MessageCutter
from orbitmq.protocol.grpc.messages import (
    AckMessageEntry,
    AckMessageRequest,
    Code,
    Duration,
    FilterExpression,
    FilterType,
    Message,
    MessageQueue,
    MessageType,
    QueryRouteRequest,
    RecallMessageRequest,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    Resource,
    SendMessageRequest,
    SystemProperties,
)
from orbitmq.protocol.grpc.routes import endpoints_of
from orbitmq.testing import EmbeddedBroker
from orbitmq.testing.clock import as_ms

START = datetime(2030, 5, 17, 8, 30, tzinfo=UTC)
ORDERS, GROUP = Resource(name="Orders"), Resource(name="Cancelling")
MOMENT = timedelta(milliseconds=1)


class Shop:
    """The program: a producer and a consumer of one client."""

    def __init__(self, client: Client, host: str, port: int) -> None:
        self._client = client
        self._used = endpoints_of(host, port)

    async def _call(self, rpc: str, request: Any) -> Any:
        stream_id = self._client.call(rpc, request.SerializeToString())
        assert await self._client.ended(stream_id) == {"grpc-status": "0"}
        return getattr(messages, f"{rpc}Response").FromString(self._client.answers[stream_id][5:])

    async def route(self) -> list[MessageQueue]:
        answer = await self._call("QueryRoute", QueryRouteRequest(topic=ORDERS, endpoints=self._used))
        assert answer.status.code == Code.OK
        return list(answer.message_queues)

    async def order(self, number: str, cancel_at: datetime) -> str:
        """The recall handle."""
        system = SystemProperties(
            message_id=number,
            message_type=MessageType.DELAY,
            delivery_timestamp=timestamp_of(as_ms(cancel_at)),
            keys=[number],
        )
        message = Message(topic=ORDERS, body=number.encode(), system_properties=system)
        answer = await self._call("SendMessage", SendMessageRequest(messages=[message]))
        assert answer.status.code == Code.OK
        handle: str = answer.entries[0].recall_handle
        return handle

    async def pay(self, handle: str) -> tuple[int, str]:
        """What becomes of the recall."""
        answer = await self._call("RecallMessage", RecallMessageRequest(topic=ORDERS, recall_handle=handle))
        return answer.status.code, answer.message_id

    async def cancelled(self, queue: MessageQueue) -> Message:
        """The next order that is to be cancelled, acknowledged."""
        request = ReceiveMessageRequest(
            group=GROUP,
            message_queue=queue,
            filter_expression=FilterExpression(type=FilterType.TAG, expression="*"),
            batch_size=32,
            invisible_duration=Duration(seconds=60),
        )
        stream_id = self._client.call("ReceiveMessage", request.SerializeToString())
        assert await self._client.ended(stream_id) == {"grpc-status": "0"}
        cutter = MessageCutter(1 << 20, is_single=False)
        items = [ReceiveMessageResponse.FromString(item) for item in cutter.feed(self._client.answers[stream_id])]
        (message,) = [item.message for item in items if item.WhichOneof("content") == "message"]
        handle = message.system_properties.receipt_handle
        entry = AckMessageEntry(message_id=message.system_properties.message_id, receipt_handle=handle)
        answer = await self._call("AckMessage", AckMessageRequest(group=GROUP, topic=ORDERS, entries=[entry]))
        assert answer.status.code == Code.OK
        return message


@asynccontextmanager
async def opened(broker: EmbeddedBroker) -> AsyncIterator[Shop]:
    async with broker.connect() as mq:
        await mq.admin.create_topic("Orders", attributes={"message.type": "DELAY"})
    host, _, port = broker.grpc_address.partition(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    yield Shop(client, host, int(port))
    client.writer.close()


@pytest.mark.parametrize(
    ("later", "settings", "waits"),
    [
        pytest.param(timedelta(minutes=30), {}, "near", id="30 minutes"),
        pytest.param(timedelta(days=365), {}, "near", id="a year"),
        pytest.param(timedelta(days=365), {"timerFarEnable": "true"}, "far", id="a year in the far tier"),
    ],
)
async def test_what_is_unpaid_is_cancelled_at_its_time_and_what_was_paid_is_not(
    later: timedelta, settings: dict[str, str], waits: str
) -> None:
    async with EmbeddedBroker(now=START, settings=settings) as broker, opened(broker) as shop, asyncio.timeout(120):
        queue = (await shop.route())[0]
        assert list(queue.accept_message_types) == [MessageType.DELAY]
        due = START + later
        unpaid, paid, paid_late = [await shop.order(number, due) for number in ("unpaid", "paid", "paid late")]
        async with broker.connect() as mq:
            assert getattr(await mq.timers.counts(), waits) == 3
        assert await shop.pay(paid) == (Code.OK, "paid")
        await broker.advance(later - MOMENT)
        assert await broker.messages("Orders") == [], "nothing comes early"
        assert await shop.pay(paid_late) == (Code.OK, "paid late")
        await broker.advance(MOMENT)
        (stored,) = await broker.messages("Orders")
        assert (stored.body, stored.store_timestamp) == (b"unpaid", as_ms(due))
        message = await shop.cancelled(queue)
        assert message.body == b"unpaid"
        assert message.system_properties.delivery_timestamp == timestamp_of(as_ms(due))
        assert await shop.pay(unpaid) == (Code.NOT_FOUND, ""), "it came too late"
        assert await shop.pay(paid) == (Code.OK, "paid"), "and a repeat is told the truth"
        await broker.advance(later)
        assert len(await broker.messages("Orders")) == 1


async def test_an_order_that_was_due_before_it_was_sent_is_cancelled_at_once() -> None:
    async with EmbeddedBroker(now=START) as broker, opened(broker) as shop, asyncio.timeout(60):
        assert await shop.order("late", START - timedelta(hours=1)) == "", "there is nothing to recall"
        (stored,) = await broker.messages("Orders")
        assert stored.body == b"late"
