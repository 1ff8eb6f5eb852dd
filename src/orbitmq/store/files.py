"""The only place of the store that touches the operating system's files.

Everything above works on the `Files` and `File` protocols, so that a test can record every write, fail any call, or
replay what was written without what was not yet synced.

Rules of this file
1. Positioned writes and reads only; no file position is ever used. A write is whole or raises `OSError`.
2. Data is durable after `datasync` of its file; a new, renamed or removed name after `sync_dir` of its directory.
3. A writable mapping is stored into only where `allocate` has reserved the space: a store into a hole of a full disk kills
   the process.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from orbitmq.errors import StoreLockedError

Buffer = bytes | bytearray | memoryview

WRITEV_PARTS_MAX = 1024
"""Most parts of one gathered write; IOV_MAX of Linux."""

ZERO_CHUNK_BYTES = 1024 * 1024
"""How much is zeroed at a time where the file system cannot punch holes."""


class DiskUsage(NamedTuple):
    total_bytes: int
    used_bytes: int
    free_bytes: int


class Lock(Protocol):
    """An exclusive claim on a store directory, held until released or the process ends."""

    def release(self) -> None: ...


class File(Protocol):
    """A random access file. All offsets and sizes are bytes."""

    @property
    def path(self) -> Path: ...

    def size(self) -> int: ...

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of `data` at `offset`, or raise OSError (a part may have been written)."""
        ...

    def pwritev(self, parts: Sequence[Buffer], offset: int) -> None:
        """Write `parts` one after the other from `offset` on; the same promise as `pwrite`."""
        ...

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def datasync(self) -> None:
        """On return everything written so far survives a power failure. Blocks; releases the interpreter lock."""
        ...

    def truncate(self, size: int) -> None:
        """Cut or extend (sparse, reading as zeros) to `size`."""
        ...

    def allocate(self, offset: int, size: int) -> None:
        """Reserve disk space for the range, so that later writes to it cannot fail for lack of space."""
        ...

    def punch(self, offset: int, size: int) -> None:
        """Make the range read as zeros; gives its space back where the file system can."""
        ...

    def data_ranges(self, start: int) -> Iterator[tuple[int, int]]:
        """Ranges (begin, end) from `start` on that may hold anything but zeros; the holes between them do not."""
        ...

    def map_read(self) -> mmap.mmap:
        """Read-only shared mapping of the whole file; sees later writes."""
        ...

    def map_write(self, size: int) -> mmap.mmap:
        """Writable shared mapping of the first `size` bytes. What is stored into must have been allocated."""
        ...

    def close(self) -> None: ...


