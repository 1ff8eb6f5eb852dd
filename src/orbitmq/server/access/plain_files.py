"""Files of accounts of RocketMQ 4: `plain_acl.yml` and all files in `acl/` beside it, read at the start and when they change.

Rules of this file
1. At a start a file that cannot be used stops the start, and so does a folder without any. While running it changes nothing: the last
   good accounts stay, the log says why, once, and every look tries again, for a permission may be mended without a trace in the file.
2. A file that changes is read when it has stood still between two looks: what an editor has written half is not taken for the whole.
3. A change by request replaces the whole file and keeps its mode; comments in it are lost, as with RocketMQ. While a file that
   somebody else has changed is not in force yet, nothing is changed by request: an editor may have written half of it.
4. While running, files are looked at, read and written on the thread that saves tables: reading the largest takes seconds. One that
   has not changed is not read again.
5. Only this module and what reads files for it import PyYAML, so a server without such files runs without it.

(RocketMQ broker: ACL in 4.x.)
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.access.plain.accounts import PlainFile, read_plain_tree
from orbitmq.access.plain.changes import Tree, with_next_version
from orbitmq.access.plain.table import PlainTable
from orbitmq.access.plain.yaml_text import Value, read_yaml, write_yaml
from orbitmq.clock import Clock
from orbitmq.errors import ConfigurationError
from orbitmq.limits.plain_access import PLAIN_FILE_BYTES_MAX, PLAIN_FILES_MAX, PLAIN_FOLDER_DEPTH_MAX, PLAIN_LOOK_MS
from orbitmq.server.process.turn import Wakeups
from orbitmq.store.worker import Worker

_log = logging.getLogger(__name__)

WAKEUP: Final = "have accounts changed"
DEFAULT_FILE: Final = "plain_acl.yml"
FOLDER: Final = "acl"

FileStamp = tuple[int, int, int]
"""What tells that a file has changed: inode, size, time of the last change."""


def read_plain_folder(folder: Path) -> PlainTable:
    """The accounts of all files. ConfigurationError for a file that cannot be used, and where there is none."""
    return _read_folder(folder, _read)


def _read_folder(folder: Path, read: Callable[[Path], PlainFile]) -> PlainTable:
    paths = _paths(folder)
    if not paths:
        raise ConfigurationError(
            f"there are no accounts: neither {folder / DEFAULT_FILE} nor a .yml file in {folder / FOLDER} exists",
            remedy="aclConfigPath names the folder of plain_acl.yml; without accounts leave aclEnable off",
        )
    try:
        return PlainTable([read(path) for path in paths])
    except ValueError as error:
        raise ConfigurationError(
            str(error), remedy="correct the file: docs/howto/access-rocketmq-4.md shows each form"
        ) from None


class _ReadAccounts(NamedTuple):
    """What stands in a file of this stamp, or why it cannot be used."""

    stamp: FileStamp | None
    content: PlainFile | str


class PlainFiles:
    """The accounts as last read, and whether their files have changed since. Its methods block, and are called on one thread at a
    time."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        """Reads the files. ConfigurationError when they cannot be used."""
        self.folder = folder
        self.default_file = str(folder / DEFAULT_FILE)
        self._clock = clock
        self._read_stamps = self._seen_stamps = _stamps(folder)
        self._trouble = ""
        self._known: dict[Path, _ReadAccounts] = {}
        self.table = _read_folder(folder, self._read_changed)
        """Replaced as a whole when a file changes."""
        self._written: dict[Path, FileStamp | None] = {}
        """The files as changes by request left them."""

        self._warn()

    def look(self) -> None:
        """Read what has changed and stood still since the last look, and what could not be used."""
        seen = _stamps(self.folder)
        stood_still, self._seen_stamps = seen == self._seen_stamps, seen
        if stood_still and (self._trouble or seen != self._read_stamps):
            self._read_again(seen)

    def reload(self) -> str:
        """Read the files now, whoever asks says that they are whole; answers what is in force. ConfigurationError when they cannot be used:
        the accounts in use stay."""
        self._seen_stamps = _stamps(self.folder)
        if not self._read(self._seen_stamps):
            raise ConfigurationError(
                f"the files in {self.folder} changed while they were read: they are read again soon"
            )
        return f"{len(self.table.accounts)} access keys of {self.folder} are in force"

    def _read_again(self, stamps: dict[Path, FileStamp | None]) -> None:
        """Read the files of these stamps. What cannot be used changes nothing and is reported."""
        known = self._trouble
        try:
            is_read = self._read(stamps)
        except ConfigurationError as error:
            if str(error) != known:
                _log.error("the accounts in use stay, what replaced them cannot be used: %s", error)
            return
        if is_read:
            _log.info("the accounts in %s are in force: %d access keys", self.folder, len(self.table.accounts))

    def _read(self, stamps: dict[Path, FileStamp | None]) -> bool:
        """False when they changed meanwhile: the next looks read them again. ConfigurationError when they cannot be used."""
        self._read_stamps = stamps
        self._known = {path: known for path, known in self._known.items() if path in stamps}
        try:
            table = _read_folder(self.folder, self._read_changed)
        except ConfigurationError as error:
            self._trouble = str(error)
            raise
        if _stamps(self.folder) != stamps:
            self._read_stamps = {}
            return False
        self._trouble = ""
        self.table = table
        self._warn()
        return True

    def _read_changed(self, path: Path) -> PlainFile:
        """As `_read`, which takes seconds for the largest file, and is not repeated for one that has not changed."""
        stamp, known = _stamp(path), self._known.get(path)
        if known is None or known.stamp != stamp:
            data = _data(path)
            try:
                known = _ReadAccounts(stamp, read_plain_tree(_tree(path, data), str(path)))
            except ValueError as error:
                known = _ReadAccounts(stamp, str(error))
            self._known[path] = known
        if isinstance(known.content, str):
            raise ValueError(known.content)
        return known.content

    def change(self, file: str, change: Callable[[Tree], Tree]) -> PlainTable:
        """See `AccountFiles.change`."""
        path = Path(file)
        paths = _paths(self.folder)
        if path not in paths:
            paths.append(path)
        tree = _tree(path, _data(path)) if path.exists() else None
        text = write_yaml(with_next_version(change(tree if isinstance(tree, dict) else {}), self._clock.now_ms()))
        written = read_plain_tree(read_yaml(text), file)
        table = PlainTable([written if one == path else self._read_changed(one) for one in paths])
        for one in paths:
            if _stamp(one) not in (self._read_stamps.get(one), self._written.get(one)):
                raise ValueError(
                    f"{one} was changed by somebody else and is not in force yet: ask again when the log says that it is"
                )
        _replace(path.resolve(), text)
        self._written[path] = _stamp(path)
        self._known[path] = _ReadAccounts(self._written[path], written)
        return table

    def _warn(self) -> None:
        for warning in self.table.warnings:
            _log.warning("%s", warning)


class PlainWatch:
    """Has the files of accounts looked at from time to time, on the thread of `worker`."""

    def __init__(self, files: PlainFiles, wakeups: Wakeups, worker: Worker) -> None:
        self._files = files
        self._wakeups = wakeups
        self._worker = worker
        self._is_stopped = False
        self._wait()

    def _wait(self) -> None:
        self._timer = self._wakeups.call_later(PLAIN_LOOK_MS / 1_000, WAKEUP, self._look)

    def _look(self) -> None:
        self._worker.submit(self._files.look, self._looked)

    def _looked(self, result: BaseException | None) -> None:
        if result is not None:
            _log.error("the accounts in use stay, their files cannot be looked at", exc_info=result)
        if not self._is_stopped:
            self._wait()

    def stop(self) -> None:
        self._is_stopped = True
        self._timer.cancel()


def _paths(folder: Path) -> list[Path]:
    """The files in the order in which they count: those of the folder by path, then the default file. ConfigurationError for too many,
    and for a folder that cannot be read."""
    default = folder / DEFAULT_FILE
    try:
        paths = sorted(_found(folder / FOLDER, PLAIN_FOLDER_DEPTH_MAX))
        if default.exists():
            paths.append(default)
    except OSError as error:
        raise ConfigurationError(f"{error.filename} cannot be read: {error.strerror or error}") from None
    if len(paths) > PLAIN_FILES_MAX:
        raise ConfigurationError(f"{folder} has {len(paths)} files of accounts, {PLAIN_FILES_MAX} are allowed")
    return paths


def _found(folder: Path, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.suffix in (".yml", ".yaml"):
            yield entry
        elif entry.is_dir():
            if not depth:
                raise ConfigurationError(f"{entry} lies deeper than {PLAIN_FOLDER_DEPTH_MAX} folders")
            yield from _found(entry, depth - 1)


def _read(path: Path) -> PlainFile:
    """One file. ValueError, beginning with its path, when it cannot be used."""
    return read_plain_tree(_tree(path, _data(path)), str(path))


def _data(path: Path) -> bytes:
    """What stands in a file, and of a too long one enough to be refused. ValueError, beginning with its path, when it cannot be read."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for who writes into it
            raise ValueError(f"{path} is no file")
        with path.open("rb") as file:
            return file.read(PLAIN_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None


def _tree(path: Path, data: bytes) -> Value:
    """ValueError, beginning with the path, when the content of a file is no YAML within bounds."""
    try:
        return read_yaml(data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _replace(path: Path, data: bytes) -> None:
    """Replace a file's content and keep its mode. After a crash it holds the old or the new content, whole; durable on return."""
    new = path.with_name(path.name + ".tmp")
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _stamps(folder: Path) -> dict[Path, FileStamp | None]:
    """Of each file; None for one that is gone meanwhile. Empty when the folder cannot be read: the next look tells more."""
    try:
        return {path: _stamp(path) for path in _paths(folder)}
    except ConfigurationError:
        return {}


def _stamp(path: Path) -> FileStamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
