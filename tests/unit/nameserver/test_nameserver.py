"""The name server as its clients see it: one request in, one answer out."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from orbitmq.access.gate import Denied, Gate, LedTo
from orbitmq.clock import ManualClock
from orbitmq.deadlines import Deadlines
from orbitmq.limits.nameserver import MASTER_RETURNS_MS
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.runtime_config import KeptChanges
from orbitmq.nameserver.server import CHANGES, EXPIRY, SERVED_CODES, NameServer
from orbitmq.protocol.remoting.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigWrapper,
    TopicQueueMappingInfo,
)
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Buffer, Command, request
from orbitmq.protocol.remoting.peer import Peer


class ListPeer:
    """A connection that collects what is sent."""

    def __init__(self) -> None:
        self.sent: list[Command] = []
        self.attachments: dict[str, object] = {}
        self.address = ("10.9.9.9", 5)
        self.host = b"\x0a\x09\x09\x09\0\0\0\5"
        self.writable = True
        self.received_ns = 0
        self.closed: str | None = None

    @property
    def connection(self) -> ListPeer:
        return self

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def when_writable(self, call: Callable[[], None]) -> None:
        raise AssertionError("this connection always is")

    def send_parts(self, command: Command, parts: Sequence[Buffer]) -> None:
        raise AssertionError("name servers send no gathered bodies")

    def request(self, command: Command, timeout_ms: int, callback: Callable[[Command | None], None]) -> None:
        raise AssertionError("name servers ask their clients nothing")

    def close(self, reason: str) -> None:
        self.closed = reason


class KvMemory:
    def __init__(self) -> None:
        self.content: bytes | None = None
        self.broken = False
        self.saves = 0

    def load(self) -> bytes | None:
        return self.content

    def save(self, content: bytes) -> None:
        if self.broken:
            raise OSError("disk full")
        self.saves += 1
        self.content = content


class Closed:
    """A gate that lets nobody through, and remembers who came."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def admit(self, command: Command, peer: Peer, led_to: LedTo | None) -> None:
        self.asked.append(command.code)
        raise Denied(ResponseCode.NO_PERMISSION, "nobody may do that")


class Rig:
    def __init__(self, gate: Gate | None = None, **config: Any) -> None:
        self.clock = ManualClock()
        self.deadlines = Deadlines()
        self.kv_file = KvMemory()
        self.notices: list[tuple[str, Command]] = []
        self.saved: list[str] = []
        start = NameServerConfig(**config)
        texts = start.texts()
        self.server = NameServer(
            start,
            self.clock,
            self.deadlines,
            self.kv_file,
            notify=lambda address, command: self.notices.append((address, command)),
            kept=KeptChanges({}, lambda name: (texts[name], "the default"), lambda text: self.saved.append(text)),
            gate=gate,
        )
        self.peer = ListPeer()

    def ask(
        self, code: int, fields: dict[str, str] | None = None, body: bytes = b"", peer: ListPeer | None = None
    ) -> Command:
        peer = peer or self.peer
        answer = self.server.handle(request(code, fields, body, opaque=7), peer)
        if answer is None:
            before = len(peer.sent)
            self.server.end_turn()
            (answer,) = peer.sent[before:]
        assert answer.opaque == 7
        assert answer.is_response
        return answer

    def register(self, peer: ListPeer | None = None, body: bytes | None = None, **fields: str) -> Command:
        own = {
            "brokerName": "broker-a",
            "brokerAddr": "10.0.0.1:10911",
            "clusterName": "C",
            "haServerAddr": "10.0.0.1:10912",
            "brokerId": "0",
        }
        body = registration() if body is None else body
        return self.ask(RequestCode.REGISTER_BROKER, {**own, **fields}, body, peer)

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.deadlines.run_due(self.clock.monotonic_ns())

    def has_route(self, topic: str = "T") -> bool:
        return self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == ResponseCode.SUCCESS


def wrapper(counter: int = 1, **topics: TopicConfig) -> TopicConfigWrapper:
    table = topics or {
        "broker-a": TopicConfig("broker-a", 1, 1, 7),
        "T": TopicConfig("T", 8, 8, 6),
    }
    return TopicConfigWrapper(table, DataVersion(counter, 0, 1_700_000_000_000))


