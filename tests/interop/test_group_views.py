"""Closer looks at groups and queues, asked of RocketMQ's broker and of ours.

Run against the Java broker with INTEROP_BROKERS=java, against both with "orbitmq,java".
"""

from __future__ import annotations

import asyncio
import time

from rig.brokers import BrokerUnderTest
from rig.dispatched import create_topic

import orbitmq

FIRST = orbitmq.LiteConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)


async def test_a_group_is_seen_closely_and_copied(broker: BrokerUnderTest) -> None:
    name = f"views-{time.time_ns() // 1_000_000}"
    async with asyncio.timeout(600), orbitmq.connect(broker.name_server) as mq:
        admin = mq.admin
        await create_topic(mq, name, queues_count=1)
        receipts = [await mq.send(name, b"%d" % number, tag="ab"[number % 2]) for number in range(10)]
        queue = receipts[0].queue
        async with mq.lite_consumer(name, FIRST) as consumer:
            await consumer.subscribe(name, "a || b")
            found = 0
            while found < 6:
                found += len(await consumer.poll(max_messages=6 - found))
            await consumer.commit()
            subscription = await admin.group_subscription(name, name)
            assert subscription is not None
            assert (subscription.topic, subscription.sub_string) == (name, "a || b")
            assert sorted(subscription.tags_set) == ["a", "b"]

            units = await admin.queue_units(queue, 2, count=3, group=name)
            assert [unit.tags_code for unit in units.queue_data] == [ord("a"), ord("b"), ord("a")]
            assert len({unit.eval for unit in units.queue_data}) == 1  # RocketMQ fills it in for extended entries only
            assert units.max_queue_index == 10
        assert await admin.topics_of_group(name) == [name]
        (span,) = (await admin.group_time_spans(name, name)).values()
        assert span.min_time_stamp <= span.consume_time_stamp <= span.max_time_stamp

        copy = f"{name}-copy"
        await admin.create_group(copy)
        assert await admin.group_offset(copy, queue) is None
        await admin.copy_group_offsets(name, copy, name)
        assert await admin.group_offset(copy, queue) == await admin.group_offset(name, queue) == 6
