"""Fuzzer of what gRPC clients send. Run: `python tests/fuzz/fuzz_grpc_messages.py --count 1000000 --seed 7`.

An input is a send, or the texts of one between zeros; it is tried as the data of a stream, as a receipt handle, a signature and settings
as well. What is not taken is refused as a call or as an RPC; what is taken is stored under names that a client may choose, and comes out
with the id that it went in with.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path

from mutations import run

from orbitmq.protocol.grpc.call_error import CallError
from orbitmq.protocol.grpc.decoding import read_message, read_send
from orbitmq.protocol.grpc.delivered_messages import delivered_message
from orbitmq.protocol.grpc.merged_settings import ClientRules, consumer_settings, producer_settings
from orbitmq.protocol.grpc.message_prefix import MessageCutter, with_prefix
from orbitmq.protocol.grpc.messages import Message, Resource, SendMessageRequest, Settings, SystemProperties
from orbitmq.protocol.grpc.messages import MessageType as GrpcType
from orbitmq.protocol.grpc.receipt_handles import read_handle
from orbitmq.protocol.grpc.sent_messages import SendLimits, SentMessage, sent_messages
from orbitmq.protocol.grpc.signature import read_authorization
from orbitmq.protocol.grpc.status import RpcError
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.properties import REFUSED_TO_USERS, exact_properties
from orbitmq.protocol.records import MagicCode, Record

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "grpc" / "messages.jsonl"
NOW_MS = 1_795_500_000_000
HOST = pack_host("10.0.0.1", 10911)
MADE_OF_FIELDS = {
    "TAGS", "KEYS", "UNIQ_KEY", "RECONSUME_TIME", "PGROUP", "__BORNHOST", "BORN_TIMESTAMP", "TRAN_MSG", "TIMER_DELIVER_MS",
    "_SYS_MSG_PRIORITY_", "__LITE_TOPIC",
}  # fmt: skip
"""Reserved names that fields of a message become."""
TOKENS = [
    b"\x01",
    b"\x02",
    b"\x02TRAN_MSG\x01true",
    b"TAGS",
    b"\xc2\x85",
    b"\xff",
    b" 1795500000001 10 ",
    b"MQv2-HMAC-SHA1 Credential=a,Signature=0a",
]


def corpus() -> list[bytes]:
    system = SystemProperties(
        tag="t", keys=["k"], message_id="01AB", message_group="g", trace_context="00-1", priority=1
    )
    message = Message(topic=Resource(name="T"), user_properties={"a": "b"}, system_properties=system, body=b"body")
    sends = [message, Message(topic=Resource(name="T"), system_properties=SystemProperties(message_id="i"), body=b"b")]
    inputs = [SendMessageRequest(messages=[each]).SerializeToString() for each in sends]
    inputs += [b"01AB\0tag\0group\000-1\0host\0lite\0name\0value", b"01AB\0\0\0\0\0\0a\0b", b"\0".join([b"id"] * 8)] * 9
    inputs += [b"39 1795500000000 60000 5 1 broker-a 2 40 129768", TOKENS[-1], with_prefix(inputs[0])]
    with VECTORS.open(encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            _, _, _, kind, *_ = line.get("field", "....").split(".")
            data = bytes.fromhex(line.get("hex", ""))
            if kind == "SystemProperties":
                one = Message.FromString(message.SerializeToString())
                one.system_properties.MergeFrom(SystemProperties.FromString(data))
                inputs.append(SendMessageRequest(messages=[one]).SerializeToString())
            elif kind in ("Settings", "Subscription", "Message"):
                inputs.append(data)
    return inputs


def parse(data: bytes) -> str:
    _others(data)
    try:
        return _sent(read_send(data))
    except CallError:
        return f"{_sent(_made_of_texts(data))} as texts"


def _made_of_texts(data: bytes) -> SendMessageRequest:
    """A send whose texts stand in the data between zeros."""
    texts = [*data.decode("utf-8", "replace").split("\0"), *[""] * 8]
    names = ("message_id", "tag", "message_group", "trace_context", "born_host", "lite_topic")
    system = SystemProperties(**dict(zip(names, texts, strict=False)))
    user = {texts[6]: texts[7]}
    return SendMessageRequest(
        messages=[Message(topic=Resource(name="T"), user_properties=user, system_properties=system, body=b"b")]
    )


def _sent(request: SendMessageRequest) -> str:
    try:
        stored = sent_messages(request, "10.0.0.7", NOW_MS, SendLimits())
    except RpcError as error:
        return _refused(error)
    for message, one in zip(request.messages, stored, strict=True):
        _judge(message, one)
    return "stored"


def _refused(error: RpcError) -> str:
    assert 40_000 <= error.code < 50_000
    return "refused"


def _judge(message: Message, stored: SentMessage) -> None:
    values = exact_properties(stored.properties)
    assert values is not None
    assert not (values.keys() & REFUSED_TO_USERS) - MADE_OF_FIELDS
    assert values.keys() <= MADE_OF_FIELDS | {
        *message.user_properties,
        "__SHARDINGKEY",
        "TRACE_CONTEXT",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
    }
    assert ("TRAN_MSG" in values) == (message.system_properties.message_type == GrpcType.TRANSACTION)
    record = Record(
        MagicCode.V1, 0, 0, 0, 0, 0, stored.sys_flag, stored.born_ms, HOST, NOW_MS, HOST, 0, 0, stored.body, "T",
        stored.properties.encode(),
    )  # fmt: skip
    out = delivered_message(record, "T")
    assert out.system_properties.message_id == message.system_properties.message_id
    assert Message.FromString(out.SerializeToString()) == out


def _others(data: bytes) -> None:
    """The same bytes as what else clients write."""
    cutter = MessageCutter(1 << 32, is_single=False)
    with suppress(CallError):
        whole = cutter.feed(data[:7]) + cutter.feed(data[7:])
        assert data.startswith(b"".join(map(with_prefix, whole)))
    with suppress(RpcError):
        assert read_handle(data.decode("utf-8", "replace"), NOW_MS).encode()
    signature = read_authorization(data)
    assert signature is None or signature.access_key
    with suppress(CallError):
        settings = read_message(Settings, data[5:])
        assert consumer_settings(settings, None).backoff_policy.WhichOneof("strategy") or settings.HasField(
            "backoff_policy"
        )
        assert producer_settings(settings, ClientRules(body_bytes_max=1)).publishing.max_body_size == 1


if __name__ == "__main__":
    sys.exit(run("messages of gRPC", corpus(), parse, TOKENS, refusals=()))
