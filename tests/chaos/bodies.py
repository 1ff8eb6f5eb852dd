"""Bodies of numbered messages: the number and a checksum of it, so that a damaged body is no valid number."""

from __future__ import annotations

import zlib


def body_of(number: int, size: int = 0) -> bytes:
    head = f"{number}:{zlib.crc32(str(number).encode()):08x}:".encode()
    return head.ljust(size, b".")


def number_of(body: bytes) -> int | None:
    """The number of a message, None when the body is none of ours or was damaged."""
    number, _, rest = body.partition(b":")
    check, _, padding = rest.partition(b":")
    try:
        value = int(number)
    except ValueError:
        return None
    if check != f"{zlib.crc32(str(value).encode()):08x}".encode() or padding.strip(b"."):
        return None
    return value