def registration(counter: int = 1, **topics: TopicConfig) -> bytes:
    return RegisterBrokerBody(wrapper(counter, **topics)).encode()


def route(rig: Rig, topic: str = "T", **fields: str) -> Any:
    answer = rig.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, **fields})
    assert answer.code == ResponseCode.SUCCESS
    return json.loads(bytes(answer.body))


# --- registration -------------------------------------------------------------------------------------------------------


def test_two_masters_of_one_group_are_told_once_while_both_live(caplog: pytest.LogCaptureFixture) -> None:
    rig, first, second = Rig(), ListPeer(), ListPeer()
    rig.register(first)
    rig.register(second, brokerAddr="10.0.0.3:10911", brokerId="1")
    assert "masters" not in caplog.text, "a slave is none"
    for _ in range(3):
        rig.register(second, brokerAddr="10.0.0.2:10911")
        rig.register(first)
    assert caplog.text.count("two brokers are masters of broker-a: 10.0.0.1:10911 and 10.0.0.2:10911") == 1
    rig.ask(
        RequestCode.UNREGISTER_BROKER,
        {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911", "clusterName": "C", "brokerId": "0"},
        peer=first,
    )
    rig.register(second, brokerAddr="10.0.0.4:10911")
    assert caplog.text.count("two brokers are masters") == 1, "the first has left, and the other is a third one"


def test_a_leader_that_takes_the_place_of_a_silent_one_is_no_second_master(caplog: pytest.LogCaptureFixture) -> None:
    rig, first, second = Rig(), ListPeer(), ListPeer()
    rig.register(first)
    for _ in range(2):
        rig.register(second, brokerAddr="10.0.0.2:10911")
        rig.register(second, brokerAddr="10.0.0.2:10911")
        rig.clock.advance(MASTER_RETURNS_MS + 1)
        rig.register(first)
        rig.clock.advance(MASTER_RETURNS_MS + 1)
    assert "two brokers are masters" not in caplog.text


@pytest.mark.parametrize(
    ("fields", "filters"),
    [({"brokerName": "b" * 513}, 0), ({"haServerAddr": "h" * 513}, 0), ({"__ZONE_NAME": "z" * 513}, 0), ({}, 65)],
)
def test_names_that_would_fill_the_memory_are_refused(fields: dict[str, str], filters: int) -> None:
    rig = Rig()
    body = RegisterBrokerBody(wrapper(), [f"10.0.0.1:{number}" for number in range(filters)]).encode()
    assert rig.register(body=body, **fields).code == ResponseCode.SYSTEM_ERROR
    assert not rig.has_route()


def test_a_mapping_of_a_topic_that_is_not_carried_is_not_kept() -> None:
    rig = Rig()
    topics = wrapper()
    topics.topic_queue_mapping_info_map = {"elsewhere": TopicQueueMappingInfo("broker-a", "elsewhere")}
    rig.register(body=RegisterBrokerBody(topics).encode())
    assert rig.server.routes.mappings == {}


def test_a_broker_belongs_to_the_connection_it_registered_over_last() -> None:
    rig = Rig()
    first, second = ListPeer(), ListPeer()
    rig.register(first)
    rig.register(second)
    assert list(map(len, (first.attachments["nameserver.brokers"], second.attachments["nameserver.brokers"]))) == [0, 1]
    rig.server.peer_closed(first)
    assert rig.has_route()


def test_registered_topics_have_routes() -> None:
    rig = Rig()
    answer = rig.register()
    assert (answer.code, answer.fields, answer.has_fields, answer.body) == (0, {}, True, b"")
    assert route(rig) == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": "10.0.0.1:10911"},
                "brokerName": "broker-a",
                "cluster": "C",
                "enableActingMaster": False,
            }
        ],
        "filterServerTable": {},
        "queueDatas": [
            {"brokerName": "broker-a", "perm": 6, "readQueueNums": 8, "topicSysFlag": 0, "writeQueueNums": 8}
        ],
    }
    unknown = rig.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "U"})
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST
    assert "U" in (unknown.remark or "")
    assert rig.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC).code == ResponseCode.TOPIC_NOT_EXIST


