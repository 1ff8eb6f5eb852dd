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
import logging
import mmap
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from orbitmq.errors import StoreLockedError
from orbitmq.limits.store import COARSE_CLOCK_NS, WRITEV_PARTS_MAX

logger = logging.getLogger("orbitmq.store")

Buffer = bytes | bytearray | memoryview


READ_NOW: int = getattr(os, "RWF_NOWAIT", 0)
"""Flag of a read that does not wait for the disk; 0 where there is none."""

ADVISED_BYTES = 256 * 1024
"""Asked for at a time: Linux fetches no more for one call than the disk takes as one request, or reads ahead."""

ZERO_CHUNK_BYTES = 1024 * 1024
"""How much is zeroed at a time."""


NO_DIRECTORY_LOCKS = frozenset({errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""What file systems answer that have no locks of directories."""


class NotReadError(OSError):
    """Something could not be read. Nothing is lost by that, and the next time it may succeed."""


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

    def pread_now(self, size: int, offset: int) -> bytes | bytearray | None:
        """All `size` bytes if they are in memory; None when the disk would have to be asked, when the file ends before them, or when
        the system cannot tell. Never waits for the disk."""
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
        """Make the range read as zeros. Needs no space where a file system writes in place; gives the file's tail back."""
        ...

    def data_ranges(self, start: int) -> Iterator[tuple[int, int]]:
        """Ranges (begin, end) from `start` on that may hold anything but zeros; the holes between them do not."""
        ...

    def will_need(self, offset: int, size: int) -> None:
        """Have the system fetch the range while this goes on: of several ranges all at once, and no more than these. 1 us, and
        some 50 us for each MiB."""
        ...

    def view(self) -> memoryview:
        """Read-only view of a whole file whose size stays as it is; sees later writes. The file may give it back at any time: hold
        it while it is looked at, and ask again for the next time."""
        ...

    def map_read(self) -> mmap.mmap:
        """A new read-only shared mapping of the whole file; sees later writes. It belongs to the caller."""
        ...

    def map_write(self, size: int) -> mmap.mmap:
        """Writable shared mapping of the first `size` bytes. What is stored into must have been allocated."""
        ...

    def close(self) -> None: ...

    def release(self) -> None:
        """As `close`, as soon as no thread uses the file and no slice of its view is held; the caller forgets it."""
        ...


Fingerprint = tuple[int, int, int]
"""Inode, time of the last change of content, size or name in ns, size in bytes."""


class Files(Protocol):
    """A file system as the store uses it."""

    def open(
        self, path: Path | str, *, create: bool = False, writable: bool = True, keep_unsynced: bool = False
    ) -> File:
        """A path as text is opened 5 us sooner. `keep_unsynced`: of all open files this one may lose no error between a write and the
        next `datasync`. It matters where files are given back meanwhile; see `open_files`."""
        ...

    def create_private(self, path: Path) -> File:
        """An empty file that nobody but this user of the machine can open, at any time; a file that is there goes."""
        ...

    def exists(self, path: Path | str) -> bool: ...

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

    def fingerprint(self, place: str) -> Fingerprint | None:
        """By what a file or directory, or a change of it, is recognised; None where nothing is, or its system does not tell times finely
        enough for that. Two calls that answer the same saw the same content. 3 us."""
        ...

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
        """Take the directory's lock file or raise StoreLockedError. An fcntl record lock, as RocketMQ takes it: it holds off
        other processes only, and closing any descriptor of that file in this one loses it. So `lock_dir` comes first."""
        ...

    def lock_dir(self, path: Path) -> Lock:
        """Claim an existing directory, whatever its name or path, against every other claim of this and other processes;
        StoreLockedError when it is taken. Leaves no file behind."""
        ...


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_fd", "_path", "_tells_cold", "_view")

    def __init__(self, path: Path | str, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._view: memoryview | None = None
        self._tells_cold = READ_NOW != 0

    @property
    def path(self) -> Path:
        return Path(self._path)

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
        try:
            data = os.pread(self._fd, size, offset)
            while len(data) < size:
                more = os.pread(self._fd, size - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise self._not_read(error) from error
        return data

    def _not_read(self, error: OSError) -> NotReadError:
        return NotReadError(error.errno, error.strerror, str(self._path))

    def pread_now(self, size: int, offset: int) -> bytes | bytearray | None:
        if not self._tells_cold:
            return None
        data = bytearray(size)
        try:
            read = os.preadv(self._fd, (data,), offset, READ_NOW)
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):  # a file system that cannot tell
                self._tells_cold = False
            elif error.errno != errno.EAGAIN:
                raise self._not_read(error) from error
            return None
        return data if read == size else None

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
        zeros = memoryview(bytes(min(size, ZERO_CHUNK_BYTES)))
        for begin, stop in self.data_ranges(offset):  # zeros in a hole would need room, which there may be none of
            if begin >= offset + size:
                return
            for at in range(begin, min(stop, offset + size), len(zeros)):
                self.pwrite(zeros[: min(stop, offset + size) - at], at)

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

    def will_need(self, offset: int, size: int) -> None:
        try:
            for begin in range(offset, offset + size, ADVISED_BYTES):
                os.posix_fadvise(self._fd, begin, min(ADVISED_BYTES, offset + size - begin), os.POSIX_FADV_WILLNEED)
        except OSError:  # no more than advice: who reads the range meets what is wrong with it
            return

    def view(self) -> memoryview:
        view = self._view
        if view is None:
            view = self._view = memoryview(self.map_read())
        return view

    def map_read(self) -> mmap.mmap:
        return mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ)

    def map_write(self, size: int) -> mmap.mmap:
        return mmap.mmap(self._fd, size, access=mmap.ACCESS_WRITE)

    def close(self) -> None:
        self._view = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def release(self) -> None:
        self._view = None  # the rest goes with the last reference

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


class _DirectoryClaims:
    """Directories that this process has claimed, by device and inode: a file system without locks of directories (NFS) still
    refuses the second claim of one process."""

    def __init__(self) -> None:
        self._guard = threading.RLock()  # a lock that the collector forgets meanwhile releases its claim on this thread
        self._descriptors: dict[tuple[int, int], int] = {}
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """In a forked child: the claims are its parent's, and must end with the parent."""
        self._guard = threading.RLock()  # a lock that the collector forgets meanwhile releases its claim on this thread
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def claim(self, path: Path) -> tuple[int, int]:
        """The name to release the claim by."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        name = status.st_dev, status.st_ino
        with self._guard:
            try:
                if name in self._descriptors:
                    raise BlockingIOError(errno.EAGAIN, "claimed by this process")
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    if error.errno not in NO_DIRECTORY_LOCKS:
                        raise
                    logger.warning("%s cannot be locked (%s): do not let two brokers use it", path, error.strerror)
            except BaseException:
                os.close(descriptor)
                raise
            self._descriptors[name] = descriptor
        return name

    def release(self, name: tuple[int, int]) -> None:
        with self._guard:
            descriptor = self._descriptors.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)


_claims = _DirectoryClaims()


class OsDirectoryLock:
    """A claim on a directory; the kernel drops it with the process."""

    __slots__ = ("_name",)

    def __init__(self, name: tuple[int, int]) -> None:
        self._name: tuple[int, int] | None = name

    def release(self) -> None:
        name, self._name = self._name, None
        if name is not None:
            _claims.release(name)

    def __del__(self) -> None:
        self.release()  # a store that was forgotten gives its directories back


class OsFiles:
    """The operating system's files."""

    __slots__ = ()

    def open(
        self, path: Path | str, *, create: bool = False, writable: bool = True, keep_unsynced: bool = False
    ) -> File:
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT
        return OsFile(path, os.open(path, flags, 0o644))

    def create_private(self, path: Path) -> File:
        path.unlink(missing_ok=True)
        return OsFile(path, os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o600))

    def exists(self, path: Path | str) -> bool:
        return os.path.exists(path)  # noqa: PTH110 - as for `fingerprint`

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

    def fingerprint(self, place: str) -> Fingerprint | None:
        try:
            found = os.stat(place)  # noqa: PTH116 - making a path costs as much as the call
        except OSError:
            return None
        changed_ns = found.st_ctime_ns
        return (found.st_ino, changed_ns, found.st_size) if changed_ns % COARSE_CLOCK_NS else None

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
                raise _in_use(path.parent) from error
            raise
        return OsLock(fd)

    def lock_dir(self, path: Path) -> Lock:
        try:
            return OsDirectoryLock(_claims.claim(path))
        except BlockingIOError as error:
            raise _in_use(path) from error


def _in_use(directory: Path) -> StoreLockedError:
    return StoreLockedError(
        f"the store {directory} is in use by another broker",
        remedy="stop that broker, or give this one a directory of its own",
    )


def replace_content(files: Files, path: Path, data: bytes, *, backup: bool = False, private: bool = False) -> None:
    """`Files.write_atomic` in terms of the other calls, so that every implementation shares its steps.

    With `private` nobody but this user of the machine can read any of it, whatever the old file allowed.
    """
    new = path.with_name(path.name + ".tmp")
    file = files.create_private(new) if private else files.open(new, create=True)
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
