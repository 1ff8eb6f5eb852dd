"""Taking a backup: what is copied, in which order, and what is not copied again.

1. Files of the log that are full: most of the work, while nothing is promised yet.
2. The recovery mark of that moment, and then whatever it speaks of, as far as it vouches for it.
3. What nobody could derive: tables, journals, the far tier.
4. The log, up to the last whole record. So nothing in the backup speaks of a record that is not there.

A start on that is one after a power failure: files of one moment would not be better, because the mark says what to believe of them.

Rules of this file
1. A file that is as it was when it was copied is not copied again. The newest file of the log is compared with what was copied of it, and
   goes on behind that.
2. Where files are removed or replaced while they are copied, that part is begun anew, with little left to copy.
3. Nothing changes in an earlier backup until this one is whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from orbitmq.clock import Clock
from orbitmq.errors import StoreError
from orbitmq.limits.store import BACKUP_QUIET_NS, BACKUP_TRIES_MAX
from orbitmq.server.backup.digest import PieceDigest
from orbitmq.server.backup.directory import FULL, BackupDirectory
from orbitmq.server.backup.manifest import (
    BackupFile,
    BackupManifest,
    is_kept,
    sure_fingerprint,
    what_is_lost,
    why_not_onto,
)
from orbitmq.server.backup.parts import (
    FAR,
    INDEX,
    LOG,
    QUEUES,
    WHOLE_FILES,
    WHOLE_FOLDERS,
    is_copied,
    is_text,
    shown,
    strangers,
    without_gap,
)
from orbitmq.server.backup.source import Moment, SourceStore, units_end
from orbitmq.store.files import File, Files
from orbitmq.store.inspection import StoredFile
from orbitmq.store.mark import MARK_FILE, MarkFile
from orbitmq.store.saving import ABORT_FILE, CHECKPOINT_FILE
from orbitmq.timing.far.state_file import STATE_FILE
from orbitmq.timing.index.directory import INDEX_DIRECTORY, MANIFEST
from orbitmq.timing.rocketmq.fence import FENCE
from orbitmq.timing.rocketmq.wheel import WHEEL_FILE
from orbitmq.timing.timers.pending_journal import JOURNAL_FILE as PENDING_FILE
from orbitmq.units import NS_PER_MS

TIMER_INDEX_MANIFEST: Final = f"{INDEX_DIRECTORY}/{MANIFEST}"
_PRIVATE: Final = 0o077
"""Bits of a mode that nobody else has at a private file."""


class BackupReport(msgspec.Struct):
    """What a run did."""

    source: str
    directory: str
    store: str
    log_end: int
    file_count: int
    bytes_in_all: int
    """What the backup holds, without holes."""
    copied_files: int
    copied_bytes: int
    kept_files: int
    """As they were at the run before: not copied again."""
    removed_files: int
    seconds: float
    notes: list[str] = []


def take_backup(
    files: Files,
    clock: Clock,
    source: Path,
    directory: Path,
    *,
    commit_log: Path | None = None,
    replace: bool = False,
) -> BackupReport:
    """Copy the store in `source`, served or not, into `directory`, or bring the backup there up to date. Durable on return.

    `commit_log`: its folder where it is not in the store. `replace`: also where the backup has what the store has lost. Raises StoreError
    and OSError; then an earlier backup is as it was, or this one counts when the next run, a look or a restore has ended it. Memory: 300
    bytes a file.
    """
    for place in filter(None, (source, commit_log)):
        _refuse_nested(place, directory)
    store = SourceStore(files, source, commit_log)
    store.names()
    store.moment()
    backup = BackupDirectory.open(files, directory, create=True)
    try:
        backup.discard()
        return _Run(files, clock, store, backup).run(replace=replace)
    except OSError as error:
        backup.discard()
        if error.errno not in FULL:
            raise
        free = files.disk_usage(directory).free_bytes
        if backup.is_decided:
            raise StoreError(
                f"there is no room left for {directory}: {free} bytes are free; everything is copied, and not yet in its place",
                remedy="make room: `orbitmq store verify` or the next run ends it",
            ) from error
        raise StoreError(
            f"there is no room left for {directory}: {free} bytes are free without what this run copied; an earlier backup is as it was",
            remedy="make room, or name a directory on a larger disk",
        ) from error
    except StoreError:
        backup.discard()
        raise
    finally:
        backup.close()


def _refuse_nested(source: Path, directory: Path) -> None:
    inner, outer = directory.resolve(), source.resolve()
    if inner == outer or inner.is_relative_to(outer):
        raise StoreError(
            f"{directory} lies in the store that is to be copied", remedy="name a directory outside, on another disk"
        )
    if outer.is_relative_to(inner):
        raise StoreError(
            f"the store lies in {directory}", remedy="name a directory for the backup alone, on another disk"
        )


class _Run:
    """One run."""

    def __init__(self, files: Files, clock: Clock, store: SourceStore, backup: BackupDirectory) -> None:
        self._files = files
        self._clock = clock
        self._store = store
        self._backup = backup
        self._before = backup.manifest.files
        self._done: dict[str, BackupFile] = {}
        """What the backup is going to have."""
        self._copied: set[str] = set()
        self._copied_bytes = 0
        self._growing: dict[str, PieceDigest] = {}
        """Files of the log that this run has begun and perhaps goes on with."""
        self._compared: dict[str, PieceDigest] = {}
        """Files of the log that were read as far as the earlier backup has them."""
        self._notes: list[str] = []

    def run(self, *, replace: bool) -> BackupReport:
        store, backup = self._store, self._backup
        began_ns, taken_at_ms = self._clock.monotonic_ns(), self._clock.now_ms()
        identity, first = store.identity(), store.moment()
        confirmed = first.mark.end
        log_end = store.log_end(confirmed)
        if why := why_not_onto(backup.manifest, identity):
            raise StoreError(
                f"{backup.root} holds another backup: {why}", remedy="take this one into a directory of its own"
            )
        is_continued = log_end < backup.manifest.end or self._is_continued()
        if lost := what_is_lost(backup.manifest, log_end, is_continued=is_continued):
            if not replace:
                raise StoreError(
                    f"{backup.root} holds another backup: {lost}",
                    remedy="look which one counts, and take this one into a directory of its own; --replace gives up what it alone has",
                )
            self._notes.append(f"what the earlier backup alone had is given up (--replace): {lost}")
        self._note_places()
        self._take_log(confirmed, only_full=True)
        end = self._take_all()
        store.names()
        if identity and store.identity() != identity:
            raise StoreError(
                f"another store was put in the place of {store.root} meanwhile", remedy="run the backup again"
            )
        identity = store.identity()
        removed = len(self._before.keys() - self._done.keys())
        backup.commit(BackupManifest(store=identity, taken_at_ms=taken_at_ms, end=end, files=self._done))
        count = len(self._done)
        return BackupReport(
            source=str(store.root),
            directory=str(backup.root),
            store=identity,
            log_end=end,
            file_count=count,
            bytes_in_all=sum(file.end for file in self._done.values()),
            copied_files=len(self._copied),
            copied_bytes=self._copied_bytes,
            kept_files=count - len(self._copied & self._done.keys()),
            removed_files=removed,
            seconds=round((self._clock.monotonic_ns() - began_ns) / 1e9, 3),
            notes=self._notes,
        )

    def _note_places(self) -> None:
        store, backup = self._store, self._backup
        held = store.log_directory if self._files.is_dir(store.log_directory) else store.root
        if held.stat().st_dev == backup.root.stat().st_dev:
            self._notes.append(
                f"{backup.root} is on the same file system as the store: what takes the one takes the other"
            )
        unknown = strangers(store.names())
        self._notes += [f"{shown(name)} is left out: a backup knows nothing of it" for name in unknown]
        if self._files.exists(store.root / STATE_FILE) and not store.has_far_files:
            self._notes.append(
                "the far tier lies elsewhere (timerFarUrl): its files are not in this backup, and have to be kept as they are now"
            )

    def _take_all(self) -> int:
        """Everything, and where the log ends in it. Begun anew where retention removed a file of the log meanwhile: what the mark speaks of
        may be gone with it, and stand elsewhere."""
        for _ in range(BACKUP_TRIES_MAX):
            first = self._first_log_file()
            moment = self._store.moment()
            self._take_queues(moment)
            self._take_index(moment)
            self._take_small()
            self._take_timer_index()
            end = self._take_far_and_log(moment.mark.end)
            if self._first_log_file() == first:
                self._make(moment)
                return end
        raise _restless("retention removes files of the log")

    def _first_log_file(self) -> Path | None:
        stored = self._store.log_files()
        return stored[0].path if stored else None

    # --- parts --------------------------------------------------------------------------------------------------------

    def _take_queues(self, moment: Moment) -> None:
        """Files of consume queues, as far as the mark speaks of their units."""
        self._forget(QUEUES)
        for path, is_first in self._store.queue_files():
            self._take(path, units_below=moment.queues_position, is_first=is_first)

    def _take_index(self, moment: Moment) -> None:
        self._forget(INDEX)
        paths = self._store.index_files(moment.newest_index)
        for path in paths:
            self._take(path, is_sure=path != paths[-1])  # that one is written through a mapping, which changes no time

    def _take_small(self) -> None:
        for name in WHOLE_FILES:
            self._take(name)
        for folder in WHOLE_FOLDERS:
            self._forget(folder)
            for path in self._store.below(folder):
                if is_copied(Path(path).name):
                    self._take(path)

    def _may_copy(self, path: str) -> bool:
        """Whether it is a file whose name can be written down; what is none is nobody's, and is named."""
        why = "" if is_text(path) else "its name is no UTF-8"
        if not why and self._store.is_special(path):
            why = "it is no file"
        if why:
            text = f"{shown(path)} is left out: {why}"
            self._notes += [text] if text not in self._notes else []
        return not why

    def _take_timer_index(self) -> None:
        """A cache of the log: where it is replaced again and again, the next start makes it."""
        for _ in range(BACKUP_TRIES_MAX):
            self._forget(INDEX_DIRECTORY)
            self._take(TIMER_INDEX_MANIFEST)
            for path in self._store.below(INDEX_DIRECTORY):
                if path != TIMER_INDEX_MANIFEST and not path.endswith(".tmp"):
                    self._take(path)
            if self._is_same(TIMER_INDEX_MANIFEST):
                return
        for path in [path for path in self._done if path.startswith(f"{INDEX_DIRECTORY}/")]:
            del self._done[path]

    def _take_far_and_log(self, confirmed: int) -> int:
        """The far tier and the log: the state of the tier first, then the log, which says what became of it, then the files, none of
        which goes while that state is the newest."""
        for _ in range(BACKUP_TRIES_MAX):
            self._take(STATE_FILE)
            end = self._store.log_end(confirmed)
            is_whole = self._take_log(end)
            self._forget(FAR)
            for path in self._store.below(FAR):
                self._take(path)
            if is_whole and self._is_same(STATE_FILE):
                return end
        raise _restless("the far tier writes its files anew")

    def _take_log(self, end: int, *, only_full: bool = False) -> bool:
        """The log up to `end`. False where retention took a file that was to be copied: what waited in it stands behind `end` by now."""
        stored = [file for file in self._store.log_files() if file.base < end]
        is_whole = True
        for file in stored:
            if file.end <= end or not only_full:
                is_whole = self._take_log_file(file, min(end - file.base, file.size)) and is_whole
        names = {f"{LOG}/{file.path.name}": file for file in stored}
        bases = (
            without_gap((names[path].base for path in self._done if path in names), stored[0].size) if stored else []
        )
        for path in [path for path in self._done if path.startswith(f"{LOG}/")]:
            if path not in names or names[path].base not in bases:
                del self._done[path]
        return is_whole

    def _make(self, moment: Moment) -> None:
        """What belongs to this backup alone: the mark of its moment, and what a store has after a power failure."""
        place = self._backup.stage(MARK_FILE)
        mark_file = MarkFile(self._files, place.parent)
        mark_file.save_synced(moment.mark)
        mark_file.close()
        self._write(CHECKPOINT_FILE, moment.page.encode())
        self._write(ABORT_FILE, b"backup")
        if self._files.exists(self._store.root / WHEEL_FILE) or PENDING_FILE in self._done:
            self._write(WHEEL_FILE, FENCE)
        file = self._files.open(place, writable=False)
        try:
            self._note_copied(MARK_FILE, BackupFile(file.size(), file.size(), PieceDigest().take(file, file.size())), 0)
        finally:
            file.close()

    def _write(self, path: str, data: bytes) -> None:
        file = self._files.open(self._backup.stage(path), create=True)
        try:
            file.truncate(0)
            file.pwrite(data, 0)
            file.datasync()
            self._note_copied(path, BackupFile(len(data), len(data), PieceDigest().take(file, len(data))), len(data))
        finally:
            file.close()

    # --- one file -----------------------------------------------------------------------------------------------------

    def _forget(self, folder: str) -> None:
        """What was copied of a folder in an earlier try counts no more where it is not found again."""
        for path in [path for path in self._done if path.startswith(f"{folder}/")]:
            if not self._files.exists(self._store.place_of(path)):
                del self._done[path]

    def _is_same(self, path: str) -> bool:
        """Whether a small file of the store still holds what was copied of it; also where there is none, and was none."""
        known = self._done.get(path)
        try:
            file = self._files.open(self._store.place_of(path), writable=False)
        except FileNotFoundError:
            return known is None
        try:
            return (
                known is not None and known.end == file.size() and PieceDigest().take(file, known.end) == known.digest
            )
        finally:
            file.close()

    def _holds(self, path: str, known: BackupFile) -> bool:
        place = self._backup.place_of(path)
        return not known.is_damaged and self._files.exists(place) and self._files.file_size(place) == known.size

    def _take(self, path: str, *, units_below: int | None = None, is_first: bool = True, is_sure: bool = True) -> bool:
        """Copy a file, unless the backup has it as it is. `units_below`: of a consume queue, the units of records below that log position
        alone, and nothing of a file without any that is not the first one. `is_sure`: its time of change tells of every change. False where
        it is not there."""
        place = self._store.place_of(path)
        began_ns = self._clock.now_ms() * NS_PER_MS
        fingerprint = self._files.fingerprint(str(place))
        known = self._done.get(path)
        if is_sure and is_kept(known, fingerprint):
            return True
        before = self._before.get(path)
        if is_sure and is_kept(before, fingerprint) and before is not None and self._holds(path, before):
            self._done[path] = before
            return True
        if not self._may_copy(path):
            return False
        try:
            source = self._files.open(place, writable=False)
        except FileNotFoundError:
            self._done.pop(path, None)
            return False
        try:
            size = end = source.size()
            if units_below is not None:
                end, is_whole = units_end(source, size, units_below)
                is_sure = is_sure and is_whole
                if not end and not is_first:
                    return True
            is_private = not place.stat().st_mode & _PRIVATE
            digest = PieceDigest()
            text = self._copy(path, source, size, end, digest, is_private=is_private)
            after = self._files.fingerprint(str(place)) if is_sure else None
        except FileNotFoundError:  # it was removed after it was opened
            self._done.pop(path, None)
            return False
        finally:
            source.close()
        found = sure_fingerprint(fingerprint, after, began_ns, BACKUP_QUIET_NS)
        self._note_copied(path, BackupFile(size, end, text, found, is_private), digest.written_bytes)
        return True

    def _copy(self, path: str, source: File, size: int, end: int, digest: PieceDigest, *, is_private: bool) -> str:
        place = self._backup.stage(path)
        target = self._files.create_private(place) if is_private else self._files.open(place, create=True)
        try:
            target.truncate(0)
            target.truncate(size)
            text = digest.take(source, end, target)
            target.datasync()
        finally:
            target.close()
        return text

    def _take_log_file(self, stored: StoredFile, end: int) -> bool:
        """A file of the log up to byte `end` of it. What was copied of it before is compared, and what follows put behind. False where it
        is not there."""
        path = f"{LOG}/{stored.path.name}"
        began_ns = self._clock.now_ms() * NS_PER_MS
        fingerprint = self._files.fingerprint(str(stored.path))
        for known in (self._done.get(path), self._before.get(path)):
            if (
                known is not None
                and known.end == end
                and is_kept(known, fingerprint)
                and (path in self._done or self._holds(path, known))
            ):
                self._done[path] = known
                return True
        try:
            source = self._files.open(stored.path, writable=False)
        except FileNotFoundError:
            return False
        try:
            digest = self._growing.get(path) or self._begun(path, source)
            written = digest.written_bytes if digest is not None else 0
            if digest is None:
                digest = self._growing[path] = PieceDigest()
                text = self._copy(path, source, stored.size, end, digest, is_private=False)
            else:
                text = self._go_on(path, source, end, digest)
            after = self._files.fingerprint(str(stored.path)) if end == stored.size else None
        finally:
            source.close()
        found = sure_fingerprint(fingerprint, after, began_ns, BACKUP_QUIET_NS)
        self._note_copied(path, BackupFile(stored.size, end, text, found), digest.written_bytes - written)
        return True

    def _is_continued(self) -> bool:
        """Whether the newest file of the log in the earlier backup is what the store has there; also where the store has it no more."""
        path = max((path for path, file in self._before.items() if path.startswith(f"{LOG}/") and file.end), default="")
        if not path:
            return True
        known, place = self._before[path], self._store.place_of(path)
        if is_kept(known, self._files.fingerprint(str(place))):
            return True
        try:
            source = self._files.open(place, writable=False)
        except FileNotFoundError:
            return True
        try:
            digest = self._compared[path] = PieceDigest()
            return digest.take(source, known.end) == known.digest
        finally:
            source.close()

    def _begun(self, path: str, source: File) -> PieceDigest | None:
        """What is to be gone on with: the copy of the run before, where it holds the beginning of this file; None where it does not."""
        before = self._before.get(path)
        if before is None or before.size != source.size() or not self._holds(path, before):
            return None
        digest = self._compared.pop(path, None) or PieceDigest()
        if digest.take(source, before.end) != before.digest:
            return None
        target = self._files.open(self._backup.place_of(path))
        try:  # a run that was broken off may have left something behind it
            target.punch(before.end, before.size - before.end)
        finally:
            target.close()
        self._growing[path] = digest
        return digest

    def _go_on(self, path: str, source: File, end: int, digest: PieceDigest) -> str:
        staged = self._backup.staged_place_of(path)
        target = self._files.open(staged if self._files.exists(staged) else self._backup.place_of(path))
        try:
            text = digest.take(source, end, target)
            target.datasync()
        finally:
            target.close()
        return text

    def _note_copied(self, path: str, file: BackupFile, written_bytes: int) -> None:
        self._done[path] = file
        self._copied_bytes += written_bytes
        if written_bytes or path not in self._before:
            self._copied.add(path)


def _restless(what: str) -> StoreError:
    return StoreError(
        f"{what} faster than they are copied: no part of them stood still in {BACKUP_TRIES_MAX} tries; an earlier backup is as it was",
        remedy="run it again when there is less to do",
    )