class Files(Protocol):
    """A file system as the store uses it."""

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File: ...

    def exists(self, path: Path) -> bool: ...

    def is_dir(self, path: Path) -> bool: ...

    def list_dir(self, path: Path) -> list[str]:
        """Names in the directory, sorted; empty when it does not exist."""
        ...

    def make_dirs(self, path: Path) -> None: ...

    def remove(self, path: Path) -> None: ...

    def remove_tree(self, path: Path) -> None: ...

    def rename(self, source: Path, target: Path) -> None:
        """Atomic; replaces the target."""
        ...

    def sync_dir(self, path: Path) -> None: ...

    def file_size(self, path: Path) -> int: ...

    def modified_ms(self, path: Path) -> int: ...

    def read_bytes(self, path: Path) -> bytes: ...

    def write_atomic(self, path: Path, data: bytes, *, backup: bool = False) -> None:
        """Replace the file's content: after a crash it holds the old or the new content, whole. Durable on return.

        With `backup` the old content stays beside it as `<name>.bak`; a crash between the two renames leaves only that.
        """
        ...

    def disk_usage(self, path: Path) -> DiskUsage: ...

    def boot_id(self) -> str:
        """Changes with every start of the machine: within one boot the page cache has kept every finished write."""
        ...

    def lock(self, path: Path) -> Lock:
        """Take the directory's lock file or raise StoreLockedError. An fcntl record lock, as RocketMQ takes it."""
        ...


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_fd", "_path")

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd

    @property
    def path(self) -> Path:
        return self._path

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def pwrite(self, data: Buffer, offset: int) -> None:
        written = os.pwrite(self._fd, data, offset)
        if written == len(data):
            return
        rest = memoryview(data)[written:]
        while rest:
            offset += written
            written = os.pwrite(self._fd, rest, offset)
            if written == 0:
                raise OSError(errno.EIO, "write made no progress", str(self._path))
            rest = rest[written:]

    def pwritev(self, parts: Sequence[Buffer], offset: int) -> None:
        if len(parts) == 1:
            self.pwrite(parts[0], offset)
            return
        for first in range(0, len(parts), WRITEV_PARTS_MAX):
            group = parts[first : first + WRITEV_PARTS_MAX]
            size = sum(map(len, group))
            written = os.pwritev(self._fd, group, offset)
            if written != size:
                self.pwrite(memoryview(b"".join(group))[written:], offset + written)
            offset += size

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        while len(data) < size:
            more = os.pread(self._fd, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def datasync(self) -> None:
        os.fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, offset: int, size: int) -> None:
        os.posix_fallocate(self._fd, offset, size)

    def punch(self, offset: int, size: int) -> None:
        end = self.size()
        if offset >= end or size <= 0:
            return
        if offset + size >= end:  # the tail: cut it off and put a hole in its place
            os.ftruncate(self._fd, offset)
            os.ftruncate(self._fd, end)
            return
        zeros = bytes(min(size, ZERO_CHUNK_BYTES))
        while size > 0:
            step = min(size, len(zeros))
            self.pwrite(memoryview(zeros)[:step], offset)
            offset += step
            size -= step

    def data_ranges(self, start: int) -> Iterator[tuple[int, int]]:
        size = self.size()
        while start < size:
            try:
                begin = os.lseek(self._fd, start, os.SEEK_DATA)
                end = os.lseek(self._fd, begin, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:  # no data up to the end of the file
                    return
                begin, end = start, size  # a file system that knows no holes
            yield begin, end
            start = end

    def map_read(self) -> mmap.mmap:
        return mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ)

    def map_write(self, size: int) -> mmap.mmap:
        return mmap.mmap(self._fd, size, access=mmap.ACCESS_WRITE)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()  # a file that was forgotten gives its descriptor back


class OsLock:
    """The record lock on the first byte of the lock file; the kernel drops it with the process."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsFiles:
    """The operating system's files."""

    __slots__ = ()

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT
        return OsFile(path, os.open(path, flags, 0o644))

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_dir(self, path: Path) -> bool:
        return path.is_dir()

    def list_dir(self, path: Path) -> list[str]:
        try:
            return sorted(os.listdir(path))  # noqa: PTH208 - names are wanted, not paths
        except FileNotFoundError:
            return []

    def make_dirs(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def remove(self, path: Path) -> None:
        path.unlink()

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path)

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def sync_dir(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def file_size(self, path: Path) -> int:
        return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def read_bytes(self, path: Path) -> bytes:
        return path.read_bytes()

    def write_atomic(self, path: Path, data: bytes, *, backup: bool = False) -> None:
        replace_content(self, path, data, backup=backup)

    def disk_usage(self, path: Path) -> DiskUsage:
        usage = shutil.disk_usage(path)
        return DiskUsage(usage.total, usage.used, usage.free)

    def boot_id(self) -> str:
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:  # not Linux: treat every start as a new boot and trust only what was synced
            return f"unknown-{os.urandom(8).hex()}"

    def lock(self, path: Path) -> Lock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            os.pwrite(fd, b"lock", 0)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise StoreLockedError(
                    f"the store {path.parent} is in use by another process",
                    remedy="stop that broker, or give this one a directory of its own",
                ) from error
            raise
        return OsLock(fd)


def replace_content(files: Files, path: Path, data: bytes, *, backup: bool = False) -> None:
    """`Files.write_atomic` in terms of the other calls, so that every implementation shares its steps."""
    new = path.with_name(path.name + ".tmp")
    file = files.open(new, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        file.datasync()
    finally:
        file.close()
    if backup and files.exists(path):
        files.rename(path, path.with_name(path.name + ".bak"))
        files.sync_dir(path.parent)  # the backup's name is durable before the main name is reused
    files.rename(new, path)
    files.sync_dir(path.parent)
