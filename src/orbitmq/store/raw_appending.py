"""Growing by the bytes of another log: how a copy follows.

Rules of this file
1. The log of a copy ends with a whole record, and is equal to the other one up to there.
2. Bytes are written as they came. What they say of queues and times is what the store goes on from when it appends messages of its own.
3. A write that fails leaves nothing behind, as in `MessageStore.commit`: what was written before it counts and is dispatched.
"""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.errors import RecordError, StoreUnwritableError
from orbitmq.limits.store import RAW_SLICE_BYTES
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.confirmation import Confirmation
from orbitmq.store.dispatch import Dispatched, DueTime
from orbitmq.store.flushing import Flushing
from orbitmq.store.numbering import follow
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.raw_records import RawRecords, SoundRecords
from orbitmq.store.writability import Writability


class RawAppending:
    """Owned by one open store and used on its thread."""

    __slots__ = (
        "_confirmation",
        "_due_time",
        "_failed",
        "_flushing",
        "_log",
        "_queues",
        "_raw",
        "_undo",
        "_writability",
    )

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        confirmation: Confirmation,
        flushing: Flushing,
        writability: Writability,
        *,
        due_time: DueTime,
        undo: Callable[[list[Dispatched]], None],
        failed: Callable[[OSError], None],
    ) -> None:
        """`undo(entries)` is called with what did not come into the log, `failed(error)` after a failed write."""
        self._log = log
        self._queues = queues
        self._confirmation = confirmation
        self._flushing = flushing
        self._writability = writability
        self._due_time = due_time
        self._undo = undo
        self._failed = failed
        self._raw: RawRecords | None = None
        """What came of a record that is not whole; good for as long as the log ends where it was then."""

    @property
    def received_end(self) -> int:
        """The log position that the next bytes belong to."""
        raw = self._raw
        return self._log.end if raw is None or raw.end != self._log.end else raw.received_end

    def begin_again(self) -> int:
        """Forget what came of a record that is not whole: the next bytes come from another connection, perhaps of another log. Answers the
        position they belong to."""
        self._raw = None
        return self._log.end

    def append(self, offset: int, data: bytes) -> None:
        """Write bytes of another log at the same position. They may end inside a record, which is then written with the bytes that make
        it whole; messages of the store itself make it forgotten. What is whole is dispatched as soon as it is confirmed.

        An empty log begins where the first bytes belong: at the beginning of any file.

        Raises RecordError when the bytes do not follow or are no records, StoreUnwritableError when they cannot be written. Then
        `received_end` is the end of the last whole record. Cost: about 4 us a record.
        """
        if self._writability.copying_stops:
            raise StoreUnwritableError(self._writability.trouble)
        log = self._log
        raw = self._raw
        if raw is None or raw.end != log.end:
            if not log.sequence.segments and offset != log.end:
                self._begin_at(offset)
            raw = self._raw = RawRecords(log.sequence.segment_size, log.end, self._due_time)
        try:
            if offset != raw.received_end:
                raise RecordError(f"bytes for log position {offset} do not follow, {raw.received_end} is next")
            for at in range(0, len(data), RAW_SLICE_BYTES):
                for whole in raw.take(data[at : at + RAW_SLICE_BYTES]):
                    self._write(whole)
        except (RecordError, StoreUnwritableError):
            self._raw = None
            raise

    def _begin_at(self, offset: int) -> None:
        try:
            self._log.begin_at(offset)
        except ValueError as error:
            raise RecordError(str(error)) from error

    def _write(self, whole: SoundRecords) -> None:
        log, entries = self._log, whole.entries
        try:
            follow(self._queues, entries)
            log.add_raw(whole.data, whole.end)
            log.write()
        except RecordError:
            self._undo(entries)
            raise
        except OSError as error:
            log.discard()
            self._undo(entries)
            self._failed(error)
            raise StoreUnwritableError(self._writability.trouble) from error
        if entries:
            log.last_store_timestamp = entries[-1].store_timestamp
        self._confirmation.written(entries)
        self._flushing.written()
