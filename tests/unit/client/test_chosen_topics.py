"""A consumer of several topics, each with its own filter."""

from __future__ import annotations

import pytest

import orbitmq
from orbitmq.errors import ConfigurationError
from orbitmq.testing import EmbeddedBroker

FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)


async def test_each_topic_of_a_consumer_has_tags_or_an_expression() -> None:
    async with EmbeddedBroker() as broker, broker.connect() as mq:
        for topic in ("orders", "refunds"):
            for number in range(4):
                body = f"{topic} {number}".encode()
                await mq.send(topic, body, tag="odd" if number % 2 else "even", properties={"price": str(number)})
        wanted: dict[str, str | orbitmq.Sql] = {"orders": "odd", "refunds": orbitmq.Sql("price > 1")}
        found = set()
        async with mq.consumer("billing", wanted, options=FIRST) as consumer:
            async for message in consumer:
                found.add(message.body)
                await message.ack()
                if len(found) == 4:
                    break
        assert found == {b"orders 1", b"orders 3", b"refunds 2", b"refunds 3"}


async def test_a_mapping_that_cannot_be_is_refused() -> None:
    async with EmbeddedBroker() as broker, broker.connect() as mq:
        with pytest.raises(ConfigurationError, match="is no filter expression"):
            mq.consumer("g", {"orders": orbitmq.Sql("price >")})
        with pytest.raises(ConfigurationError, match="it is no text"):
            mq.consumer("g", {"orders": orbitmq.Sql(7)})  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="beside several topics"):
            mq.consumer("g", {"orders": "*"}, sql="price > 1")  # type: ignore[call-overload]
        with pytest.raises(ConfigurationError, match="1 to"):
            mq.consumer("g", {})
