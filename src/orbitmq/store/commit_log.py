"""The one physical log: every message record of the broker, one after the other.

Rules of this file
1. Records are gathered in memory during a loop turn and written together by `write`; nothing is visible before that.
2. A record never crosses a file boundary; the rest of a file is closed by a filler (RocketMQ, end-of-file filler).
3. The log is written and read with positioned calls: a full disk, a bad sector and a file cut short are errors, not signals.
   Only `Segment.view` is a mapping; what is sent from it must be in memory.
4. Nothing is read beyond `readable_end`. The scans of recovery, which look for it, read the files themselves.
5. A read that fails raises OSError; None means that there is nothing to read.
6. Store timestamps never decrease while the clock steps back by no more than `CLOCK_JUMP_MS`. Beyond that the newest one was a mistake, and
   they return to the clock: better once out of order than wrong for as long as the clock was ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Any, Final

from orbitmq.errors import RecordError
from orbitmq.limits.clock import CLOCK_JUMP_MS
from orbitmq.protocol.records import BLANK_BYTES_MIN, CheckStatus, check_record, encode_blank
from orbitmq.store.files import Files
from orbitmq.store.segments import Segment, SegmentSequence

_SIZE = Struct(">i")
_HEAD = Struct(">i24xq")
"""Size and physical offset of a record."""


RECORD_READ_BYTES = 2048
"""What is read of a record whose size is not known yet: most are shorter, a longer one takes a second read."""

NOT_HAD: Final = object()
"""Instead of a record that would have to be read from the disk."""

NEIGHBOUR_BYTES = 16 * 1024
"""Records that begin this close to each other are read together: a copy of that size costs about as much as a call."""

WINDOW_BYTES = 256 * 1024
"""About how much is read together at most."""


class NotDurableError(OSError):
    """A sync failed: what was written before may be lost, of others as well."""


class CommitLog:
    """The files of `commitlog/` as one range of bytes, from `start` to `end`."""

    __slots__ = (
        "_files",
        "_gathered",
        "_place_end",
        "_torn",
        "end",
        "last_store_timestamp",
        "readable_end",
        "sequence",
        "synced_end",
        "unsound_at",
        "written_end",
    )

    def __init__(self, files: Files, directory: Path, segment_bytes: int) -> None:
        self._files = files
        self.sequence = SegmentSequence(files, directory, segment_bytes, keep_unsynced=True)
        self._gathered: list[tuple[Segment, int, list[bytes | bytearray]]] = []
        self._place_end = 0
        """Records that end at or before it fit the file of the last place; 0 where nothing is gathered."""
        self._torn: list[tuple[Segment, int, int]] = []
        """File, position and size of what a failed write may have left behind the end."""
        self.end = 0
        """Position of the next record."""
        self.written_end = 0
        """Everything below is in the files (page cache)."""
        self.synced_end = 0
        """Everything below survives a power failure."""
        self.readable_end = 0
        """Whatever lies below may be shown to anybody: the confirmed offset of the store."""
        self.last_store_timestamp = 0
        self.unsound_at: int | None = None
        """The first place where `sound_record` met a record that is damaged."""

    @property
    def start(self) -> int:
        return self.sequence.first_offset

    @property
    def end_of_files(self) -> int:
        """Where the last file ends, written or not: no record lies beyond."""
        return self.sequence.end_offset

    # --- appending --------------------------------------------------------------------------------------------------

    def stamp(self, now_ms: int) -> int:
        """Store timestamp for a record appended now."""
        if now_ms > self.last_store_timestamp or self.last_store_timestamp - now_ms > CLOCK_JUMP_MS:
            self.last_store_timestamp = now_ms
        return self.last_store_timestamp

    def place(self, size: int) -> int:
        """Where a record (or a batch that must stay together) of `size` bytes begins; closes the file when it is full.

        Raises RecordError when it fits in no file, OSError when the next file cannot be created.
        """
        if self.end + size <= self._place_end:
            return self.end
        segment_bytes = self.sequence.segment_size
        if size + BLANK_BYTES_MIN > segment_bytes:
            raise RecordError(f"{size} bytes do not fit in a commit log file of {segment_bytes} bytes")
        segment = self.sequence.find(self.end)
        if segment is None:
            segment = self.sequence.grow(self.end)
        room = segment.end - self.end
        if size + BLANK_BYTES_MIN > room:
            following = self.sequence.find(segment.end) or self.sequence.grow(segment.end)
            self._gather(segment, encode_blank(room))
            self.end = following.base
            self._gathered.append((following, following.base, []))
            segment = following
        elif not self._gathered:
            self._gathered.append((segment, self.end, []))
        self._place_end = segment.end - BLANK_BYTES_MIN
        return self.end

    def _gather(self, segment: Segment, data: bytes) -> None:
        if not self._gathered:
            self._gathered.append((segment, self.end, []))
        self._gathered[-1][2].append(data)

    def add(self, record: bytes | bytearray) -> None:
        """Gather a record for the position that `place` returned, or the next one of the same batch."""
        self._gathered[-1][2].append(record)
        self.end += len(record)

    @property
    def gathered_room(self) -> int:
        """How many bytes of records fit behind the place that `place` returned, in the same file."""
        return self._gathered[-1][0].end - BLANK_BYTES_MIN - self.end

    def add_many(self, records: Sequence[bytes | bytearray]) -> None:
        """`add` of each; they are to fit the file."""
        self._gathered[-1][2].extend(records)
        self.end += sum(map(len, records))

    def begin_at(self, position: int) -> None:
        """Let an empty log begin at the first byte of a file that is not its first. ValueError for any other position."""
        if self.sequence.segments or self._gathered or position % self.sequence.segment_size:
            raise ValueError(f"a log cannot begin at {position}: it has files, or none of its files begins there")
        self.end = self.written_end = self.synced_end = self.readable_end = position

    def add_raw(self, data: bytes, end: int) -> None:
        """Gather bytes of another log, which lie in one file, for the end of this one, which is `end` then: behind them, or where the file
        ends that they close. Raises OSError when their file cannot be created."""
        segment = self.sequence.find(self.end) or self.sequence.grow(self.end)
        self._gathered.append((segment, self.end, [data]))
        self.end = end

    @property
    def has_gathered(self) -> bool:
        return bool(self._gathered)

    def write(self) -> None:
        """Write what was gathered. On OSError nothing of it counts: `end` is back, and what the write left behind it is undone,
        at once or, where that fails too, before anything else is written."""
        gathered, self._gathered, self._place_end = self._gathered, [], 0
        try:
            if self._torn:
                self.mend()
            for segment, position, parts in gathered:
                segment.dirty = True
                segment.file.pwritev(parts, position - segment.base)
        except OSError:
            self.end = self.written_end
            self._torn += [(segment, position, sum(map(len, parts))) for segment, position, parts in gathered]
            with suppress(OSError):
                self.mend()
            raise
        self.written_end = self.end

    def overwrite(self, position: int, data: bytes) -> bool:
        """Put sound bytes of another copy in the place of damaged ones, inside one file and below what was written; durable on return.
        False: the file is gone. Blocks; on any thread. Raises OSError; `NotDurableError` where they were written and may not last."""
        segment = self._written(position, len(data))
        if segment is None:
            return False
        if segment.file.size() < segment.size:
            segment.file.truncate(segment.size)  # somebody cut it short
        segment.file.pwrite(data, position - segment.base)
        try:
            segment.file.datasync()
        except OSError as error:
            raise NotDurableError(error.errno, error.strerror, str(segment.path)) from error
        return True

    def mend(self) -> None:
        """Make everything behind the end read as zeros again where a failed write was: records may not follow what it left.
        Raises OSError; then it has to be called again."""
        while self._torn:
            segment, position, size = self._torn[-1]
            segment.dirty = True
            segment.file.punch(position - segment.base, size)
            self._torn.pop()

    def discard(self) -> None:
        """Forget what was gathered."""
        self._gathered.clear()
        self._place_end = 0
        self.end = self.written_end

    def cut(self, to: int) -> None:
        """Make `to` the end of the log: whatever was written behind it is going to read as zeros, before anything else is written."""
        for segment in self.sequence.segments:
            if segment.end > to and segment.base < self.written_end:
                begin = max(segment.base, to)
                self._torn.append((segment, begin, min(segment.end, self.written_end) - begin))
        self.end = self.written_end = to
        with suppress(OSError):
            self.mend()

    def datasync(self) -> None:
        """Make everything written durable. Blocks; the caller advances `synced_end`."""
        self.sequence.datasync()

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(self, offset: int, size: int) -> bytes | None:
        """A range inside one file; None when it is not there (any more), or not to be read yet. May wait for the disk.

        Raises OSError when it cannot be read.
        """
        segment = self._readable(offset, size)
        return None if segment is None else segment.read(offset, size)

    def read_now(self, offset: int, size: int) -> bytes | bytearray | None:
        """As `read`, of what is in memory: never waits for the disk, and None also when it would have to."""
        segment = self._readable(offset, size)
        return None if segment is None else segment.file.pread_now(size, offset - segment.base)

    def _readable(self, offset: int, size: int) -> Segment | None:
        """The file that holds all of a range, if all of it may be read."""
        segment = self.sequence.find(offset)
        if segment is None or offset < segment.base or size < 0 or offset + size > min(self.readable_end, segment.end):
            return None
        return segment

    def read_written(self, offset: int, size: int) -> bytes | None:
        """A range inside one file, confirmed or not, for a copy of the log; None when it is not there (any more). May wait for the disk; on
        any thread. Raises OSError when it cannot be read."""
        segment = self._written(offset, size)
        return None if segment is None else segment.read(offset, size)

    def read_written_now(self, offset: int, size: int) -> bytes | bytearray | None:
        """As `read_written`, of what is in memory: never waits for the disk, and None also when it would have to."""
        segment = self._written(offset, size)
        return None if segment is None else segment.file.pread_now(size, offset - segment.base)

    def _written(self, offset: int, size: int) -> Segment | None:
        segment = self.sequence.find(offset)
        if segment is None or offset < segment.base or offset + size > min(self.written_end, segment.end):
            return None
        return segment

    def room_at(self, offset: int) -> int:
        """How many bytes from `offset` on may be read, up to the end of the file that holds it; 0 where there are none."""
        segment = self.sequence.find(offset)
        return 0 if segment is None or offset < segment.base else max(min(self.readable_end, segment.end) - offset, 0)

    def record(self, offset: int) -> bytes | None:
        """The record that begins at `offset`, by its own size field, unchecked; None when that cannot be one. May wait for the
        disk. Raises OSError when it cannot be read."""
        return self._record_in(b"", offset, offset, RECORD_READ_BYTES)

    def sound_record(self, offset: int) -> bytes | None:
        """As `record`, checked; None for one that is damaged as well, which `unsound_at` remembers."""
        data = self.record(offset)
        if data is not None and (
            check_record(data, 0, len(data), expect_physical_offset=offset).status is CheckStatus.VALID
        ):
            return data
        if self.unsound_at is None and self.start <= offset < self.readable_end:
            self.unsound_at = offset
        return None

    def record_now(self, offset: int) -> Any:
        """As `record`, of what is in memory; NOT_HAD when the disk would have to be asked."""
        room = self.room_at(offset)
        if room < BLANK_BYTES_MIN:
            return None
        data = self.read_now(offset, min(RECORD_READ_BYTES, room))
        if data is None:
            return NOT_HAD
        (size,) = _SIZE.unpack_from(data)
        if not BLANK_BYTES_MIN < size <= room:
            return None
        if size <= len(data):
            return data[:size]
        data = self.read_now(offset, size)
        return NOT_HAD if data is None else data

    def records(self, offsets: Sequence[int], bytes_max: int) -> list[bytes | None]:
        """`record` of many, or of the first of them that have more than `bytes_max` together; neighbours are read together."""
        found: list[bytes | None] = []
        window, base = b"", 0
        count = len(offsets)
        for number, offset in enumerate(offsets):
            at = offset - base
            if not 0 <= at <= len(window) - BLANK_BYTES_MIN:
                following = number + 1
                last = offset
                while (
                    following < count
                    and 0 <= offsets[following] - last < NEIGHBOUR_BYTES
                    and last - offset < WINDOW_BYTES
                ):
                    last = offsets[following]
                    following += 1
                size = min(last - offset + RECORD_READ_BYTES, self.room_at(offset))
                window, base = self.read(offset, size) or b"", offset
            record = self._record_in(window, base, offset, RECORD_READ_BYTES)
            found.append(record)
            bytes_max -= 0 if record is None else len(record)
            if bytes_max < 0:
                break
        return found

    def _record_in(self, window: bytes, base: int, offset: int, guess: int) -> bytes | None:
        """The record at `offset`, out of bytes that were read from `base` on as far as they go."""
        at = offset - base
        if len(window) - at < BLANK_BYTES_MIN:
            window, at = self.read(offset, min(guess, self.room_at(offset))) or b"", 0
            if len(window) < BLANK_BYTES_MIN:
                return None
        (size,) = _SIZE.unpack_from(window, at)
        if size <= BLANK_BYTES_MIN:
            return None
        return window[at : at + size] if at + size <= len(window) else self.read(offset, size)

    def will_need(self, offset: int, size: int) -> None:
        """As much of a range as lies in the file where it begins, and may be read, will be asked for soon; see `File.will_need`."""
        self.sequence.will_need(offset, min(size, self.readable_end - offset))

    def claimed_size(self, offset: int) -> int:
        """What the first bytes at `offset` say is the size of a record there; 0 when there are none. As `read`."""
        head = self.read(offset, _SIZE.size)
        return int(_SIZE.unpack(head)[0]) if head is not None else 0

    def claims_record(self, offset: int, size: int) -> bool:
        """Whether the files hold a record of that size which says that it lies at `offset`; not checked any further. For recovery:
        also beyond `readable_end`."""
        head = self.sequence.read(offset, _HEAD.size)
        return len(head) == _HEAD.size and _HEAD.unpack(head) == (size, offset)

    # --- recovery ---------------------------------------------------------------------------------------------------

    def expose_files(self) -> None:
        """Let everything in the files be looked at until the end is known."""
        self.end = self.written_end = self.readable_end = self.end_of_files

    def set_end(self, end: int) -> None:
        """Make `end` the end of the log: whatever lies beyond it is removed."""
        self.sequence.cut(end)
        self.end = self.written_end = end
        self.readable_end = min(self.readable_end, end)

    def drop_beyond(self, end: int) -> None:
        """As `set_end` when nothing but zeros lies beyond `end`: only whole files are removed."""
        self.sequence.remove_leftover()
        while len(self.sequence.segments) > 1 and self.sequence.segments[-1].base >= end:
            self.sequence.drop_last()
        self.end = self.written_end = end
        self.readable_end = min(self.readable_end, end)

    def close(self) -> None:
        self.sequence.close()
