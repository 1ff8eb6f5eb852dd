"""The key index: which records carry a key, over the index files of a store (RocketMQ storage, index file).

Files are named by the local time of their creation. The newest one takes new entries; a full one is never written
again.

Rules of this file
1. The index is a cache of the log. After a crash it gives up whatever may be incomplete and says from which position on
   it must be fed again; it never guesses.
2. `apply` follows the log. Records below `position` are known and skipped, so feeding a stretch twice does no harm.
3. Names grow: a clock that steps back, or the end of summer time, must not put a new file before an old one.
4. All methods belong to the thread that owns the store, except `datasync`, which may run beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.clock import Clock
from orbitmq.leaf import twin
from orbitmq.store.files import Files
from orbitmq.store.index_batch import KeyHasher
from orbitmq.store.index_file import IndexFile, IndexFileShape, IndexHeader

if TYPE_CHECKING:
    from orbitmq.store.dispatch import Dispatched

NAME_DIGITS: Final = 17
TIME_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF


class Trust(Enum):
    """How much of the index files can be believed when a store is opened."""

    COMPLETE = "complete"
    """The writer stopped in order: everything."""
    PROCESS_ENDED = "process ended"
    """orbitmq was killed but the machine ran on: what was written is there, in the order of writing."""
    POWER_FAILED = "power failed"
    """Only what a synced mark speaks of; the rest may be any mixture of old and new pages."""
    FOREIGN_CRASH = "foreign crash"
    """RocketMQ wrote last and did not stop in order: its own rule applies, which drops every file that is not older
    than the index time of the checkpoint."""


class IndexState(msgspec.Struct, frozen=True):
    """What the recovery mark keeps of the index: how far its newest file was written at that moment."""

    file: str = ""
    count: int = 1
    end_timestamp: int = 0


class IndexService:
    """All index files of a store directory."""

    __slots__ = (
        "_clock",
        "_directory",
        "_files",
        "_hash_entries",
        "_hasher",
        "_names_unsynced",
        "_resume",
        "_shape",
        "_sync_names",
        "_syncing",
        "dropped",
        "index_files",
        "position",
        "strangers",
    )

    name = "index"

    def __init__(self, files: Files, directory: Path, shape: IndexFileShape, clock: Clock) -> None:
        self._files = files
        self._directory = directory
        self._shape = shape
        self._clock = clock
        self._hasher = KeyHasher()
        self._hash_entries = twin(self._hasher.hash_entries)
        self._names_unsynced = False
        self._sync_names = False
        self._syncing: list[IndexFile] = []
        self._resume: tuple[int, Counter[int]] | None = None
        self.index_files: list[IndexFile] = []
        self.position = 0
        """Every key of the records below this physical offset is in the index."""
        self.strangers: list[str] = []
        """Names in the directory that are no index files; left alone, as RocketMQ does."""
        self.dropped: list[str] = []
        """Files that the last `load` gave up."""

    # --- opening ------------------------------------------------------------------------------------------------

    def load(
        self, trust: Trust, state: object = None, position: int | None = None, *, index_msg_timestamp: int = 0
    ) -> int:
        """Open the files and repair them as far as `trust` demands; returns `position`, from where to feed the log.

        `state` and `position` are those of the recovery mark that is believed; without a mark (RocketMQ wrote last)
        the position follows from the newest entry. `index_msg_timestamp` is the checkpoint's field. Raises
        StoreDamagedError when a file has not the configured size.
        """
        known = msgspec.convert(state, IndexState) if state is not None else None
        if trust is Trust.POWER_FAILED and known is None:
            trust = Trust.FOREIGN_CRASH
        names = self._names()
        if trust is Trust.POWER_FAILED and known is not None:
            for name in [name for name in names if name > known.file or (name == known.file and known.count <= 1)]:
                self._drop(name)
                names.remove(name)
        for name in names:
            self.index_files.append(IndexFile.open(self._files, self._directory / name, self._shape))
        if known is not None and known.count > 1 and known.file not in names:
            position = None  # somebody removed it
        if trust is Trust.POWER_FAILED and known is not None:
            self._restore(known)
            self.position = max(position or 0, self._newest_offset())
        else:
            if trust is Trust.FOREIGN_CRASH:
                self._drop_unsure(index_msg_timestamp)
                position = None
            elif trust is Trust.PROCESS_ENDED:
                self._relink(known or IndexState())
            self.position = max(position or 0, self._newest_offset())
        for file in self.index_files[:-1]:
            file.seal()  # repairing it has mapped it
        self._prepare_resume()
        return self.position

    def _names(self) -> list[str]:
        names = []
        for name in self._files.list_dir(self._directory):
            if self._files.is_dir(self._directory / name):
                continue
            if name.isascii() and name.isdigit():
                names.append(name)
            else:
                self.strangers.append(name)
        if names and self._files.file_size(self._directory / names[-1]) == 0:
            self._drop(names.pop())  # a crash came between its creation and its sizing
        return names

    def _drop(self, name: str) -> None:
        self._files.remove(self._directory / name)
        self._names_unsynced = True
        self.dropped.append(name)

    def _drop_unsure(self, index_msg_timestamp: int) -> None:
        sure = []
        for file in self.index_files:
            if file.end_timestamp <= index_msg_timestamp:
                sure.append(file)
            else:
                file.close()
                self._drop(file.path.name)
        self.index_files = sure

    def _relink(self, known: IndexState) -> None:
        for file in self.index_files:
            if file.path.name > known.file:
                file.relink(1)
            elif file.path.name == known.file:
                file.relink(known.count)

    def _restore(self, known: IndexState) -> None:
        for file in self.index_files:
            if file.path.name == known.file:
                file.rebuild(known.count, known.end_timestamp)

    def _newest_offset(self) -> int:
        return next((file.end_offset for file in reversed(self.index_files) if file.count > 1), 0)

    def _prepare_resume(self) -> None:
        """The record at `position` may be in already, wholly or with its first keys: remember which."""
        hashes: Counter[int] = Counter()
        for file in reversed(self.index_files):
            found = file.hashes_at(self.position)
            hashes += found
            if found.total() < file.count - 1:
                break
        self._resume = (self.position, hashes) if hashes else None

    # --- writing ------------------------------------------------------------------------------------------------

    def apply(self, entries: Sequence[Dispatched]) -> None:
        """Take in records that follow those of the previous call; visible to `query` at once, in files after `write`.

        Raises OSError when a new file cannot be made; what was taken in before stays.
        """
        if not entries:
            return
        if entries[0].physical_offset < self.position:
            entries = [entry for entry in entries if entry.physical_offset >= self.position]
            if not entries:
                return
        hashes: list[int] = []
        offsets: list[int] = []
        times: list[int] = []
        self._hash_entries(entries, hashes, offsets, times)
        if self._resume is not None:
            hashes, offsets, times = self._without_known(hashes, offsets, times, entries[-1].physical_offset)
        if hashes:
            self._put(hashes, offsets, times)
        self.position = entries[-1].end_offset

    def _without_known(
        self, hashes: list[int], offsets: list[int], times: list[int], last_offset: int
    ) -> tuple[list[int], list[int], list[int]]:
        assert self._resume is not None
        at, known = self._resume
        new: tuple[list[int], list[int], list[int]] = ([], [], [])
        for row in zip(hashes, offsets, times, strict=True):
            if row[1] == at and known[row[0]] > 0:
                known[row[0]] -= 1
                continue
            for column, value in zip(new, row, strict=True):
                column.append(value)
        if last_offset > at:
            self._resume = None
        return new

    def _put(self, hashes: list[int], offsets: list[int], times: list[int]) -> None:
        file = self.index_files[-1] if self.index_files else self._roll()
        taken = file.put(hashes, offsets, times)
        while taken < len(hashes):
            file = self._roll()
            taken += file.put(hashes[taken:], offsets[taken:], times[taken:])

    def _roll(self) -> IndexFile:
        before: IndexHeader | None = None
        last_name = ""
        if self.index_files:
            last = self.index_files[-1]
            last.write()
            last.seal()
            before = last.header
            last_name = last.path.name
        else:
            self._files.make_dirs(self._directory)
        name = file_name(self._clock.now_ms(), after=last_name)
        file = IndexFile.create(self._files, self._directory / name, self._shape, before)
        self._names_unsynced = True
        self.index_files.append(file)
        return file

    def write(self) -> None:
        """Put what `apply` collected into the newest file. Raises OSError; may be repeated."""
        if self.index_files:
            self.index_files[-1].write()

    def distrust_disk(self, synced_end: int) -> None:
        """After a crash: take for unsynced every file with keys of records from `synced_end` on."""
        self._names_unsynced = bool(self.index_files)
        for file in self.index_files:
            if file.end_offset >= synced_end:
                file.writes += 1

    def begin_sync(self) -> None:
        """Note what the next `datasync` has to cover: everything written so far."""
        self._syncing = [file for file in self.index_files if file.is_dirty]
        self._sync_names = self._sync_names or self._names_unsynced
        self._names_unsynced = False

    def datasync(self) -> None:
        """Make what `begin_sync` noted durable. Blocks; runs on the flush thread beside the other methods."""
        for file in self._syncing:
            file.datasync()
        if self._sync_names:
            self._files.sync_dir(self._directory)
            self._sync_names = False

    def state(self) -> dict[str, object]:
        """For the recovery mark; to be taken after `write`."""
        if not self.index_files:
            return {"file": "", "count": 1, "end_timestamp": 0}
        last = self.index_files[-1]
        return {"file": last.path.name, "count": last.written_count, "end_timestamp": last.end_timestamp}

    @property
    def durable_full_timestamp(self) -> int:
        """Store time up to which full files are durable: the index time of the checkpoint page."""
        timestamp = 0
        for file in self.index_files:
            if not file.is_full or file.is_dirty:
                break
            timestamp = file.end_timestamp
        return timestamp

    def cut(self, end: int) -> None:
        """Forget every key of records from physical offset `end` on, because the log was cut there."""
        self.write()
        while self.index_files:
            file = self.index_files[-1]
            if file.count > 1 and file.end_offset < end:
                break
            if file.count > 1 and file.begin_offset < end:
                file.cut(end)
                break
            self.index_files.pop()
            file.close()
            self._drop(file.path.name)
        self.position = min(self.position, end)
        self._resume = None

    # --- reading and removing -----------------------------------------------------------------------------------

    def query(self, topic: str, key: str, max_count: int, begin_ms: int = 0, end_ms: int = TIME_MAX) -> list[int]:
        """Physical offsets, ascending, of the newest `max_count` records that may carry the key.

        Only hashes are stored: the caller compares topic and key with the record. Times are known to the second and
        the lower bound is taken generously. Raises StoreError when the walk has no end within bounds.
        """
        key_hash = self._hasher.key_hash(topic, key)
        found: dict[int, None] = {}
        for file in reversed(self.index_files):
            if file.overlaps(begin_ms, end_ms):
                found.update(dict.fromkeys(file.find(key_hash, max_count - len(found), begin_ms, end_ms)))
            if len(found) >= max_count or (file.count > 1 and file.begin_timestamp < begin_ms):
                break
        return sorted(found)

    def take_expired(self, min_offset: int) -> list[Path]:
        """Close and forget the files that only speak of records below `min_offset`, and return them for removal.

        Never the newest file, nor one that is not yet synced.
        """
        expired = [file for file in self.index_files[:-1] if file.end_offset < min_offset and not file.is_dirty]
        for file in expired:
            self.index_files.remove(file)
            file.close()
        return [file.path for file in expired]

    def close(self) -> None:
        """Write, and release all files. Not synced: call `datasync` before for an orderly stop."""
        try:
            self.write()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Release all files as they are."""
        for file in self.index_files:
            file.close()
        self.index_files = []


def file_name(now_ms: int, *, after: str = "") -> str:
    """`yyyyMMddHHmmssSSS` in local time; the next number when that would not sort behind `after`."""
    name = datetime.fromtimestamp(now_ms // 1000).strftime("%Y%m%d%H%M%S") + f"{now_ms % 1000:03d}"
    return name if name > after else f"{int(after) + 1:0{NAME_DIGITS}d}"
