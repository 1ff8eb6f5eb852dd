"""Files over other files that pass every call on: what limits, records or helps some calls writes down those alone.

Rules of this file
1. Nothing is done here but passing on. A class that changes a call overrides it.
2. `write_atomic` is made of the calls of the class itself, so that each of its steps goes the way that the class gives it.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbitmq.store.files import Buffer, DiskUsage, File, Files, Fingerprint, Lock, replace_content


class ForwardedFiles:
    """A `Files` over another one, which is `_inner`."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Files) -> None:
        self._inner = inner

    def open(
        self, path: Path | str, *, create: bool = False, writable: bool = True, keep_unsynced: bool = False
    ) -> File:
        return self._inner.open(path, create=create, writable=writable, keep_unsynced=keep_unsynced)

    def create_private(self, path: Path) -> File:
        return self._inner.create_private(path)

    def exists(self, path: Path | str) -> bool:
        return self._inner.exists(path)

    def is_dir(self, path: Path) -> bool:
        return self._inner.is_dir(path)

    def list_dir(self, path: Path) -> list[str]:
        return self._inner.list_dir(path)

    def make_dirs(self, path: Path) -> None:
        self._inner.make_dirs(path)

    def remove(self, path: Path) -> None:
        self._inner.remove(path)

    def remove_tree(self, path: Path) -> None:
        self._inner.remove_tree(path)

    def rename(self, source: Path, target: Path) -> None:
        self._inner.rename(source, target)

    def sync_dir(self, path: Path) -> None:
        self._inner.sync_dir(path)

    def file_size(self, path: Path) -> int:
        return self._inner.file_size(path)

    def modified_ms(self, path: Path) -> int:
        return self._inner.modified_ms(path)

    def fingerprint(self, place: str) -> Fingerprint | None:
        return self._inner.fingerprint(place)

    def read_bytes(self, path: Path) -> bytes:
        return self._inner.read_bytes(path)

    def write_atomic(self, path: Path, data: bytes, *, backup: bool = False) -> None:
        replace_content(self, path, data, backup=backup)

    def disk_usage(self, path: Path) -> DiskUsage:
        return self._inner.disk_usage(path)

    def boot_id(self) -> str:
        return self._inner.boot_id()

    def lock(self, path: Path) -> Lock:
        return self._inner.lock(path)

    def lock_dir(self, path: Path) -> Lock:
        return self._inner.lock_dir(path)


class ForwardedFile:
    """A `File` over another one, which is `_inner`."""

    __slots__ = ("_inner",)

    def __init__(self, inner: File) -> None:
        self._inner = inner

    @property
    def path(self) -> Path:
        return self._inner.path

    def size(self) -> int:
        return self._inner.size()

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._inner.pwrite(data, offset)

    def pwritev(self, parts: Sequence[Buffer], offset: int) -> None:
        self._inner.pwritev(parts, offset)

    def pread(self, size: int, offset: int) -> bytes:
        return self._inner.pread(size, offset)

    def pread_now(self, size: int, offset: int) -> bytes | bytearray | None:
        return self._inner.pread_now(size, offset)

    def datasync(self) -> None:
        self._inner.datasync()

    def truncate(self, size: int) -> None:
        self._inner.truncate(size)

    def allocate(self, offset: int, size: int) -> None:
        self._inner.allocate(offset, size)

    def punch(self, offset: int, size: int) -> None:
        self._inner.punch(offset, size)

    def data_ranges(self, start: int) -> Iterator[tuple[int, int]]:
        return self._inner.data_ranges(start)

    def will_need(self, offset: int, size: int) -> None:
        self._inner.will_need(offset, size)

    def view(self) -> memoryview:
        return self._inner.view()

    def map_read(self) -> mmap.mmap:
        return self._inner.map_read()

    def map_write(self, size: int) -> mmap.mmap:
        return self._inner.map_write(size)

    def close(self) -> None:
        self._inner.close()

    def release(self) -> None:
        self._inner.release()
