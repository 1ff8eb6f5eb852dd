"""The directory of a backup: one store as it was at the last run, a manifest that says so, and what a run is about to put there.

    backup.json    the manifest of the last run that ended
    store/         its files, laid out as a store; it can be checked like one
    new/           files of a run that has not ended
    backup.next    the manifest of a run all of whose files are in `new`: from then on it counts, and whoever comes next carries it out

Rules of this file
1. Nothing that a manifest counts is changed before the next one is durable. What a run copied before it failed is thrown away, or, in the
   newest file of the log, lies behind what counts.
2. One run at a time: the directory is locked.
3. Nobody else may read what is copied, also where the directory was there before, as a mounted disk is.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.errors import StoreError, StoreLockedError
from orbitmq.server.backup.manifest import MANIFEST_FILE, BackupManifest, decode_manifest, encode_manifest
from orbitmq.server.backup.parts import LOG
from orbitmq.store.files import Files, Lock
from orbitmq.store.saving import LOCK_FILE

NEXT_FILE: Final = "backup.next"
STORE: Final = "store"
NEW: Final = "new"
PRIVATE_MODE: Final = 0o700
FULL: Final = (errno.ENOSPC, errno.EDQUOT)
"""What a system answers where there is no room left."""


def make_private(files: Files, root: Path) -> None:
    """Make a directory that nobody else may read at any time, as far as its file system knows of such rights; one that is there stays as it
    is. Raises OSError."""
    files.make_dirs(root.parent)
    with suppress(FileExistsError):
        root.mkdir(PRIVATE_MODE)


def contents(files: Files, root: Path) -> list[str]:
    """Names in a directory, but for what a file system makes by itself."""
    return [name for name in files.list_dir(root) if name != "lost+found"]


class BackupDirectory:
    """One of them, claimed until `close`."""

    def __init__(self, files: Files, root: Path, lock: Lock) -> None:
        self._files = files
        self._lock = lock
        self.root = root
        self.staged: list[str] = []
        """Paths of what lies in `new`."""
        self.manifest = BackupManifest(store="", taken_at_ms=0, end=0)
        """Of the last run that ended; without files where none has."""

    @classmethod
    def open(cls, files: Files, root: Path, *, create: bool) -> BackupDirectory:
        """Claim the directory and see to what an earlier run left behind. `create`: it becomes one where it is not there, or empty. Raises
        StoreError, StoreLockedError, OSError."""
        if create:
            make_private(files, root)
        if not files.is_dir(root):
            raise StoreError(f"{root} is no directory", remedy="name the directory of a backup")
        try:
            lock = files.lock_dir(root)
        except StoreLockedError:
            raise StoreLockedError(
                f"{root} is in use by another backup or restore", remedy="wait for its end"
            ) from None
        opened = cls(files, root, lock)
        try:
            opened._take_up(create=create)
        except BaseException:
            lock.release()
            raise
        return opened

    def _take_up(self, *, create: bool) -> None:
        files, names = self._files, contents(self._files, self.root)
        if MANIFEST_FILE not in names:
            unfinished = f"{MANIFEST_FILE}.tmp"  # of a first run that was broken off at once
            names = [name for name in names if name != unfinished]
            if LOG in names:
                raise StoreError(
                    f"{self.root} is a store, not a backup", remedy="name a directory for the backup alone"
                )
            if names or not create:
                why = "is not empty, and holds no backup" if names else "holds no backup"
                raise StoreError(f"{self.root} {why}", remedy="name an empty directory, or that of an earlier backup")
            files.write_atomic(self.root / MANIFEST_FILE, encode_manifest(self.manifest))
            return
        if NEXT_FILE in names:
            self._carry_out(decode_manifest(files.read_bytes(self.root / NEXT_FILE), NEXT_FILE))
        self.manifest = decode_manifest(files.read_bytes(self.root / MANIFEST_FILE))
        if files.exists(self.root / STORE / LOCK_FILE):
            raise StoreError(
                f"a broker was started on {self.root / STORE}: it is no backup any more, and perhaps the newer store",
                remedy="look which store counts; take the backup into another directory",
            )

    @property
    def is_decided(self) -> bool:
        """Whether a run that has not ended counts all the same: all its files are there, and whoever comes next carries it out."""
        return self._files.exists(self.root / NEXT_FILE)

    def discard(self) -> None:
        """Throw away what a run has staged, unless it counts already. Raises OSError."""
        self.staged = []
        if not self.is_decided and self._files.exists(self.root / NEW):
            self._files.remove_tree(self.root / NEW)

    def place_of(self, path: str) -> Path:
        """Where a file of the last run lies."""
        return self.root / STORE / path

    def staged_place_of(self, path: str) -> Path:
        return self.root / NEW / path

    def stage(self, path: str) -> Path:
        """Where a file of this run is to be written. Raises OSError."""
        place = self.staged_place_of(path)
        make_private(self._files, self.root / NEW)
        self._files.make_dirs(place.parent)
        self.staged.append(path)
        return place

    def commit(self, manifest: BackupManifest) -> None:
        """End a run: everything that it staged is synced, and counts with this manifest. Durable on return. Raises OSError."""
        complete = msgspec.structs.replace(manifest, staged=sorted(manifest.files.keys() & set(self.staged)))
        self._sync_folders(self.root / NEW, complete.staged)
        self._files.write_atomic(self.root / NEXT_FILE, encode_manifest(complete))
        self._carry_out(complete)
        self.manifest = complete
        self.staged = []

    def note_damaged(self, paths: Iterable[str]) -> None:
        """Write down which files of the last run are not as they were copied: these and no others. Durable on return. Raises OSError."""
        damaged = set(paths)
        files = {
            path: msgspec.structs.replace(file, is_damaged=path in damaged)
            for path, file in self.manifest.files.items()
        }
        if files != self.manifest.files:
            noted = msgspec.structs.replace(self.manifest, files=files)
            self._files.write_atomic(self.root / MANIFEST_FILE, encode_manifest(noted))
            self.manifest = noted

    def _carry_out(self, manifest: BackupManifest) -> None:
        """Put the files of a run that has ended in their places. May be done again."""
        files = self._files
        make_private(files, self.root / STORE)
        for path in manifest.staged:
            source, place = self.staged_place_of(path), self.place_of(path)
            if files.exists(source):
                files.make_dirs(place.parent)
                if files.is_dir(place):  # put there by somebody else
                    files.remove_tree(place)
                files.rename(source, place)
        self._remove_others(self.root / STORE, manifest)
        self._sync_folders(
            self.root / STORE, manifest.staged
        )  # the names of others were synced by the runs that copied them
        files.rename(self.root / NEXT_FILE, self.root / MANIFEST_FILE)
        files.sync_dir(self.root)
        self.discard()

    def _remove_others(self, store: Path, manifest: BackupManifest) -> None:
        for place in sorted(store.rglob("*"), reverse=True):
            if self._files.is_dir(place):
                if not self._files.list_dir(place):
                    place.rmdir()
            elif str(place.relative_to(store)) not in manifest.files:
                self._files.remove(place)

    def _sync_folders(self, top: Path, paths: Iterable[str]) -> None:
        """Make the names of files durable, and of the folders that they are in."""
        folders = {top, self.root}
        for path in paths:
            place = (top / path).parent
            while place not in folders:
                folders.add(place)
                place = place.parent
        for folder in folders:
            if self._files.exists(folder):
                self._files.sync_dir(folder)

    def close(self) -> None:
        self._lock.release()
