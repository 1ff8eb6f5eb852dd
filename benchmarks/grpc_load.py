"""A load of gRPC calls that costs its generator some 10 us each: frames are made before the clock starts, one process, plain sockets.

The official clients cost ten times as much, and a comparison by them would measure them. Header fields are those of the Java client, in a
dynamic table as netty keeps it, every call with its own request id and timeout; signatures have the right form and a wrong value, so
authentication has to be off.

Rules of this file
1. A call is answered when its stream ends; its content is every DATA frame that came before.
2. Windows of the server are respected, its PINGs and SETTINGS answered. A reset or a GOAWAY ends the measurement (`Broken`).
"""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

_STATIC_PAIRS: Final = {(b":method", b"POST"): 3, (b":scheme", b"http"): 6, (b":scheme", b"https"): 7}
_STATIC_NAMES: Final = {b":authority": 1, b":path": 4, b"authorization": 23, b"content-type": 31, b"user-agent": 58}
_FIRST_DYNAMIC: Final = 62
_TABLE_BYTES: Final = 4_096
_WINDOW: Final = 2**31 - 1
_FRAME_BYTES: Final = 16_384
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
SERVICE: Final = b"/apache.rocketmq.v2.MessagingService/"
NO_ANSWER_S: Final = 60


class Broken(Exception):
    """The server ended something, or does not answer."""


class Answered(NamedTuple):
    """What a call came to. `content` has every message of the answer behind its five bytes."""

    number: int
    latency_ns: int
    content: bytes

    @property
    def messages(self) -> list[bytes]:
        found, at = [], 0
        while at < len(self.content):
            size = int.from_bytes(self.content[at + 1 : at + 5], "big")
            found.append(self.content[at + 5 : at + 5 + size])
            at += 5 + size
        return found


