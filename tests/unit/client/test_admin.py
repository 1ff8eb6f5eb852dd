"""Administration: which servers are asked what, and how their answers are put together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from scripted_cluster import NAME_SERVER, Answer, Broker, Cluster

from orbitmq.client._async.client import Client
from orbitmq.clock import ManualClock
from orbitmq.errors import (
    ClientError,
    ConfigurationError,
    ConnectionLostError,
    ProtocolError,
    RemoteError,
    RouteNotFoundError,
)
from orbitmq.protocol.names import Perm
from orbitmq.protocol.records import encode_record
from orbitmq.protocol.remoting.bodies import (
    BrokerData,
    ClientConnection,
    ClusterInfo,
    ConsumerConnection,
    ConsumeStats,
    KVTable,
    MessageQueue,
    OffsetProgress,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from orbitmq.protocol.remoting.bodies.json_body import JsonBody
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response

Run = Callable[[Callable[[], Awaitable[None]]], None]


def saying(body: JsonBody | bytes, **fields: str) -> Answer:
    data = body if isinstance(body, bytes) else body.encode()
    return lambda command: response(command, ResponseCode.SUCCESS, fields=fields, body=data)


def ok(command: Command) -> Command:
    return response(command, ResponseCode.SUCCESS)


@pytest.fixture
def pair(cluster: Cluster) -> tuple[Broker, Broker]:
    """Two masters, one of them with a slave, in one cluster; the name server knows them."""
    second = cluster.add_broker("b-b")
    cluster.add_topic("T", queues=2)
    info = ClusterInfo(
        cluster_addr_table={"C": ["b-b", "b-a", "unregistered"]},
        broker_addr_table={
            "b-a": BrokerData(broker_name="b-a", cluster="C", broker_addrs={0: "b-a:10911", 1: "slave:10911"}),
            "b-b": BrokerData(broker_name="b-b", cluster="C", broker_addrs={0: "b-b:10911"}),
        },
    )
    cluster.name_server.script(RequestCode.GET_BROKER_CLUSTER_INFO, *[saying(info)] * 20)
    return cluster.brokers["b-a"], second


def client(cluster: Cluster) -> Client:
    return Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial)


def test_brokers_and_masters(run: Run, cluster: Cluster, pair: tuple[Broker, Broker]) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            brokers = await mq.admin.brokers("C")
            assert [(broker.name, broker.broker_id) for broker in brokers] == [("b-a", 0), ("b-a", 1), ("b-b", 0)]
            assert [broker.address for broker in await mq.admin.masters()] == ["b-a:10911", "b-b:10911"]
            with pytest.raises(ClientError, match="no cluster 'X'"):
                await mq.admin.brokers("X")

    run(test)


def test_topics_are_created_on_all_masters_or_on_the_one_named(
    run: Run, cluster: Cluster, pair: tuple[Broker, Broker]
) -> None:
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    for broker in pair:
        broker.script(code, ok, ok)

    async def test() -> None:
        async with client(cluster) as mq:
            await mq.admin.create_topic("new", queues_count=3, perm=Perm.READ, attributes={"message.type": "DELAY"})
            await mq.admin.create_topic("new", broker="b-b:10911")
            with pytest.raises(ClientError, match="no master broker 'b-c'"):
                await mq.admin.create_topic("new", broker="b-c")
            with pytest.raises(ConfigurationError):
                await mq.admin.create_topic("not legal")
        assert [len(broker.requests(code)) for broker in pair] == [1, 2]
        fields = pair[0].requests(code)[0].fields
        assert (fields["topic"], fields["readQueueNums"], fields["writeQueueNums"]) == ("new", "3", "3")
        assert (fields["perm"], fields["attributes"], fields["order"]) == ("4", "+message.type=DELAY", "false")

    run(test)


def test_a_refusal_names_the_broker(run: Run, cluster: Cluster, pair: tuple[Broker, Broker]) -> None:
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    pair[0].script(code, ok)
    pair[1].script(code, ResponseCode.INVALID_PARAMETER)

    async def test() -> None:
        async with client(cluster) as mq:
            with pytest.raises(RemoteError, match="creating topic 'new'") as caught:
                await mq.admin.create_topic("new")
        assert caught.value.address == "b-b:10911"

    run(test)


def test_a_change_reaches_the_brokers_behind_one_that_is_away_and_says_where_it_was_made(
    run: Run, cluster: Cluster, pair: tuple[Broker, Broker]
) -> None:
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    pair[1].script(code, ok)
    pair[0].up = False

    async def test() -> None:
        async with client(cluster) as mq:
            with pytest.raises(ConnectionLostError) as caught:
                await mq.admin.create_topic("new")
        assert "creating topic 'new' was done at b-b, and not as far as is known at b-a" in str(caught.value)

    run(test)


def test_deleting_a_group_takes_its_topics_along(run: Run, cluster: Cluster, pair: tuple[Broker, Broker]) -> None:
    for broker in pair:
        broker.script(RequestCode.DELETE_SUBSCRIPTIONGROUP, ok)
        broker.script(RequestCode.DELETE_TOPIC_IN_BROKER, ok, ok)
    cluster.name_server.script(RequestCode.DELETE_TOPIC_IN_NAMESRV, ok, ok)

    async def test() -> None:
        async with client(cluster) as mq:
            await mq.admin.delete_group("g")
        for broker in pair:
            assert broker.requests(RequestCode.DELETE_SUBSCRIPTIONGROUP)[0].text("cleanOffset") == "true"
        deleted = cluster.name_server.requests(RequestCode.DELETE_TOPIC_IN_NAMESRV)
        assert [command.text("topic") for command in deleted] == ["%RETRY%g", "%DLQ%g"]

    run(test)


def test_answers_of_several_brokers_are_put_together(run: Run, cluster: Cluster, pair: tuple[Broker, Broker]) -> None:
    for number, broker in enumerate(pair):
        queue = MessageQueue("T", broker.name, 0)
        broker.script(
            RequestCode.GET_TOPIC_STATS_INFO,
            saying(TopicStatsTable(offset_table={queue: TopicOffset(max_offset=number + 1)})),
        )
        broker.script(
            RequestCode.GET_CONSUME_STATS,
            saying(ConsumeStats(offset_table={queue: OffsetProgress(broker_offset=9, consumer_offset=number)})),
        )
        groups = {"g": SubscriptionGroupConfig(group_name="g", retry_max_times=number)}
        broker.script(
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            saying(SubscriptionGroupWrapper(subscription_group_table=groups)),
        )
        connections = [ClientConnection(client_id="both"), ClientConnection(client_id=broker.name)]
        broker.script(
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            saying(ConsumerConnection(connection_set=connections, orbitmq_warnings=["they differ", broker.name])),
            ResponseCode.CONSUMER_NOT_ONLINE,
        )

    async def test() -> None:
        async with client(cluster) as mq:
            stats = await mq.admin.topic_stats("T")
            assert {queue.broker_name: offset.max_offset for queue, offset in stats.items()} == {"b-a": 1, "b-b": 2}
            progress = await mq.admin.group_progress("g", "T")
            assert [step.consumer_offset for step in progress.values()] == [0, 1]
            assert (await mq.admin.groups())["g"].retry_max_times == 0
            online = await mq.admin.group_connections("g")
            assert online is not None
            assert [connection.client_id for connection in online.connection_set] == ["both", "b-a", "b-b"]
            assert online.orbitmq_warnings == ["b-a", "b-b", "they differ"]
            assert await mq.admin.group_connections("g") is None

    run(test)


def test_names_figures_and_settings(run: Run, cluster: Cluster, pair: tuple[Broker, Broker]) -> None:
    cluster.name_server.script(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, saying(TopicList(topic_list=["b", "a"])))
    pair[0].script(RequestCode.GET_BROKER_RUNTIME_INFO, saying(KVTable(table={"x": "1"})))
    pair[0].script(RequestCode.GET_BROKER_CONFIG, saying(b"a=1\nb=x=y\n# nonsense\n"))

    async def test() -> None:
        async with client(cluster) as mq:
            assert await mq.admin.topics() == ["a", "b"]
            assert await mq.admin.broker_runtime("b-a:10911") == {"x": "1"}
            assert await mq.admin.broker_config("b-a:10911") == {"a": "1", "b": "x=y"}
            with pytest.raises(RouteNotFoundError):
                await mq.admin.topic_route("unknown")

    run(test)


def test_looking_at_a_queue_joins_nothing(run: Run, cluster: Cluster) -> None:
    broker = cluster.brokers["b-a"]
    for number in range(5):
        broker.store("T", 1, b"%d" % number)
    queue = MessageQueue("T", "b-a", 1)

    async def test() -> None:
        async with client(cluster) as mq:
            peeked = await mq.admin.peek(queue, 2, count=2)
            assert ([message.body for message in peeked.messages], peeked.next_offset) == ([b"2", b"3"], 4)
            assert await mq.admin.max_offset(queue) == 5
            assert (await mq.admin.peek(queue, 5)).messages == []
            assert (await mq.admin.peek(queue, 99)).next_offset == 5
            with pytest.raises(RouteNotFoundError, match="no broker 'b-z'"):
                await mq.admin.max_offset(MessageQueue("T", "b-z", 0))
        (first, *_) = broker.requests(RequestCode.PULL_MESSAGE)
        assert (first.text("consumerGroup"), first.text("sysFlag")) == ("TOOLS_CONSUMER", "4")
        assert broker.offsets == {}
        assert broker.requests(RequestCode.HEART_BEAT) == []

    run(test)


def test_messages_found_by_hash_are_compared_by_text(run: Run, cluster: Cluster) -> None:
    broker = cluster.brokers["b-a"]
    wanted = broker.store("T", 0, b"right", KEYS="a Aa", UNIQ_KEY="ID")
    other = broker.store("T", 0, b"wrong", KEYS="BB", UNIQ_KEY="OTHER")
    both = encode_record(wanted) + encode_record(other)
    broker.script(RequestCode.QUERY_MESSAGE, saying(both), saying(both), ResponseCode.QUERY_NOT_FOUND)

    async def test() -> None:
        async with client(cluster) as mq:
            assert [message.body for message in await mq.admin.messages_by_key("T", "Aa")] == [b"right"]
            assert [message.body for message in await mq.admin.messages_by_unique_id("T", "ID")] == [b"right"]
            assert await mq.admin.messages_by_key("T", "none") == []
        flags = [command.text("_UNIQUE_KEY_QUERY") for command in broker.requests(RequestCode.QUERY_MESSAGE)]
        assert flags == ["false", "true", "false"]

    run(test)


def test_an_offset_id_names_its_broker(run: Run, cluster: Cluster) -> None:
    broker = cluster.brokers["b-a"]
    record = broker.store("T", 0, b"x")
    broker.address = "10.0.0.1:10911"  # what the id says
    broker.script(RequestCode.VIEW_MESSAGE_BY_ID, saying(encode_record(record)), ResponseCode.SYSTEM_ERROR)

    async def test() -> None:
        async with client(cluster) as mq:
            found = await mq.admin.message_by_id("0A00000100002A9F00000000000003E8")
            assert found is not None
            assert (found.body, found.physical_offset) == (b"x", 1000)
            assert await mq.admin.message_by_id("0A00000100002A9F00000000000003E8") is None
            with pytest.raises(ProtocolError):
                await mq.admin.message_by_id("no id")
        assert broker.requests(RequestCode.VIEW_MESSAGE_BY_ID)[0].text("offset") == "1000"

    run(test)
