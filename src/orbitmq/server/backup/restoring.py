"""A store made of a backup, and whether a backup is still what was copied.

Rules of this file
1. A store is made in an empty directory alone. Nothing is merged, and nothing is replaced.
2. Every byte is compared with its digest while it is copied.
3. A part of the newest file of the log is the first thing there, then come mark and checkpoint, and the log last, its newest file at the
   very end: what a restore leaves behind that was broken off is no store, and a start on it is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from orbitmq.errors import StoreDamagedError, StoreError, StoreLockedError
from orbitmq.server.backup.digest import PieceDigest
from orbitmq.server.backup.directory import FULL, BackupDirectory, contents, make_private
from orbitmq.server.backup.manifest import BackupFile, BackupManifest
from orbitmq.server.backup.parts import LOG
from orbitmq.store.files import Files
from orbitmq.store.inspection import read_sequence
from orbitmq.store.mark import MARK_FILE
from orbitmq.store.saving import CHECKPOINT_FILE

PART: Final = ".part"
"""Ending of a file of the log that is not whole yet: no broker starts beside it."""


class RestoreReport(msgspec.Struct):
    """What a restore made, or a look at a backup found."""

    directory: str
    store: str
    taken_at_ms: int
    log_end: int
    file_count: int
    bytes_in_all: int
    damaged: list[str] = []
    """Files of the backup that are not as they were copied; of a restore always empty."""
    not_noted: str = ""
    """Why the next run does not copy these anew: they could not be written down in the backup."""


def verify_backup(files: Files, backup: Path) -> RestoreReport:
    """Compare every file of a backup with its digest, and note there which the next run is to copy anew. Raises StoreError, OSError. 2 ms a
    megabyte."""
    opened = BackupDirectory.open(files, backup, create=False)
    try:
        manifest = _whole_manifest(opened)
        damaged = [path for path, file in manifest.files.items() if not _is_sound(files, opened.place_of(path), file)]
        report = _report(backup, manifest, damaged)
        try:
            opened.note_damaged(damaged)
        except OSError as error:  # a backup may lie where nobody can write any more
            report.not_noted = error.strerror or str(error)
        return report
    finally:
        opened.close()


def _is_sound(files: Files, place: Path, file: BackupFile) -> bool:
    """Also what cannot be read is not: a disk that is failing answers so."""
    try:
        if files.file_size(place) != file.size:
            return False
        opened = files.open(place, writable=False)
        try:
            return PieceDigest().take(opened, file.end) == file.digest
        finally:
            opened.close()
    except OSError:
        return False


def restore_backup(files: Files, backup: Path, root: Path, *, commit_log: Path | None = None) -> RestoreReport:
    """Make the store of a backup in `root`, which is empty or not there. Durable on return. `commit_log`: the folder of its log, if not in
    the store. Raises StoreError and OSError; then what is in `root` is no store."""
    places = [root] if commit_log is None else [root, commit_log]
    for place in places:
        inner, outer = place.resolve(), backup.resolve()
        if inner.is_relative_to(outer) or outer.is_relative_to(inner):
            raise StoreError(
                f"{place} and the backup {backup} lie in each other", remedy="name a directory outside of the backup"
            )
    if commit_log is not None and root.resolve().is_relative_to(commit_log.resolve()):
        raise StoreError(f"the store {root} lies in its log {commit_log}", remedy="name a folder for the log alone")
    opened = BackupDirectory.open(files, backup, create=False)
    try:
        manifest = _whole_manifest(opened)
        for place in places:
            _expect_empty(files, place, manifest)
        for place in places:
            make_private(files, place)
        lock = files.lock_dir(root)
        try:
            _make(files, opened, manifest, root, commit_log or root / LOG)
        except OSError as error:
            if error.errno not in FULL:
                raise
            full = min(places, key=lambda place: files.disk_usage(place).free_bytes)
            raise StoreError(
                f"there is no room left for {full}: {files.disk_usage(full).free_bytes} bytes are free; what is there so far is no store",
                remedy="empty the directory again, and restore where there is room",
            ) from error
        finally:
            lock.release()
        return _report(root, manifest, [])
    finally:
        opened.close()


def _whole_manifest(opened: BackupDirectory) -> BackupManifest:
    if not opened.manifest.files:
        raise StoreError(f"no backup has come to its end in {opened.root}", remedy="run `orbitmq store backup` again")
    return opened.manifest


def _expect_empty(files: Files, root: Path, manifest: BackupManifest) -> None:
    if not files.is_dir(root) and (root.exists() or root.is_symlink()):
        raise StoreError(f"{root} is no directory", remedy="name an empty directory, or one that is not there")
    if not contents(files, root):
        return
    try:
        files.lock_dir(root).release()
    except StoreLockedError:
        raise StoreLockedError(
            f"a broker serves {root}", remedy="stop it, and restore into an empty directory: nothing is replaced"
        ) from None
    log = read_sequence(files, root / LOG)
    what = (
        f"holds a store whose log files reach {log.end}; the log of the backup ends at {manifest.end}"
        if log.files
        else "is not empty"
    )
    raise StoreError(
        f"{root} {what}", remedy="name an empty directory, or move away what is there: nothing is replaced"
    )


def restore_order(manifest: BackupManifest) -> list[str]:
    """Paths of all files, in the order in which a restore makes them."""
    ranks = {MARK_FILE: 0, CHECKPOINT_FILE: 0}
    return sorted(manifest.files, key=lambda path: (ranks.get(path, 2 if path.startswith(f"{LOG}/") else 1), path))


def _make(files: Files, opened: BackupDirectory, manifest: BackupManifest, root: Path, log_directory: Path) -> None:
    folders = {root, log_directory}
    order = restore_order(manifest)
    files.make_dirs(log_directory)
    if order[-1].startswith(f"{LOG}/"):  # until the newest one is whole nobody starts here
        part = files.open(log_directory / (Path(order[-1]).name + PART), create=True)
        part.truncate(manifest.files[order[-1]].size)
        part.close()
        files.sync_dir(log_directory)
    for path in order:
        file = manifest.files[path]
        is_log = path.startswith(f"{LOG}/")
        place = log_directory / Path(path).name if is_log else root / path
        files.make_dirs(place.parent)
        folders |= {place.parent, place.parent.parent}
        target = place.with_name(place.name + PART) if is_log else place
        _copy(files, opened.place_of(path), target, path, file)
        if is_log:
            files.rename(target, place)
    for folder in folders:
        files.sync_dir(folder)


def _copy(files: Files, source: Path, place: Path, path: str, file: BackupFile) -> None:
    target = files.create_private(place) if file.is_private else files.open(place, create=True)
    try:
        target.truncate(file.size)
        copied = files.open(source, writable=False)
        try:
            digest = PieceDigest().take(copied, file.end, target)
        finally:
            copied.close()
        target.datasync()
    except FileNotFoundError:
        digest = ""
    finally:
        target.close()
    if digest != file.digest:
        raise StoreDamagedError(
            f"{path} of the backup is not as it was copied",
            remedy="empty the directory again; `orbitmq store verify` names all such files, and the next backup copies them anew",
        )


def _report(directory: Path, manifest: BackupManifest, damaged: list[str]) -> RestoreReport:
    return RestoreReport(
        str(directory),
        manifest.store,
        manifest.taken_at_ms,
        manifest.end,
        len(manifest.files),
        sum(file.end for file in manifest.files.values()),
        damaged,
    )
