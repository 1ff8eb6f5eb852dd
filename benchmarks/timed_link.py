"""Timed messages through servers that are not of the RocketMQ family: one connection each way, and the meter on top.

A link publishes a body for a due time and receives bodies. NATS does it with scheduled messages of a JetStream stream, RabbitMQ with
an expiration in a queue that dead-letters into the one that is read.

Rules of this file
1. Standard library only, one thread: the client costs as little as the one for RocketMQ's protocol beside it.
2. As in `lateness.py` every body carries its number and due time: early, duplicate, missing and foreign ones are counted exactly.
3. A queue of RabbitMQ expires from its head only. Its messages are therefore published in the order of their due times,
   which is its best case.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from lateness import DUPLICATES_FOR_S, GOLDEN, MARK, MARK_SIZE, quantiles

READ_BYTES: Final = 1 << 18
WINDOW: Final = 128
"""Publishes that are not confirmed yet: as many as `lateness.py` has under way."""
GRACE_S: Final = 60.0

_NUMBER_DUE: Final = struct.Struct(">qd")


class Channel:
    """A non-blocking socket with what waits to be written and what was read and not taken."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.inbox, self.outbox = bytearray(), bytearray()

    def push(self) -> None:
        """Write what fits."""
        try:
            while self.outbox:
                del self.outbox[: self.socket.send(self.outbox)]
        except BlockingIOError:
            return  # the rest goes with a later call

    def pull(self) -> None:
        """Read what is there."""
        try:
            while part := self.socket.recv(READ_BYTES):
                self.inbox += part
                if len(part) < READ_BYTES:
                    return
        except BlockingIOError:
            return  # everything there was has been read
        raise ConnectionError("the server closed the connection")

    def close(self) -> None:
        self.socket.close()


class Link:
    """Publishes on one connection, receives on another. `confirmed` counts publishes the server has answered for."""

    in_due_order = False
    """Publish in the order of due times."""

    def __init__(self, port: int) -> None:
        self.confirmed = 0
        self.writer, self.reader = Channel(port), Channel(port)
        self._selector = selectors.DefaultSelector()

    def ready(self) -> None:
        """The set-up is done: from here on nothing blocks."""
        for channel in (self.writer, self.reader):
            channel.socket.setblocking(False)
            self._selector.register(channel.socket, selectors.EVENT_READ, channel)

    def publish(self, number: int, due_ms: int, body: bytes) -> None:
        """Queue a message; `turn` writes it."""
        raise NotImplementedError

    def _confirmations(self) -> int:
        """Take answers to publishes from the writer's inbox."""
        raise NotImplementedError

    def _bodies(self) -> Iterator[bytes]:
        """Take bodies from the reader's inbox."""
        raise NotImplementedError

    def turn(self, wait_s: float) -> list[bytes]:
        """Write, wait for something to read, and answer the bodies that came."""
        self.writer.push()
        self.reader.push()
        for key, _ in self._selector.select(0.001 if self.writer.outbox else wait_s):
            key.data.pull()
        self.confirmed += self._confirmations()
        return list(self._bodies())

    def close(self) -> None:
        self._selector.close()
        self.writer.close()
        self.reader.close()


