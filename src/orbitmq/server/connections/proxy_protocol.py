"""The PROXY protocol: what a load balancer writes first on a connection, so that the server knows the client behind it.

Versions 1 (a line of text) and 2 (a binary header) of HAProxy's "The PROXY protocol". Bytes in, an address out; no sockets.

Rules of this file
1. Whoever calls has asked first whether this neighbour may name other people's addresses: the preamble itself proves nothing.
2. A preamble is read when it is whole, and never longer than its bound. What cannot become one is refused at its first wrong byte.
3. A preamble without an address of TCP (a health check of the balancer, another family) leaves the address of the connection.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Final, NamedTuple

from orbitmq.errors import ProtocolError
from orbitmq.limits.server import PROXY_HEADER_BYTES_MAX, PROXY_LINE_BYTES_MAX

_LINE_BEGINS: Final = b"PROXY "
_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_HEAD: Final = struct.Struct(">12sBBH")
_LOCAL, _PROXIED = 0x20, 0x21
"""Version and command of version 2: a connection of the balancer itself, and one of its client."""

_ADDRESSES: Final = {0x11: (4, struct.Struct(">4s4sHH")), 0x21: (6, struct.Struct(">16s16sHH"))}
"""Family and transport to what the addresses look like: TCP over IPv4 and IPv6."""


class Preamble(NamedTuple):
    """A whole preamble: how long it was, and the client's address where it names one."""

    size_bytes: int
    client: tuple[str, int] | None


def read_preamble(data: bytes) -> Preamble | None:
    """The preamble at the begin of `data`; None when more bytes are needed to tell.

    Data that begin with something else have a preamble of 0 bytes. ProtocolError for one that is malformed or too long.
    """
    if data.startswith(_LINE_BEGINS):
        return _read_line(data)
    if data.startswith(_SIGNATURE):
        return _read_header(data)
    if _LINE_BEGINS.startswith(data) or _SIGNATURE.startswith(data):
        return None
    return Preamble(0, None)


def _read_line(data: bytes) -> Preamble | None:
    end = data.find(b"\r\n", 0, PROXY_LINE_BYTES_MAX)
    if end < 0:
        if len(data) >= PROXY_LINE_BYTES_MAX:
            raise ProtocolError(f"the PROXY line does not end within {PROXY_LINE_BYTES_MAX} bytes")
        return None
    words = data[:end].decode("ascii", "replace").split(" ")
    client: tuple[str, int] | None = None
    if words[1] != "UNKNOWN":
        if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
            raise ProtocolError("the PROXY line is not `PROXY TCP4|TCP6 source destination port port`")
        version = int(words[1][-1])
        client = (_address(words[2], version), _port(words[4]))
        _address(words[3], version)
        _port(words[5])
    return Preamble(end + 2, client)


def _address(text: str, version: int) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        address = None
    if address is None or address.version != version or "%" in text:
        raise ProtocolError(f"the PROXY line has {text!r} where an address of IPv{version} belongs")
    return str(address)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) < 65_536):
        raise ProtocolError(f"the PROXY line has {text!r} where a port belongs")
    return int(text)


def _read_header(data: bytes) -> Preamble | None:
    if len(data) < _HEAD.size:
        return None
    _, command, family, size_bytes = _HEAD.unpack_from(data)
    if command not in (_LOCAL, _PROXIED):
        raise ProtocolError(f"the PROXY header has version and command {command:#04x}, which do not exist")
    whole_bytes = _HEAD.size + size_bytes
    if whole_bytes > PROXY_HEADER_BYTES_MAX:
        raise ProtocolError(f"the PROXY header has {whole_bytes} bytes, {PROXY_HEADER_BYTES_MAX} are allowed")
    if command == _PROXIED and family in _ADDRESSES and size_bytes < _ADDRESSES[family][1].size:
        raise ProtocolError(f"the PROXY header has {size_bytes} bytes for its addresses, which need more")
    if len(data) < whole_bytes:
        return None
    client: tuple[str, int] | None = None
    if command == _PROXIED and family in _ADDRESSES:
        source, _, port, _ = _ADDRESSES[family][1].unpack_from(data, _HEAD.size)
        client = (str(ipaddress.ip_address(source)), port)
    return Preamble(whole_bytes, client)
