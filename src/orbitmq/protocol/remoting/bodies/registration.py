"""What a broker tells a name server when it registers, as JSON or in the compressed form.

The compressed form is a zlib stream of (integers big-endian, `n` = bytes of the text after it)

    n, DataVersion JSON
    number of topics, then for each: n, "<topic> <readQueues> <writeQueues> <perm> <filter type>[ <attributes JSON>]"
    n, filter server list JSON
    number of mapping infos, then for each: n, TopicQueueMappingInfo JSON      (brokers from 5.0.0 on)

(RocketMQ remoting, REGISTER_BROKER.)
"""

from __future__ import annotations

import zlib
from typing import Self

import msgspec

from orbitmq.errors import ProtocolError
from orbitmq.limits.wire import DECOMPRESSED_BYTES_MAX
from orbitmq.protocol.remoting import fastjson
from orbitmq.protocol.remoting.bodies.json_body import JsonBody, kept_list
from orbitmq.protocol.remoting.bodies.topics import DataVersion, TopicConfig, TopicConfigWrapper, TopicQueueMappingInfo
from orbitmq.protocol.remoting.frame import Buffer
from orbitmq.protocol.remoting.versions import VERSION_REGISTERS_MAPPINGS

_ZLIB_FIRST_BYTE = 0x78


class RegisterBrokerBody(JsonBody):
    """Topics and filter servers of a broker."""

    topic_config_serialize_wrapper: TopicConfigWrapper = msgspec.field(default_factory=lambda: TopicConfigWrapper())
    filter_server_list: list[str] = kept_list()

    @classmethod
    def decode_any(cls, data: Buffer, version: int) -> Self:
        """The body in whichever form it has; `version` is that of the request.

        The header field `compressed` does not decide: brokers of the 5.x line send `false` with compressed bodies.
        """
        raw = bytes(data)
        if raw[:1] == bytes((_ZLIB_FIRST_BYTE,)):
            return cls.decode_compressed(raw, version)
        return cls.decode(raw) if raw else cls()

    @classmethod
    def decode_compressed(cls, data: Buffer, version: int) -> Self:
        """The body in the compressed form; `version` of the request tells whether mappings follow."""
        reader = _Reader(_decompress(bytes(data)))
        data_version = DataVersion.decode(reader.text())
        topics = [_topic_from_line(reader.text()) for _ in range(reader.count())]
        servers = fastjson.loads(reader.text() or b"[]")
        infos: list[TopicQueueMappingInfo] = []
        if version >= VERSION_REGISTERS_MAPPINGS and not reader.at_end:
            infos = [TopicQueueMappingInfo.decode(reader.text()) for _ in range(reader.count())]
        if not isinstance(servers, list) or not all(isinstance(server, str) for server in servers):
            raise ProtocolError("filter servers of a registration are not a list of texts")
        return cls(
            TopicConfigWrapper(
                {topic.topic_name: topic for topic in topics},
                data_version,
                topic_queue_mapping_info_map={info.topic: info for info in infos if info.topic},
            ),
            servers,
        )


def _decompress(data: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, DECOMPRESSED_BYTES_MAX)
    except zlib.error as error:
        raise ProtocolError(f"compressed registration is no zlib stream: {error}") from error
    if stream.unconsumed_tail:
        raise ProtocolError(f"compressed registration is larger than {DECOMPRESSED_BYTES_MAX} bytes")
    if not stream.eof:
        raise ProtocolError("compressed registration is cut off")
    return plain


class _Reader:
    """Walks through the decompressed form."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)

    def count(self) -> int:
        number = int.from_bytes(self._data[self._at : self._at + 4], "big", signed=True)
        self._at += 4
        if number < 0 or self._at > len(self._data):
            raise ProtocolError(f"compressed registration has no sensible number at byte {self._at - 4}")
        return number

    def text(self) -> bytes:
        size = self.count()
        end = self._at + size
        if end > len(self._data):
            raise ProtocolError(f"compressed registration ends inside the text at byte {self._at}")
        text = self._data[self._at : end]
        self._at = end
        return text


def _topic_from_line(line: bytes) -> TopicConfig:
    """The topic in one line; attributes may contain blanks, so only the first five are separators."""
    try:
        words = line.decode().split(" ", 5)
        name, read_queues, write_queues, perm, filter_type = words[:5]
        return TopicConfig.from_value(
            {
                "topicName": name,
                "readQueueNums": read_queues,
                "writeQueueNums": write_queues,
                "perm": perm,
                "topicFilterType": filter_type,
                "attributes": fastjson.loads(words[5]) if len(words) == 6 and words[5].strip() else {},
            }
        )
    except ValueError as error:
        raise ProtocolError(f"topic line of a registration cannot be read: {line[:200]!r}") from error
