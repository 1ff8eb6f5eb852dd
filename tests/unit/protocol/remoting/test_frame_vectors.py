"""Frames of real RocketMQ programs: every header decodes, every frame encodes again, every body is read."""

from __future__ import annotations

import base64
import json
import lzma
import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orbitmq.protocol.remoting import bodies, fastjson
from orbitmq.protocol.remoting.commands import COMMON_FIELDS, COMMON_RESPONSE_FIELDS, HEADERS, RequestCode, ResponseCode
from orbitmq.protocol.remoting.connection import Connection
from orbitmq.protocol.remoting.frame import Command, Serialize, decode, encode

FOLDER = Path(__file__).parents[3] / "vectors" / "remoting"
NAMES = sorted(path.name.removesuffix(".jsonl.xz") for path in FOLDER.glob("*.jsonl.xz"))
FRAMES = 1332

REQUEST_BODIES: dict[int, type[bodies.JsonBody]] = {
    18: bodies.TopicConfigList,
    34: bodies.HeartbeatData,
    41: bodies.LockBatchRequest,
    42: bodies.LockBatchRequest,
    46: bodies.CheckClientBody,
    103: bodies.RegisterBrokerBody,
    200: bodies.SubscriptionGroupConfig,
    217: bodies.TopicRouteData,
    220: bodies.ResetOffsetBody,
    225: bodies.SubscriptionGroupList,
    322: bodies.DataVersion,
    400: bodies.QueryAssignmentRequest,
    401: bodies.SetMessageRequestModeRequest,
    513: bodies.TopicQueueMappingDetail,
    200151: bodies.BatchAckBody,
}
ANSWER_BODIES: dict[int, type[bodies.JsonBody]] = {
    21: bodies.TopicConfigWrapper,
    28: bodies.KVTable,
    38: bodies.ConsumerIdList,
    41: bodies.LockBatchResponse,
    43: bodies.ConsumerOffsetTable,
    45: bodies.DelayOffsetTable,
    61: bodies.TimerMetrics,
    103: bodies.KVTable,
    105: bodies.TopicRouteData,
    106: bodies.ClusterInfo,
    201: bodies.SubscriptionGroupWrapper,
    202: bodies.TopicStatsTable,
    203: bodies.ConsumerConnection,
    204: bodies.ProducerConnection,
    206: bodies.TopicList,
    208: bodies.ConsumeStats,
    219: bodies.KVTable,
    221: bodies.ConsumerStatusBody,
    222: bodies.ResetOffsetBody,
    223: bodies.ConsumerStatusBody,
    224: bodies.TopicList,
    300: bodies.GroupList,
    303: bodies.ConsumeTimeSpans,
    304: bodies.TopicList,
    305: bodies.TopicList,
    307: bodies.ConsumerRunningInfo,
    308: bodies.CorrectionOffsets,
    309: bodies.ConsumeMessageDirectlyResult,
    311: bodies.TopicList,
    312: bodies.TopicList,
    313: bodies.TopicList,
    315: bodies.BrokerStatsData,
    317: bodies.ConsumeStatsList,
    321: bodies.ConsumeQueueBody,
    322: bodies.DataVersion,
    328: bodies.ProducerTableInfo,
    343: bodies.TopicList,
    345: bodies.QuerySubscriptionBody,
    351: bodies.TopicConfigAndMapping,
    352: bodies.SubscriptionGroupConfig,
    353: bodies.GroupForbidden,
    400: bodies.QueryAssignmentResponse,
    402: bodies.MessageRequestModes,
    901: bodies.BrokerMemberGroupBody,
    907: bodies.HaRuntimeInfo,
}
UNTYPED = {1001, 1002, 1003, 1004, 1006, 1007, 1008, 2003, 3001, 3002, 3006, 3007, 354}
"""Codes of controller, users and cold data: their bodies are parsed here, but have no type yet."""

NUMBERLESS = {3442, 3444, 3446, 3447, 3448, -31073}
"""Codes above 32767 that a binary header has cut."""
UNKNOWN = {29999, 99999}