def compressed(body: RegisterBrokerBody) -> bytes:
    """The form of brokers with `compressedRegister`, from 5.0 on."""
    wrapper = body.topic_config_serialize_wrapper
    topics = [
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} SINGLE_TAG".encode()
        for topic in wrapper.topic_config_table.values()
    ]
    mappings = [info.encode() for info in wrapper.topic_queue_mapping_info_map.values()]
    servers = json.dumps(body.filter_server_list).encode()

    def sized(*texts: bytes) -> bytes:
        return b"".join(len(text).to_bytes(4, "big") + text for text in texts)

    def number(count: int) -> bytes:
        return count.to_bytes(4, "big")

    return zlib.compress(
        sized(wrapper.data_version.encode())
        + number(len(topics)) + sized(*topics) + sized(servers)
        + number(len(mappings)) + sized(*mappings)
    )  # fmt: skip


def test_every_form_of_the_body() -> None:
    mapping = TopicQueueMappingInfo("broker-a", "T", "__global__", 8, 1, False, {0: 0})
    whole = RegisterBrokerBody(
        TopicConfigWrapper(wrapper().topic_config_table, DataVersion(1), topic_queue_mapping_info_map={"T": mapping}),
        ["f:1"],
    )
    for body in (whole.encode(), compressed(whole)):
        rig = Rig()
        assert rig.register(body=body).code == 0
        found = route(rig)
        assert found["filterServerTable"] == {"10.0.0.1:10911": ["f:1"]}
        assert found["topicQueueMappingByBroker"]["broker-a"]["currIdMap"] == {"0": 0}
    rig = Rig()
    assert rig.register(body=wrapper().encode()).code == 0
    assert rig.has_route()


def test_checksum_is_compared_when_there_is_one() -> None:
    rig = Rig()
    right = str(zlib.crc32(registration()) & 0x7FFF_FFFF)
    assert rig.register(bodyCrc32="5").code == ResponseCode.SYSTEM_ERROR
    assert not rig.has_route()
    assert rig.register(bodyCrc32=right).code == 0
    assert rig.register(bodyCrc32="0").code == 0


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({"brokerName": ""}, None),
        ({"clusterName": ""}, None),
        ({"brokerAddr": ""}, None),
        ({"brokerId": "-1"}, None),
        ({"brokerName": "n" * 600}, None),
        ({}, b"{"),
        ({}, b"\x78\x9cxxxx"),
        ({}, registration(T=TopicConfig("T", 1, 1, 6))),
    ],
)
def test_bad_registrations_are_refused_without_a_trace(fields: dict[str, str], body: bytes | None) -> None:
    rig = Rig()
    answer = rig.register(body=body, **fields)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
    assert answer.has_fields
    assert rig.server.routes.changes == 0
    assert rig.deadlines.next_ns is None


def test_slave_is_told_its_master() -> None:
    rig = Rig()
    rig.register()
    answer = rig.register(brokerId="1", brokerAddr="10.0.0.2:10911", haServerAddr="10.0.0.2:10912")
    assert answer.fields == {"masterAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:10912"}


def test_order_configurations_come_with_the_answer() -> None:
    rig = Rig()
    rig.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:8"})
    assert json.loads(bytes(rig.register().body)) == {"table": {"T": "broker-a:8"}}
    rig = Rig(return_order_topic_config_to_broker=False)
    rig.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:8"})
    assert rig.register().body == b""


