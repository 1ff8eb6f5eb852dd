"""Registration bodies, JSON and compressed."""

from __future__ import annotations

import zlib

import pytest

from orbitmq.errors import ProtocolError
from orbitmq.protocol.remoting.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigWrapper,
    TopicQueueMappingInfo,
    registration,
)
from orbitmq.protocol.remoting.versions import version_ordinal

V4 = version_ordinal("4.9.8")
V5 = version_ordinal("5.3.3")
TOPICS = [TopicConfig("T", 8, 4, 6), TopicConfig("%RETRY%g", 1, 1, 6, "MULTI_TAG", attributes={"message.type": "a b"})]
BODY = RegisterBrokerBody(
    TopicConfigWrapper({topic.topic_name: topic for topic in TOPICS}, DataVersion(3, 1, 1700000000000)), ["f:1"]
)


def sized(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


def plain(*topics: bytes, tail: bytes = b"") -> bytes:
    version = sized(b'{"counter":3,"stateVersion":1,"timestamp":1700000000000}')
    return version + len(topics).to_bytes(4, "big") + b"".join(map(sized, topics)) + sized(b'["f:1"]') + tail


LINES = (b"T 8 4 6 SINGLE_TAG", b'%RETRY%g 1 1 6 MULTI_TAG {"message.type":"a b"}')


def test_the_compressed_form_of_both_lines() -> None:
    assert RegisterBrokerBody.decode_any(zlib.compress(plain(*LINES)), V4) == BODY
    assert RegisterBrokerBody.decode_any(zlib.compress(plain(*LINES, tail=bytes(4))), V5) == BODY


def test_mappings_follow_from_5_0_on() -> None:
    info = TopicQueueMappingInfo("b", "T", "__global__", 4, 1, False, {0: 0})
    data = zlib.compress(plain(*LINES, tail=(1).to_bytes(4, "big") + sized(info.encode())))
    found = RegisterBrokerBody.decode_any(data, V5)
    assert found.topic_config_serialize_wrapper.topic_queue_mapping_info_map == {"T": info}
    assert RegisterBrokerBody.decode_any(data, V4) == BODY


def test_the_form_is_seen_from_the_first_byte() -> None:
    assert RegisterBrokerBody.decode_any(BODY.encode(), V5) == BODY
    assert RegisterBrokerBody.decode_any(b"", V5) == RegisterBrokerBody()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0",
        b"\xff\xff\xff\xff",
        b"\0\0\0\x10{}",
        sized(b"x"),
        plain(b"T 8 4"),
        plain(b"T 8 4 x SINGLE_TAG"),
        plain(b"T 8 4 6 SINGLE_TAG {"),
        plain(b"\xff 8 4 6 SINGLE_TAG"),
        plain()[:-1],
        plain(tail=b"\x7f\xff\xff\xff"),
        sized(b"{}") + bytes(4) + sized(b"{}"),
        sized(b"{}") + bytes(4) + sized(b"[1]"),
    ],
)
def test_malformed_content(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        RegisterBrokerBody.decode_any(zlib.compress(data), V5)


def test_malformed_stream() -> None:
    data = zlib.compress(plain(*LINES, tail=bytes(4)))
    for broken in (data[:-1], data[:20], b"\x78", b"\x78\x9cxxxx"):
        with pytest.raises(ProtocolError, match="compressed registration"):
            RegisterBrokerBody.decode_any(broken, V5)


def test_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "DECOMPRESSED_BYTES_MAX", 1000)
    with pytest.raises(ProtocolError, match="larger than 1000 bytes"):
        RegisterBrokerBody.decode_any(zlib.compress(bytes(100_000)), V5)
