"""Frames of RocketMQ's classic replication: positions from the slave, pieces of the commit log from the master.

    report     slave -> master   int64 position up to which the slave has the log
    transfer   master -> slave   int64 position of the first byte, int32 length, so many bytes of the log

Rules of this file
1. Numbers are big-endian and signed; a negative one breaks the protocol. Before the first frame there is no handshake.
2. A transfer of length 0 is a heartbeat. Its position is that of the byte that comes next.
3. A body may begin and end anywhere in a record. It is passed on in the pieces in which it arrives: no more than a head is kept.
4. After a ReplicationFrameError the stream cannot be read any further: close the connection.

(RocketMQ broker, HA service.)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from orbitmq.errors import ReplicationFrameError
from orbitmq.limits.replication import TRANSFER_BYTES_MAX

REPORT_BYTES: Final = 8
TRANSFER_HEAD_BYTES: Final = 12
TRANSFER_BODY_BYTES_MAX: Final = TRANSFER_BYTES_MAX - TRANSFER_HEAD_BYTES
POSITION_MAX: Final = 2**63 - 1

_report = struct.Struct(">q")
_head = struct.Struct(">qi")


class LogPiece(NamedTuple):
    """Bytes of the log and where they belong; without bytes a heartbeat."""

    position: int
    data: memoryview


def encode_report(position: int) -> bytes:
    return _report.pack(position)


def encode_transfer_head(position: int, length: int) -> bytes:
    """The head that stands before `length` bytes of the log."""
    if not 0 <= length <= TRANSFER_BODY_BYTES_MAX:
        raise ValueError(f"a transfer has at most {TRANSFER_BODY_BYTES_MAX} bytes of the log, not {length}")
    return _head.pack(position, length)


class ReportReader:
    """Reads the reports of one slave."""

    __slots__ = ("_partial",)

    def __init__(self) -> None:
        self._partial = b""

    def receive(self, data: bytes | bytearray | memoryview) -> Sequence[int]:
        """Positions that `data` completes, in order."""
        received = self._partial + bytes(data)
        whole = len(received) - len(received) % REPORT_BYTES
        self._partial = received[whole:]
        positions = [position for (position,) in _report.iter_unpack(received[:whole])]
        for position in positions:
            if position < 0:
                raise ReplicationFrameError(f"a slave reported the position {position}")
        return positions


class TransferReader:
    """Reads the transfers of one master."""

    __slots__ = ("_left", "_partial", "_position")

    def __init__(self) -> None:
        self._partial = bytearray()
        self._position = 0
        """Of the next byte of the body that comes, of which `_left` bytes have not come."""
        self._left = 0

    def receive(self, data: bytes | bytearray | memoryview) -> list[LogPiece]:
        """Pieces of the log in `data`, in order, and heartbeats. The pieces refer to `data`, which must not change."""
        pieces: list[LogPiece] = []
        view = memoryview(data)
        at, size = 0, len(view)
        while at < size:
            if self._left:
                piece = view[at : at + self._left]
                pieces.append(LogPiece(self._position, piece))
                at += len(piece)
                self._left -= len(piece)
                self._position += len(piece)
                continue
            lacking = TRANSFER_HEAD_BYTES - len(self._partial)
            if lacking > size - at or self._partial:
                self._partial += view[at : at + lacking]
                if len(self._partial) < TRANSFER_HEAD_BYTES:
                    break
                head = _head.unpack(self._partial)
                self._partial.clear()
            else:
                head = _head.unpack_from(view, at)
            at += lacking
            self._position, self._left = _checked_head(*head)
            if not self._left:
                pieces.append(LogPiece(self._position, view[:0]))
        return pieces


def _checked_head(position: int, length: int) -> tuple[int, int]:
    if not 0 <= length <= TRANSFER_BODY_BYTES_MAX:
        raise ReplicationFrameError(
            f"a transfer announces {length} bytes of the log; 0 to {TRANSFER_BODY_BYTES_MAX} are allowed",
            remedy="set haTransferBatchSize of the master to less than 4 MiB",
        )
    if not 0 <= position <= POSITION_MAX - length:
        raise ReplicationFrameError(f"a transfer of {length} bytes has the position {position}")
    return position, length
