"""The first bytes of a slave: a ticket that says who it is, or at once the reports of RocketMQ's slaves.

    magic     8 bytes, no position of a log: as an int64 it is negative
    secret    32 bytes of a ticket
    reports   as always

Rules of this file
1. What does not begin with the magic is passed on as it is. A negative number that is not the magic breaks the protocol.
2. Nothing is answered: who presents a ticket that does not count loses the connection.
3. Only a master that issued a ticket gets to see one, so a master of RocketMQ never does.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from orbitmq.errors import ReplicationFrameError
from orbitmq.limits.replication import TICKET_BYTES

TICKET_MAGIC: Final = b"\xf0ORBHA\r\n"
"""As in PNG, the last two bytes do not survive a transport that changes ends of lines."""

_OPENING_BYTES: Final = len(TICKET_MAGIC) + TICKET_BYTES
_NEGATIVE: Final = 0x80


class SlaveOpening(NamedTuple):
    """`secret` of the ticket, or None; `rest` is what was received behind it."""

    secret: bytes | None
    rest: bytes


def encode_opening(secret: bytes) -> bytes:
    if len(secret) != TICKET_BYTES:
        raise ValueError(f"a ticket has {TICKET_BYTES} bytes, not {len(secret)}")
    return TICKET_MAGIC + secret


def read_opening(data: bytes) -> SlaveOpening | None:
    """How a slave begins, from everything received so far; None while that is too little to tell: fewer than 40 bytes."""
    if not data:
        return None
    if data[0] < _NEGATIVE:
        return SlaveOpening(None, data)
    if data[: len(TICKET_MAGIC)] != TICKET_MAGIC[: len(data)]:
        raise ReplicationFrameError("neither a position of a log nor a ticket came first")
    if len(data) < _OPENING_BYTES:
        return None
    return SlaveOpening(data[len(TICKET_MAGIC) : _OPENING_BYTES], data[_OPENING_BYTES:])
