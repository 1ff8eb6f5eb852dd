"""Of the properties of a stored message, those a program set, and which it may hand to another send."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from scripted_cluster import NAME_SERVER, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client.message import Once
from orbitmq.client.options import ConsumeFrom, ConsumerOptions
from orbitmq.clock import ManualClock
from orbitmq.errors import MessageIllegalError
from orbitmq.protocol.properties import RESERVED, decode_properties

Run = Callable[[Callable[[], Awaitable[None]]], None]
FIRST = ConsumerOptions(consume_from=ConsumeFrom.FIRST)


def test_a_received_message_is_forwarded_by_its_user_properties(run: Run, cluster: Cluster) -> None:
    cluster.add_topic("copies", queues=1)
    cluster.add_topic("%RETRY%g", queues=1)
    broker = cluster.brokers["b-a"]
    broker.added.update({"MSG_REGION": "DefaultRegion", "CLUSTER": "C", "ORBITMQ_NEWER": "ours, of a later release"})

    async def test() -> None:
        async with Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial) as mq:
            once = Once("job", 1, "row 1")
            own = {"shop": "3", "ORBIT": "mine", "__mine": "too"}
            await mq.send("T", b"x", tag="t", key="k", ordering_key="o", properties=own, once=once)
            async with mq.consumer("g", "T", options=FIRST) as consumer:
                message = await anext(consumer)
                assert message.properties["ORBITMQ_ONCE_KEY"] == "row 1"
                assert message.user_properties == own
                with pytest.raises(MessageIllegalError, match="reserved"):
                    await mq.send("copies", message.body, properties=message.properties)
                await mq.send("copies", message.body, properties=message.user_properties)
        (copy,) = broker.queues["copies", 0]
        properties = decode_properties(copy.properties)
        assert {name: value for name, value in properties.items() if name in own} == own
        assert "ORBITMQ_ONCE_KEY" not in properties

    run(test)


def test_every_reserved_name_and_every_name_of_ours_is_left_out(run: Run, cluster: Cluster) -> None:
    cluster.add_topic("%RETRY%g", queues=1)
    names = sorted(RESERVED | {"ORBITMQ_ANYTHING", "__RMQ.TRANSIENT.x"})
    cluster.brokers["b-a"].store("T", 0, b"x", **dict.fromkeys(names, "1"), mine="1")

    async def test() -> None:
        async with (
            Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial) as mq,
            mq.lite_consumer("g") as reader,
        ):
            queue = (await reader.fetch_queues("T"))[0]
            await reader.assign([queue])
            await reader.seek_to_begin(queue)
            (message,) = await reader.poll()
            assert message.user_properties == {"mine": "1"}

    run(test)
