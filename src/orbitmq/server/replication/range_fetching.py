"""A damaged place of the log, asked for at one other copy, piece by piece.

Rules of this file
1. Whether an answer may be used is decided by `MissingRange`. Nothing is written here.
2. What may wait for the disk is a job of whoever calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from orbitmq.errors import RecordError
from orbitmq.limits.replication import MEND_BEFORE_BYTES
from orbitmq.protocol.remoting.replication_bodies import LogRangeRequest
from orbitmq.replication.epoch_marks import encode_marks
from orbitmq.replication.missing_range import MissingRange, OurRecord
from orbitmq.replication.range_answers import OwnLog
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import DueTime
from orbitmq.store.walking import sound_at

T = TypeVar("T")


class OnThread(Protocol):
    """Runs a job that may wait for the disk; raises what it raises."""

    async def __call__(self, job: Callable[[], T], /) -> T: ...


async def fetched(
    log: CommitLog,
    own: OwnLog,
    begin: int,
    until: int,
    ask: Callable[[LogRangeRequest], Awaitable[bytes]],
    on_thread: OnThread,
    due_time: DueTime,
    *,
    in_pieces: bool = False,
) -> MissingRange:
    """What another copy has of the place that begins at `begin`, checked as a whole; our log is known to have been good up to `until`.
    `in_pieces`: of a long place a part. `ask(request)` answers the bytes. Raises OrbitError, OSError, ValueError where it gave nothing that
    may be used."""
    size = min(begin % own.segment_bytes, MEND_BEFORE_BYTES)
    before = await on_thread(lambda: log.read_written(begin - size, size)) if size else b""
    if before is None:
        raise RecordError("the file was removed")
    missing = MissingRange(begin, until, own.segment_bytes, before, due_time, in_pieces=in_pieces)
    await fill(missing, own, ask, on_thread, lambda at: sound_at(log, at, missing.limit))
    return missing


async def fill(
    missing: MissingRange,
    own: OwnLog,
    ask: Callable[[LogRangeRequest], Awaitable[bytes]],
    on_thread: OnThread,
    ours: OurRecord,
) -> None:
    """Ask until it is whole. Raises as `fetched`."""
    epochs = encode_marks(own.epochs).decode("ascii")
    while not missing.is_whole:
        wanted = LogRangeRequest(own.group, own.log_id, own.end, epochs, *missing.next_read())
        data = await ask(wanted)
        await on_thread(partial(missing.take, data, ours))
