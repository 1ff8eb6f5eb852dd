"""Captured exchanges between Java clients, Java brokers and the Java name server, replayed against ours.

Each request gets a name server that knows what the captured registrations and key-value changes say; code, ext fields
and shape of the body of its answer must be those that the Java name server gave.

How many exchanges of each code agreed is kept in `orbitmq/cli/coverage.json`; ORBITMQ_WRITE_COVERAGE=1 renews it.
"""

from __future__ import annotations

import base64
import json
import lzma
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orbitmq.clock import ManualClock
from orbitmq.deadlines import Deadlines
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.routes import TopicQueues
from orbitmq.nameserver.server import SERVED_CODES, NameServer
from orbitmq.protocol.remoting import fastjson
from orbitmq.protocol.remoting.bodies import RegisterBrokerBody, TopicConfig
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, decode, request

VECTORS = Path(__file__).parents[2] / "vectors" / "remoting"


class Recorder:
    """A peer that collects answers; enough of one for a name server."""

    def __init__(self) -> None:
        self.sent: list[Command] = []
        self.attachments: dict[str, object] = {}
        self.address = ("127.0.0.1", 1)

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def close(self, reason: str) -> None:
        raise AssertionError(reason)


class Exchange(NamedTuple):
    name: str
    request: Command
    answer: Command


@cache
def frames() -> list[tuple[str, dict[str, Any], Command]]:
    found = []
    for path in sorted(VECTORS.glob("*.jsonl.xz")):
        for line in lzma.decompress(path.read_bytes()).splitlines():
            entry = json.loads(line)
            if "namesrv" in entry["to"] or "namesrv" in entry["from"]:
                binary = ".binary" if ".binary" in path.name else ""
                found.append((binary, entry, decode(base64.b64decode(entry["frame_b64"]))))
    return found


def exchanges() -> Iterator[Exchange]:
    requests = {}
    for binary, entry, command in frames():
        if "namesrv" in entry["to"] and entry.get("exchange") is not None:
            requests[entry["exchange"]] = (entry, binary, command)
    for _, entry, command in frames():
        asked = requests.get(entry.get("exchange"))  # numbers are unique; the answer to a binary header may be JSON
        if entry["direction"] == "response" and asked is not None:
            origin = asked[0]["from"].replace(" ", "-") + asked[1]
            yield Exchange(f"{entry['request_code']}-{origin}-{entry['exchange']}", asked[2], command)


EXCHANGES = list(exchanges())


def captured(code: int) -> list[Command]:
    return [command for _, entry, command in frames() if "namesrv" in entry["to"] and command.code == code]


def whole_table(command: Command) -> bytes:
    """The body of a captured registration of single topics, as the whole table that came before it."""
    body = RegisterBrokerBody.decode_any(command.body, command.version)
    topics = body.topic_config_serialize_wrapper.topic_config_table
    topics.update({name: TopicConfig(name, 1, 1, 7) for name in ("broker-a", "DefaultCluster")})
    return body.encode()


def prepared() -> tuple[NameServer, Recorder]:
    """A name server that knows the captured master and slave with their topics, and all key-value changes."""
    server = NameServer(
        NameServerConfig(support_acting_master=True),
        ManualClock(),
        Deadlines(),
    )
    peer = Recorder()
    registrations = [command for command in captured(RequestCode.REGISTER_BROKER) if command.text("bodyCrc32") != "5"]
    for command in sorted(registrations, key=lambda command: command.integer("brokerId")):
        fields = {**command.fields, "bodyCrc32": "0"}
        answer = server.handle(request(command.code, fields, whole_table(command)), peer)  # type: ignore[arg-type]
        assert answer is not None
        assert answer.code == ResponseCode.SUCCESS
    for command in captured(RequestCode.PUT_KV_CONFIG):
        server.handle(command, peer)  # type: ignore[arg-type]
    server.end_turn()
    assert all(answer.code == ResponseCode.SUCCESS for answer in peer.sent)
    peer.sent.clear()
    return server, peer