@cache
def load(name: str) -> list[tuple[dict[str, Any], bytes]]:
    with lzma.open(FOLDER / f"{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
        vectors = [json.loads(line) for line in lines]
    return [(vector, base64.b64decode(vector["frame_b64"])) for vector in vectors]


def text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def json_header(frame: bytes) -> Any:
    size = int.from_bytes(frame[5:8], "big")
    return json.loads(frame[8 : 8 + size])


def test_all_frames_are_there() -> None:
    assert sum(len(load(name)) for name in NAMES) == FRAMES


@pytest.mark.parametrize("name", NAMES)
def test_headers_decode(name: str) -> None:
    for vector, frame in load(name):
        header = vector["header"]
        command = decode(frame)
        fields = header.get("extFields")
        assert command.code == header["code"]
        assert command.opaque == header["opaque"]
        assert command.flag == header["flag"]
        assert command.is_response == (vector["direction"] == "response")
        assert command.version == header["version"]
        assert command.language is not None
        assert command.language.value == header["language"]
        assert command.remark == header.get("remark")
        assert command.has_fields == (fields is not None)
        expected = {key: text(value) for key, value in (fields or {}).items()}
        assert list(command.fields.items()) == list(expected.items())
        assert command.serialize is (Serialize.BINARY if vector["serialize"] == "binary" else Serialize.JSON)
        assert len(command.body) == vector["body_len"]
        assert type(command.body) is bytes


@pytest.mark.parametrize("name", NAMES)
def test_frames_encode_equal(name: str) -> None:
    for vector, frame in load(name):
        command = decode(frame)
        again = encode(command)
        if vector["serialize"] == "binary":
            assert again == frame
        else:
            header = dict(vector["header"], serializeTypeCurrentRPC="JSON")
            if "extFields" in header:
                header["extFields"] = {key: text(value) for key, value in header["extFields"].items()}
            assert json_header(again) == header
            assert again.endswith(bytes(command.body))
        assert decode(again) == command


@pytest.mark.parametrize("seed", range(6))
def test_any_chunking_gives_the_same_commands(seed: int) -> None:
    rnd = random.Random(seed)
    frames = [frame for name in NAMES for _, frame in load(name)]
    rnd.shuffle(frames)
    stream = b"".join(frames)
    connection = Connection()
    commands: list[Command] = []
    at = 0
    while at < len(stream):
        size = rnd.choice((1, 2, 5, 9, 60, 900, 20_000, 300_000))
        data = stream[at : at + size]
        commands += connection.receive_data(memoryview(data) if rnd.random() < 0.3 else data)
        at += size
    assert connection.pending_bytes == 0
    assert commands == [decode(frame) for frame in frames]


@pytest.mark.parametrize("name", NAMES)
def test_every_code_and_field_is_known(name: str) -> None:
    for vector, _ in load(name):
        request = vector["direction"] == "request"
        code = vector["code"] if request else vector["request_code"]
        if code is None or code in NUMBERLESS | UNKNOWN:
            continue
        spec = HEADERS[RequestCode(code)]
        if request:
            assert RequestCode(code).name == vector["name"]
            known = {field.name for field in spec.request} | COMMON_FIELDS
        else:
            assert ResponseCode(vector["code"]).name
            known = {field.name for field in spec.response} | COMMON_RESPONSE_FIELDS
        assert set(vector["header"].get("extFields") or ()) <= known, (code, vector["direction"])


@pytest.mark.parametrize("name", NAMES)
def test_mandatory_response_fields_are_those_java_sends(name: str) -> None:
    for vector, _ in load(name):
        if (
            vector["direction"] == "response"
            and vector["code"] == ResponseCode.SUCCESS
            and vector["request_code"] in HEADERS
        ):
            code = RequestCode(vector["request_code"])
            mandatory = {field.name for field in HEADERS[code].response if field.mandatory}
            missing = mandatory - set(vector["header"].get("extFields") or ())
            assert not missing, (code, missing)


def contains(whole: Any, part: Any) -> bool:
    """True when every member of `part` stands in `whole`, which may have more; numbers as text count as numbers."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and contains(whole[key], item) for key, item in part.items()
        )
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return bool(whole == part or str(whole) == part)


def test_bodies_are_read_and_written_equal() -> None:
    counts: Counter[str] = Counter()
    for name in NAMES:
        for vector, frame in load(name):
            if vector["body_kind"] != "json":
                continue
            request = vector["direction"] == "request"
            code = vector["code"] if request else vector["request_code"]
            body = bytes(decode(frame).body)
            value = fastjson.loads(body)
            assert fastjson.loads(fastjson.dumps(value)) == value
            kind = (REQUEST_BODIES if request else ANSWER_BODIES).get(code)
            if kind is None:
                assert code in UNTYPED, code
                counts["untyped"] += 1
                continue
            again = fastjson.loads(kind.decode(body).encode())
            if again == value:
                counts["equal"] += 1
            elif "cpp" in name:
                counts["with defaults"] += 1  # enums by ordinal: looked at in the tests of the heartbeat
            else:
                # Older clients and other libraries leave out members that get their defaults here.
                assert contains(again, value), (name, code)
                counts["with defaults"] += 1
    assert counts["equal"] > 200
    assert counts["untyped"] < 45
    assert counts["with defaults"] < 40


def test_route_bodies_come_in_both_forms() -> None:
    """Bare and quoted numeric keys give the same value."""
    forms = Counter[bool]()
    for name in NAMES:
        for vector, frame in load(name):
            if vector.get("request_code") == RequestCode.GET_ROUTEINFO_BY_TOPIC and vector["body_kind"] == "json":
                body = bytes(decode(frame).body)
                try:
                    msgspec.json.decode(body)
                    forms[True] += 1
                except msgspec.DecodeError:
                    forms[False] += 1
                route = bodies.TopicRouteData.decode(body)
                assert all(set(broker.broker_addrs) == {0} for broker in route.broker_datas)
    assert forms[True]
    assert forms[False]
