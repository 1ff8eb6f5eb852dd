"""Connections of released clients of RocketMQ 5 with RocketMQ's proxy, as recorded.

What the clients sent is read by our own connection, what the proxy answered by the library hpack.
"""

from __future__ import annotations

import base64
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import hpack

from orbitmq.protocol.grpc import messages
from orbitmq.protocol.grpc.calls import GrpcCall, read_call
from orbitmq.protocol.grpc.message_prefix import MessageCutter
from orbitmq.protocol.grpc.rpcs import Rpc, Shape
from orbitmq.protocol.http2.connection import Http2Connection
from orbitmq.protocol.http2.events import DataReceived, RequestStarted, StreamReset

VECTORS = Path(__file__).resolve().parent.parent / "vectors" / "grpc" / "clients.jsonl.xz"
TOPICS: Final = {"Plain": "NORMAL", "Ordered": "FIFO", "Timed": "DELAY", "Decided": "TRANSACTION"}
"""What each client has for topics, with one queue, and their types; and a group `InOrder` that consumes in order."""
_DATA, _HEADERS, _CONTINUATION, _END_HEADERS, _HEAD_BYTES = 0, 1, 9, 4, 9

Place = tuple[int, int]
"""Number of the connection, and of the stream."""


def own(client: str, part: str) -> str:
    """A topic or group of a client."""
    return f"{client.replace('.', '_')}-{part}"


class Said(NamedTuple):
    """One request, or the end of a stream. at_ms: since the start of the client."""

    at_ms: int
    place: Place
    call: GrpcCall
    request: Any

    @property
    def answer_kind(self) -> Any:
        """The class of the answers."""
        rpc = self.call.row.rpc
        return getattr(messages, "TelemetryCommand" if rpc is Rpc.TELEMETRY else f"{rpc}Response")


class Client(NamedTuple):
    """One client: when it started, what it said, and what the proxy answered to each of its calls."""

    began_ms: int
    said: list[Said]
    answers: dict[Place, list[Any]]


def recorded(piece_bytes: int | None = None) -> dict[str, Client]:
    """The recorded clients by name. `piece_bytes`: cut what they sent into such pieces; else it comes as it came."""
    lines: dict[str, list[dict[str, Any]]] = {}
    with lzma.open(VECTORS, "rt", encoding="utf-8") as file:
        for line in map(json.loads, file):
            lines.setdefault(line["client"], []).append(line)
    return {name: _client(connections, piece_bytes) for name, connections in lines.items()}


def _client(connections: list[dict[str, Any]], piece_bytes: int | None) -> Client:
    client = Client(connections[0]["began_ms"], [], {})
    for number, connection in enumerate(connections):
        reading, from_server = _Reading(), b""
        for at_ms, way, text in connection["pieces"]:
            data = base64.b64decode(text)
            if way == "s":
                from_server += data
                continue
            size = piece_bytes or len(data)
            for at in range(0, len(data), size):
                for stream_id, call, message in reading.feed(data[at : at + size]):
                    request = None if message is None else getattr(messages, call.row.request).FromString(message)
                    client.said.append(Said(at_ms, (number, stream_id), call, request))
        content = _server_data(from_server)
        for said in client.said:
            if said.place[0] == number:
                cutter = MessageCutter(said.call.row.bytes_max, is_single=False)
                answers = [said.answer_kind.FromString(data) for data in cutter.feed(content.get(said.place[1], b""))]
                client.answers[said.place] = answers
    client.said.sort(key=lambda said: said.at_ms)
    return client


class _Reading:
    """Our end of one connection."""

    def __init__(self) -> None:
        self._http2 = Http2Connection()
        self._open: dict[int, tuple[GrpcCall, MessageCutter]] = {}

    def feed(self, data: bytes) -> Iterator[tuple[int, GrpcCall, bytes | None]]:
        """Stream, call and message; None for the end of a stream. Raises what our connection raises."""
        for event in self._http2.receive_data(data):
            if isinstance(event, RequestStarted):
                call = read_call(event.fields)
                is_single = call.row.shape is not Shape.BIDIRECTIONAL
                self._open[event.stream_id] = call, MessageCutter(call.row.bytes_max, is_single=is_single)
            elif isinstance(event, DataReceived):
                call, cutter = self._open[event.stream_id]
                for message in cutter.feed(event.data):
                    yield event.stream_id, call, message
                if event.ended:
                    cutter.end()
                    if call.row.shape is Shape.BIDIRECTIONAL:
                        yield event.stream_id, call, None
            elif isinstance(event, StreamReset):
                yield event.stream_id, self._open[event.stream_id][0], None
        self._http2.take_output()
        if self._http2.failure is not None:
            raise self._http2.failure


def _server_data(data: bytes) -> dict[int, bytes]:
    """Content of each stream of a connection that is read to its end."""
    decoder, found, at = hpack.Decoder(), dict[int, bytes](), 0
    block = b""
    while at + _HEAD_BYTES <= len(data):
        size, kind, flags = int.from_bytes(data[at : at + 3], "big"), data[at + 3], data[at + 4]
        stream_id = int.from_bytes(data[at + 5 : at + 9], "big") & 0x7FFF_FFFF
        payload = data[at + _HEAD_BYTES : at + _HEAD_BYTES + size]
        at += _HEAD_BYTES + size
        if kind == _DATA:
            found[stream_id] = found.get(stream_id, b"") + payload
        elif kind in (_HEADERS, _CONTINUATION):
            block = payload if kind == _HEADERS else block + payload
            if flags & _END_HEADERS:
                decoder.decode(block)
                found.setdefault(stream_id, b"")
    return found