def agree_on_state(server: NameServer, exchange: Exchange) -> None:
    """Bring the name server to the state that the answer shows and no captured request made."""
    if exchange.request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
        topic = exchange.request.text("topic")
        server.routes.delete_topic(topic)
        if exchange.answer.code == ResponseCode.SUCCESS:
            shown = fastjson.loads(exchange.answer.body)
            (queues,) = shown["queueDatas"]
            (group,) = shown["brokerDatas"]
            ours = server.routes.groups[group["brokerName"]]
            ours.acting_master = group["enableActingMaster"]
            ours.addresses = {int(number): address for number, address in group["brokerAddrs"].items()}
            values = TopicQueues(
                queues["readQueueNums"], queues["writeQueueNums"], queues["perm"], queues["topicSysFlag"]
            )
            server.routes.merge_topic(topic, {queues["brokerName"]: values})
    elif exchange.request.code == RequestCode.REGISTER_BROKER and exchange.answer.fields:
        (master,) = (live for live in server.routes.live.values() if live.broker_id == 0)
        master.ha_address = exchange.answer.text("haServerAddr")
    elif exchange.request.code == RequestCode.GET_KVLIST_BY_NAMESPACE and exchange.answer.code == 0:
        for key, value in fastjson.loads(exchange.answer.body)["table"].items():
            server.kv.put(exchange.request.text("namespace"), key, value)


def shape(value: Any) -> Any:
    """The value with texts and numbers replaced by their kinds, lists by their first member."""
    if isinstance(value, dict):
        if value and all(str(key).isdigit() for key in value):
            return {"<id>": shape(next(iter(value.values())))}
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


NAMED_BY_STATE = {
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_TOPICS_BY_CLUSTER,
    RequestCode.GET_BROKER_MEMBER_GROUP,
}
"""Answers whose content is the whole table: only their shape is determined."""


@pytest.mark.parametrize("exchange", EXCHANGES, ids=[exchange.name for exchange in EXCHANGES])
def test_answers_are_those_of_the_java_name_server(exchange: Exchange) -> None:
    server, peer = prepared()
    agree_on_state(server, exchange)
    answer = server.handle(exchange.request, peer)  # type: ignore[arg-type]
    if answer is None:
        server.end_turn()
        (answer,) = peer.sent
    expected = exchange.answer
    assert (answer.code, answer.opaque) == (expected.code, exchange.request.opaque), answer.remark
    assert set(answer.fields) == set(expected.fields)
    if exchange.request.code == RequestCode.GET_KV_CONFIG:
        assert answer.fields == expected.fields
    if exchange.request.code == RequestCode.REGISTER_BROKER and expected.fields:
        assert answer.fields == expected.fields
    if exchange.request.code == RequestCode.GET_NAMESRV_CONFIG:
        keys = {line.split("=")[0] for line in bytes(answer.body).decode().splitlines()} - {"orbitmqChanged"}
        assert keys <= {line.split("=")[0] for line in bytes(expected.body).decode().splitlines()}
        return
    if exchange.request.code == RequestCode.REGISTER_BROKER:
        return  # the body is the order table of that moment, absent or not
    assert bool(answer.body) == bool(expected.body)
    if not expected.body:
        return
    ours, theirs = fastjson.loads(answer.body), fastjson.loads(expected.body)
    if exchange.request.code in NAMED_BY_STATE:
        assert shape(ours).keys() == shape(theirs).keys()
    elif exchange.request.code == RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS:
        assert set(ours["topicList"]) >= set(theirs["topicList"])
    elif exchange.request.code == RequestCode.QUERY_DATA_VERSION:
        assert shape(ours) == shape(theirs)
    else:
        assert fastjson.loads(json.dumps(ours)) == fastjson.loads(json.dumps(theirs))


def test_the_vectors_cover_the_name_server() -> None:
    replayed = {exchange.request.code for exchange in EXCHANGES}
    assert SERVED_CODES - replayed == {RequestCode.BROKER_HEARTBEAT}  # which is not answered
    assert len(EXCHANGES) >= 40


def test_coverage_file_is_up_to_date(check_coverage: Callable[[Collection[int], Counter[int]], None]) -> None:
    """Agreed exchanges per code, as counted by the test above (which fails where one does not agree)."""
    codes = (exchange.request.code for exchange in EXCHANGES)
    check_coverage(SERVED_CODES, Counter(code for code in codes if code in SERVED_CODES))


def test_oneway_requests_of_java_brokers_are_taken() -> None:
    server, peer = prepared()
    heartbeats = captured(RequestCode.BROKER_HEARTBEAT) + captured(RequestCode.QUERY_DATA_VERSION)
    oneway = [command for command in heartbeats if command.is_oneway]
    assert oneway
    for command in oneway:
        answer = server.handle(command, peer)  # type: ignore[arg-type]
        assert answer is not None  # dropped by the listener
        assert answer.code == ResponseCode.SUCCESS
