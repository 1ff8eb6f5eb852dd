"""The one physical log: every message record of the broker, one after the other.

Rules of this file
1. Records are gathered in memory during a loop turn and written together by `write`; nothing is visible before that.
2. A record never crosses a file boundary; the rest of a file is closed by a filler (RocketMQ, end-of-file filler).
3. The log is written with positioned writes and read through read-only mappings: a full disk is an error, not a signal.
4. Store timestamps never decrease, whatever the wall clock does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from struct import Struct

from orbitmq.errors import RecordError, StoreUnwritableError
from orbitmq.protocol.records import BLANK_BYTES_MIN, encode_blank
from orbitmq.store.files import Files
from orbitmq.store.segments import Segment, SegmentSequence

_SIZE = Struct(">i")
_HEAD = Struct(">i24xq")
"""Size and physical offset of a record."""


class CommitLog:
    """The files of `commitlog/` as one range of bytes, from `start` to `end`."""

    __slots__ = ("_files", "_gathered", "end", "last_store_timestamp", "sequence", "synced_end", "written_end")

    def __init__(self, files: Files, directory: Path, segment_bytes: int) -> None:
        self._files = files
        self.sequence = SegmentSequence(files, directory, segment_bytes)
        self._gathered: list[tuple[Segment, int, list[bytes | bytearray]]] = []
        self.end = 0
        """Position of the next record."""
        self.written_end = 0
        """Everything below is in the files (page cache)."""
        self.synced_end = 0
        """Everything below survives a power failure."""
        self.last_store_timestamp = 0

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
        if now_ms > self.last_store_timestamp:
            self.last_store_timestamp = now_ms
        return self.last_store_timestamp

    def place(self, size: int) -> int:
        """Where a record (or a batch that must stay together) of `size` bytes begins; closes the file when it is full.

        Raises RecordError when it fits in no file, OSError when the next file cannot be created.
        """
        if self._gathered and self.end + size + BLANK_BYTES_MIN <= self._gathered[-1][0].end:
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
        elif not self._gathered:
            self._gathered.append((segment, self.end, []))
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

    @property
    def has_gathered(self) -> bool:
        return bool(self._gathered)

    def write(self) -> None:
        """Write what was gathered. On OSError nothing of it counts: the range reads as zeros again and `end` is back.

        Raises StoreUnwritableError when even that could not be restored: then the log must not be written any more.
        """
        gathered, self._gathered = self._gathered, []
        try:
            for segment, position, parts in gathered:
                segment.dirty = True
                segment.file.pwritev(parts, position - segment.base)
        except OSError as error:
            self.end = self.written_end
            try:
                for segment, position, parts in gathered:
                    segment.file.punch(position - segment.base, sum(map(len, parts)))
            except OSError as second:
                raise StoreUnwritableError(
                    f"a failed write at {self.written_end} ({error}) could not be undone ({second})",
                    remedy="stop the broker, make room or replace the disk, and start it again",
                ) from second
            raise
        self.written_end = self.end

    def discard(self) -> None:
        """Forget what was gathered."""
        self._gathered.clear()
        self.end = self.written_end

    def write_raw(self, offset: int, data: bytes) -> None:
        """Append bytes that are already records, as a copy of another log, at `offset`, which must be `end`."""
        if offset != self.end or self._gathered:
            raise ValueError(f"raw bytes for {offset} do not continue the log, which ends at {self.end}")
        view = memoryview(data)
        while view:
            segment = self.sequence.find(self.end) or self.sequence.grow(self.end)
            size = min(len(view), segment.end - self.end)
            segment.dirty = True
            segment.file.pwrite(view[:size], self.end - segment.base)
            self.end += size
            self.written_end = self.end
            view = view[size:]

    def datasync(self) -> None:
        """Make everything written durable. Blocks; the caller advances `synced_end`."""
        self.sequence.datasync()

    # --- reading ----------------------------------------------------------------------------------------------------

    def view(self, offset: int, size: int) -> memoryview | None:
        """The written bytes of a range inside one file; None when they are not there (any more)."""
        segment = self.sequence.find(offset)
        if segment is None or offset < 0 or offset + size > min(self.written_end, segment.end):
            return None
        return segment.view[offset - segment.base : offset - segment.base + size]

    def record_view(self, offset: int) -> memoryview | None:
        """The record that begins at `offset`, by its own size field; None when that cannot be one."""
        head = self.view(offset, _SIZE.size)
        if head is None:
            return None
        (size,) = _SIZE.unpack(head)
        return self.view(offset, size) if size > BLANK_BYTES_MIN else None

    def will_need(self, offset: int, size: int) -> None:
        """A range that lies in one file will be asked for soon; see `Segment.will_need`."""
        if offset + size <= self.written_end:
            self.sequence.will_need(offset, size)

    def claimed_size(self, offset: int) -> int:
        """What the first bytes at `offset`, read from the file, say is the size of a record there; 0 when there are none."""
        head = self.sequence.read(offset, _SIZE.size)
        return int(_SIZE.unpack(head)[0]) if len(head) == _SIZE.size else 0

    def record_views(self, offsets: Sequence[int]) -> list[memoryview | None]:
        """`record_view` of many, in a third of its time where they lie in one file."""
        found: list[memoryview | None] = []
        base = end = 0
        for offset in offsets:
            if not base <= offset <= end - BLANK_BYTES_MIN:
                segment = self.sequence.find(offset)
                if segment is None or offset < 0 or offset + BLANK_BYTES_MIN > min(self.written_end, segment.end):
                    found.append(None)
                    continue
                base, end, view = segment.base, min(self.written_end, segment.end), segment.view
            at = offset - base
            (size,) = _SIZE.unpack_from(view, at)
            found.append(view[at : at + size] if BLANK_BYTES_MIN < size <= end - offset else None)
        return found

    def claims_record(self, offset: int, size: int) -> bool:
        """Whether the files hold a record of that size which says that it lies at `offset`; not checked any further."""
        head = self.sequence.read(offset, _HEAD.size)
        return len(head) == _HEAD.size and _HEAD.unpack(head) == (size, offset)

    # --- recovery ---------------------------------------------------------------------------------------------------

    def expose_files(self) -> None:
        """Let everything in the files be looked at until the end is known."""
        self.end = self.written_end = self.end_of_files

    def set_end(self, end: int) -> None:
        """Make `end` the end of the log: whatever lies beyond it is removed."""
        self.sequence.cut(end)
        self.end = self.written_end = end

    def drop_beyond(self, end: int) -> None:
        """As `set_end` when nothing but zeros lies beyond `end`: only whole files are removed."""
        self.sequence.remove_leftover()
        while len(self.sequence.segments) > 1 and self.sequence.segments[-1].base >= end:
            self.sequence.drop_last()
        self.end = self.written_end = end

    def close(self) -> None:
        self.sequence.close()