def test_minimum_id_is_told_only_when_wanted() -> None:
    for wanted in (False, True):
        rig = Rig(notify_min_broker_id_changed=wanted)
        rig.register(brokerId="1", brokerAddr="10.0.0.2:10911", enableActingMaster="true")
        rig.register(enableActingMaster="true")
        rig.ask(
            RequestCode.UNREGISTER_BROKER,
            {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911", "clusterName": "C", "brokerId": "0"},
        )
        if not wanted:
            assert rig.notices == []
            continue
        (to_slave, first), (after, second) = rig.notices
        assert (to_slave, after) == ("10.0.0.2:10911", "10.0.0.2:10911")
        assert (first.code, first.is_oneway) == (905, True)
        assert first.fields == {
            "minBrokerId": "0",
            "minBrokerAddr": "10.0.0.1:10911",
            "haBrokerAddr": "10.0.0.1:10912",
        }
        assert second.fields == {
            "minBrokerId": "1",
            "minBrokerAddr": "10.0.0.2:10911",
            "offlineBrokerAddr": "10.0.0.1:10911",
        }


# --- life ---------------------------------------------------------------------------------------------------------------


def test_broker_expires_after_its_own_timeout_and_its_connection_is_closed() -> None:
    rig = Rig()
    rig.register(heartbeatTimeoutMillis="10000")
    rig.advance(10_000)
    assert rig.has_route()
    rig.advance(5_000)
    assert not rig.has_route()
    assert rig.peer.closed
    assert rig.deadlines.next_ns is None
    assert rig.server.routes.clusters == {}


def test_signs_of_life_keep_a_broker() -> None:
    rig = Rig()
    who = {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911", "clusterName": "C", "brokerId": "0"}
    same = DataVersion(1, 0, 1_700_000_000_000).encode()
    for sign in (
        lambda: rig.register(),
        lambda: rig.ask(RequestCode.BROKER_HEARTBEAT, who),
        lambda: rig.ask(RequestCode.QUERY_DATA_VERSION, who, same),
    ):
        rig.register()
        rig.advance(100_000)
        assert sign().code == 0
        rig.advance(100_000)
        assert rig.has_route()
    rig.advance(20_001)
    assert not rig.has_route()


def test_asking_with_another_version_is_no_sign_of_life() -> None:
    rig = Rig()
    rig.register()
    rig.advance(100_000)
    who = {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911", "clusterName": "C", "brokerId": "0"}
    answer = rig.ask(RequestCode.QUERY_DATA_VERSION, who, DataVersion(2).encode())
    assert answer.fields == {"changed": "true"}
    assert json.loads(bytes(answer.body)) == {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000}
    rig.advance(20_001)
    assert not rig.has_route()
    answer = rig.ask(RequestCode.QUERY_DATA_VERSION, who, DataVersion(1).encode())
    assert (answer.fields, answer.body) == ({"changed": "true"}, b"")


def test_stepped_wall_clock_expires_nobody() -> None:
    rig = Rig()
    rig.register()
    rig.clock.set_wall(rig.clock.now_ms() + 10**9)
    rig.advance(1)
    assert rig.has_route()


def test_an_idle_name_server_wakes_once_per_timeout_at_most() -> None:
    rig = Rig()
    assert rig.deadlines.next_ns is None
    rig.register()
    for _ in range(20):
        rig.advance(30_000)
        rig.register()
    assert rig.deadlines.wakeups[EXPIRY] <= 6


def test_closed_connection_takes_its_brokers_at_once_unless_they_came_again() -> None:
    rig = Rig()
    old, new = ListPeer(), ListPeer()
    rig.register(old)
    rig.register(old, brokerName="broker-b", brokerAddr="10.0.0.9:1")
    rig.register(new)
    rig.server.peer_closed(old)
    assert list(rig.server.routes.groups) == ["broker-a"]
    rig.server.peer_closed(ListPeer())
    rig.server.peer_closed(new)
    assert rig.server.routes.groups == {}


def test_unregistering() -> None:
    rig = Rig()
    rig.register()
    who = {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911", "clusterName": "C", "brokerId": "0"}
    assert rig.ask(RequestCode.UNREGISTER_BROKER, who).code == 0
    assert not rig.has_route()
    assert rig.ask(RequestCode.UNREGISTER_BROKER, who).code == 0
    rig.server.peer_closed(rig.peer)
    rig.register()
    assert rig.has_route()


# --- routes -------------------------------------------------------------------------------------------------------------


def test_waiting_for_service() -> None:
    rig = Rig(need_wait_for_service=True, wait_seconds_for_service=45)
    rig.register()
    rig.advance(44_999)
    assert rig.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).code == ResponseCode.SYSTEM_ERROR
    rig.advance(1)
    assert rig.has_route()


def test_order_configuration_of_a_route() -> None:
    put = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:8"}
    for enabled in (False, True):
        rig = Rig(order_message_enable=enabled)
        rig.register()
        assert "orderTopicConf" not in route(rig)
        rig.ask(RequestCode.PUT_KV_CONFIG, put)
        assert route(rig).get("orderTopicConf") == ("broker-a:8" if enabled else None)
        rig.ask(RequestCode.DELETE_KV_CONFIG, put)
        assert "orderTopicConf" not in route(rig)


def test_kept_answers_follow_every_change() -> None:
    rig = Rig()
    rig.register()
    first = rig.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).body
    assert rig.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).body is first
    rig.register(body=registration(2, T=TopicConfig("T", 3, 3, 6)))
    assert route(rig)["queueDatas"][0]["readQueueNums"] == 3
    rig.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    assert route(rig)["queueDatas"][0]["perm"] == 4
    rig.register(brokerId="1", brokerAddr="10.0.0.2:10911")
    assert len(route(rig)["brokerDatas"][0]["brokerAddrs"]) == 2
    rig.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"})
    assert not rig.has_route()


def test_zone_of_a_client() -> None:
    rig = Rig()
    rig.register(__ZONE_NAME="z1")
    rig.register(brokerName="broker-b", brokerAddr="10.0.0.9:1")
    assert len(route(rig)["brokerDatas"]) == 2
    zoned = route(rig, __ZONE_MODE="true", __ZONE_NAME="Z1")
    assert [group["brokerName"] for group in zoned["brokerDatas"]] == ["broker-a"]
    assert [queues["brokerName"] for queues in zoned["queueDatas"]] == ["broker-a"]
    assert len(route(rig, __ZONE_MODE="false", __ZONE_NAME="Z1")["brokerDatas"]) == 2


def test_acting_masters_when_supported() -> None:
    for supported in (False, True):
        rig = Rig(support_acting_master=supported)
        rig.register(brokerId="1", enableActingMaster="true")
        assert route(rig)["brokerDatas"][0]["brokerAddrs"] == {"0" if supported else "1": "10.0.0.1:10911"}


def test_write_permission() -> None:
    rig = Rig()
    rig.register()
    assert rig.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"}).fields == {"wipeTopicCount": "2"}
    assert rig.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"}).fields == {"addTopicCount": "2"}
    assert rig.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "none"}).fields == {"wipeTopicCount": "0"}


