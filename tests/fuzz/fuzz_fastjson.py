"""Fuzzer of the JSON dialect and the bodies. Run: `python tests/fuzz/fuzz_fastjson.py --count 1000000 --seed 7`.

For every input: the parser and every body type read it or refuse it; a value is written and read again equal; reading as
text and as bytes agree.
"""

from __future__ import annotations

import base64
import json
import lzma
import math
import sys
from pathlib import Path
from typing import Any

from mutations import hex_corpus, peak_kib, run

from orbitmq.errors import ProtocolError
from orbitmq.protocol.remoting import bodies
from orbitmq.protocol.remoting.fastjson import dumps, loads
from orbitmq.protocol.remoting.frame import decode

TESTS = Path(__file__).resolve().parents[1]
MEMORY_KIB_MAX = 512 * 1024
TYPES = (
    bodies.HeartbeatData,
    bodies.RegisterBrokerBody,
    bodies.TopicRouteData,
    bodies.SubscriptionGroupWrapper,
    bodies.ConsumeStatsList,
    bodies.ConsumerRunningInfo,
    bodies.ConsumerOffsetTable,
    bodies.BatchAckBody,
)
TOKENS = [
    b'{"$ref":"$"}',
    b'{"$ref":"$.a"}',
    b'{"$ref":"$.consumerDataSet[0]"}',
    b'{"$ref":".."}',
    b'{{"brokerName":"b","queueId":0,"topic":"T"}:1}',
    b'"{\\"topic\\":\\"T\\"}":',
    b"0:",
    b"'\\''",
    b"\\ud800",
    b"9" * 500,
    b"1e999",
    b"[" * 200,
    b"{a:" * 120,
    b"null",
]


def corpus() -> list[bytes]:
    inputs = hex_corpus(TESTS / "fuzz" / "corpus" / "fastjson.hex")
    for path in sorted((TESTS / "vectors" / "remoting").glob("*.jsonl.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            vectors = [json.loads(line) for line in lines]
        frames = [base64.b64decode(vector["frame_b64"]) for vector in vectors if vector["body_kind"] == "json"]
        inputs += [body for body in (bytes(decode(frame).body) for frame in frames) if len(body) < 1500]
    return inputs


def parse(data: bytes) -> str:
    typed = sum(_reads(kind, data) for kind in TYPES)
    _reads_registration(data)
    try:
        value = loads(data, quoted_objects=len(data) % 2 == 0)
    except ProtocolError:
        return "bad only in a member that bodies ignore" if typed else "refused"
    if _finite(value):
        assert loads(dumps(value)) == value
    return f"read, as {'some' if typed else 'no'} body"


def _reads(kind: type[bodies.JsonBody], data: bytes) -> bool:
    try:
        body = kind.decode(data)
    except ProtocolError:
        return False
    if _finite(loads(body.encode())):
        assert kind.decode(body.encode()) == body
    return True


def _reads_registration(data: bytes) -> None:
    try:
        bodies.RegisterBrokerBody.decode_any(data, 479)
    except ProtocolError:
        return


def _finite(value: Any) -> bool:
    """False where a number became an infinity: those are written as null."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_finite, value.values())) and all(_finite(key) for key in value)
    return all(map(_finite, value)) if isinstance(value, list | tuple) else True


if __name__ == "__main__":
    status = run("fastjson", corpus(), parse, TOKENS, refusals=())
    used = peak_kib()
    print(f"fastjson: at most {used // 1024} MiB of memory")
    assert used < MEMORY_KIB_MAX, "the parser kept memory it should not need"
    sys.exit(status)
