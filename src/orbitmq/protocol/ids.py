"""Message ids: where a record is stored, and which message a client made.

An *offset id* names a broker and a position in its commit log. A *unique key* (property UNIQ_KEY) is chosen by the
sender and stays the same through delay, retry and redelivery. Both are upper-case hex of 32 characters (IPv4) or 56
(IPv6) and cannot be told apart by their form.

Rules of this file
1. A *packed host* is the address in network order and the port as a 32-bit number: 8 bytes for IPv4, 20 for IPv6.
2. Unique keys never repeat within a process, whatever the clock does, and practically never between processes.

Source: RocketMQ message encoding, identifiers; RocketMQ store format, offset message id.
"""

from __future__ import annotations

import os
import socket
import threading
from datetime import datetime
from typing import Final

from orbitmq.clock import Clock
from orbitmq.errors import ProtocolError

IPV4_HOST_BYTES: Final = 8
IPV6_HOST_BYTES: Final = 20


def pack_host(ip: str, port: int) -> bytes:
    """The packed form of an address in text form. An IPv6 zone (`%eth0`) is dropped: it has no place in the format."""
    try:
        if ":" in ip:
            return socket.inet_pton(socket.AF_INET6, ip.partition("%")[0]) + port.to_bytes(4, "big")
        return socket.inet_pton(socket.AF_INET, ip) + port.to_bytes(4, "big")
    except (OSError, OverflowError, UnicodeEncodeError, ValueError) as error:
        raise ProtocolError(f"{ip!r} port {port} is not an IP address and port") from error


def unpack_host(host: bytes) -> tuple[str, int]:
    """Address text and port of a packed host. The port is not checked: damaged or foreign data may hold any 32-bit
    number.
    """
    if len(host) == IPV4_HOST_BYTES:
        return socket.inet_ntop(socket.AF_INET, host[:4]), int.from_bytes(host[4:], "big")
    if len(host) == IPV6_HOST_BYTES:
        return socket.inet_ntop(socket.AF_INET6, host[:16]), int.from_bytes(host[16:], "big")
    raise ProtocolError(f"a packed host has 8 or 20 bytes, not {len(host)}")


def host_text(host: bytes) -> str:
    """`ip:port`, with an IPv6 address in brackets."""
    ip, port = unpack_host(host)
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def encode_offset_id(host: bytes, physical_offset: int) -> str:
    """The id of the record at `physical_offset` on the broker whose packed store host is `host`."""
    if len(host) != IPV4_HOST_BYTES and len(host) != IPV6_HOST_BYTES:
        raise ProtocolError(f"a packed host has 8 or 20 bytes, not {len(host)}")
    try:
        return (host + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()
    except OverflowError as error:
        raise ProtocolError(f"physical offset {physical_offset} does not fit 64 bits") from error


def decode_offset_id(text: str) -> tuple[bytes, int]:
    """Packed host and physical offset of an offset id, in either case. ProtocolError when `text` cannot be one.

    A unique key of the same length decodes as well, to nonsense: the port is then usually above 65535.
    """
    if len(text) not in (32, 56):
        raise ProtocolError(f"an offset message id has 32 or 56 hex digits, {text[:64]!r} has {len(text)} characters")
    try:
        data = bytes.fromhex(text)
    except ValueError as error:
        raise ProtocolError(f"{text!r} is not hexadecimal") from error
    if len(data) * 2 != len(text):
        raise ProtocolError(f"{text!r} is not hexadecimal")
    return data[:-8], int.from_bytes(data[-8:], "big", signed=True)


class UniqueIds:
    """Maker of unique keys in the layout of the Java client.

    Address (4 or 16 bytes), process id (2), salt (4), milliseconds since the start of the current month in local time
    (4), counter (2). Java puts the hash of its class loader where the salt stands; here it is random, drawn anew in a
    forked child and in a new month, when the millisecond field starts again from 0. Time and counter are one growing
    number, so a clock that stands still or steps back cannot bring a key back: more than 65,536 keys in one
    millisecond borrow from the next one. Safe to call from several threads.
    """

    __slots__ = ("_address", "_clock", "_last", "_lock", "_month_end_ms", "_month_start_ms", "_pid", "_prefix")

    def __init__(self, clock: Clock, address: str) -> None:
        self._clock = clock
        self._address = pack_host(address, 0)[:-4]
        self._lock = threading.Lock()
        self._last = 0
        self._month_start_ms = 0
        self._month_end_ms = 0
        self._pid = 0
        self._prefix = ""

    def next(self) -> str:
        """A new unique key: 32 characters for an IPv4 address, 56 for IPv6."""
        prefix, number = self.several(1)
        return f"{prefix}{number:012X}"

    def several(self, count: int) -> tuple[str, int]:
        """`count` new keys: what they begin with, and the first of the numbers that end them, as 12 hex digits."""
        with self._lock:
            stamp = self._clock.now_ms() << 16
            if stamp <= self._last:
                stamp = self._last + 1
            self._last = stamp + count - 1
            if stamp >> 16 >= self._month_end_ms or os.getpid() != self._pid:
                self._renew(stamp >> 16)
            return self._prefix, stamp - (self._month_start_ms << 16)

    def _renew(self, now_ms: int) -> None:
        start = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        following = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        self._month_start_ms = min(int(start.timestamp() * 1000), now_ms)
        self._month_end_ms = int(following.timestamp() * 1000)
        self._pid = os.getpid()
        process = (self._pid & 0xFFFF).to_bytes(2, "big")
        self._prefix = (self._address + process + os.urandom(4)).hex().upper()