def test_single_topic_is_announced_for_known_brokers() -> None:
    rig = Rig()
    rig.register()
    queues = {"perm": 6, "readQueueNums": 1, "topicSynFlag": 0, "writeQueueNums": 2}
    body = {"brokerDatas": [], "queueDatas": [{"brokerName": name, **queues} for name in ("broker-a", "none")]}
    answer = rig.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "N"}, json.dumps(body).encode())
    assert answer.code == 0
    assert [queues["brokerName"] for queues in route(rig, "N")["queueDatas"]] == ["broker-a"]
    assert rig.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {}, b"{}").code == ResponseCode.SYSTEM_ERROR


def test_lists_of_topics() -> None:
    rig = Rig()
    rig.register(body=registration(T=TopicConfig("T"), U=TopicConfig("U", topic_sys_flag=3)))

    def listed(code: int, fields: dict[str, str] | None = None) -> list[str]:
        return json.loads(bytes(rig.ask(code, fields).body))["topicList"]  # type: ignore[no-any-return]

    assert listed(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == ["T", "U"]
    assert sorted(listed(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "C"})) == ["T", "U"]
    assert listed(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "D"}) == []
    assert listed(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS) == ["C", "broker-a"]
    assert listed(RequestCode.GET_UNIT_TOPIC_LIST) == ["U"]
    assert listed(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == ["U"]
    assert listed(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == []
    rig.ask(RequestCode.UPDATE_NAMESRV_CONFIG, None, b"enableAllTopicList=false\nenableTopicList=false\n")
    for code in (206, 224, 311, 312, 313):
        assert rig.ask(code, {"cluster": "C"}).code == ResponseCode.SYSTEM_ERROR


def test_cluster_and_members() -> None:
    rig = Rig()
    rig.register()
    cluster = json.loads(bytes(rig.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body))
    assert cluster["clusterAddrTable"] == {"C": ["broker-a"]}
    who = {"clusterName": "C", "brokerName": "broker-a"}
    members = json.loads(bytes(rig.ask(RequestCode.GET_BROKER_MEMBER_GROUP, who).body))
    assert members["brokerMemberGroup"]["brokerAddrs"] == {"0": "10.0.0.1:10911"}


# --- key-value table ------------------------------------------------------------------------------------------------------


def test_key_value_requests() -> None:
    rig = Rig()
    where = {"namespace": "N", "key": "k"}
    assert rig.ask(RequestCode.GET_KV_CONFIG, where).code == ResponseCode.QUERY_NOT_FOUND
    assert rig.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, where).code == ResponseCode.QUERY_NOT_FOUND
    assert rig.ask(RequestCode.PUT_KV_CONFIG, {**where, "value": "v=1"}).code == 0
    assert rig.ask(RequestCode.GET_KV_CONFIG, where).fields == {"value": "v=1"}
    assert json.loads(bytes(rig.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, where).body)) == {"table": {"k": "v=1"}}
    assert rig.ask(RequestCode.DELETE_KV_CONFIG, where).code == 0
    assert rig.ask(RequestCode.DELETE_KV_CONFIG, where).code == 0
    assert rig.ask(RequestCode.GET_KV_CONFIG, where).code == ResponseCode.QUERY_NOT_FOUND
    for missing in ("namespace", "key", "value"):
        fields = {name: text for name, text in {**where, "value": "v"}.items() if name != missing}
        assert rig.ask(RequestCode.PUT_KV_CONFIG, fields).code == ResponseCode.SYSTEM_ERROR


