"""Closer looks at groups and queues: which brokers are asked what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from scripted_cluster import NAME_SERVER, Answer, Broker, Cluster

from orbitmq.client._async.client import Client
from orbitmq.clock import ManualClock
from orbitmq.errors import ConfigurationError, RemoteError
from orbitmq.protocol.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    ConsumeQueueBody,
    ConsumeQueueUnit,
    ConsumeTimeSpans,
    MessageQueue,
    QuerySubscriptionBody,
    QueueTimeSpan,
    SubscriptionData,
    TopicList,
)
from orbitmq.protocol.remoting.bodies.json_body import JsonBody
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response

Run = Callable[[Callable[[], Awaitable[None]]], None]


def saying(body: JsonBody | bytes) -> Answer:
    data = body if isinstance(body, bytes) else body.encode()
    return lambda command: response(command, ResponseCode.SUCCESS, fields={}, body=data)


@pytest.fixture
def pair(cluster: Cluster) -> tuple[Broker, Broker]:
    """Two masters that the name server knows."""
    second = cluster.add_broker("b-b")
    cluster.add_topic("T", queues=2)
    info = ClusterInfo(
        cluster_addr_table={"C": ["b-a", "b-b"]},
        broker_addr_table={
            name: BrokerData(broker_name=name, cluster="C", broker_addrs={0: f"{name}:10911"})
            for name in ("b-a", "b-b")
        },
    )
    cluster.name_server.script(RequestCode.GET_BROKER_CLUSTER_INFO, *[saying(info)] * 9)
    return cluster.brokers["b-a"], second


def client(cluster: Cluster) -> Client:
    return Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial)


def test_topics_and_subscriptions_of_a_group(run: Run, cluster: Cluster, pair: tuple[Broker, Broker]) -> None:
    first, second = pair
    first.script(RequestCode.QUERY_TOPICS_BY_CONSUMER, saying(TopicList(topic_list=["U", "T"])))
    second.script(RequestCode.QUERY_TOPICS_BY_CONSUMER, saying(TopicList(topic_list=["T", "%RETRY%g"])))
    wanted = SubscriptionData(topic="T", sub_string="a || b")
    first.script(
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
        saying(QuerySubscriptionBody(group="g", topic="T")),
        ResponseCode.CONSUMER_NOT_ONLINE,
    )
    second.script(
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
        saying(QuerySubscriptionBody(group="g", topic="T", subscription_data=wanted)),
        saying(QuerySubscriptionBody(group="g", topic="T")),
    )

    async def test() -> None:
        async with client(cluster) as mq:
            assert await mq.admin.topics_of_group("g") == ["%RETRY%g", "T", "U"]
            assert await mq.admin.group_subscription("g", "T") == wanted
            assert await mq.admin.group_subscription("g", "T") is None

    run(test)


def test_how_far_behind_a_group_is(run: Run, cluster: Cluster, pair: tuple[Broker, Broker]) -> None:
    queues = [MessageQueue("T", "b-a", 0), MessageQueue("T", "b-b", 0)]
    for broker, queue in zip(pair, queues, strict=True):
        span = QueueTimeSpan(
            message_queue=queue, min_time_stamp=1, max_time_stamp=9, consume_time_stamp=4, delay_time=5
        )
        broker.script(RequestCode.QUERY_CONSUME_TIME_SPAN, saying(ConsumeTimeSpans(consume_time_span_set=[span])))

    async def test() -> None:
        async with client(cluster) as mq:
            spans = await mq.admin.group_time_spans("g", "T")
            assert [(queue, span.delay_time) for queue, span in spans.items()] == [(queue, 5) for queue in queues]

    run(test)


def test_offsets_are_copied_at_every_broker_of_the_topic(
    run: Run, cluster: Cluster, pair: tuple[Broker, Broker]
) -> None:
    for broker in pair:
        broker.script(RequestCode.CLONE_GROUP_OFFSET, ResponseCode.SUCCESS)

    async def test() -> None:
        async with client(cluster) as mq:
            await mq.admin.copy_group_offsets("old", "new", "T")
            with pytest.raises(ConfigurationError):
                await mq.admin.copy_group_offsets("old", "no blanks", "T")
            pair[0].script(RequestCode.CLONE_GROUP_OFFSET, ResponseCode.SYSTEM_ERROR)
            with pytest.raises(RemoteError, match="copying the offsets of group 'old' to 'new'"):
                await mq.admin.copy_group_offsets("old", "new", "T")

    run(test)
    for broker in pair:
        asked = broker.requests(RequestCode.CLONE_GROUP_OFFSET)[0]
        assert asked.fields == {"srcGroup": "old", "destGroup": "new", "topic": "T", "offline": "true"}


def test_the_index_of_a_queue(run: Run, cluster: Cluster, pair: tuple[Broker, Broker]) -> None:
    body = ConsumeQueueBody(
        queue_data=[ConsumeQueueUnit(physic_offset=7, physic_size=100, tags_code=3)], max_queue_index=9
    )

    def answer(command: Command) -> Command:
        return response(command, ResponseCode.SUCCESS, fields={}, body=body.encode())

    pair[1].script(RequestCode.QUERY_CONSUME_QUEUE, answer, answer)

    async def test() -> None:
        async with client(cluster) as mq:
            queue = MessageQueue("T", "b-b", 1)
            found = await mq.admin.queue_units(queue, 5, count=1)
            assert (found.queue_data[0].physic_offset, found.max_queue_index) == (7, 9)
            await mq.admin.queue_units(queue, 5, group="g")

    run(test)
    first, second = pair[1].requests(RequestCode.QUERY_CONSUME_QUEUE)
    assert first.fields == {"topic": "T", "queueId": "1", "index": "5", "count": "1"}
    assert second.text("consumerGroup") == "g"
