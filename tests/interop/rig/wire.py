"""A small blocking client of the RocketMQ remoting protocol, written for the tests alone.

Rules of this file
1. Standard library only, nothing from `orbitmq`: this is the second opinion.
2. One request at a time on a connection; JSON headers as the Java client writes them.
3. Every answer but SUCCESS raises `Refused`, unless the caller asks for the plain answer.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import struct
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple

SEND_V2, SEND_BATCH, PULL, CREATE_TOPIC = 310, 320, 11, 17
QUERY_MESSAGE, VIEW_MESSAGE = 12, 33
QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET = 14, 15
MAX_OFFSET, MIN_OFFSET = 30, 31
CONSUMERS_OF_GROUP, CREATE_GROUP = 38, 200
ROUTE, CLUSTER, RUNTIME_INFO, KV_LIST = 105, 106, 28, 219

SUCCESS, SYSTEM_ERROR, TOPIC_NOT_EXIST, QUERY_NOT_FOUND = 0, 1, 17, 22
PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED = 19, 20, 21

VERSION: Final = 479
"""Protocol ordinal of 5.3.3."""
BORN_V6, STORED_V6, COMPRESSED = 0x10, 0x20, 0x1
MAGIC_V2: Final = 0xDAA320AB


ROUTE_LIMIT_S: Final = 120


class Refused(Exception):
    """The server answered with another code than SUCCESS."""

    def __init__(self, request: int, code: int, remark: str | None) -> None:
        super().__init__(f"request {request} was answered {code}: {remark}")
        self.code = code


class Stored(NamedTuple):
    """One message record as the broker serves it."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    born_at: int
    store_at: int
    flag: int
    sys_flag: int
    reconsume_times: int
    body: bytes
    crc_ok: bool
    properties: dict[str, str]


class Sent(NamedTuple):
    """What a SEND_OK says."""

    msg_id: str
    queue_id: int
    queue_offset: int


def frame(code: int, fields: Mapping[str, str], opaque: int, body: bytes = b"", flag: int = 0) -> bytes:
    """A whole request frame."""
    header = json.dumps(
        {
            "code": code,
            "extFields": dict(fields),
            "flag": flag,
            "language": "JAVA",
            "opaque": opaque,
            "serializeTypeCurrentRPC": "JSON",
            "version": VERSION,
        },
        separators=(",", ":"),
    ).encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def signed(fields: Mapping[str, str], body: bytes, access_key: str, secret: str) -> dict[str, str]:
    """The fields with a signature over them and the body, as RocketMQ's clients make it."""
    known = {**fields, "AccessKey": access_key}
    content = "".join(value for _, value in sorted(known.items())).encode() + body
    known["Signature"] = base64.b64encode(hmac.new(secret.encode(), content, hashlib.sha1).digest()).decode()
    return known


def parse_header(raw: bytes, kind: int) -> dict[str, Any]:
    """Header bytes -> dict; kind 0 = JSON, 1 = RocketMQ's binary form."""
    if kind == 0:
        head: dict[str, Any] = json.loads(raw)
        return head
    code, _language, version, opaque, flag = struct.unpack_from(">hbhii", raw)
    at, fields = 13, {}
    (size,) = struct.unpack_from(">i", raw, at)
    remark, at = raw[at + 4 : at + 4 + size].decode(), at + 4 + size
    (size,) = struct.unpack_from(">i", raw, at)
    at, end = at + 4, at + 4 + size
    while at < end:
        (size,) = struct.unpack_from(">h", raw, at)
        key, at = raw[at + 2 : at + 2 + size].decode(), at + 2 + size
        (size,) = struct.unpack_from(">i", raw, at)
        fields[key], at = raw[at + 4 : at + 4 + size].decode(), at + 4 + size
    return {"code": code, "opaque": opaque, "flag": flag, "remark": remark, "extFields": fields, "version": version}