def test_changes_are_answered_when_durable_and_share_a_write() -> None:
    rig = Rig()
    for number in range(5):
        command = request(100, {"namespace": "N", "key": str(number), "value": "v"}, opaque=number)
        assert rig.server.handle(command, rig.peer) is None
    assert (rig.peer.sent, rig.kv_file.saves) == ([], 0)
    rig.server.end_turn()
    assert [answer.opaque for answer in rig.peer.sent] == list(range(5))
    assert rig.kv_file.saves == 1


def test_a_write_that_fails_is_no_success() -> None:
    rig = Rig()
    rig.kv_file.broken = True
    answer = rig.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "N", "key": "k", "value": "v"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "disk full" in (answer.remark or "")
    assert rig.ask(RequestCode.GET_KV_CONFIG, {"namespace": "N", "key": "k"}).code == ResponseCode.QUERY_NOT_FOUND


# --- configuration and the rest ---------------------------------------------------------------------------------------------


def test_configuration_requests() -> None:
    rig = Rig()
    assert rig.ask(RequestCode.UPDATE_NAMESRV_CONFIG, None, b"orderMessageEnable=true\n").code == 0
    assert rig.server.config.order_message_enable
    assert b"orderMessageEnable=true\n" in bytes(rig.ask(RequestCode.GET_NAMESRV_CONFIG).body)
    assert rig.saved == ["orderMessageEnable=true\n"]
    assert rig.ask(RequestCode.UPDATE_NAMESRV_CONFIG, None, b"orderMessageEnable=true\nenableTopicList=false").code == 0
    assert rig.saved[1:] == ["enableTopicList=false\norderMessageEnable=true\n"]
    assert rig.ask(RequestCode.UPDATE_NAMESRV_CONFIG, None, b"kvConfigPath=/x\n").code == ResponseCode.NO_PERMISSION
    assert rig.ask(RequestCode.UPDATE_NAMESRV_CONFIG, None, b"listenPort=x").code == ResponseCode.SYSTEM_ERROR
    odd = rig.ask(RequestCode.UPDATE_NAMESRV_CONFIG, None, b"serverWorkerThreads=3")
    assert odd.code == 0
    assert "serverWorkerThreads" in (odd.remark or "")


def test_configuration_that_cannot_be_kept_does_not_change() -> None:
    rig = Rig()

    class Full(list[str]):
        def append(self, text: str) -> None:
            raise OSError("read-only")

    rig.saved = Full()
    answer = rig.ask(RequestCode.UPDATE_NAMESRV_CONFIG, None, b"orderMessageEnable=true")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert not rig.server.config.order_message_enable


@pytest.mark.parametrize("code", [10, 11, 34, 902, 1005, 20_000, 99_999, -31_073])
def test_other_codes_are_not_supported(code: int) -> None:
    answer = Rig().ask(code)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert str(code) in (answer.remark or "")


