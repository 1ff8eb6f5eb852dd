"""Moving the offsets of groups, asking members; brokers and name servers changed by request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from scripted_cluster import CUT, NAME_SERVER, SILENCE, Answer, Broker, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client.offset_reset import OffsetMove, ResetTo
from orbitmq.clock import ManualClock
from orbitmq.errors import ClientError, ConfigurationError, ConnectionLostError, NotFoundError
from orbitmq.protocol.remoting.bodies import (
    BrokerData,
    ClientConnection,
    ClusterInfo,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStats,
    KVTable,
    MessageQueue,
    OffsetProgress,
    ProcessQueueInfo,
    QueueData,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicRouteData,
)
from orbitmq.protocol.remoting.bodies.json_body import JsonBody
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response

Run = Callable[[Callable[[], Awaitable[None]]], None]
Q0, Q1 = (MessageQueue("D", "b-a", number) for number in (0, 1))
ONLINE = ConsumerConnection(connection_set=[ClientConnection(client_id="c1"), ClientConnection(client_id="c2")])
NOBODY = ResponseCode.CONSUMER_NOT_ONLINE


def saying(body: JsonBody | bytes, **fields: str) -> Answer:
    data = body if isinstance(body, bytes) else body.encode()
    return lambda command: response(command, ResponseCode.SUCCESS, fields=fields, body=data)


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    """The only one; topic `D` has two queues of five and two messages."""
    cluster.add_topic("D", queues=2)
    broker = cluster.brokers["b-a"]
    for number in range(5):
        broker.store("D", 0, b"%d" % number)
    broker.store("D", 1, b"a")
    broker.store("D", 1, b"b")
    info = ClusterInfo(
        cluster_addr_table={"C": ["b-a"]},
        broker_addr_table={"b-a": BrokerData(broker_name="b-a", cluster="C", broker_addrs={0: broker.address})},
    )
    cluster.name_server.script(RequestCode.GET_BROKER_CLUSTER_INFO, *[saying(info)] * 20)
    return broker


def client(cluster: Cluster) -> Client:
    return Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial)


def test_messages_that_wait_for_their_first_retry_are_lag(run: Run, cluster: Cluster, broker: Broker) -> None:
    """A broker lists topics by offsets, and a retry topic that nobody has read yet has none."""
    retry = MessageQueue("%RETRY%g", "b-a", 0)

    def progress(command: Command) -> Command:
        topic = command.fields.get("topic")
        table = {
            None: {Q0: OffsetProgress(broker_offset=5, consumer_offset=5)},
            "%RETRY%g": {retry: OffsetProgress(broker_offset=3, consumer_offset=0)},
        }[topic]
        return saying(ConsumeStats(offset_table=table))(command)

    broker.script(RequestCode.GET_CONSUME_STATS, progress, progress)

    async def test() -> None:
        async with client(cluster) as mq:
            found = await mq.admin.group_progress("g")
            assert {queue: at.broker_offset - at.consumer_offset for queue, at in found.items()} == {Q0: 0, retry: 3}

    run(test)


def test_progress_and_settings_are_asked_of_one_broker(run: Run, cluster: Cluster, broker: Broker) -> None:
    table = {"g": SubscriptionGroupConfig(group_name="g", retry_max_times=3)}
    broker.script(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, saying(SubscriptionGroupWrapper(subscription_group_table=table))
    )
    broker.script(
        RequestCode.GET_CONSUME_STATS,
        saying(ConsumeStats(offset_table={Q0: OffsetProgress(5, 4)})),
        saying(ConsumeStats()),
    )

    async def test() -> None:
        async with client(cluster) as mq:
            assert (await mq.admin.group_configs(broker.address))["g"].retry_max_times == 3
            assert list(await mq.admin.group_progress("g", broker="b-a")) == [Q0]
            with pytest.raises(NotFoundError, match="b-z"):
                await mq.admin.group_progress("g", broker="b-z")

    run(test)


def test_a_plan_changes_nothing_and_says_what_would(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.offsets["g", "D", 0] = 4

    async def test() -> None:
        async with client(cluster) as mq:
            moves = await mq.admin.plan_reset("g", "D", ResetTo.EARLIEST)
            assert moves == [OffsetMove(Q0, 4, 0), OffsetMove(Q1, None, 0)]
            assert await mq.admin.plan_reset("g", "D", ResetTo.LATEST, queue_id=1) == [OffsetMove(Q1, None, 2)]
            assert await mq.admin.plan_reset("g", "D", ResetTo.TIME, at_ms=99, queue_id=0) == [OffsetMove(Q0, 4, 5)]
            with pytest.raises(ConfigurationError, match="queue b-a/1"):
                await mq.admin.plan_reset("g", "D", ResetTo.OFFSET, offset=3)
            with pytest.raises(NotFoundError, match="no such queue"):
                await mq.admin.plan_reset("g", "D", ResetTo.LATEST, broker="b-b")
        assert broker.offsets == {("g", "D", 0): 4}

    run(test)


def test_offsets_of_a_group_that_is_offline_are_written(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.script(RequestCode.GET_CONSUMER_CONNECTION_LIST, NOBODY)

    async def test() -> None:
        async with client(cluster) as mq:
            await mq.admin.reset_offsets("g", "D", ResetTo.OFFSET, offset=1)
        assert broker.offsets == {("g", "D", 0): 1, ("g", "D", 1): 1}
        assert broker.requests(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET) == []

    run(test)


def runtime(ordinal: str, name: str) -> Answer:
    return saying(KVTable(table={"brokerVersion": ordinal, "brokerVersionDesc": name}))


def test_offsets_of_a_group_that_is_online_are_moved_by_the_broker(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.script(RequestCode.GET_CONSUMER_CONNECTION_LIST, saying(ONLINE))
    broker.script(RequestCode.GET_BROKER_RUNTIME_INFO, runtime("479", "V5_3_3"))
    broker.script(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, *[ResponseCode.SUCCESS] * 2)

    async def test() -> None:
        async with client(cluster) as mq:
            await mq.admin.reset_offsets("g", "D", ResetTo.OFFSET, offset=1)
        told = [command.fields for command in broker.requests(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)]
        assert [(fields["queueId"], fields["offset"], fields["group"]) for fields in told] == [
            ("0", "1", "g"),
            ("1", "1", "g"),
        ]
        assert broker.offsets == {}

    run(test)


def test_a_broker_that_would_move_all_queues_is_not_asked_to(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.script(RequestCode.GET_CONSUMER_CONNECTION_LIST, saying(ONLINE))
    broker.script(RequestCode.GET_BROKER_RUNTIME_INFO, runtime("409", "V4_9_8"))

    async def test() -> None:
        async with client(cluster) as mq:
            with pytest.raises(ClientError, match="V4_9_8"):
                await mq.admin.reset_offsets("g", "D", ResetTo.OFFSET, offset=1, queue_id=0)
        assert broker.requests(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET) == []
        assert broker.offsets == {}

    run(test)


def test_members_are_asked_and_one_that_is_silent_is_listed_without_an_answer(
    run: Run, cluster: Cluster, broker: Broker
) -> None:
    broker.script(RequestCode.GET_CONSUMER_CONNECTION_LIST, saying(ONLINE))
    info = ConsumerRunningInfo(mq_table={Q0: ProcessQueueInfo(cached_msg_count=3)})
    broker.script(RequestCode.GET_CONSUMER_RUNNING_INFO, saying(info), SILENCE)

    async def test() -> None:
        async with client(cluster) as mq:
            members = await mq.admin.members("g")
        assert members["c1"] is not None
        assert members["c1"].mq_table[Q0].cached_msg_count == 3
        assert members["c2"] is None

    run(test)


def test_settings_of_a_running_broker_travel_escaped(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.script(RequestCode.UPDATE_BROKER_CONFIG, ResponseCode.SUCCESS)

    async def test() -> None:
        async with client(cluster) as mq:
            await mq.admin.update_broker_config(broker.address, {"a": "x\\y", "b": "1"})
        (asked,) = broker.requests(RequestCode.UPDATE_BROKER_CONFIG)
        assert bytes(asked.body) == b"a=x\\\\y\nb=1\n"

    run(test)


def test_a_counter_without_traffic_is_none(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.script(RequestCode.VIEW_BROKER_STATS_DATA, ResponseCode.SYSTEM_ERROR)

    async def test() -> None:
        async with client(cluster) as mq:
            assert await mq.admin.broker_stats(broker.address, "TOPIC_PUT_NUMS", "D") is None

    run(test)


def test_write_permission_and_values_go_to_the_name_servers(run: Run, cluster: Cluster, broker: Broker) -> None:
    server = cluster.name_server

    def counted(command: Command) -> Command:
        return response(command, ResponseCode.SUCCESS, fields={"wipeTopicCount": "7"})

    server.script(RequestCode.WIPE_WRITE_PERM_OF_BROKER, counted)
    server.script(RequestCode.PUT_KV_CONFIG, ResponseCode.SUCCESS)
    server.script(RequestCode.GET_KV_CONFIG, saying(b"", value="v"), ResponseCode.QUERY_NOT_FOUND)
    server.script(RequestCode.GET_KVLIST_BY_NAMESPACE, ResponseCode.QUERY_NOT_FOUND)

    async def test() -> None:
        async with client(cluster) as mq:
            assert await mq.admin.wipe_write_permission("b-a") == 7
            await mq.admin.put_value("ns", "k", "v")
            assert await mq.admin.get_value("ns", "k") == "v"
            assert await mq.admin.get_value("ns", "other") is None
            assert await mq.admin.values("ns") == {}

    run(test)


@pytest.mark.parametrize("names", [("gone:9876", NAME_SERVER), (NAME_SERVER, "gone:9876")])
def test_a_name_server_that_is_away_keeps_write_permission_from_no_other(
    run: Run, cluster: Cluster, broker: Broker, names: tuple[str, ...]
) -> None:
    code = RequestCode.ADD_WRITE_PERM_OF_BROKER
    cluster.name_server.script(code, saying(b"", addTopicCount="7"))

    async def test() -> None:
        async with Client(names, clock=ManualClock(), dial=cluster.dial) as mq:
            with pytest.raises(ConnectionLostError, match="gone:9876"):
                await mq.admin.add_write_permission("b-a")
            assert len(cluster.name_server.requests(code)) == 1

    run(test)


@pytest.mark.parametrize("names", [("gone:9876", NAME_SERVER), (NAME_SERVER, "gone:9876")])
def test_a_value_is_kept_by_every_name_server_that_is_there(
    run: Run, cluster: Cluster, broker: Broker, names: tuple[str, ...]
) -> None:
    cluster.name_server.script(RequestCode.PUT_KV_CONFIG, saying(b""))

    async def test() -> None:
        async with Client(names, clock=ManualClock(), dial=cluster.dial) as mq:
            with pytest.raises(ConnectionLostError, match="gone:9876"):
                await mq.admin.put_value("N", "k", "v")
            assert len(cluster.name_server.requests(RequestCode.PUT_KV_CONFIG)) == 1

    run(test)


def test_what_name_servers_tell_of_a_broker(run: Run, cluster: Cluster, broker: Broker) -> None:
    def route(perm: int) -> Answer:
        members = BrokerData(broker_name="b-a", cluster="C", broker_addrs={0: "one:1", 1: "two:2"})
        return saying(TopicRouteData([QueueData("b-a", 1, 1, perm)], [members]))

    asked = cluster.name_server
    asked.script(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(6), route(4), ResponseCode.TOPIC_NOT_EXIST, CUT)

    async def test() -> None:
        async with client(cluster) as mq:
            members = {"one:1": 0, "two:2": 1}
            assert await mq.admin.broker_at_name_servers("b-a") == {NAME_SERVER: (members, True)}
            assert await mq.admin.broker_at_name_servers("b-a") == {NAME_SERVER: (members, False)}
            assert await mq.admin.broker_at_name_servers("b-a") == {NAME_SERVER: ({}, False)}
            assert await mq.admin.broker_at_name_servers("b-a") == {NAME_SERVER: None}

    run(test)
