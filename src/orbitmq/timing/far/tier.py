"""The files of the far tier as the broker sees them: a few calls that block, and how they fail.

Two things answer them: `arrow_tier` does the work with pyarrow, in a process of its own; `process` carries calls there and back.

Rules of this file
1. Every call can be repeated: what was done twice looks as if done once.
2. Three failures: the tier cannot be reached or has no room (`FarUnreachableError`, try again), a file is damaged
   (`FarFileDamagedError`, leave it out), the process ended (`HelperEndedError`, start it again).
3. Records travel as the bytes they had in the commit log, one behind the other.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from orbitmq.errors import OrbitError
from orbitmq.timing.far.changes import FarFile
from orbitmq.timing.far.loads import CheckedFile, WrittenFile


class FarTierError(OrbitError):
    """A call to the far tier failed."""


class FarUnreachableError(FarTierError):
    """The file system of the tier cannot be reached, or takes nothing."""


class FarFileDamagedError(FarTierError):
    """A file of the tier is missing or cannot be read as what it should be. `name` says which."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


class HelperEndedError(FarTierError):
    """The process that keeps the files ended, or did not answer in time."""


class FarBusyError(FarTierError):
    """Too many look-ups wait already."""


class FarQuery(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Which far messages are wanted; every condition given must hold. Sorted by due time, then source."""

    topic: str | None = None
    message_id: str | None = None
    key: str | None = None
    key_prefix: str | None = None
    from_ms: int | None = None
    """Due at this time or later."""
    until_ms: int | None = None
    """Due before this time."""
    limit: int = 50
    after: tuple[int, int] | None = None
    """Due time and source of the message behind which the page begins."""
    bodies: bool = False
    """With the bodies; otherwise they are empty and the sizes tell how long the records are."""


class FileView(msgspec.Struct):
    """A file, and which of its rows count."""

    name: str
    taken: int
    next_ms: int = 0
    """No row that counts is due earlier."""
    index: str = ""
    """Where its keys stand, and under which number; only look-ups by them need it."""
    index_number: int = 0
    base: int = 0
    """Added to the positions of its rows, as in `FarFile`."""
    counting: list[tuple[int, int]] = []
    """Ranges of rows that count, for who writes them anew."""


def view_of(file: FarFile) -> FileView:
    counting = file.lost or [(file.taken, file.rows)]
    return FileView(file.name, file.taken, file.next_ms, file.index, file.index_number, file.base, counting)


class Opened(msgspec.Struct):
    """Number and store of the manifest that was published last; None and "" where there is none."""

    serial: int | None
    store: str


class Rows(msgspec.Struct):
    """Rows of one file, in its order."""

    records: bytes
    taken: int
    """Number of the row behind the last one."""
    next_ms: int
    """Its due time; of the last row when there is none."""


class Found(msgspec.Struct):
    """Messages that match a query, and whether there may be more behind the last."""

    records: bytes
    sizes: list[int]
    more: bool
    damaged: list[tuple[str, str]]
    """Files that could not be asked, and why; indexes too, though what they would say was found in their files."""


class Compaction(msgspec.Struct):
    """Result of writing files anew: the new ones, the finished messages whose rows were left out, and what cannot be read."""

    added: list[FarFile]
    dropped: list[int]
    lost: dict[str, list[tuple[int, int]]] = {}
    """Damaged file -> ranges of its rows."""
    known: list[tuple[int, int, str]] = []
    """Due time, source and topic of messages in these rows, as the files' indexes have them."""
    reasons: list[str] = []


def refuse_foreign(opened: Opened, serial: int, store: str, *, is_shared: bool = False) -> None:
    """Raises FarUnreachableError when the files are not those of the state with this number of this store. Of storage that is
    shared its mark says whose it is; the store is then the one whose broker published last."""
    if opened.store and opened.store != store:
        if is_shared:
            return
        raise FarUnreachableError(
            "the far tier's directory belongs to another store",
            remedy="give every broker a directory of its own (timerFarUrl)",
        )
    if opened.serial is not None and opened.serial > serial:
        raise FarUnreachableError(
            f"the far tier is ahead of this store: its manifest has number {opened.serial}, the state file {serial}",
            remedy="stop the broker and copy the tier's manifest.json over orbitmq.far in the store directory",
        )


def refuse_other_storage(found: str, expected: str) -> None:
    """Raises FarUnreachableError when storage bears another mark than that of the group, or none."""
    if found != expected:
        raise FarUnreachableError(
            f"the storage of the far tier bears {f'the mark {found}' if found else 'no mark'}, the files lie in the one with {expected}",
            remedy="look whether it is mounted, and whether timerFarUrl is that of the broker that led before",
        )


class Tier(Protocol):
    """The files of one store's far tier. Every call blocks and may raise FarTierError."""

    def open(self) -> Opened:
        """Look at what is there. Creates the directories where the file system has any."""
        ...

    def mark(self, wanted: str) -> str:
        """The mark of this storage, by which two brokers know that theirs is the same one; empty where it has none. With `wanted` it
        gets that one where it has none. Nothing else is made."""
        ...

    def lead(self, directory: str, writer: str, takes_over: bool, epoch: int | None) -> str:
        """Write to shared storage from now on, as a new writer, or go on as `writer`. Answers the name. Raises FarUnreachableError
        where another broker writes by now, or with an epoch of a group one of a later one; see `writers`."""
        ...

    def manifest(self) -> bytes:
        """What `publish` kept last; empty where it kept nothing."""
        ...

    def land(self, name: str, records: bytes) -> FarFile:
        """Write far records to a new file, which is durable on return."""
        ...

    def rows(self, file: FileView, until_ms: int, rows_max: int, bytes_max: int) -> Rows:
        """The rows behind the taken ones that are due up to `until_ms`, at least one if there is any."""
        ...

    def find(self, files: list[FileView], query: FarQuery) -> Found:
        """Rows that match, whether they still count or not. Files should come in order of `next_ms`: those that are due after
        what a page shows are not looked at."""
        ...

    def compact(self, files: list[FileView], dead: list[int], stem: str, tests_records: bool) -> Compaction:
        """Write anew, by day, to files whose names end with `stem`, what counts of these files and can be read, without the rows
        of `dead`. A row group that is damaged takes no other with it; with `tests_records` also where only a record of it cannot be made
        again. The old files stay."""
        ...

    def index(self, files: list[FileView], stem: str) -> str:
        """Write one index of files that have none. Answers its name."""
        ...

    def remove(self, names: list[str]) -> None:
        """Remove files and indexes that may be there."""
        ...

    def sweep(self, known: list[str], loads_before_ms: int, writer: str) -> list[str]:
        """Remove every file and index but these, which steps without an end left behind; what jobs wrote only if that was before
        `loads_before_ms`; in shared storage nothing that came from a later writer than this one. Answers their names."""
        ...

    def probe(self, name: str, content: str) -> None:
        """Write a file with this text, for others to read."""
        ...

    def check(self, file: WrittenFile) -> CheckedFile:
        """Look at every byte of a file that a job wrote, and have it durable on return."""
        ...

    def publish(self, manifest: bytes) -> None:
        """Keep a copy of the state beside the files."""
        ...

    def stop(self) -> None:
        """Give back what is held; the next call takes it again. May be called on any thread: what runs ends with an error."""
        ...
