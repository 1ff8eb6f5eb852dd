"""Reading a store directory without changing it: the ground that check, dump and stat stand on.

File sizes are taken from the files; the directory may be RocketMQ's or ours, clean or crashed, complete or damaged.

Rules of this file
1. Nothing is created, locked, repaired or truncated.
2. What was read is not kept: memory does not grow with the store. The log is read, never mapped: a page that cannot be had (a bad
   sector, a hole on a full tmpfs) is an error that can be told, and no signal.
3. Damage is an item of the walk like a record; the walk goes on behind it wherever a credible record follows.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import closing
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.errors import RecordError
from orbitmq.protocol.records import CheckStatus, Record, RecordCheck, check_record, decode_record
from orbitmq.store.consume_queue import FILLER_SIZE, UNIT, UNIT_BYTES
from orbitmq.store.files import File, Files
from orbitmq.store.index_batch import ENTRY, ENTRY_BYTES, HEADER_BYTES, SLOT, SLOT_BYTES
from orbitmq.store.index_file import IndexFile, IndexFileShape, IndexHeader
from orbitmq.store.segments import NAME_DIGITS

DEFAULT_INDEX_SHAPE: Final = IndexFileShape(5_000_000, 20_000_000)
_MAGICS: Final = (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab")
_MAGIC_AT: Final = 4
_MAGIC_END: Final = 8
_CHUNK_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(_CHUNK_BYTES + _MAGIC_END)
_UNITS_AT_A_TIME: Final = 512


class StoredFile(NamedTuple):
    """One file of a fixed-size sequence: bytes `base` to `end`."""

    path: Path
    base: int
    size: int

    @property
    def end(self) -> int:
        return self.base + self.size


class Sequence(NamedTuple):
    """The usable files of a directory in order, and what is wrong with the directory."""

    files: list[StoredFile]
    problems: list[tuple[Path, str]]
    notes: list[tuple[Path, str]]

    @property
    def start(self) -> int:
        return self.files[0].base if self.files else 0

    @property
    def end(self) -> int:
        return self.files[-1].end if self.files else 0


def read_sequence(files: Files, directory: Path, *, unit: int = 1) -> Sequence:
    """The files of a commit log, consume queue or timer log. `unit` divides the file size."""
    found = Sequence([], [], [])
    names = [name for name in files.list_dir(directory) if not files.is_dir(directory / name)]
    for position, name in enumerate(names):
        path = directory / name
        size = files.file_size(path)
        if not (len(name) == NAME_DIGITS and name.isascii() and name.isdigit()):
            found.problems.append((path, f"does not belong here: files are named by {NAME_DIGITS} digits"))
            continue
        if size == 0:
            text = "is empty: a crash came between its creation and its sizing"
            (found.notes if position == len(names) - 1 else found.problems).append((path, text))
            continue
        file = StoredFile(path, int(name), size)
        if size % unit or file.base % size:
            found.problems.append((path, f"its name is no multiple of its size of {size} bytes"))
            continue
        if found.files:
            before = found.files[-1]
            if size != before.size:
                found.problems.append((path, f"has {size} bytes, the file before it {before.size}"))
                continue
            if file.base != before.end:
                found.problems.append((path, f"does not follow {before.path.name}: files are missing between them"))
        found.files.append(file)
    return found


# --- commit log -------------------------------------------------------------------------------------------------------


class LogItemKind(Enum):
    RECORD = "record"
    BLANK = "blank"
    """End-of-file filler."""
    DAMAGE = "damage"
    """Bytes that are no record, with credible records behind them."""
    END = "end"
    """End of the log. `size` is the number of bytes up to the last one of the log files that is not zero."""


class LogItem(NamedTuple):
    kind: LogItemKind
    physical_offset: int
    size: int
    record: Record | None = None
    problem: str = ""


Confirm = Callable[[Record], bool]
"""Whether a record found behind damage belongs to the log, and is not left over from before a truncation."""

Progress = Callable[[int, int], None]
"""(bytes done, bytes in all)."""


def walk_log(
    files: Files,
    log: Sequence,
    *,
    confirm: Confirm,
    body: bool = False,
    crc: bool = True,
    progress: Progress | None = None,
) -> Iterator[LogItem]:
    """Every record, filler and damaged stretch of the log in order, then one END item.

    A stretch that is no record ends the log unless a record follows that stands where it says it does and that
    `confirm` accepts, or that is not older than the last one before the stretch. `body` decodes bodies as well.
    """
    last_time = 0
    total = sum(file.size for file in log.files)
    done = 0
    damage: LogItem | None = None
    last_byte = 0
    for file in log.files:
        handle = files.open(file.path, writable=False)
        try:
            with closing(_Pages(handle, file.size)) as pages:
                view = pages.view
                at = 0
                reported = 0
                while at < file.size:
                    here = file.base + at
                    pages.need_record(at)
                    check = check_record(view, at, file.size, crc=crc, expect_physical_offset=here)
                    if check.status is CheckStatus.VALID:
                        record = decode_record(view[at : at + check.size], 0, body)
                        if damage is None or record.store_timestamp >= last_time or confirm(record):
                            if damage is not None:
                                yield damage._replace(size=here - damage.physical_offset)
                                damage = None
                            last_time = record.store_timestamp
                            yield LogItem(LogItemKind.RECORD, here, check.size, record)
                            at += check.size
                            if at - reported >= _CHUNK_BYTES:
                                pages.forget(at)
                                reported = at
                                if progress is not None:
                                    progress(done + at, total)
                            continue
                    elif check.status is CheckStatus.BLANK and damage is None and check.size == file.size - at:
                        yield LogItem(LogItemKind.BLANK, here, check.size)
                        break
                    if damage is None:
                        damage = LogItem(LogItemKind.DAMAGE, here, 0, None, _problem(check, file.size - at))
                    gap = _next_candidate(handle, at, file.size)
                    if gap.last_byte:
                        last_byte = max(last_byte, file.base + gap.last_byte)
                    at = gap.candidate
        finally:
            handle.close()
        done += file.size
        if progress is not None:
            progress(done, total)
    yield LogItem(LogItemKind.END, log.end, 0) if damage is None else _end_in(damage, last_byte)


def _problem(check: RecordCheck, left_bytes: int) -> str:
    """What is wrong with a stretch that is no record, so far before the end of its file."""
    if check.status is CheckStatus.BLANK:
        return f"a filler of {check.size} bytes stands {left_bytes} bytes before the end"
    return check.problem


def _end_in(damage: LogItem, last_byte: int) -> LogItem:
    """The end of a log at a stretch that no record follows; nothing is wrong where only zeros follow."""
    dirty = max(0, last_byte - damage.physical_offset)
    return damage._replace(kind=LogItemKind.END, size=dirty, problem=damage.problem if dirty else "")


class _Pages:
    """A file as memory that is filled as far as it is needed, from front to back."""

    def __init__(self, file: File, size: int) -> None:
        self._file = file
        self._size = size
        self._filled = 0
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.view = memoryview(self._memory)

    def close(self) -> None:
        self.view.release()
        self._memory.close()

    def need_record(self, at: int) -> None:
        """Have what begins at `at`: a record as far as it says that it goes. Raises OSError."""
        self._need(at, at + _MAGIC_END)
        if bytes(self.view[at + _MAGIC_AT : at + _MAGIC_END]) in _MAGICS:
            self._need(at, at + int.from_bytes(self.view[at : at + _MAGIC_AT], "big", signed=True))

    def forget(self, end: int) -> None:
        """What lies before `end` is not looked at again."""
        self._memory.madvise(mmap.MADV_DONTNEED, 0, end // mmap.PAGESIZE * mmap.PAGESIZE)

    def _need(self, begin: int, end: int) -> None:
        end = min(end, self._size)
        if end <= self._filled:
            return
        start = max(begin, self._filled)
        data = self._file.pread(min(max(end - start, _CHUNK_BYTES), self._size - start), start)
        self.view[start : start + len(data)] = data
        self._filled = start + len(data)


class _Gap(NamedTuple):
    candidate: int
    """Where a record might begin; the size of the file when nowhere."""
    last_byte: int
    """Position behind the last byte on the way that is not zero, 0 when all of them are."""


def _next_candidate(handle: File, at: int, size: int) -> _Gap:
    """The nearest place behind `at` that has a magic code where a record has it. Reads in chunks; skips holes fast."""
    last_byte = 0
    start = at
    while start < size:
        chunk = handle.pread(min(_CHUNK_BYTES + _MAGIC_END - 1, size - start), start)
        if chunk == _ZEROS[: len(chunk)]:
            start += _CHUNK_BYTES
            continue
        first = at + 1 + _MAGIC_AT - start if start <= at else 0
        places = [place for magic in _MAGICS if (place := chunk.find(magic, first)) >= 0]
        if places:
            candidate = start + min(places) - _MAGIC_AT
            passed = chunk[: candidate - start].rstrip(b"\0") if candidate > start else b""
            return _Gap(candidate, max(last_byte, start + len(passed) if passed else 0))
        last_byte = start + len(chunk.rstrip(b"\0"))
        start += _CHUNK_BYTES
    return _Gap(size, last_byte)


class LogReader:
    """Records of a commit log at given positions; one file is open at a time, so ascending positions are cheap."""

    def __init__(self, files: Files, log: Sequence) -> None:
        self._files = files
        self._log = log
        self._stored: StoredFile | None = None
        self._file: File | None = None

    @property
    def start(self) -> int:
        return self._log.start

    def record(self, physical_offset: int, size: int) -> Record | None:
        """The record at a position, without its body; None when there is none of that size."""
        stored = self._stored
        file = self._file
        if stored is None or file is None or not stored.base <= physical_offset < stored.end:
            self.close()
            stored = next((file for file in self._log.files if file.base <= physical_offset < file.end), None)
            if stored is None:
                return None
            file = self._files.open(stored.path, writable=False)
            self._stored, self._file = stored, file
        data = file.pread(min(size, stored.end - physical_offset), physical_offset - stored.base)
        try:
            record = decode_record(data, 0, body=False)
        except RecordError:
            return None
        return record if record.total_size == size and record.physical_offset == physical_offset else None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._stored = self._file = None


# --- consume queues ---------------------------------------------------------------------------------------------------


class Unit(NamedTuple):
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int

    @property
    def is_filler(self) -> bool:
        """Put in by RocketMQ before the first message of a queue that does not start at 0."""
        return self.size == FILLER_SIZE


class StoredQueue:
    """The units of one queue. Reads go through one block that is kept, so neighbours are cheap."""

    __slots__ = ("_block", "_block_at", "_files", "queue_id", "sequence", "topic")

    def __init__(self, files: Files, directory: Path, topic: str, queue_id: int) -> None:
        self._files = files
        self._block = b""
        self._block_at = -1
        self.topic = topic
        self.queue_id = queue_id
        self.sequence = read_sequence(files, directory, unit=UNIT_BYTES)

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.queue_id}"

    @property
    def first_unit(self) -> int:
        return self.sequence.start // UNIT_BYTES

    def unit(self, queue_offset: int) -> Unit | None:
        """The unit at a queue offset; None where there is none."""
        at = queue_offset * UNIT_BYTES
        inside = at - self._block_at
        if not (self._block_at >= 0 and 0 <= inside < len(self._block)):
            if not self._load(at):
                return None
            inside = 0
        physical_offset, size, tags_code = UNIT.unpack_from(self._block, inside)
        return Unit(queue_offset, physical_offset, size, tags_code) if size > 0 and physical_offset >= 0 else None

    def _load(self, at: int) -> bool:
        sequence = self.sequence
        if not sequence.start <= at < sequence.end:
            return False
        for file in sequence.files:
            if file.base <= at < file.end:
                handle = self._files.open(file.path, writable=False)
                try:
                    self._block = handle.pread(_UNITS_AT_A_TIME * UNIT_BYTES, at - file.base)
                finally:
                    handle.close()
                self._block_at = at
                return len(self._block) >= UNIT_BYTES
        return False

    def max_offset(self) -> int:
        """Queue offset after the last unit, whatever is missing before it."""
        for file in reversed(self.sequence.files):
            handle = self._files.open(file.path, writable=False)
            try:
                stop = file.size
                while stop > 0:
                    start = max(0, stop - _UNITS_AT_A_TIME * UNIT_BYTES)
                    rest = handle.pread(stop - start, start).rstrip(b"\0")
                    if rest:
                        return (file.base + start + len(rest) - 1) // UNIT_BYTES + 1
                    stop = start
            finally:
                handle.close()
        return self.first_unit

    def min_offset(self, log_start: int) -> int:
        """Queue offset of the first unit whose record is still in the log; `max_offset` when there is none."""
        low, high = self.first_unit, self.max_offset()
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is None or unit.is_filler or unit.physical_offset < log_start:
                low = middle + 1
            else:
                high = middle
        return low

    def units(self, first: int, end: int | None = None) -> Iterator[Unit]:
        """Units from `first` to before `end` (the last one); places without a unit are left out."""
        stop = self.max_offset() if end is None else min(end, self.max_offset())
        for queue_offset in range(max(first, self.first_unit), stop):
            unit = self.unit(queue_offset)
            if unit is not None:
                yield unit


def read_queues(files: Files, root: Path) -> list[StoredQueue]:
    """All consume queues of a store, by topic and queue id."""
    queues = []
    base = root / "consumequeue"
    for topic in files.list_dir(base):
        if files.is_dir(base / topic):
            ids = [
                name for name in files.list_dir(base / topic) if name.isdigit() and files.is_dir(base / topic / name)
            ]
            queues += [StoredQueue(files, base / topic / name, topic, int(name)) for name in sorted(ids, key=int)]
    return queues


# --- index ------------------------------------------------------------------------------------------------------------


def index_names(files: Files, root: Path) -> list[str]:
    directory = root / "index"
    return [n for n in files.list_dir(directory) if n.isascii() and n.isdigit() and not files.is_dir(directory / n)]


def find_index_shape(files: Files, root: Path) -> IndexFileShape | None:
    """Number of slots and entries of a store's index files, which they do not name.

    The default when the size fits, else the only split of a file in which first and last entry, header and slots agree.
    None when no file settles it.
    """
    for name in reversed(index_names(files, root)):
        path = root / "index" / name
        size = files.file_size(path)
        if size == DEFAULT_INDEX_SHAPE.file_bytes:
            return DEFAULT_INDEX_SHAPE
        shapes = _fit(files, path, size)
        if len(shapes) == 1:
            return shapes[0]
    return None


def _fit(files: Files, path: Path, size: int) -> list[IndexFileShape]:
    if size < HEADER_BYTES + SLOT_BYTES + 2 * ENTRY_BYTES:
        return []
    handle = files.open(path, writable=False)
    try:
        header = IndexHeader.decode(handle.pread(HEADER_BYTES, 0))
        last = header.count - 1
        if last < 1 or header.end_offset <= 0:
            return []
        shapes = []
        wanted = header.end_offset.to_bytes(8, "big")
        with handle.map_read() as data:
            place = data.find(wanted, HEADER_BYTES)
            while place >= 0:
                slot_bytes = place - 4 - HEADER_BYTES - last * ENTRY_BYTES
                entry_bytes = size - HEADER_BYTES - slot_bytes
                if (
                    slot_bytes > 0
                    and slot_bytes % SLOT_BYTES == 0
                    and entry_bytes > 0
                    and entry_bytes % ENTRY_BYTES == 0
                ):
                    shape = IndexFileShape(slot_bytes // SLOT_BYTES, entry_bytes // ENTRY_BYTES)
                    if header.count <= shape.entry_count and _fits(data, shape, header):
                        shapes.append(shape)
                place = data.find(wanted, place + 1)
        return shapes
    finally:
        handle.close()


def _fits(data: mmap.mmap, shape: IndexFileShape, header: IndexHeader) -> bool:
    """First entry as the header says, and every one of the last entries heads or precedes in its slot's chain."""
    first = ENTRY.unpack_from(data, shape.entries_at + ENTRY_BYTES)
    if first[1] != header.begin_offset or first[2] != 0 or first[3] != 0:
        return False
    last = header.count - 1
    for number in range(last, max(0, last - 64), -1):
        key_hash, _, diff, previous = ENTRY.unpack_from(data, shape.entries_at + number * ENTRY_BYTES)
        if key_hash < 0 or diff < 0 or not 0 <= previous < number:
            return False
        (head,) = SLOT.unpack_from(data, HEADER_BYTES + key_hash % shape.slot_count * SLOT_BYTES)
        if not number <= head <= last:
            return False
    return True


def open_index_files(files: Files, root: Path, shape: IndexFileShape) -> list[IndexFile]:
    """All index files of a store, for reading. Raises StoreDamagedError for one that has not this shape."""
    return [IndexFile.open(files, root / "index" / name, shape, writable=False) for name in index_names(files, root)]
