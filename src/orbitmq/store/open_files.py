"""One bounded set of open files for everything that the process keeps on the disk, however many files there are.

A consume queue is a file of its own, and a store may have a hundred thousand of them. What `BoundedFiles.open` answers holds a
descriptor only while it is among those used last; the next call opens the file again, by its name (6 us). The mappings behind
`File.view` are bounded in the same way: each costs the process a descriptor of Python's and one of the system's mappings.

Rules of this file
1. A descriptor is closed when nobody uses it any more: giving it back drops our reference, and a call that runs on another thread
   still has one. So a number that was given back is never written to, and at most one descriptor for each thread comes on top.
2. A file that was opened with `keep_unsynced` keeps its descriptor from a write until the next `datasync`: the kernel tells a failed
   write-back to descriptors that were open when it happened. What can be made again from the commit log does without that.
3. A file keeps its name as long as it is in use. Who renames one closes it first.
4. A view that somebody still holds keeps its mapping; only the next `view` makes another one.
"""

from __future__ import annotations

import errno
import mmap
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbitmq.store.files import Buffer, File, Files
from orbitmq.store.forwarding import ForwardedFiles


class BoundedFiles(ForwardedFiles):
    """A `Files` over another one, of which at most `open_max` files are open and `mapped_max` are mapped at a time."""

    __slots__ = ("_changes", "_mapped", "_open", "mapped_max", "open_max", "opened_count")

    def __init__(self, files: Files, open_max: int, mapped_max: int) -> None:
        if open_max < 1 or mapped_max < 1:
            raise ValueError(f"{open_max} open files and {mapped_max} mappings are too few")
        super().__init__(files)
        self._changes = threading.Lock()
        """Held where a file enters or leaves one of the two sets."""
        self._open: OrderedDict[SharedFile, None] = OrderedDict()
        """Those with a descriptor, least recently used first."""
        self._mapped: OrderedDict[SharedFile, None] = OrderedDict()
        self.open_max = open_max
        self.mapped_max = mapped_max
        self.opened_count = 0
        """Descriptors opened since the start; far more than there are files means that the set is too small."""

    def open(
        self, path: Path | str, *, create: bool = False, writable: bool = True, keep_unsynced: bool = False
    ) -> File:
        file = SharedFile(self, str(path), writable=writable, keep_unsynced=keep_unsynced)
        self.take_up(file, create=create)
        return file

    # --- for SharedFile -----------------------------------------------------------------------------------------------

    def take_up(self, file: SharedFile, *, create: bool = False) -> File:
        """Open the file and give back the one used least recently, if there are too many."""
        with self._changes:
            if file.inner is not None:  # another thread was faster
                return file.inner
            if file.is_closed:
                raise OSError(errno.EBADF, "the file was closed", str(file.path))
            self._give_back(self.open_max - 1)
            file.inner = inner = self._inner.open(file.place, create=create, writable=file.writable)
            self._open[file] = None
            self.opened_count += 1
            return inner

    def kept_less(self) -> None:
        """A file that had to stay open need not any more."""
        if len(self._open) > self.open_max:
            with self._changes:
                self._give_back(self.open_max)

    def _give_back(self, remaining: int) -> None:
        for _ in range(len(self._open)):
            if len(self._open) <= remaining:
                return
            file, _ = self._open.popitem(last=False)
            if file.is_kept:
                self._open[file] = None
            else:
                file.inner = None

    def map(self, file: SharedFile) -> memoryview:
        inner = file.inner or self.take_up(file)
        view = memoryview(inner.map_read())
        with self._changes:
            while len(self._mapped) >= self.mapped_max:
                other, _ = self._mapped.popitem(last=False)
                other.mapping = None
            file.mapping = view
            self._mapped[file] = None
        return view

    def used(self, file: SharedFile) -> None:
        """The file was used: others are given back before it."""
        try:
            self._open.move_to_end(file)
        except KeyError:  # given back at this moment: whoever uses it still has it
            return

    def mapping_used(self, file: SharedFile) -> None:
        try:
            self._mapped.move_to_end(file)
        except KeyError:
            return

    def forget(self, file: SharedFile) -> None:
        """The file is not used any more."""
        with self._changes:
            file.inner, file.mapping, file.is_closed = None, None, True
            self._open.pop(file, None)
            self._mapped.pop(file, None)

    # --- what needs no descriptor that stays goes on --------------------------------------------------------------------

    def write_atomic(self, path: Path, data: bytes, *, backup: bool = False) -> None:
        self._inner.write_atomic(path, data, backup=backup)


class SharedFile:
    """A `File` that has a descriptor while it is used, and perhaps a while longer. Calls cost 0.2 us more than those of the file."""

    __slots__ = ("_keep_unsynced", "_shared", "_unsynced", "inner", "is_closed", "mapping", "place", "writable")

    def __init__(self, shared: BoundedFiles, place: str, *, writable: bool, keep_unsynced: bool) -> None:
        self._shared = shared
        self._keep_unsynced = keep_unsynced
        self._unsynced = False
        self.place = place  # a path is four times as large, and many files were opened once
        self.writable = writable
        self.inner: File | None = None
        """The open file; None while it has no descriptor. Changed by `BoundedFiles` alone."""
        self.mapping: memoryview | None = None
        self.is_closed = False

    @property
    def path(self) -> Path:
        return Path(self.place)

    @property
    def is_kept(self) -> bool:
        """Whether the descriptor must not be given back now."""
        return self._unsynced and self._keep_unsynced

    def _use(self) -> File:
        inner = self.inner
        if inner is None:
            return self._shared.take_up(self)
        self._shared.used(self)
        return inner

    def _change(self) -> File:
        self._unsynced = True
        return self._use()

    def size(self) -> int:
        return self._use().size()

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._change().pwrite(data, offset)

    def pwritev(self, parts: Sequence[Buffer], offset: int) -> None:
        self._change().pwritev(parts, offset)

    def pread(self, size: int, offset: int) -> bytes:
        return self._use().pread(size, offset)

    def pread_now(self, size: int, offset: int) -> bytes | bytearray | None:
        return self._use().pread_now(size, offset)

    def datasync(self) -> None:
        file = self._use()
        self._unsynced = False
        try:
            file.datasync()
        except BaseException:
            self._unsynced = True
            raise
        self._shared.kept_less()

    def truncate(self, size: int) -> None:
        self._change().truncate(size)

    def allocate(self, offset: int, size: int) -> None:
        self._change().allocate(offset, size)

    def punch(self, offset: int, size: int) -> None:
        self._change().punch(offset, size)

    def data_ranges(self, start: int) -> Iterator[tuple[int, int]]:
        return self._use().data_ranges(start)

    def will_need(self, offset: int, size: int) -> None:
        self._use().will_need(offset, size)

    def view(self) -> memoryview:
        view = self.mapping
        if view is None:
            return self._shared.map(self)
        self._shared.mapping_used(self)
        return view

    def map_read(self) -> mmap.mmap:
        return self._use().map_read()

    def map_write(self, size: int) -> mmap.mmap:
        return self._change().map_write(size)

    def close(self) -> None:
        self._shared.forget(self)

    def release(self) -> None:
        self._shared.forget(self)
