"""One index file: a header, a table of hash slots, and entries chained by slot (RocketMQ storage, index file).

    0           header: begin and end store time, begin and end physical offset (8 each), slots in use, entries + 1
    40          slots:  number of the newest entry whose hash falls into the slot (4 each); 0 means none
    40+4*slots  entries: hash 4, physical offset 8, seconds since the begin time 4, previous entry of the slot 4

Entry 0 is never used. The file has its full size from the start; the entry part is sparse, header and slot table have
their space reserved and are mapped for writing.

Rules of this file
1. Puts collect in memory and reach the file in `write`, in this order: entries, header, slots. Whatever moment the
   process dies at, the header counts only entries that are there, and at worst their slots are behind.
2. `relink` brings slots up to the entries that the header counts; `rebuild` makes them anew from the entries alone, for
   the power failure after which any mixture of written and unwritten pages is possible.
3. Unwritten puts are visible to `find`.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from orbitmq.errors import StoreDamagedError, StoreError
from orbitmq.limits.store import INDEX_CHAIN_STEPS_MAX
from orbitmq.store.files import File, Files
from orbitmq.store.index_batch import ENTRY, ENTRY_BYTES, HEADER_BYTES, SLOT, SLOT_BYTES, link_entries

HEADER: Final = Struct(">qqqqii")
_SPAN: Final = Struct(">qqqq")
_COUNTS: Final = Struct(">ii")
_REBUILD_ENTRIES: Final = 65_536
"""Entries read at a time by a scan: 1.3 MB."""


class IndexFileShape(NamedTuple):
    """The two sizes of an index file; they are configured, the file does not name them."""

    slot_count: int
    entry_count: int

    @property
    def entries_at(self) -> int:
        return HEADER_BYTES + self.slot_count * SLOT_BYTES

    @property
    def file_bytes(self) -> int:
        return self.entries_at + self.entry_count * ENTRY_BYTES


class IndexHeader(msgspec.Struct, frozen=True):
    """The first 40 bytes. `count` is the number of entries plus one, which is also the number of the next entry."""

    begin_timestamp: int
    end_timestamp: int
    begin_offset: int
    end_offset: int
    slots_used: int
    count: int

    @classmethod
    def decode(cls, data: bytes) -> IndexHeader:
        header = cls(*HEADER.unpack_from(data))
        return header if header.count > 0 else msgspec.structs.replace(header, count=1)


class IndexFileEntry(NamedTuple):
    key_hash: int
    physical_offset: int
    time_diff_s: int
    previous: int


class IndexFile:
    """An index file of the store that is open. Only the newest one is written to."""

    __slots__ = (
        "_entries_at",
        "_file",
        "_files",
        "_heads",
        "_pending",
        "_table",
        "_written",
        "begin_offset",
        "begin_timestamp",
        "count",
        "end_offset",
        "end_timestamp",
        "path",
        "shape",
        "slots_used",
        "synced_writes",
        "writes",
    )

    def __init__(self, files: Files, path: Path, shape: IndexFileShape, file: File, header: IndexHeader) -> None:
        self._files = files
        self._file = file
        self._table: mmap.mmap | None = None
        self._pending = bytearray()
        self._heads: dict[int, int] = {}
        self._entries_at = shape.entries_at
        self.path = path
        self.shape = shape
        self._take(header)
        self.writes = 0
        """Grows with every change of the file; what `datasync` covered is `synced_writes`."""
        self.synced_writes = 0

    def _take(self, header: IndexHeader) -> None:
        self.begin_timestamp, self.end_timestamp = header.begin_timestamp, header.end_timestamp
        self.begin_offset, self.end_offset = header.begin_offset, header.end_offset
        self.slots_used, self.count = header.slots_used, header.count
        self._written = self.count

    @classmethod
    def create(cls, files: Files, path: Path, shape: IndexFileShape, before: IndexHeader | None) -> IndexFile:
        """A new file. As RocketMQ does, its header starts from the end of the file `before` it.

        Reserves the slot table (`OSError` when the disk is full; the file is removed again).
        """
        file = files.open(path, create=True)
        try:
            file.truncate(shape.file_bytes)
            file.allocate(0, shape.entries_at)
        except OSError:
            file.close()
            files.remove(path)
            raise
        end_time, end_offset = (before.end_timestamp, before.end_offset) if before else (0, 0)
        return cls(files, path, shape, file, IndexHeader(end_time, end_time, end_offset, end_offset, 0, 1))

    @classmethod
    def open(cls, files: Files, path: Path, shape: IndexFileShape, *, writable: bool = True) -> IndexFile:
        """A file that is there. Raises StoreDamagedError when its size is not that of `shape` or it counts too much."""
        size = files.file_size(path)
        if size != shape.file_bytes:
            raise StoreDamagedError(
                f"{path} has {size} bytes, not the {shape.file_bytes} of {shape.slot_count} slots"
                f" and {shape.entry_count} entries",
                remedy="set maxHashSlotNum and maxIndexNum to the values the store was written with",
            )
        file = files.open(path, writable=writable)
        header = IndexHeader.decode(file.pread(HEADER_BYTES, 0))
        if header.count > shape.entry_count:
            file.close()
            raise StoreDamagedError(
                f"{path} claims {header.count} entries, it has room for {shape.entry_count}",
                remedy="move the file away; the keys in it will be indexed again from the commit log",
            )
        return cls(files, path, shape, file, header)

    @property
    def header(self) -> IndexHeader:
        return IndexHeader(
            self.begin_timestamp, self.end_timestamp, self.begin_offset, self.end_offset, self.slots_used, self.count
        )

    @property
    def written_count(self) -> int:
        """`count` as it stands in the file."""
        return self._written

    @property
    def is_full(self) -> bool:
        return self.count >= self.shape.entry_count

    @property
    def is_dirty(self) -> bool:
        return self.writes != self.synced_writes

    # --- writing ------------------------------------------------------------------------------------------------

    def _writable(self) -> mmap.mmap:
        if self._table is None:
            # RocketMQ creates its files sparse; a store into a hole of a full disk would kill the process.
            self._file.allocate(0, self._entries_at)
            self._table = self._file.map_write(self._entries_at)
        return self._table

    def put(self, hashes: list[int], offsets: list[int], times: list[int]) -> int:
        """Take in entries (parallel lists, in log order) while there is room; returns how many. Not yet in the file."""
        taken = min(len(hashes), self.shape.entry_count - self.count)
        if taken <= 0:
            return 0
        if taken < len(hashes):
            hashes, offsets, times = hashes[:taken], offsets[:taken], times[:taken]
        if self.count == 1:
            self.begin_timestamp = times[0]
            self.begin_offset = offsets[0]
        table = self._writable()
        self.slots_used += link_entries(
            hashes,
            offsets,
            times,
            self.count,
            self.begin_timestamp,
            table,
            self.shape.slot_count,
            self._heads,
            self._pending,
        )
        self.count += taken
        self.end_timestamp = times[-1]
        self.end_offset = offsets[-1]
        return taken

    def write(self) -> None:
        """Put what waits into the page cache. After an `OSError` nothing is lost and the call may be repeated."""
        if not self._pending:
            return
        table = self._writable()
        self._file.pwrite(self._pending, self._entries_at + self._written * ENTRY_BYTES)
        self._write_header(table)
        pack = SLOT.pack_into
        for slot, number in self._heads.items():
            pack(table, HEADER_BYTES + slot * SLOT_BYTES, number)
        self._written = self.count
        self._pending = bytearray()
        self._heads.clear()
        self.writes += 1

    def _write_header(self, table: mmap.mmap) -> None:
        # Two stores: the counts share one aligned 8-byte word and come last, so they never count what is not there.
        table[:32] = _SPAN.pack(self.begin_timestamp, self.end_timestamp, self.begin_offset, self.end_offset)
        table[32:HEADER_BYTES] = _COUNTS.pack(self.slots_used, self.count)

    def datasync(self) -> None:
        """Make what was written before the call durable. Blocks; may run on another thread, beside all but `close`."""
        writes = self.writes
        self._file.datasync()
        self.synced_writes = writes

    # --- repair -------------------------------------------------------------------------------------------------

    def relink(self, since: int) -> None:
        """After the end of a process: bring the slots up to the entries from number `since` on that the header counts.

        Needs every entry below `count` in the file. Idempotent; costs about 0.5 us an entry.
        """
        if since >= self.count:
            return
        table = self._writable()
        slot_count = self.shape.slot_count
        for number, entry in self.entries(since):
            at = HEADER_BYTES + entry.key_hash % slot_count * SLOT_BYTES
            if not number <= SLOT.unpack_from(table, at)[0] < self.count:
                SLOT.pack_into(table, at, number)
        # A header torn between its two stores may speak of an offset that no entry has.
        self.end_offset = self.entry(self.count - 1).physical_offset
        self._write_header(table)
        self.writes += 1

    def rebuild(self, count: int, end_timestamp: int) -> None:
        """Make slots and header anew from entries 1 to `count` - 1, which must be durable. 0.2 us an entry."""
        table = self._writable()
        slot_count = self.shape.slot_count
        slots = [0] * slot_count
        number = 1
        while number < count:
            data = self._file.pread(min(count - number, _REBUILD_ENTRIES) * ENTRY_BYTES, self._at(number))
            for (key_hash,) in _HASH_ONLY.iter_unpack(data):
                slots[key_hash % slot_count] = number
                number += 1
        table[HEADER_BYTES:] = Struct(f">{slot_count}i").pack(*slots)
        self.slots_used = slot_count - slots.count(0)
        self.count = self._written = count
        self.end_timestamp = end_timestamp
        self.end_offset = self.entry(count - 1).physical_offset if count > 1 else self.begin_offset
        self._write_header(table)
        self.writes += 1

    def cut(self, end: int) -> None:
        """Take out the entries of records from physical offset `end` on; the log was cut there."""
        self.write()
        table = self._writable()
        slot_count = self.shape.slot_count
        number = self.count - 1
        while number > 0 and (entry := self.entry(number)).physical_offset >= end:
            at = HEADER_BYTES + entry.key_hash % slot_count * SLOT_BYTES
            if SLOT.unpack_from(table, at)[0] == number:
                SLOT.pack_into(table, at, entry.previous)
                self.slots_used -= entry.previous == 0
            number -= 1
        self.count = self._written = number + 1
        if number:
            last = self.entry(number)
            self.end_offset = last.physical_offset
            self.end_timestamp = min(self.end_timestamp, self.begin_timestamp + last.time_diff_s * 1000 + 999)
        self._write_header(table)
        self.writes += 1

    # --- reading ------------------------------------------------------------------------------------------------

    def _at(self, number: int) -> int:
        return self._entries_at + number * ENTRY_BYTES

    def entry(self, number: int) -> IndexFileEntry:
        """Entry `number`, 1 to `count` - 1."""
        if number >= self._written:
            return IndexFileEntry(*ENTRY.unpack_from(self._pending, (number - self._written) * ENTRY_BYTES))
        return IndexFileEntry(*ENTRY.unpack_from(self._file.view(), self._at(number)))

    def entries(self, since: int = 1) -> Iterator[tuple[int, IndexFileEntry]]:
        """Written entries from number `since` on, with their numbers."""
        number = max(since, 1)
        while number < self._written:
            data = self._file.pread(min(self._written - number, _REBUILD_ENTRIES) * ENTRY_BYTES, self._at(number))
            for values in ENTRY.iter_unpack(data):
                yield number, IndexFileEntry(*values)
                number += 1

    def read_slots(self) -> bytes:
        """The slot table as it stands in the file: big-endian 32-bit entry numbers."""
        return self._file.pread(self.shape.slot_count * SLOT_BYTES, HEADER_BYTES)

    def hashes_at(self, physical_offset: int) -> Counter[int]:
        """Hashes of the newest entries, as far as they belong to the record at `physical_offset`."""
        found: Counter[int] = Counter()
        for number in range(self.count - 1, 0, -1):
            entry = self.entry(number)
            if entry.physical_offset != physical_offset:
                break
            found[entry.key_hash] += 1
        return found

    def head(self, slot: int) -> int:
        """Number of the newest entry of a slot, 0 when there is none."""
        number = self._heads.get(slot)
        if number is None:
            table = self._table or self._file.view()
            number = int(SLOT.unpack_from(table, HEADER_BYTES + slot * SLOT_BYTES)[0])
        return number if 0 < number < self.count else 0

    def find(self, key_hash: int, max_count: int, begin_ms: int, end_ms: int) -> list[int]:
        """Physical offsets of entries with this hash, newest first, whose store time may lie in [begin_ms, end_ms].

        Times are known to the second: an entry counts when any millisecond of its second is not before `begin_ms`.
        Raises StoreError after `INDEX_CHAIN_STEPS_MAX` entries.
        """
        found: dict[int, None] = {}
        number = self.head(key_hash % self.shape.slot_count)
        for _ in range(INDEX_CHAIN_STEPS_MAX):
            if number == 0 or len(found) >= max_count:
                return list(found)
            entry = self.entry(number)
            if entry.time_diff_s < 0:
                return list(found)
            time = self.begin_timestamp + entry.time_diff_s * 1000
            if time + 999 < begin_ms:
                return list(found)
            if entry.key_hash == key_hash and time <= end_ms:
                found[entry.physical_offset] = None
            number = entry.previous if 0 < entry.previous < number else 0
        raise StoreError(
            f"the look-up went through {INDEX_CHAIN_STEPS_MAX} entries of {self.path.name} without an end",
            remedy="narrow the time range, or ask for fewer messages",
        )

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        return self.count > 1 and self.begin_timestamp <= end_ms and self.end_timestamp >= begin_ms

    def seal(self) -> None:
        """Give the writable mapping back once the file is full and written; look-ups use the read-only one."""
        self._table = None

    def close(self) -> None:
        """Release mappings and descriptor. What was not written is lost: the commit log still has it."""
        self._table = None
        self._file.close()


_HASH_ONLY: Final = Struct(">i16x")
