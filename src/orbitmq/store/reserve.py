"""Space that is set aside, so that what must be written on a full disk can be.

A file of a fixed size is kept beside the store. Whoever finds no room for a table, a saved state or an undo gives that space back
to the file system and tries again. Meanwhile no messages are taken; they are taken again when the space could be set aside anew.

Rules of this file
1. The log never uses it: a send that finds no room is refused.
2. It is touched only by whoever holds the lock of the store.
3. It may be spent on any thread, and is set aside by the owner's.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from orbitmq.limits.store import RESERVE_BYTES_MAX, RESERVE_BYTES_MIN, RESERVE_LOG_FILES
from orbitmq.store.files import Buffer, File, Files
from orbitmq.store.forwarding import ForwardedFile, ForwardedFiles

logger = logging.getLogger("orbitmq.store")
T = TypeVar("T")

RESERVE_FILE: Final = "orbitmq.reserve"
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_no_room(error: BaseException) -> bool:
    """Whether the disk, or the share of it that a user may have, is full."""
    return isinstance(error, OSError) and error.errno in NO_ROOM


def bytes_to_set_aside(log_file_bytes: int) -> int:
    """How much is kept free for a store whose log files have that size."""
    return min(max(log_file_bytes // RESERVE_LOG_FILES, RESERVE_BYTES_MIN), RESERVE_BYTES_MAX)


class Reserve:
    """The space set aside for one store. Give `files` to everybody who writes beside the log."""

    def __init__(self, files: Files, root: Path, size_bytes: int) -> None:
        self._inner = files
        self._root = root
        self._path = root / RESERVE_FILE
        self._lock = threading.Lock()
        self._file: File | None = None
        self._held_bytes = 0
        self._is_kept = False
        """Whether this file system can set space aside."""
        self.size_bytes: Final = size_bytes
        self.files: Final[Files] = ReservedFiles(files, self)
        self.spent: Callable[[], object] | None = None
        """Called on the thread that has just spent it."""

    @property
    def is_whole(self) -> bool:
        return not self._is_kept or self._held_bytes == self.size_bytes

    @property
    def free_bytes(self) -> int:
        """What the file system has besides."""
        return self._inner.disk_usage(self._root).free_bytes

    def take_up(self) -> None:
        """Set the space aside, or as much as there is. To be called once, under the lock of the store."""
        with self._lock:
            try:
                self._file = self._inner.open(self._path, create=True)
                size = self._file.size()
                if size > self.size_bytes:
                    self._file.truncate(self.size_bytes)
                self._held_bytes = min(size, self.size_bytes)
                self._is_kept = True
                self._grow(self._file)
            except OSError as error:
                self._is_kept = is_no_room(error)
                logger.warning("%d bytes could not be set aside for a full disk: %s", self.size_bytes, error)

    def _grow(self, file: File) -> None:
        free = self.size_bytes if self._held_bytes == self.size_bytes else self.free_bytes
        target = min(self.size_bytes, self._held_bytes + free)
        if target > self._held_bytes:
            try:
                file.allocate(0, target)
            except OSError:
                self._held_bytes = min(
                    file.size(), self.size_bytes
                )  # some file systems keep the part that there was room for
                raise
            self._held_bytes = target

    def restore(self) -> bool:
        """Set aside again what was spent, as far as there is room; whether it is whole."""
        if self.is_whole:
            return True
        with self._lock:
            try:
                if self._file is None:
                    self._file = self._inner.open(self._path, create=True)
                self._grow(self._file)
            except OSError as error:
                logger.debug("what was set aside for a full disk stays in use: %s", error)
        return self.is_whole

    def spend(self) -> None:
        """Give the space back to the file system, for what has to be written now."""
        with self._lock:
            if self._file is None or not self._held_bytes:
                return
            try:
                self._file.truncate(0)
            except OSError as error:
                logger.error("what was set aside for a full disk cannot be used: %s", error)
                return
            self._held_bytes = 0
        if self.spent is not None:
            self.spent()

    def with_room(self, write: Callable[[], T]) -> T:
        """Call `write`, and once more with the space when there was no room. Raises what it raises."""
        try:
            return write()
        except OSError as error:
            if not is_no_room(error):
                raise
        self.spend()
        return write()

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None


class ReservedFiles(ForwardedFiles):
    """Files whose writes may use the reserve."""

    __slots__ = ("_reserve",)

    def __init__(self, inner: Files, reserve: Reserve) -> None:
        super().__init__(inner)
        self._reserve = reserve

    def open(
        self, path: Path | str, *, create: bool = False, writable: bool = True, keep_unsynced: bool = False
    ) -> File:
        file = self._reserve.with_room(
            lambda: self._inner.open(path, create=create, writable=writable, keep_unsynced=keep_unsynced)
        )
        return ReservedFile(file, self._reserve) if writable else file

    def create_private(self, path: Path) -> File:
        return ReservedFile(self._reserve.with_room(lambda: self._inner.create_private(path)), self._reserve)

    def make_dirs(self, path: Path) -> None:
        self._reserve.with_room(lambda: self._inner.make_dirs(path))

    def remove(self, path: Path) -> None:
        self._reserve.with_room(lambda: self._inner.remove(path))

    def remove_tree(self, path: Path) -> None:
        self._reserve.with_room(lambda: self._inner.remove_tree(path))

    def rename(self, source: Path, target: Path) -> None:
        self._reserve.with_room(lambda: self._inner.rename(source, target))


class ReservedFile(ForwardedFile):
    """A file whose writes may use the reserve. Reading goes to the file itself."""

    __slots__ = ("_reserve",)  # a store has as many of them as message queues

    def __init__(self, inner: File, reserve: Reserve) -> None:
        super().__init__(inner)
        self._reserve = reserve

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._reserve.with_room(lambda: self._inner.pwrite(data, offset))

    def pwritev(self, parts: Sequence[Buffer], offset: int) -> None:
        self._reserve.with_room(lambda: self._inner.pwritev(parts, offset))

    def truncate(self, size: int) -> None:
        self._reserve.with_room(lambda: self._inner.truncate(size))

    def allocate(self, offset: int, size: int) -> None:
        self._reserve.with_room(lambda: self._inner.allocate(offset, size))

    def punch(self, offset: int, size: int) -> None:
        self._reserve.with_room(lambda: self._inner.punch(offset, size))