class NatsLink(Link):
    """Scheduled messages of a stream with `allow_msg_schedules`; each schedule has a subject of its own."""

    def __init__(self, port: int, stream: str) -> None:
        super().__init__(port)
        self._stream = stream
        for channel in (self.writer, self.reader):
            _nats_begin(channel)
        config = {
            "name": stream,
            "subjects": [f"{stream}.wait.>", f"{stream}.due"],
            "storage": "file",
            "allow_msg_schedules": True,
        }
        self._ask(f"$JS.API.STREAM.CREATE.{stream}", config)
        delivery = {
            "deliver_subject": f"got.{stream}",
            "ack_policy": "none",
            "deliver_policy": "all",
            "filter_subject": f"{stream}.due",
            "durable_name": "reader",
        }
        self.reader.socket.sendall(f"SUB got.{stream} 1\r\nPING\r\n".encode())
        _nats_until(self.reader, b"PONG\r\n")
        self._ask(f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.reader", {"stream_name": stream, "config": delivery})
        self.writer.socket.sendall(b"SUB ack.> 2\r\nPING\r\n")
        _nats_until(self.writer, b"PONG\r\n")
        self.ready()

    def _ask(self, subject: str, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        request = b"SUB answer 9\r\nPUB %s answer %d\r\n%s\r\n" % (subject.encode(), len(text), text)
        self.writer.socket.sendall(request)
        answer = _nats_until(self.writer, b"}\r\n")
        self.writer.socket.sendall(b"UNSUB 9\r\n")
        if b'"error"' in answer:
            raise ConnectionError(f"NATS refuses {subject}: {answer.decode(errors='replace')[-300:]}")

    def publish(self, number: int, due_ms: int, body: bytes) -> None:
        at = datetime.fromtimestamp(due_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        head = f"NATS/1.0\r\nNats-Schedule: @at {at}\r\nNats-Schedule-Target: {self._stream}.due\r\n\r\n".encode()
        line = f"HPUB {self._stream}.wait.{number} ack.{number} {len(head)} {len(head) + len(body)}\r\n".encode()
        self.writer.outbox += line + head + body + b"\r\n"

    def _confirmations(self) -> int:
        count = 0
        for body in _nats_messages(self.writer):
            if b'"error"' in body:
                raise ConnectionError(f"NATS refuses a message: {body.decode(errors='replace')[:300]}")
            count += 1
        return count

    def _bodies(self) -> Iterator[bytes]:
        return _nats_messages(self.reader)


def _nats_begin(channel: Channel) -> None:
    channel.socket.sendall(b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\nPING\r\n')
    _nats_until(channel, b"PONG\r\n")


def _nats_until(channel: Channel, end: bytes) -> bytes:
    """Read until `end` was seen; answers everything read."""
    while end not in channel.inbox:
        part = channel.socket.recv(READ_BYTES)
        if not part:
            raise ConnectionError("NATS closed the connection")
        channel.inbox += part
    found = bytes(channel.inbox)
    channel.inbox.clear()
    return found


def _nats_messages(channel: Channel) -> Iterator[bytes]:
    """Bodies of the whole messages in the inbox, headers cut off; PINGs are answered."""
    data, at = channel.inbox, 0
    while (line_end := data.find(b"\r\n", at)) >= 0:
        line = bytes(data[at:line_end])
        if line.startswith((b"MSG ", b"HMSG ")):
            words = line.split()
            size = int(words[-1])
            begin = line_end + 2
            if len(data) < begin + size + 2:
                break
            head = int(words[-2]) if line[:1] == b"H" else 0
            yield bytes(data[begin + head : begin + size])
            at = begin + size + 2
            continue
        if line == b"PING":
            channel.outbox += b"PONG\r\n"
        elif line.startswith(b"-ERR"):
            raise ConnectionError(f"NATS: {line.decode()}")
        at = line_end + 2
    del data[:at]


class RabbitLink(Link):
    """A durable queue whose messages expire into another one; confirmed publishes, persistent messages."""

    in_due_order = True

    def __init__(self, port: int, name: str) -> None:
        super().__init__(port)
        self._wait, self._due = f"{name}-wait".encode(), f"{name}-due".encode()
        for channel in (self.writer, self.reader):
            _amqp_begin(channel)
        dead_letter = _long_text(b"x-dead-letter-exchange", b"") + _long_text(b"x-dead-letter-routing-key", self._due)
        for queue, table in ((self._due, b""), (self._wait, dead_letter)):
            declared = b"\0\0" + _short(queue) + b"\x02" + struct.pack(">I", len(table)) + table
            _amqp_call(self.writer, 50, 10, declared, 11)
        _amqp_call(self.writer, 85, 10, b"\0", 11)
        _amqp_call(self.reader, 60, 20, b"\0\0" + _short(self._due) + _short(b"") + b"\x02" + b"\0\0\0\0", 21)
        self._publish = _amqp_frame(
            1, 1, struct.pack(">HH", 60, 40) + b"\0\0" + _short(b"") + _short(self._wait) + b"\0"
        )
        self._unconfirmed: set[int] = set()
        self._published = 0
        self.ready()

    def publish(self, number: int, due_ms: int, body: bytes) -> None:
        expiration = str(max(due_ms - int(time.time() * 1000), 0)).encode()
        head = struct.pack(">HHQHB", 60, 0, len(body), 1 << 12 | 1 << 8, 2) + _short(expiration)
        self.writer.outbox += self._publish + _amqp_frame(2, 1, head) + _amqp_frame(3, 1, body)
        self._published += 1
        self._unconfirmed.add(self._published)

    def _confirmations(self) -> int:
        before = len(self._unconfirmed)
        for kind, payload in _amqp_frames(self.writer):
            if kind != 1:
                continue
            what = struct.unpack_from(">HH", payload)
            if what != (60, 80):
                raise ConnectionError(f"RabbitMQ: method {what} {payload[4:200]!r}")
            tag, multiple = struct.unpack_from(">QB", payload, 4)
            if multiple:
                self._unconfirmed = {one for one in self._unconfirmed if one > tag}
            else:
                self._unconfirmed.discard(tag)
        return before - len(self._unconfirmed)

    def _bodies(self) -> Iterator[bytes]:
        for kind, payload in _amqp_frames(self.reader):
            if kind == 3:
                yield payload


def _short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def _long_text(name: bytes, value: bytes) -> bytes:
    """An entry of a table."""
    return _short(name) + b"S" + struct.pack(">I", len(value)) + value


def _amqp_frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def _amqp_frames(channel: Channel) -> list[tuple[int, bytes]]:
    """Kind and payload of the whole frames in the inbox."""
    found: list[tuple[int, bytes]] = []
    data, at = channel.inbox, 0
    while len(data) - at >= 8:
        kind, _, size = struct.unpack_from(">BHI", data, at)
        if len(data) - at < size + 8:
            break
        found.append((kind, bytes(data[at + 7 : at + 7 + size])))
        at += size + 8
    del data[:at]
    return found


def _amqp_expect(channel: Channel, class_id: int, method: int) -> bytes:
    """Wait for a method; answers its arguments."""
    while True:
        for kind, payload in _amqp_frames(channel):
            if kind == 1:
                if struct.unpack_from(">HH", payload) != (class_id, method):
                    raise ConnectionError(f"RabbitMQ answers {payload[:200]!r} instead of {class_id}.{method}")
                return payload[4:]
        part = channel.socket.recv(READ_BYTES)
        if not part:
            raise ConnectionError("RabbitMQ closed the connection")
        channel.inbox += part


def _amqp_call(channel: Channel, class_id: int, method: int, arguments: bytes, answer: int) -> None:
    channel.socket.sendall(_amqp_frame(1, 1, struct.pack(">HH", class_id, method) + arguments))
    _amqp_expect(channel, class_id, answer)


def _amqp_begin(channel: Channel) -> None:
    """Log in as guest and open channel 1."""
    sock = channel.socket
    sock.sendall(b"AMQP\0\0\x09\x01")
    _amqp_expect(channel, 10, 10)
    login = b"\0\0\0\0" + _short(b"PLAIN") + struct.pack(">I", 12) + b"\0guest\0guest" + _short(b"en_US")
    sock.sendall(_amqp_frame(1, 0, struct.pack(">HH", 10, 11) + login))
    channels, frame_max, _ = struct.unpack(">HIH", _amqp_expect(channel, 10, 30))
    sock.sendall(_amqp_frame(1, 0, struct.pack(">HHHIH", 10, 31, channels, frame_max, 0)))
    sock.sendall(_amqp_frame(1, 0, struct.pack(">HH", 10, 40) + _short(b"/") + _short(b"") + b"\0"))
    _amqp_expect(channel, 10, 41)
    _amqp_call(channel, 20, 10, _short(b""), 11)


def fill(link: Link, count: int, size: int, *, from_ms: int, spread_ms: int) -> float:
    """Publish messages due between `from_ms` and `spread_ms` later; answers messages confirmed a second."""
    begin, pad = time.monotonic(), b"x" * max(0, size - MARK_SIZE)
    first = link.confirmed
    for number in range(count):
        due = from_ms + int(spread_ms * (number / count if link.in_due_order else number * GOLDEN % 1))
        link.publish(number, due, MARK + _NUMBER_DUE.pack(number, due) + pad)
        while number + 1 - (link.confirmed - first) >= WINDOW:
            link.turn(1.0)
    _confirmed(link, first + count, GRACE_S)
    return count / (time.monotonic() - begin)


def _confirmed(link: Link, wanted: int, limit_s: float) -> None:
    end = time.monotonic() + limit_s
    while link.confirmed < wanted:
        if time.monotonic() > end:
            raise ConnectionError(f"{link.confirmed} of {wanted} messages confirmed after {limit_s:.0f} s")
        link.turn(0.1)


def late(link: Link, count: int, size: int, *, base_ms: int, over_ms: int) -> dict[str, Any]:
    """Publish `count` messages due over `over_ms` from `base_ms` on (0: all at that instant) and receive them. The findings have the
    names of `lateness.py`."""
    due = [base_ms + (int(number * GOLDEN % 1 * over_ms) if over_ms else 0) for number in range(count)]
    if link.in_due_order:
        due.sort()
    pad = b"x" * max(0, size - MARK_SIZE)
    seen, lateness = bytearray(count), list[float]()
    sent = early = duplicates = foreign = 0
    last = last_confirmed = 0.0
    first, end = link.confirmed, max(due) / 1000 + GRACE_S
    while len(lateness) < count and time.time() < end:
        while sent < count and sent - (link.confirmed - first) < WINDOW:
            link.publish(sent, due[sent], MARK + _NUMBER_DUE.pack(sent, due[sent]) + pad)
            sent += 1
        bodies = link.turn(0.5)
        now = time.time() * 1000
        if link.confirmed - first == count and not last_confirmed:
            last_confirmed = now
        for body in bodies:
            if body[:4] != MARK:
                foreign += 1
                continue
            number, due_ms = _NUMBER_DUE.unpack_from(body, 4)
            if seen[number]:
                duplicates += 1
                continue
            seen[number] = 1
            lateness.append(now - due_ms)
            early += now < due_ms
            last = now
    for _ in range(10):
        duplicates += len(link.turn(DUPLICATES_FOR_S / 10))
    return {
        "early": early,
        "duplicates": duplicates,
        "missing": count - len(lateness),
        "foreign": foreign,
        "bad_crc": 0,
        "failed": {},
        "lateness_ms": quantiles(lateness),
        "due_to_last_ms": round(last - max(due), 1),
        "sent_before_due_ms": round(min(due) - last_confirmed, 1),
        "load1": round(os.getloadavg()[0], 2),
    }