class Wire:
    """One connection to a broker or a name server."""

    def __init__(
        self,
        port: int,
        host: str = "127.0.0.1",
        timeout_s: float = 10,
        nameserver_port: int | None = None,
        source: str = "",
    ) -> None:
        """nameserver_port: of the broker's name server, when clients are to find the topics that are created here. source: the address
        that the connection comes from."""
        self._sock = socket.create_connection((host, port), timeout_s, (source, 0) if source else None)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._opaque = 0
        self._nameserver_port = nameserver_port

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._sock.close()

    def ask(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """(header, body) of the answer, whatever its code. Requests from the server meanwhile are passed over."""
        self._opaque += 1
        self._sock.sendall(frame(code, fields, self._opaque, body))
        while True:
            head, body = self._next()
            if head.get("flag", 0) & 1 and head["opaque"] == self._opaque:
                return head, body

    def ask_many(self, frames: Sequence[bytes]) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Send frames with opaque numbers of their own in one go; (header, body) of as many answers, in order of arrival."""
        self._sock.sendall(b"".join(frames))
        left = len(frames)
        while left:
            head, body = self._next()
            if head.get("flag", 0) & 1:
                left -= 1
                yield head, body

    def tell(self, code: int, fields: Mapping[str, str]) -> None:
        """Send a request and wait for nothing: an answer is passed over by what is asked later."""
        self._opaque += 1
        self._sock.sendall(frame(code, fields, self._opaque))

    def next_request(self) -> tuple[dict[str, Any], bytes]:
        """(header, body) of the next request of the server. Answers meanwhile are passed over."""
        while True:
            head, body = self._next()
            if not head.get("flag", 0) & 1:
                return head, body

    def call(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> tuple[dict[str, str], bytes]:
        """(ext fields, body) of a SUCCESS. Raises `Refused`."""
        head, rest = self.ask(code, fields, body)
        if head["code"] != SUCCESS:
            raise Refused(code, head["code"], head.get("remark"))
        return {key: str(value) for key, value in (head.get("extFields") or {}).items()}, rest

    # -- topics and groups

    def create_topic(self, topic: str, queues: int, perm: int = 6) -> None:
        """A broker tells its name server after its answer; a client of RocketMQ's that asks before looks again after 30 s."""
        self.call(CREATE_TOPIC, topic_fields(topic, queues, perm))
        if self._nameserver_port is not None:
            with Wire(self._nameserver_port) as names:
                ends = time.monotonic() + ROUTE_LIMIT_S
                while names.ask(ROUTE, {"topic": topic})[0]["code"] != SUCCESS:
                    assert time.monotonic() < ends, f"the name server knows no {topic} after {ROUTE_LIMIT_S} s"
                    time.sleep(0.002)

    def create_group(self, group: str, retry_max_times: int) -> None:
        body = {
            "groupName": group,
            "consumeEnable": True,
            "consumeFromMinEnable": True,
            "consumeBroadcastEnable": True,
            "retryQueueNums": 1,
            "retryMaxTimes": retry_max_times,
            "brokerId": 0,
            "whichBrokerWhenConsumeSlowly": 1,
            "notifyConsumerIdsChangedEnable": True,
        }
        self.call(CREATE_GROUP, {}, json.dumps(body).encode())

    def members(self, group: str) -> list[str]:
        """Client ids of a consumer group; empty when nobody is there."""
        head, body = self.ask(CONSUMERS_OF_GROUP, {"consumerGroup": group})
        return list(json.loads(body)["consumerIdList"]) if head["code"] == SUCCESS else []

    # -- sending

    def send(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: Mapping[str, str] | None = None,
        *,
        born_at: int = 0,
        flag: int = 0,
        sys_flag: int = 0,
    ) -> Sent:
        """One message, answered after it is stored."""
        fields = send_fields(
            topic, queue_id, born_at, encode_properties(properties or {}), flag=flag, sys_flag=sys_flag
        )
        return _sent(self.call(SEND_V2, fields, body)[0])

    def send_batch(
        self, topic: str, queue_id: int, messages: Sequence[tuple[bytes, Mapping[str, str]]], *, born_at: int = 0
    ) -> Sent:
        """Several messages in one request; ids come as a comma list, the offset is the first one's."""
        parts = []
        for body, properties in messages:
            text = encode_properties(properties).encode()
            parts.append(
                struct.pack(">iiiii", 22 + len(body) + len(text), 0, 0, 0, len(body))
                + body
                + struct.pack(">h", len(text))
                + text
            )
        fields = send_fields(topic, queue_id, born_at, encode_properties({"WAIT": "true"}), batch=True)
        return _sent(self.call(SEND_BATCH, fields, b"".join(parts))[0])

    # -- reading

    def min_offset(self, topic: str, queue_id: int) -> int:
        return int(self.call(MIN_OFFSET, {"topic": topic, "queueId": str(queue_id)})[0]["offset"])

    def max_offset(self, topic: str, queue_id: int) -> int:
        return int(self.call(MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})[0]["offset"])

    def read_queue(self, topic: str, queue_id: int, group: str = "InteropWire") -> list[Stored]:
        """Every record of a queue from its minimum to its maximum offset."""
        found: list[Stored] = []
        at, end = self.min_offset(topic, queue_id), self.max_offset(topic, queue_id)
        while at < end:
            head, body = self.ask(PULL, pull_fields(topic, queue_id, at, group, suspend_ms=0))
            if head["code"] not in (SUCCESS, PULL_RETRY_IMMEDIATELY):
                raise Refused(PULL, head["code"], head.get("remark"))
            following = int(head["extFields"]["nextBeginOffset"])
            if following <= at:
                raise AssertionError(f"no progress in {topic}/{queue_id} at {at}: {head}")
            found += records(body)
            at = following
        return found

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """Committed offset of a group, None when the broker knows none."""
        head, _ = self.ask(QUERY_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)})
        if head["code"] == QUERY_NOT_FOUND:
            return None
        if head["code"] != SUCCESS:
            raise Refused(QUERY_CONSUMER_OFFSET, head["code"], head.get("remark"))
        return int(head["extFields"]["offset"])

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.call(
            UPDATE_CONSUMER_OFFSET,
            {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": str(offset)},
        )

    def _next(self) -> tuple[dict[str, Any], bytes]:
        """(header, body) of the next frame."""
        total, mark = struct.unpack(">iI", self._exactly(8))
        rest = self._exactly(total - 4)
        size = mark & 0xFFFFFF
        return parse_header(rest[:size], mark >> 24), rest[size:]

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._sock.recv(size - len(data))
            if not part:
                raise ConnectionError("closed by the server")
            data += part
        return bytes(data)


def _sent(fields: Mapping[str, str]) -> Sent:
    return Sent(fields["msgId"], int(fields["queueId"]), int(fields["queueOffset"]))


def topic_fields(topic: str, queues: int, perm: int = 6) -> dict[str, str]:
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": str(perm),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }


def send_fields(
    topic: str,
    queue_id: int,
    born_at: int,
    properties: str,
    *,
    group: str = "judge",
    flag: int = 0,
    sys_flag: int = 0,
    batch: bool = False,
) -> dict[str, str]:
    """Header of a V2 send: one-letter names."""
    return {
        "a": group,
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": str(sys_flag),
        "g": str(born_at),
        "h": str(flag),
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "true" if batch else "false",
        "n": "broker-a",
    }


def pull_fields(
    topic: str, queue_id: int, offset: int, group: str = "judge", *, batch: int = 32, suspend_ms: int = 15000
) -> dict[str, str]:
    """Header of a pull with a subscription in it; waits at the broker when suspend_ms > 0."""
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(batch),
        "sysFlag": "6" if suspend_ms else "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(suspend_ms),
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }


def encode_properties(properties: Mapping[str, str]) -> str:
    return "".join(f"{key}\x01{value}\x02" for key, value in properties.items())


def records(body: bytes) -> Iterator[Stored]:
    """Every message record of a pull body; bodies come out decompressed (zlib only, which is what clients use)."""
    at, end = 0, len(body)
    while at < end:
        size, magic, crc, queue_id, flag, offset, physical, sys_flag, born_at = struct.unpack_from(
            ">iIiiiqqiq", body, at
        )
        pos = at + 48 + (20 if sys_flag & BORN_V6 else 8)
        (store_at,) = struct.unpack_from(">q", body, pos)
        pos += 8 + (20 if sys_flag & STORED_V6 else 8)
        (reconsume_times,) = struct.unpack_from(">i", body, pos)
        pos += 4 + 8
        (length,) = struct.unpack_from(">i", body, pos)
        payload = body[pos + 4 : pos + 4 + length]
        pos += 4 + length
        width = 2 if magic == MAGIC_V2 else 1
        topic_size = int.from_bytes(body[pos : pos + width], "big")
        topic = body[pos + width : pos + width + topic_size].decode()
        pos += width + topic_size
        (text_size,) = struct.unpack_from(">h", body, pos)
        text = body[pos + 2 : pos + 2 + text_size].decode()
        properties = dict(pair.split("\x01", 1) for pair in text.split("\x02") if pair)
        crc_ok = zlib.crc32(payload) & 0x7FFFFFFF == crc
        plain = zlib.decompress(payload) if sys_flag & COMPRESSED else payload
        yield Stored(
            topic,
            queue_id,
            offset,
            physical,
            born_at,
            store_at,
            flag,
            sys_flag,
            reconsume_times,
            plain,
            crc_ok,
            properties,
        )
        at += size
