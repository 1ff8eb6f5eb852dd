"""Which bytes of its log a broker gives to another copy of that log, where some of them are damaged.

Rules of this file
1. Only who has the same log gets any: of the same group, with the same id, and written by the same epochs as far as the range goes. Who is
   asked needs no ticket for it: both sides know the epochs from the last one.
2. Only what is confirmed here and there is given, a bounded piece of one file at a time: less than was asked for where this log ends.
3. Nothing is read here. What is read may be damaged here as well: who asked checks it.
"""

from __future__ import annotations

from typing import NamedTuple

from orbitmq.errors import OrbitError, StoreDamagedError
from orbitmq.limits.replication import MEND_READ_BYTES
from orbitmq.protocol.remoting.replication_bodies import LogRangeRequest
from orbitmq.replication.epoch_marks import EpochMarks, decode_marks


class RangeRefused(OrbitError):
    """Bytes of this log are not given; the text says why."""


class OwnLog(NamedTuple):
    """What a broker knows of its log: `start` and `end` of what is confirmed, and the size of a file."""

    group: str
    log_id: str
    epochs: EpochMarks
    start: int
    end: int
    segment_bytes: int


def check_range(wanted: LogRangeRequest, own: OwnLog) -> int:
    """How many of the bytes that are wanted are given. Raises RangeRefused where none are. Who names no group is judged by the id of the
    log alone: a command that has a directory and no settings."""
    if wanted.broker_name not in ("", own.group):
        raise RangeRefused(f"{wanted.broker_name} is another group than {own.group}")
    if not own.log_id or wanted.log != own.log_id:
        raise RangeRefused(f"the log here is {own.log_id or 'without an id'}, not {wanted.log or 'one without'}")
    position, size = wanted.position, wanted.size
    file_end = position - position % own.segment_bytes + own.segment_bytes
    if not (position >= 0 and 0 < size <= MEND_READ_BYTES and position + size <= file_end):
        raise RangeRefused(f"{size} bytes from {position} on are no piece of one file")
    size = min(size, own.end - position)
    if position < own.start or size <= 0:
        raise RangeRefused(
            f"the log is confirmed here from {own.start} to {own.end}: not from {position} to {position + wanted.size}"
        )
    try:
        theirs = decode_marks(wanted.epochs.encode())
    except StoreDamagedError as error:
        raise RangeRefused(str(error)) from error
    shared = own.epochs.shared(own.end, theirs, wanted.end)
    if not shared.is_known or shared.end < position + size:
        where = f"at {shared.end}" if shared.is_known else "where no epoch is known to both"
        raise RangeRefused(f"the two logs have parted {where}, before {position + size}")
    return size
