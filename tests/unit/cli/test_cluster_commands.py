"""topic, group, message, send and tail against a server that answers from a script."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable

import pytest
from scripted_server import Ran, ScriptedServer

from orbitmq.protocol.ids import encode_offset_id, pack_host
from orbitmq.protocol.properties import encode_properties
from orbitmq.protocol.records import encode_stored
from orbitmq.protocol.remoting.bodies import (
    BrokerData,
    ClientConnection,
    ClusterInfo,
    ConsumerConnection,
    ConsumeStats,
    MessageQueue,
    OffsetProgress,
    QueueData,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigWrapper,
    TopicList,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
)
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command

Run = Callable[..., Ran]
QUEUE = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)


@pytest.fixture
def cluster(server: ScriptedServer) -> ScriptedServer:
    """One broker with one topic and one group, on the same port as the name server."""
    broker = BrokerData(broker_name="broker-a", broker_addrs={0: server.address}, cluster="Main")
    queues = QueueData(broker_name="broker-a", read_queue_nums=1, write_queue_nums=1, perm=6)
    server.on(
        RequestCode.GET_BROKER_CLUSTER_INFO,
        ClusterInfo(broker_addr_table={"broker-a": broker}, cluster_addr_table={"Main": ["broker-a"]}).encode(),
    )
    topics = ["orders", "TBW102", "%RETRY%g", "Main", "broker-a", "Main_REPLY_TOPIC"]
    server.on(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList(topic_list=topics).encode())
    route = TopicRouteData(queue_datas=[queues], broker_datas=[broker]).encode()

    def find(command: Command) -> tuple[int, str | None, dict[str, str], bytes]:
        known = command.fields["topic"] == "orders"
        return (0, None, {}, route) if known else (ResponseCode.TOPIC_NOT_EXIST, "no route", {}, b"")

    server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = find
    config = TopicConfig(topic_name="orders", read_queue_nums=1, write_queue_nums=1, perm=6)
    server.on(RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigWrapper(topic_config_table={"orders": config}).encode())
    groups = {name: SubscriptionGroupConfig(group_name=name) for name in ("billing", "TOOLS_CONSUMER")}
    server.on(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupWrapper(subscription_group_table=groups).encode()
    )
    for code in (
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
    ):
        server.on(code)
    return server


def record(body: bytes = b"hello", queue_offset: int = 0) -> bytes:
    host = pack_host("127.0.0.1", 10911)
    properties = {"KEYS": "k1 k2", "TAGS": "paid", "UNIQ_KEY": "7F000001000018B4AAC2000000000001", "city": "Genf"}
    return encode_stored(
        topic=b"orders",
        queue_id=0,
        flag=0,
        queue_offset=queue_offset,
        physical_offset=4096 * queue_offset,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        born_host=host,
        store_timestamp=1_700_000_000_123,
        store_host=host,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        properties=encode_properties(properties),
        body_crc=0,
    )


def test_topic_list_leaves_out_what_the_system_made(orbitmq: Run, cluster: ScriptedServer) -> None:
    ran = orbitmq("topic", "list", "-n", cluster.address, "-o", "json")
    assert (ran.code, json.loads(ran.out)) == (0, [{"topic": "orders"}])
    everything = orbitmq("topic", "list", "--all", "-n", cluster.address, "-o", "json")
    assert len(json.loads(everything.out)) == 6


def test_topic_show_and_route(orbitmq: Run, cluster: ScriptedServer) -> None:
    shown = orbitmq("topic", "show", "orders", "-n", cluster.address)
    assert shown.code == 0
    assert "broker-a" in shown.out
    route = json.loads(orbitmq("topic", "route", "orders", "-n", cluster.address, "-o", "json").out)
    assert route[0]["addresses"] == {"0": cluster.address}
    assert orbitmq("topic", "route", "nothing", "-n", cluster.address).code == 5


def test_topic_create_update_delete(orbitmq: Run, cluster: ScriptedServer) -> None:
    assert orbitmq("topic", "create", "orders", "-q", 4, "--attribute", "a=b", "-n", cluster.address).code == 0
    assert orbitmq("topic", "update", "orders", "--perm", 4, "-n", cluster.address).code == 0
    created, updated = cluster.fields_of(RequestCode.UPDATE_AND_CREATE_TOPIC)
    assert (created["readQueueNums"], created["perm"], created["attributes"]) == ("4", "6", "+a=b")
    assert (updated["readQueueNums"], updated["perm"]) == ("1", "4")

    assert orbitmq("topic", "delete", "orders", "--yes", "-n", cluster.address).code == 0
    assert cluster.fields_of(RequestCode.DELETE_TOPIC_IN_BROKER) == [{"topic": "orders"}]
    assert cluster.fields_of(RequestCode.DELETE_TOPIC_IN_NAMESRV) == [{"topic": "orders"}]


def test_a_topic_is_updated_on_the_broker_named_or_not_at_all(orbitmq: Run, cluster: ScriptedServer) -> None:
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    assert orbitmq("topic", "update", "orders", "--perm", 4, "-b", "broker-z", "-n", cluster.address).code == 5
    assert cluster.fields_of(code) == []
    assert orbitmq("topic", "update", "orders", "--perm", 4, "-b", cluster.address, "-n", cluster.address).code == 0
    assert orbitmq("updateTopicPerm", "-t", "orders", "-p", 2, "-b", "broker-a", "-n", cluster.address).code == 0
    assert [fields["perm"] for fields in cluster.fields_of(code)] == ["4", "2"]


def test_a_bad_topic_name_is_a_usage_error_and_is_not_sent(orbitmq: Run, cluster: ScriptedServer) -> None:
    assert orbitmq("topic", "create", "a b", "-n", cluster.address).code == 2
    assert cluster.fields_of(RequestCode.UPDATE_AND_CREATE_TOPIC) == []


def test_a_refusal_is_exit_code_4_with_the_remark(orbitmq: Run, cluster: ScriptedServer) -> None:
    cluster.on(RequestCode.UPDATE_AND_CREATE_TOPIC, code=ResponseCode.NO_PERMISSION, remark="not you")
    ran = orbitmq("topic", "create", "orders", "-n", cluster.address)
    assert ran.code == 4
    assert "not you" in ran.err


def test_the_port_of_a_broker_is_not_taken_for_a_name_server(orbitmq: Run, server: ScriptedServer) -> None:
    ran = orbitmq("topic", "list", "-n", server.address)  # answers "not supported", as a broker does
    assert ran.code == 4
    assert f"is {server.address} a name server?" in ran.err


def test_changes_can_be_told_as_json(orbitmq: Run, cluster: ScriptedServer) -> None:
    def told(*arguments: str) -> object:
        ran = orbitmq(*arguments, "-n", cluster.address, "-o", "json")
        assert ran.code == 0
        return json.loads(ran.out)

    assert told("topic", "create", "new") == {"topic": "new", "brokers": ["broker-a"]}
    assert told("topic", "delete", "new", "-y") == {"topic": "new", "deleted": True}
    assert told("group", "create", "g") == {"group": "g", "brokers": ["broker-a"]}
    assert told("group", "delete", "g", "-y") == {"group": "g", "deleted": True}


@pytest.mark.parametrize("option", ["--broker", "--cluster"])
def test_an_unknown_broker_or_cluster_is_exit_code_5(orbitmq: Run, cluster: ScriptedServer, option: str) -> None:
    ran = orbitmq("topic", "create", "new", option, "nobody", "-n", cluster.address)
    assert ran.code == 5
    assert "nobody" in ran.err
    assert cluster.fields_of(RequestCode.UPDATE_AND_CREATE_TOPIC) == []


def test_the_time_limit_holds_for_calls_to_brokers(orbitmq: Run, cluster: ScriptedServer) -> None:
    never = threading.Event()
    cluster.answers[RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG] = lambda _: (never.wait(30), (0, None, {}, b""))[1]
    began = time.monotonic()
    ran = orbitmq("group", "list", "-n", cluster.address, "--timeout-ms", 200)
    never.set()
    assert ran.code == 3
    assert time.monotonic() - began < 20, "the answer would have come after 30 s"


def test_topic_stats(orbitmq: Run, cluster: ScriptedServer) -> None:
    bounds = TopicOffset(min_offset=3, max_offset=10, last_update_timestamp=1_700_000_000_123)
    cluster.on(RequestCode.GET_TOPIC_STATS_INFO, TopicStatsTable(offset_table={QUEUE: bounds}).encode())
    (row,) = json.loads(orbitmq("topic", "stats", "orders", "-n", cluster.address, "-o", "json").out)
    assert (row["messages"], row["last_update"]) == (7, "2023-11-14T22:13:20.123Z")


def test_groups(orbitmq: Run, cluster: ScriptedServer) -> None:
    rows = json.loads(orbitmq("group", "list", "-n", cluster.address, "-o", "json").out)
    assert [row["group"] for row in rows] == ["billing"]
    assert orbitmq("group", "create", "billing", "--retry-max-times", 3, "-n", cluster.address).code == 0
    (sent,) = [c for c in cluster.asked if c.code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP]
    assert json.loads(bytes(sent.body))["retryMaxTimes"] == 3
    assert orbitmq("group", "delete", "billing", "-y", "--keep-offsets", "-n", cluster.address).code == 0
    assert cluster.fields_of(RequestCode.DELETE_SUBSCRIPTIONGROUP)[0]["cleanOffset"] == "false"


def test_group_show(orbitmq: Run, cluster: ScriptedServer) -> None:
    cluster.on(RequestCode.GET_CONSUMER_CONNECTION_LIST, code=ResponseCode.CONSUMER_NOT_ONLINE, remark="offline")
    at = OffsetProgress(broker_offset=10, consumer_offset=7, last_timestamp=1_700_000_000_000)
    cluster.on(RequestCode.GET_CONSUME_STATS, ConsumeStats(offset_table={QUEUE: at}).encode())
    group = json.loads(orbitmq("group", "show", "billing", "-n", cluster.address, "-o", "json").out)
    assert group["members"] == []
    assert group["queues"][0]["behind"] == 3
    table = orbitmq("group", "show", "billing", "-n", cluster.address)
    assert table.code == 0
    assert "no members online" in table.err
    assert orbitmq("group", "show", "missing", "-n", cluster.address).code == 5


def test_group_members_show_what_the_broker_says_about_them(orbitmq: Run, cluster: ScriptedServer) -> None:
    connections = ConsumerConnection(
        connection_set=[ClientConnection(client_id="c1", client_addr="10.0.0.1:1")],
        orbitmq_warnings=["clients differ about topic 'orders'"],
    )
    cluster.on(RequestCode.GET_CONSUMER_CONNECTION_LIST, connections.encode())
    ran = orbitmq("group", "members", "billing", "-n", cluster.address)
    assert ran.code == 0
    assert "c1" in ran.out
    assert "group billing: clients differ about topic 'orders'" in ran.err


def test_message_by_key_leaves_out_hash_collisions(orbitmq: Run, cluster: ScriptedServer) -> None:
    cluster.on(RequestCode.QUERY_MESSAGE, record())
    (found,) = json.loads(orbitmq("message", "show", "orders", "--key", "k2", "-n", cluster.address, "-o", "json").out)
    assert (found["body"], found["tag"], found["properties"]["city"]) == ("hello", "paid", "Genf")
    assert orbitmq("message", "show", "orders", "--key", "other", "-n", cluster.address).code == 5


def test_message_by_unique_key(orbitmq: Run, cluster: ScriptedServer) -> None:
    cluster.on(RequestCode.QUERY_MESSAGE, record())
    key = "7F000001000018B4AAC2000000000001"
    assert orbitmq("message", "show", "orders", "--unique-key", key, "-n", cluster.address).code == 0
    assert cluster.fields_of(RequestCode.QUERY_MESSAGE)[0]["_UNIQUE_KEY_QUERY"] == "true"


def test_message_by_id_asks_the_broker_named_in_it(orbitmq: Run, cluster: ScriptedServer) -> None:
    cluster.on(RequestCode.VIEW_MESSAGE_BY_ID, record())
    port = int(cluster.address.rpartition(":")[2])
    message_id = encode_offset_id(pack_host("127.0.0.1", port), 4096)
    ran = orbitmq("message", "show", "--id", message_id, "-n", cluster.address, "-o", "json")
    assert json.loads(ran.out)[0]["body"] == "hello"
    assert cluster.fields_of(RequestCode.VIEW_MESSAGE_BY_ID)[0]["offset"] == "4096"


def test_message_by_offset(orbitmq: Run, cluster: ScriptedServer) -> None:
    fields = {"nextBeginOffset": "2", "minOffset": "0", "maxOffset": "2", "suggestWhichBrokerId": "0"}
    cluster.on(RequestCode.PULL_MESSAGE, record(b"\xff\x00", 0) + record(b"two", 1), fields=fields)
    rows = json.loads(
        orbitmq("message", "show", "orders", "--queue", 0, "--offset", 0, "-n", cluster.address, "-o", "json").out
    )
    assert [(row["body"], row["body_encoding"]) for row in rows] == [("/wA=", "base64"), ("two", "utf-8")]


@pytest.mark.parametrize(
    "arguments",
    [
        ("orders",),
        ("--key", "k"),
        ("--id", "no hex"),
        ("orders", "--key", "k", "--id", "x"),
        ("orders", "--queue", "1"),
    ],
)
def test_message_show_wants_one_way_of_finding(orbitmq: Run, arguments: tuple[str, ...]) -> None:
    assert orbitmq("message", "show", *arguments).code == 2


def test_tail_to_the_end(orbitmq: Run, cluster: ScriptedServer) -> None:
    cluster.on(RequestCode.GET_MIN_OFFSET, fields={"offset": "0"})
    fields = {"nextBeginOffset": "2", "minOffset": "0", "maxOffset": "2", "suggestWhichBrokerId": "0"}
    cluster.on(RequestCode.PULL_MESSAGE, record(b"one", 0) + record(b"two\nlines", 1), fields=fields)
    ran = orbitmq("tail", "orders", "--from-beginning", "--stop-at-end", "-n", cluster.address)
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "2023-11-14T22:13:20.123Z orders/0@0 [paid] one",
        "2023-11-14T22:13:20.123Z orders/0@1 [paid] two lines",
    ]


def test_tail_of_a_topic_that_cannot_be_read_says_so(orbitmq: Run, cluster: ScriptedServer) -> None:
    broker = BrokerData(broker_name="broker-a", broker_addrs={0: cluster.address}, cluster="Main")
    unreadable = QueueData(broker_name="broker-a", read_queue_nums=1, write_queue_nums=1, perm=2)
    cluster.on(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        TopicRouteData(queue_datas=[unreadable], broker_datas=[broker]).encode(),
    )
    ran = orbitmq("tail", "orders", "-n", cluster.address)
    assert ran.code == 5
    assert "no queue that can be read" in ran.err


def test_tail_ends_after_the_messages_wanted(orbitmq: Run, cluster: ScriptedServer) -> None:
    cluster.on(RequestCode.GET_MAX_OFFSET, fields={"offset": "0"})
    fields = {"nextBeginOffset": "2", "minOffset": "0", "maxOffset": "2", "suggestWhichBrokerId": "0"}
    cluster.on(RequestCode.PULL_MESSAGE, record(b"one", 0) + record(b"two", 1), fields=fields)
    ran = orbitmq("tail", "orders", "--count", 1, "-n", cluster.address, "-o", "json")
    assert [json.loads(line)["body"] for line in ran.out.splitlines()] == ["one"]
    (pull, *_) = cluster.fields_of(RequestCode.PULL_MESSAGE)
    assert (pull["sysFlag"], pull["suspendTimeoutMillis"], pull["subscription"]) == ("6", "15000", "*")


def test_send(orbitmq: Run, cluster: ScriptedServer) -> None:
    answer = {"msgId": "7F00000100002A9F0000000000001000", "queueId": "0", "queueOffset": "5"}
    cluster.on(RequestCode.SEND_MESSAGE_V2, fields=answer)
    ran = orbitmq(
        "send", "orders", "hello", "--tag", "paid", "--key", "k1", "--delay-level", 3, "-p", "city=Genf",
        "-n", cluster.address, "-o", "json",
    )  # fmt: skip
    (row,) = json.loads(ran.out)
    assert (row["status"], row["queue_offset"]) == ("SEND_OK", 5)
    (sent,) = [command for command in cluster.asked if command.code == RequestCode.SEND_MESSAGE_V2]
    assert bytes(sent.body) == b"hello"
    assert all(part in sent.fields["i"] for part in ("TAGS\x01paid", "DELAY\x013", "city\x01Genf"))


def test_send_with_a_key_by_which_a_repeat_is_recognised(orbitmq: Run, cluster: ScriptedServer) -> None:
    answer = {"msgId": "7F00000100002A9F0000000000001000", "queueId": "0", "queueOffset": "5"}
    cluster.on(RequestCode.SEND_MESSAGE_V2, fields=answer)
    where = ("-n", cluster.address)
    assert orbitmq("send", "orders", "hello", "--once", "order-42", "--once-window", "2h", *where).code == 0
    (sent,) = [command for command in cluster.asked if command.code == RequestCode.SEND_MESSAGE_V2]
    said = ("ORBITMQ_SCOPE\x01^orders", "ORBITMQ_ONCE_WINDOW\x017200000", "ORBITMQ_ONCE_KEY\x01order-42")
    assert all(part in sent.fields["i"] for part in said)
    assert "give its text as BODY" in orbitmq("send", "orders", "--once", "order-42", *where).err
    assert orbitmq("send", "orders", "hello", "--once", "order-42", "--once-window", "0s", *where).code == 2


def test_what_was_sent_before_a_failure_is_told(
    orbitmq: Run, cluster: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([0, ResponseCode.MESSAGE_ILLEGAL])
    fields = {"msgId": "7F00000100002A9F0000000000001000", "queueId": "0", "queueOffset": "5"}
    cluster.answers[RequestCode.SEND_MESSAGE_V2] = lambda _: (next(answers), "no", fields, b"")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    ran = orbitmq("send", "orders", "-n", cluster.address, "-o", "json")
    assert ran.code == 4
    assert [row["queue_offset"] for row in json.loads(ran.out)] == [5]


def test_a_message_that_breaks_a_rule_is_a_usage_error(orbitmq: Run, cluster: ScriptedServer) -> None:
    ran = orbitmq("send", "orders", "", "-n", cluster.address)
    assert ran.code == 2
    assert "body is empty" in ran.err


def test_a_property_without_a_value_is_a_usage_error(orbitmq: Run) -> None:
    assert orbitmq("send", "orders", "hello", "-p", "city").code == 2


@pytest.mark.parametrize("command", [("wipe-write", "--yes"), ("add-write",)])
def test_the_permission_of_a_broker_that_nobody_knows_is_not_found(
    orbitmq: Run, cluster: ScriptedServer, command: tuple[str, ...]
) -> None:
    cluster.on(RequestCode.WIPE_WRITE_PERM_OF_BROKER, fields={"wipeTopicCount": "0"})
    cluster.on(RequestCode.ADD_WRITE_PERM_OF_BROKER, fields={"addTopicCount": "0"})
    ran = orbitmq("broker", command[0], "brokr-a", *command[1:], "-n", cluster.address)
    assert (ran.code, ran.err) == (5, "error: the name servers know no broker 'brokr-a' (see: orbitmq broker list)\n")
