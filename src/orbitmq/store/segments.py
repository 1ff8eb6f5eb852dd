"""A sequence of files of one size that together form an endless range of bytes.

The commit log and every consume queue are such sequences. A file is named by the offset of its first byte, in 20
digits (RocketMQ, fixed-size file queues). Files are created sparse at their full size.

Rules of this file
1. Names and sizes are checked when a directory is loaded; a stranger among the files refuses the whole store.
2. What lies beyond the end of the data reads as zeros: cutting punches a hole, it does not merely move a number.
3. A removed segment's mapping lives on for as long as a reader holds a slice of it.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path

from orbitmq.errors import StoreDamagedError
from orbitmq.store.files import File, Files

NAME_DIGITS = 20


class Segment:
    """One file: bytes `base` to `base + size` of its sequence."""

    __slots__ = ("_file", "_files", "_mapping", "_view", "_writable", "base", "dirty", "path", "size", "unsynced_name")

    def __init__(
        self, files: Files, path: Path, base: int, size: int, file: File | None = None, *, writable: bool = True
    ) -> None:
        self._files = files
        self._file = file
        self._mapping: mmap.mmap | None = None
        self._view: memoryview | None = None
        self._writable = writable
        self.path = path
        self.base = base
        self.size = size
        self.dirty = False
        """Written since the last `datasync`."""
        self.unsynced_name = False
        """Created since the directory was last synced."""

    @property
    def end(self) -> int:
        return self.base + self.size

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._files.open(self.path, writable=self._writable)
        return self._file

    @property
    def view(self) -> memoryview:
        """Read-only view of the whole file; positions are relative to `base`."""
        view = self._view
        if view is None:
            view = self._view = memoryview(self._map())
        return view

    def _map(self) -> mmap.mmap:
        if self._mapping is None:
            self._mapping = self.file.map_read()
        return self._mapping

    def will_need(self, position: int, size: int) -> None:
        """Have the system fetch a range of the file, which must lie in it, while this goes on: of several ranges all at once, and no
        more than these. A page that is touched unasked brings its surroundings along, megabytes on some machines. 1 us."""
        begin = position - position % mmap.PAGESIZE
        try:
            self._map().madvise(mmap.MADV_WILLNEED, begin, position + size - begin)
        except OSError:  # no more than advice: who reads the range meets what is wrong with it
            return

    def release(self) -> None:
        """Close the descriptor and forget the mapping. Slices that readers still hold stay valid."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._mapping = self._view = None


