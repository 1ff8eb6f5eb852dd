"""What a client is told of a record in the log: in full what was promised, in part, or not at all."""

from __future__ import annotations

from typing import Final

from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.store.durability import PutStatus

ANSWERS: Final = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.UNKNOWN: ResponseCode.SYSTEM_ERROR,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
}

IN_PART: Final = {
    PutStatus.FLUSH_DISK_TIMEOUT: "is stored, but was not flushed to disk in time",
    PutStatus.FLUSH_SLAVE_TIMEOUT: "is stored, but no copy of the broker said in time that it has it",
    PutStatus.SLAVE_NOT_AVAILABLE: "is stored, but the broker has no copy that could be waited for",
}
"""What became of it, for the end of a sentence: it counts, and may be lost with fewer disks than was asked for."""

NOT_CONFIRMED: Final = (
    "this was not confirmed: the disk failed, copies did not have it in time, or the broker leads no more; it may stay or not; send it "
    "again with the same key"
)


def fate(status: PutStatus, *, is_over: bool) -> PutStatus:
    """What a sender is told. `is_over`: the store has failed for good; whether the next start, or a copy, has what was appended then nobody
    knows."""
    return PutStatus.UNKNOWN if is_over and status is PutStatus.SERVICE_NOT_AVAILABLE else status
