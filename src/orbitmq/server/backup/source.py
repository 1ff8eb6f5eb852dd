"""A store that is copied while a broker may serve it: what it holds at a moment, and up to where.

Rules of this file
1. It is read only, and never asked: whoever serves it knows nothing of it.
2. The recovery mark is read before anything that it speaks of, and the end of the log after everything else: so a copy has whatever its
   mark vouches for, and nothing in it speaks of a record that its log has not.
3. The end of the log is where the last whole record ends. Nothing behind it is copied: it may be half written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from orbitmq.broker.table_records.identity import IDENTITY_FILE, read_identity
from orbitmq.errors import StoreError
from orbitmq.limits.store import BACKUP_TRIES_MAX
from orbitmq.server.backup.parts import FAR, INDEX, LOG, QUEUES
from orbitmq.store.checkpoint import Checkpoint, read_checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import FILLER_SIZE, UNIT, UNIT_BYTES
from orbitmq.store.files import File, Files
from orbitmq.store.index import IndexService
from orbitmq.store.inspection import StoredFile, read_sequence
from orbitmq.store.mark import Mark, MarkFile
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.recovery import find_end
from orbitmq.store.saving import CHECKPOINT_FILE
from orbitmq.store.segments import SegmentSequence

T = TypeVar("T")

NO_BOOT: Final = "backup"
"""Boot id of a mark in a backup: none that a machine has, so that a start trusts it as after a power failure."""


class Moment(NamedTuple):
    """What the store says of itself."""

    mark: Mark
    """As it is for a backup: synced, of no machine."""
    page: Checkpoint

    @property
    def queues_position(self) -> int:
        """Log position below which all units of consume queues are in their files."""
        return self.mark.positions.get(ConsumeQueues.name, 0)

    @property
    def newest_index(self) -> str:
        """Name of the newest key index file that counts; empty where none does."""
        state: Any = self.mark.states.get(IndexService.name)
        return str(state.get("file", "")) if isinstance(state, dict) else ""


class SourceStore:
    """One directory that is copied."""

    def __init__(self, files: Files, root: Path, log_directory: Path | None) -> None:
        self._files = files
        self.root = root
        self.log_directory = log_directory or root / LOG

    def place_of(self, path: str) -> Path:
        """Where a file lies; the log may lie elsewhere."""
        folder, _, name = path.partition("/")
        return self.log_directory / name if folder == LOG else self.root / path

    def identity(self) -> str:
        return read_identity(self._files, self.root / IDENTITY_FILE) or ""

    def moment(self) -> Moment:
        """Mark and checkpoint that belong together. Raises StoreError where the store has none that count."""
        self.names()
        for _ in range(BACKUP_TRIES_MAX):  # the broker may write the one and the other between the two reads
            page = read_checkpoint(self._files, self.root / CHECKPOINT_FILE) or Checkpoint()
            mark = MarkFile(self._files, self.root).load(self._files.boot_id())
            if mark is not None and page.digest() in mark.checkpoints:
                plain = msgspec.structs.replace(mark, boot=NO_BOOT, clean=False, checkpoints=[page.digest()])
                return Moment(plain, page)
        raise StoreError(
            f"{self.root} has no recovery mark that counts: RocketMQ wrote it last, or no broker of ours has opened it yet",
            remedy="start orbitmq on it, or stop whoever serves it and copy the directory with `cp -a --sparse=always`",
        )

    # --- the log ------------------------------------------------------------------------------------------------------

    def log_files(self) -> list[StoredFile]:
        """In their order. Raises StoreError where there is something else among them."""
        found = _undisturbed(lambda: read_sequence(self._files, self.log_directory))
        if found.problems:
            path, problem = found.problems[0]
            raise StoreError(
                f"{path} {problem}", remedy="see `orbitmq store check`: nothing was copied over the backup"
            )
        return found.files

    def log_end(self, start: int) -> int:
        """Where the last whole record behind `start` ends, up to which the log is written at least. Raises OSError, and StoreError where
        its files end before `start`."""
        return _undisturbed(lambda: self._log_end(start))

    def _log_end(self, start: int) -> int:
        stored = self.log_files()
        reached = stored[-1].end if stored else 0
        if reached < start:
            self.names()
            raise StoreError(
                f"the log of {self.root} was written up to {start}, and the files in {self.log_directory} end at {reached}",
                remedy="say with --commit-log where it is, or mount its disk; the backup is as it was",
            )
        if not stored or reached == start:
            return start
        log = CommitLog(self._files, self.log_directory, stored[0].size)
        log.sequence = SegmentSequence(self._files, self.log_directory, stored[0].size, writable=False)
        try:
            log.sequence.load()
            return max(find_end(log, start), start)
        finally:
            log.sequence.close()

    # --- what is derived ----------------------------------------------------------------------------------------------

    def queue_files(self) -> Iterator[tuple[str, bool]]:
        """Paths of all files of consume queues, and whether each is the first one of its queue."""
        base = self.root / QUEUES
        for topic in self._files.list_dir(base):
            for number in self._files.list_dir(base / topic):
                for place, name in enumerate(self._files.list_dir(base / topic / number)):
                    yield f"{QUEUES}/{topic}/{number}/{name}", place == 0

    def index_files(self, newest: str) -> list[str]:
        """Paths of the key index files up to the `newest` one that counts."""
        return [
            f"{INDEX}/{name}" for name in self._files.list_dir(self.root / INDEX) if name.isdigit() and name <= newest
        ]

    # --- the rest -----------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Names in the root. Raises StoreError where it is gone."""
        if not self._files.is_dir(self.root):
            raise StoreError(
                f"{self.root} is gone", remedy="name the directory where the store is now; the backup is as it was"
            )
        return self._files.list_dir(self.root)

    def below(self, folder: str) -> list[str]:
        """Paths of all files below a folder; none where there is no such folder."""
        found: list[str] = []
        for name in self._files.list_dir(self.root / folder):
            path = f"{folder}/{name}"
            found += self.below(path) if self._files.is_dir(self.root / path) else [path]
        return found

    def is_special(self, path: str) -> bool:
        """Whether what lies there is no file, as a pipe: to open one may take for ever."""
        place = self.place_of(path)
        return place.exists() and not place.is_file()

    @property
    def has_far_files(self) -> bool:
        return self._files.is_dir(self.root / FAR)


def _undisturbed(look: Callable[[], T]) -> T:
    """What a look at the log finds. It is repeated where retention removed a file between two of its steps."""
    for _ in range(BACKUP_TRIES_MAX):
        try:
            return look()
        except FileNotFoundError:
            continue
    return look()


def units_end(file: File, size: int, limit: int) -> tuple[int, bool]:
    """Up to where a file of a consume queue has units of records that end at or before log position `limit`, in bytes; and whether nothing
    stands behind. Raises OSError. 18 small reads."""

    def unit(number: int) -> tuple[int, int, int]:
        data = file.pread(UNIT_BYTES, number * UNIT_BYTES)
        return UNIT.unpack(data) if len(data) == UNIT_BYTES else (0, 0, 0)

    low, high = 0, size // UNIT_BYTES
    while low < high:
        middle = (low + high) // 2
        physical, record_bytes, _ = unit(middle)
        if record_bytes > 0 and (record_bytes == FILLER_SIZE or physical + record_bytes <= limit):
            low = middle + 1
        else:
            high = middle
    end = low * UNIT_BYTES
    return end, end >= size or unit(low) == (0, 0, 0)
