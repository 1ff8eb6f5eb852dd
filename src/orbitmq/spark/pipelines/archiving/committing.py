"""Adding a batch to the table, exactly once: compare the numbers that were planned from, and put one version of the log.

A version of the log is a file that can be made once. A batch is put as the version behind the snapshot in which its queues stand where
the batch begins, so whoever else commits in between takes that version first, and the batch is not stored. Only then is the table opened
anew, and the batch goes on only if its queues still stand where it begins: somebody compacted, or archived other queues.

Rules of this file
1. The numbers are compared in the very snapshot that the commit is put upon, every time.
2. A commit names its batch. Where the put did not say that it stored it, the version that was tried is read: it is of this batch, of
   another one, or not there. Only in the last case is the same version tried again. That it was stored is believed, and seen when the table
   is opened next (`stored`), which reads that version anyway: reading it here as well were two requests more of an object store.
3. Files are proved by name and size before anything is put.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from orbitmq.errors import StoreDamagedError, StoreError, StoreLockedError
from orbitmq.limits.spark import ARCHIVE_COMMIT_TRIES, ARCHIVE_STORAGE_TRIES

log = logging.getLogger("orbitmq.spark")


class LandedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a batch. path: below the archive; no other attempt has it. day: of a data file in the form 2026-11-22, None where no
    row says when it was stored. stats: those of a Delta table as JSON; None for a file of the quarantine."""

    path: str
    rows: int
    size_bytes: int
    day: str | None = None
    stats: str | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One version of the table. applications: their numbers in it. columns: their types by name. handle: of whoever opened it."""

    version: int
    applications: Mapping[str, int]
    columns: Mapping[str, str]
    handle: Any = None


class ArchiveBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored as a whole. token: no other batch has it. begins: the number that each of its applications has where it begins, None
    for one that the table does not know; ends: behind it. columns: of its files."""

    token: str
    files: Sequence[LandedFile]
    begins: Mapping[str, int | None]
    ends: Mapping[str, int]
    columns: Mapping[str, str]


class TableLog(Protocol):
    """The log of a table. Every method raises StoreError where the storage fails."""

    def open(self) -> Snapshot:
        """The newest version."""

    def prove(self, files: Sequence[LandedFile]) -> LandedFile | None:
        """The first that is not there as it was written; what is there outlives a power cut."""

    def put(self, snapshot: Snapshot, batch: ArchiveBatch) -> None:
        """Make the version behind the snapshot, that one or none. Raises StoreError where somebody has it, and where nobody knows."""

    def token_of(self, version: int) -> str | None:
        """The batch that a version names, empty if it names none. None where there is no such version."""

    def keep(self, version: int) -> None:
        """The version outlives a power cut on return."""


def commit(table: TableLog, snapshot: Snapshot, batch: ArchiveBatch) -> int:
    """The version that has the batch; it is durable. StoreLockedError when another run took the batch's place, StoreDamagedError when a
    file is not what was written, StoreError when the storage fails: then nothing was stored, or the next run sees that it was."""
    refused = 0
    for _ in range(ARCHIVE_COMMIT_TRIES):
        failure: StoreError | None = None
        check_place(snapshot, batch)
        lost = table.prove(batch.files)
        if lost is not None:
            raise StoreDamagedError(
                f"{lost.path} is gone, or not the {lost.size_bytes} bytes that a task of this run wrote: nothing was committed",
                remedy="the workers may write to another place under the same name: give a directory or URL that all machines share; "
                "else look for who removes files there, and run the archive again",
            )
        version = snapshot.version + 1
        try:
            table.put(snapshot, batch)
        except StoreError as error:
            failure = error
        token = table.token_of(version) if failure else batch.token
        if token == batch.token:
            table.keep(version)
            return version
        if token is not None:
            snapshot = table.open()
            continue
        log.warning("version %d of the archive was not stored: %s", version, failure)
        refused += 1
        if refused == ARCHIVE_STORAGE_TRIES:
            break
    raise StoreError(
        f"a batch could not be stored: {failure}",
        remedy="the archive is as it was before the batch, and the next run takes it again: run it when the reason is gone",
    ) from failure


def stored(table: TableLog, snapshot: Snapshot, batch: ArchiveBatch) -> Snapshot:
    """As `commit`, and the table opened behind it, which has the batch. StoreDamagedError where it does not."""
    version = commit(table, snapshot, batch)
    snapshot = table.open()
    token = table.token_of(version)  # has just been read
    if token != batch.token:
        raise StoreDamagedError(
            f"version {version} of the archive was stored, and is {'not there' if token is None else 'another one'} now",
            remedy="somebody replaced the table, or the storage lost what it had: run the archive again, it takes what is missing",
        )
    return snapshot


def check_place(snapshot: Snapshot, batch: ArchiveBatch) -> None:
    """Raises StoreLockedError unless the batch begins where its applications stand, and StoreDamagedError for a column that the table has
    not."""
    for name, number in batch.begins.items():
        found = snapshot.applications.get(name)
        if found != number:
            raise StoreLockedError(
                f"another run archived meanwhile: {name} was at {number} when this batch was planned, and is at {found} now; "
                "nothing of the batch was committed",
                remedy="let one run at a time write an archive; run it again for what is new then",
            )
    for name, kind in batch.columns.items():
        if snapshot.columns.get(name) != kind:
            raise StoreDamagedError(
                f"column {name} of the archive is {snapshot.columns.get(name, 'not there')}, and files of this batch have {kind}",
                remedy="somebody changed the table while the batch was written: run the archive again",
            )