class _Headers:
    """HPACK as netty writes it: indexed where possible, else literal with indexing, no Huffman code."""

    def __init__(self) -> None:
        self._table: list[tuple[bytes, bytes]] = []
        self._size = 0

    def encode(self, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
        out = []
        for field in fields:
            name, value = field
            if field in _STATIC_PAIRS:
                out.append(_integer(_STATIC_PAIRS[field], 7, 0x80))
            elif field in self._table:
                out.append(_integer(_FIRST_DYNAMIC + self._table.index(field), 7, 0x80))
            else:
                index = _STATIC_NAMES.get(name) or self._index_of(name)
                out.append(_integer(index, 6, 0x40) if index else b"\x40" + _integer(len(name), 7, 0) + name)
                out.append(_integer(len(value), 7, 0) + value)
                self._add(field)
        return b"".join(out)

    def _index_of(self, name: bytes) -> int:
        return next((_FIRST_DYNAMIC + at for at, field in enumerate(self._table) if field[0] == name), 0)

    def _add(self, field: tuple[bytes, bytes]) -> None:
        self._table.insert(0, field)
        self._size += len(field[0]) + len(field[1]) + 32
        while self._size > _TABLE_BYTES:
            name, value = self._table.pop()
            self._size -= len(name) + len(value) + 32


def _integer(value: int, bits: int, first: int) -> bytes:
    limit = (1 << bits) - 1
    if value < limit:
        return bytes([first | value])
    out, value = [first | limit], value - limit
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


class Load:
    """One connection with one client id."""

    def __init__(self, port: int, client_id: str, *, tls: bool = False, client_version: str = "5.2.0") -> None:
        plain = socket.create_connection(("127.0.0.1", port), NO_ANSWER_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = _with_tls(plain) if tls else plain
        settings = b"\x00\x02\0\0\0\0" + b"\x00\x04" + (1 << 30).to_bytes(4, "big")
        opened = _frame(_WINDOW_UPDATE, 0, 0, (_WINDOW - 65_535).to_bytes(4, "big"))
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, settings) + opened)
        self._tls = tls
        self._client_id = client_id.encode()
        self._client_version = client_version.encode()
        self._headers = _Headers()
        self._next_stream = 1
        self._window = 65_535
        self._rest = b""
        self._contents: dict[int, list[bytes]] = {}
        self._streamed: set[int] = set()
        """Streams that are kept open: their messages are not waited for."""

    def close(self) -> None:
        self.socket.close()

    # --- making -------------------------------------------------------------------------------------------------------

    def made(
        self, rpc: str, message: bytes, *, timeout_ms: int | None = 3_000, ends: bool = True
    ) -> tuple[int, bytes, int]:
        """A call as it is sent: its stream, its frames, and what it takes of the window. Calls leave in the order of their making."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        number = stream // 2
        head = _frame(
            _HEADERS, _END_HEADERS, stream, self._headers.encode(self._fields(rpc.encode(), number, timeout_ms))
        )
        data = b"\0" + len(message).to_bytes(4, "big") + message
        parts = [data[at : at + _FRAME_BYTES] for at in range(0, len(data), _FRAME_BYTES)]
        frames = [_frame(_DATA, _END_STREAM if ends and part is parts[-1] else 0, stream, part) for part in parts]
        return stream, head + b"".join(frames), len(data)

    def _fields(self, rpc: bytes, number: int, timeout_ms: int | None) -> list[tuple[bytes, bytes]]:
        second = number // 4_000
        signature = b"MQv2-HMAC-SHA1 Credential=ak,SignedHeaders=x-mq-date-time,Signature=%040X" % (
            second << 96 | 0xABCDEF
        )
        fields = [
            (b":method", b"POST"), (b":scheme", b"https" if self._tls else b"http"), (b":path", SERVICE + rpc),
            (b":authority", b"127.0.0.1:8081"), (b"te", b"trailers"), (b"content-type", b"application/grpc"),
            (b"user-agent", b"grpc-java-netty/1.53.0"), (b"x-mq-client-id", self._client_id), (b"x-mq-language", b"JAVA"),
            (b"x-mq-client-version", self._client_version), (b"x-mq-protocol", b"v2"), (b"x-mq-namespace", b""),
            (b"x-mq-request-id", str(uuid.uuid4()).encode()), (b"x-mq-date-time", b"20261122T1345%02dZ" % (second % 60)),
            (b"authorization", signature), (b"grpc-accept-encoding", b"gzip"),
        ]  # fmt: skip
        if timeout_ms is not None:
            fields.append((b"grpc-timeout", b"%du" % (timeout_ms * 1_000 - number * 7_919 % 9_999)))
        return fields

    # --- calling ------------------------------------------------------------------------------------------------------

    def open(self, rpc: str, message: bytes) -> None:
        """Begin a call that stays open, such as Telemetry; nothing of it is waited for."""
        stream, frames, size = self.made(rpc, message, timeout_ms=None, ends=False)
        self._streamed.add(stream)
        self._window -= size
        self.socket.sendall(frames)

    def begin(self, rpc: str, message: bytes, *, timeout_ms: int) -> None:
        """Begin a call whose answer nobody waits for yet."""
        stream, frames, size = self.made(rpc, message, timeout_ms=timeout_ms)
        self._streamed.add(stream)
        self._window -= size
        self.socket.sendall(frames)

    def one(self, rpc: str, message: bytes, *, timeout_ms: int = 3_000) -> bytes:
        """The one message that answers a call."""
        found: list[Answered] = []
        self.run([self.made(rpc, message, timeout_ms=timeout_ms)], 1, found.append)
        return found[0].messages[0]

    def run(
        self, calls: Sequence[tuple[int, bytes, int]], in_flight: int, answered: Callable[[Answered], None]
    ) -> None:
        """Send all, so many at a time. Raises Broken."""
        begun: dict[int, tuple[int, int]] = {}
        at, done = 0, 0
        selector = selectors.DefaultSelector()
        selector.register(self.socket, selectors.EVENT_READ)
        while done < len(calls):
            out, now = [], time.perf_counter_ns()
            while at < len(calls) and len(begun) < in_flight and calls[at][2] <= self._window:
                stream, frames, size = calls[at]
                self._window -= size
                begun[stream] = at, now
                out.append(frames)
                at += 1
            if out:
                self.socket.sendall(b"".join(out))
            if not selector.select(NO_ANSWER_S):
                raise Broken(f"no answer for {NO_ANSWER_S} s after {done} of {len(calls)} calls")
            for stream, content in self.read():
                if stream in begun:
                    number, since = begun.pop(stream)
                    done += 1
                    answered(Answered(number, time.perf_counter_ns() - since, content))

    def read(self) -> list[tuple[int, bytes]]:
        """Read what is there; the calls that it ends, with their content. Raises Broken."""
        data = self.socket.recv(262_144)
        if not data:
            raise Broken("the server closed the connection")
        while isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
            data += self.socket.recv(262_144)
        data, at, ended = self._rest + data, 0, []
        while len(data) - at >= 9:
            word, flags, stream = struct.unpack_from(">IBI", data, at)
            kind, end = word & 255, at + 9 + (word >> 8)
            if end > len(data):
                break
            if kind == _DATA:
                self._contents.setdefault(stream, []).append(data[at + 9 : end])
            elif kind == _WINDOW_UPDATE and stream == 0:
                self._window += int.from_bytes(data[at + 9 : end], "big")
            elif kind == _SETTINGS and not flags & _ACK:
                self.socket.sendall(_frame(_SETTINGS, _ACK, 0, b""))
            elif kind == _PING and not flags & _ACK:
                self.socket.sendall(_frame(_PING, _ACK, 0, data[at + 9 : end]))
            elif kind in (_RESET, _GOAWAY):
                raise Broken(f"{'reset' if kind == _RESET else 'goaway'} on stream {stream}: {data[at + 9 : end]!r}")
            if kind in (_DATA, _HEADERS) and flags & _END_STREAM:
                ended.append((stream, b"".join(self._contents.pop(stream, ()))))
            at = end
        self._rest = data[at:]
        return ended


def _with_tls(plain: socket.socket) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(plain)