class SegmentSequence:
    """The segments of one directory, in order of their offsets, without gaps."""

    __slots__ = (
        "_by_number",
        "_directory_made",
        "_files",
        "_leftover",
        "_writable",
        "directory",
        "segment_size",
        "segments",
    )

    def __init__(self, files: Files, directory: Path, segment_size: int, *, writable: bool = True) -> None:
        """With `writable` false the files are opened for reading; nothing that changes them may be called then."""
        self._files = files
        self._writable = writable
        self.directory = directory
        self.segment_size = segment_size
        self.segments: list[Segment] = []
        self._by_number: dict[int, Segment] = {}
        self._directory_made = False
        self._leftover: Path | None = None

    def load(self) -> None:
        """Take up the files that are there; changes nothing. Raises StoreDamagedError for a stranger, a wrong size or a
        gap. An empty last file, left by a crash between creation and sizing, is ignored until `remove_leftover`.
        """
        names = [n for n in self._files.list_dir(self.directory) if not self._files.is_dir(self.directory / n)]
        self._directory_made = bool(names)
        for position, name in enumerate(names):
            path = self.directory / name
            size = self._files.file_size(path)
            if size == 0 and position == len(names) - 1:
                self._leftover = path
                continue
            if not (len(name) == NAME_DIGITS and name.isascii() and name.isdigit()):
                raise StoreDamagedError(
                    f"{path} does not belong here: files in this directory are named by {NAME_DIGITS} digits",
                    remedy="move it elsewhere; RocketMQ would refuse the store as well",
                )
            if size != self.segment_size:
                raise StoreDamagedError(
                    f"{path} has {size} bytes, the configured file size is {self.segment_size}",
                    remedy="set the file size to the one that the store was written with",
                )
            base = int(name)
            if self.segments and base != self.segments[-1].end:
                raise StoreDamagedError(f"{path} does not follow {self.segments[-1].path.name}: files are missing")
            if base % size:
                raise StoreDamagedError(f"{path} does not start at a multiple of the file size {size}")
            self._add(Segment(self._files, path, base, size, writable=self._writable))

    def remove_leftover(self) -> None:
        """Remove the empty last file that `load` met."""
        if self._leftover is not None:
            self._files.remove(self._leftover)
            self._leftover = None

    def _add(self, segment: Segment) -> None:
        self.segments.append(segment)
        self._by_number[segment.base // self.segment_size] = segment

    @property
    def first_offset(self) -> int:
        return self.segments[0].base if self.segments else 0

    @property
    def end_offset(self) -> int:
        """End of the last file, written or not."""
        return self.segments[-1].end if self.segments else 0

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    def find(self, offset: int) -> Segment | None:
        """The segment that holds the byte at `offset`."""
        return self._by_number.get(offset // self.segment_size)

    def grow(self, base: int | None = None) -> Segment:
        """Create the next segment; `base` is its offset when the sequence is empty (rounded down to a file start)."""
        if self.segments:
            base = self.end_offset
        else:
            base = (base or 0) // self.segment_size * self.segment_size
        if not self._directory_made:
            self._files.make_dirs(self.directory)
            self._directory_made = True
        path = self.directory / f"{base:0{NAME_DIGITS}d}"
        file = self._files.open(path, create=True)
        try:
            file.truncate(self.segment_size)
        except OSError:
            file.close()
            self._files.remove(path)
            raise
        segment = Segment(self._files, path, base, self.segment_size, file)
        segment.unsynced_name = True
        self._add(segment)
        return segment

    def cut(self, end: int) -> None:
        """Drop everything from `end` on: later files are removed, the rest of the file that holds it reads as zeros.

        The first file stays, empty if need be: its name is what remembers where the sequence begins.
        """
        self.remove_leftover()
        while len(self.segments) > 1 and self.segments[-1].base >= end:
            self.drop_last()
        segment = self.find(end)
        if segment is not None:
            segment.file.punch(end - segment.base, segment.end - end)
            segment.dirty = True

    def drop_last(self) -> None:
        segment = self.segments.pop()
        del self._by_number[segment.base // self.segment_size]
        segment.release()
        self._files.remove(segment.path)

    def drop_first(self) -> Segment:
        """Forget the first segment and return it, for the caller to release and its file to remove: on the worker,
        which may be syncing it."""
        segment = self.segments.pop(0)
        del self._by_number[segment.base // self.segment_size]
        return segment

    def distrust_disk(self, synced_until: Callable[[Segment], bool]) -> None:
        """After a crash: take the newest files for unsynced, back to the first of which `synced_until` says that it was
        synced to its end."""
        for segment in reversed(self.segments):
            if synced_until(segment):
                return
            segment.dirty = segment.unsynced_name = True

    def datasync(self) -> None:
        """Make all written bytes and the names of new files durable. Blocks."""
        for segment in list(self.segments):
            if segment.dirty:
                segment.dirty = False
                segment.file.datasync()
        if any(segment.unsynced_name for segment in self.segments):
            for segment in self.segments:
                segment.unsynced_name = False
            self._files.sync_dir(self.directory)

    def read(self, offset: int, size: int) -> bytes:
        """Copy of a range inside one file, by a file read (no mapping); shorter beyond the end. Any two numbers may be asked for."""
        segment = self.find(offset)
        if segment is None or size <= 0 or offset < segment.base:
            return b""
        return segment.file.pread(min(size, segment.end - offset), offset - segment.base)

    def will_need(self, offset: int, size: int) -> None:
        """`Segment.will_need` of as much of a range as lies in the file where it begins. Any two numbers may be asked for."""
        segment = self.find(offset)
        if segment is not None and size > 0 and offset >= segment.base:
            segment.will_need(offset - segment.base, min(size, segment.end - offset))

    def close(self) -> None:
        for segment in self.segments:
            segment.release()