def test_every_code_of_a_name_server_is_served() -> None:
    served = {100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224}
    assert served | {304, 311, 312, 313, 318, 319, 322, 327, 901, 904} == SERVED_CODES


@pytest.mark.parametrize("code", sorted(SERVED_CODES))
def test_empty_requests_get_an_answer_and_harm_nothing(code: int) -> None:
    rig = Rig()
    rig.register()
    assert rig.ask(code).code in {0, 1, 17, 22}
    assert rig.has_route()


# --- a gate -----------------------------------------------------------------------------------------------------------


def test_what_the_gate_does_not_let_through_changes_nothing() -> None:
    gate = Closed()
    rig = Rig(gate=gate)
    rig.register()
    named = {
        "brokerName": "broker-a",
        "clusterName": "C",
        "brokerAddr": "10.0.0.1:10911",
        "topic": "T",
        "namespace": "N",
    }
    for code in sorted(SERVED_CODES):
        answer = rig.ask(code, {**named, "key": "k", "value": "v"}, b"enableTopicList=false")
        assert (answer.code == ResponseCode.NO_PERMISSION) == (code in CHANGES), code
        assert answer.code != ResponseCode.NO_PERMISSION or answer.remark == "nobody may do that"
    assert set(gate.asked) == CHANGES
    assert not rig.server.routes.live
    assert not rig.server.routes.topics
    assert rig.server.config.enable_topic_list
    assert rig.saved == []
    assert rig.kv_file.content is None
    assert rig.peer.sent == []


def state(rig: Rig) -> str:
    routes = rig.server.routes
    deadlines = {key: (live.version, live.deadline_ns) for key, live in routes.live.items()}
    return repr((routes.topics, deadlines, rig.server.config, rig.saved, rig.kv_file.content))


def test_every_request_either_asks_the_gate_or_changes_nothing() -> None:
    """The control is that some of the codes that ask do change something."""
    changing = set()
    for code in sorted(SERVED_CODES):
        rig = Rig()
        rig.register()
        rig.clock.advance(ms=10)
        before = state(rig)
        fields = {"brokerName": "broker-a", "clusterName": "C", "brokerAddr": "10.0.0.1:10911", "topic": "A"}
        rig.ask(code, fields, wrapper().data_version.encode() if code == RequestCode.QUERY_DATA_VERSION else b"")
        if state(rig) != before:
            changing.add(code)
    assert changing <= CHANGES
    assert changing >= {RequestCode.UNREGISTER_BROKER, RequestCode.BROKER_HEARTBEAT, RequestCode.QUERY_DATA_VERSION}


def test_what_changes_a_name_server_is_a_line_of_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "orbitmq.audit")
    rig = Rig()
    entry = {"namespace": "N", "key": "k"}
    for value in ("1", "2"):
        rig.ask(RequestCode.PUT_KV_CONFIG, {**entry, "value": value})
    rig.ask(RequestCode.DELETE_KV_CONFIG, entry)
    rig.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"enableTopicList=false")
    rig.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"kvConfigPath=/elsewhere")
    rig.register()
    rig.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    Rig(gate=Closed()).ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "orders"})
    caller = "somebody unknown at 10.9.9.9:5"
    assert [record.getMessage() for record in caplog.records if record.name == "orbitmq.audit"] == [
        f"{caller}: PUT_KV_CONFIG namespace=N key=k value=1; value: none -> 1",
        f"{caller}: PUT_KV_CONFIG namespace=N key=k value=2; value: 1 -> 2",
        f"{caller}: DELETE_KV_CONFIG namespace=N key=k; value: 2 -> none",
        f"{caller}: UPDATE_NAMESRV_CONFIG keys=enableTopicList; enableTopicList: true -> false",
        f"{caller} is refused, NO_PERMISSION: UPDATE_NAMESRV_CONFIG keys=kvConfigPath",
        f"{caller}: WIPE_WRITE_PERM_OF_BROKER brokerName=broker-a",
        f"{caller} is refused, NO_PERMISSION: DELETE_TOPIC_IN_NAMESRV topic=orders",
    ]
