"""The disk of an embedded broker: the machine's files without waiting for syncs, and failing when a test says so.

Rules of this file
1. What is written is in the files at once, so a killed broker finds it; nothing is synced, because no test pulls the plug.
2. Files are as old as they are in real time, and the disk is never nearly full: neither the virtual clock nor the
   machine's own disk makes retention remove or refuse anything.
3. While the disk fails, whatever would write raises; reading goes on. A full disk still syncs what is written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from orbitmq.clock import Clock, SystemClock
from orbitmq.store.files import Buffer, DiskUsage, File, Lock, OsFile, OsFiles, replace_content

TOTAL_BYTES: Final = 1 << 40
"""What the disk claims to hold; all of it is free."""

_system = SystemClock()


class EmbeddedFiles(OsFiles):
    """The files of one embedded broker, over its restarts."""

    __slots__ = ("_clock", "failing")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.failing: int | None = None
        """The error number that writing ends with; None while the disk is sound."""

    def check(self, path: Path) -> None:
        """Raise the planned OSError, if there is one."""
        if self.failing is not None:
            raise OSError(self.failing, os.strerror(self.failing), str(path))

    def check_sync(self, path: Path) -> None:
        """As `check`, of what is written: on a full disk it has its place."""
        if self.failing != errno.ENOSPC:
            self.check(path)

    def open(
        self, path: Path | str, *, create: bool = False, writable: bool = True, keep_unsynced: bool = False
    ) -> File:
        if create and not self.exists(path):
            self.check(Path(path))
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return EmbeddedFile(self, path, os.open(path, flags, 0o644))

    def create_private(self, path: Path) -> File:
        self.check(path)
        super().create_private(path).close()
        return EmbeddedFile(self, path, os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def make_dirs(self, path: Path) -> None:
        if not path.exists():
            self.check(path)
        super().make_dirs(path)

    def rename(self, source: Path, target: Path) -> None:
        self.check(target)
        super().rename(source, target)

    def sync_dir(self, path: Path) -> None:
        self.check_sync(path)

    def modified_ms(self, path: Path) -> int:
        return self._clock.now_ms() - (_system.now_ms() - super().modified_ms(path))

    def write_atomic(self, path: Path, data: bytes, *, backup: bool = False) -> None:
        replace_content(self, path, data, backup=backup)

    def disk_usage(self, path: Path) -> DiskUsage:
        return DiskUsage(TOTAL_BYTES, 0, TOTAL_BYTES)

    def lock(self, path: Path) -> Lock:
        self.check(path)
        return super().lock(path)


class EmbeddedFile(OsFile):
    """One of them."""

    __slots__ = ("_files",)

    def __init__(self, files: EmbeddedFiles, path: Path | str, fd: int) -> None:
        super().__init__(path, fd)
        self._files = files

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._files.check(self.path)
        super().pwrite(data, offset)

    def pwritev(self, parts: Sequence[Buffer], offset: int) -> None:
        self._files.check(self.path)
        super().pwritev(parts, offset)

    def punch(self, offset: int, size: int) -> None:
        if self._files.failing is None:  # otherwise nothing was written that could be taken back
            super().punch(offset, size)

    def datasync(self) -> None:
        self._files.check_sync(self.path)

    def allocate(self, offset: int, size: int) -> None:
        self._files.check(self.path)
        super().allocate(offset, size)
