"""A sequence of files of one size that together form an endless range of bytes.

The commit log and every consume queue are such sequences. A file is named by the offset of its first byte, in 20
digits (RocketMQ, fixed-size file queues). Files are created sparse at their full size.

Rules of this file
1. Names and sizes are checked when a directory is loaded; a stranger among the files refuses the whole store.
2. What lies beyond the end of the data reads as zeros: cutting punches a hole, it does not merely move a number.
3. A removed segment's mapping lives on for as long as a reader holds a slice of it.
"""

from __future__ import annotations

import enum
import errno
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from orbitmq.errors import StoreDamagedError
from orbitmq.store.files import File, Files, Fingerprint

NAME_DIGITS = 20


class KnownFiles(enum.Enum):
    """What is known of files that were there before."""

    NOTHING = "nothing"
    FILES = "files"
    """They are the same files, and the last of them may hold something else."""
    CONTENT = "content"


class Segment:
    """One file: bytes `base` to `base + size` of its sequence. It is opened with its first use."""

    __slots__ = ("_file", "_sequence", "base", "dirty", "unsynced_name")

    def __init__(self, sequence: SegmentSequence, base: int, file: File | None = None) -> None:
        self._sequence = sequence
        self._file = file
        self.base = base
        self.dirty = False
        """Written since the last `datasync`."""
        self.unsynced_name = False
        """Created since the directory was last synced."""

    @property
    def size(self) -> int:
        return self._sequence.segment_size

    @property
    def end(self) -> int:
        return self.base + self._sequence.segment_size

    @property
    def path(self) -> Path:
        return self._sequence.path_of(self.base)

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._sequence.open_file(self.base)
        return file

    @property
    def view(self) -> memoryview:
        """Read-only view of the whole file; positions are relative to `base`. See `File.view` for how long to hold it."""
        return self.file.view()

    def read(self, offset: int, size: int) -> bytes:
        """The bytes of the sequence from `offset` on, which lie in this file. May wait for the disk; see `SegmentSequence.read`."""
        data = self.file.pread(size, offset - self.base)
        if len(data) != size:
            raise OSError(
                errno.EIO,
                f"the file ends at {offset - self.base + len(data)}, it was made with {self.size} bytes",
                str(self.path),
            )
        return data

    def release(self) -> None:
        """Forget the file: it is closed when nobody uses it any more, a thread that reads it or a slice of it."""
        file, self._file = self._file, None
        if file is not None:
            file.release()


class SegmentSequence:
    """The segments of one directory, in order of their offsets, without gaps."""

    __slots__ = (
        "_directory_made",
        "_files",
        "_keep_unsynced",
        "_leftover",
        "_place",
        "_writable",
        "segment_size",
        "segments",
    )

    def __init__(
        self,
        files: Files,
        directory: Path | str,
        segment_size: int,
        *,
        writable: bool = True,
        keep_unsynced: bool = False,
    ) -> None:
        """With `writable` false the files are opened for reading; nothing that changes them may be called then. `keep_unsynced` as
        for `Files.open`."""
        self._files = files
        self._writable = writable
        self._keep_unsynced = keep_unsynced
        self._place = str(directory)  # a path is four times as large, and a store has many sequences
        self.segment_size = segment_size
        self.segments: tuple[Segment, ...] = ()
        """Replaced as a whole, so that other threads always see one without gaps."""
        self._directory_made = False
        self._leftover: Path | None = None

    def load(self) -> None:
        """Take up the files that are there; changes nothing. Raises StoreDamagedError for a stranger, a wrong size or a
        gap. An empty last file, left by a crash between creation and sizing, is ignored until `remove_leftover`.
        """
        directory = self.directory
        names = [
            name
            for name in self._files.list_dir(directory)
            if (len(name) == NAME_DIGITS and name.isdigit()) or not self._files.is_dir(directory / name)
        ]
        self._directory_made = bool(names)
        for position, name in enumerate(names):
            path = directory / name
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
            self._add(Segment(self, base))

    def take_up(self, base: int, fingerprints: Sequence[Fingerprint]) -> KnownFiles:
        """Take up files without looking into their directory: as many as there are fingerprints, from `base` on. Nothing is taken up, and
        `load` has to look, when one of them, other than the last, is not as it was when its fingerprint was taken, or another follows.
        Cost: 4 us for each file."""
        size = self.segment_size
        if not fingerprints or base % size:
            return KnownFiles.NOTHING
        bases = range(base, base + len(fingerprints) * size, size)
        found = [self._files.fingerprint(self._place_of(at)) for at in bases]
        if found[:-1] != fingerprints[:-1] or any(one is None or one[2] != size for one in found):
            return KnownFiles.NOTHING
        is_same = found[-1] == fingerprints[-1]
        if not is_same and self._files.exists(self._place_of(bases[-1] + size)):
            return KnownFiles.NOTHING
        self.segments = tuple(Segment(self, at) for at in bases)
        self._directory_made = True
        return KnownFiles.CONTENT if is_same else KnownFiles.FILES

    def fingerprints(self) -> list[Fingerprint]:
        """What `take_up` wants to know of the files; empty where that cannot be told."""
        found = [self._files.fingerprint(self._place_of(segment.base)) for segment in self.segments]
        return [] if None in found else [one for one in found if one is not None]

    @property
    def has_leftover(self) -> bool:
        """Whether `load` met an empty last file, which is still there."""
        return self._leftover is not None

    def data_end(self) -> int:
        """Behind this offset there are only holes, which read as zeros; the end of the last file where the file system has none."""
        for segment in reversed(self.segments):
            end = max((end for _, end in segment.file.data_ranges(0)), default=0)
            if end:
                return segment.base + end
        return self.first_offset

    def remove_leftover(self) -> None:
        """Remove the empty last file that `load` met."""
        if self._leftover is not None:
            self._files.remove(self._leftover)
            self._leftover = None

    @property
    def directory(self) -> Path:
        return Path(self._place)

    def path_of(self, base: int) -> Path:
        """Where the file that begins at `base` is."""
        return Path(self._place_of(base))

    def _place_of(self, base: int) -> str:
        return f"{self._place}/{base:0{NAME_DIGITS}d}"

    def open_file(self, base: int, *, create: bool = False) -> File:
        """The file that begins at `base`."""
        return self._files.open(
            self._place_of(base), create=create, writable=self._writable, keep_unsynced=self._keep_unsynced
        )

    def _add(self, segment: Segment) -> None:
        self.segments = (*self.segments, segment)

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
        segments = self.segments
        if not segments:
            return None
        number = (offset - segments[0].base) // self.segment_size
        return segments[number] if 0 <= number < len(segments) else None

    def grow(self, base: int | None = None) -> Segment:
        """Create the next segment; `base` is its offset when the sequence is empty (rounded down to a file start)."""
        if self.segments:
            base = self.end_offset
        else:
            base = (base or 0) // self.segment_size * self.segment_size
        if not self._directory_made:
            self._files.make_dirs(self.directory)
            self._directory_made = True
        file = self.open_file(base, create=True)
        try:
            if file.size():  # somebody put it there, and what it holds is not ours
                file.truncate(0)
            file.truncate(self.segment_size)
        except OSError:
            file.close()
            self._files.remove(file.path)
            raise
        segment = Segment(self, base, file)
        segment.unsynced_name = True
        self._add(segment)
        return segment

    def cut(self, end: int) -> None:
        """Drop everything from `end` on: later files are removed, the rest of the file that holds it reads as zeros.

        The first file stays, empty if need be: its name is what remembers where the sequence begins.
        """
        count = len(self.segments)
        self.remove_leftover()
        while len(self.segments) > 1 and self.segments[-1].base >= end:
            self.drop_last()
        segment = self.find(end)
        if len(self.segments) < count:
            self.segments[-1].unsynced_name = True  # so are those that are gone
        if segment is not None:
            segment.file.punch(end - segment.base, segment.end - end)
            segment.dirty = True

    def drop_last(self) -> None:
        segment = self.segments[-1]
        self.segments = self.segments[:-1]
        segment.release()
        self._files.remove(segment.path)

    def drop_first(self) -> Segment:
        """Forget the first segment and return it, for the caller to release and its file to remove: on the worker,
        which may be syncing it."""
        segment = self.segments[0]
        self.segments = self.segments[1:]
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
        segments = self.segments  # the owner goes on adding and forgetting some
        for segment in segments:
            if segment.dirty:
                segment.dirty = False
                segment.file.datasync()
        if any(segment.unsynced_name for segment in segments):
            for segment in segments:
                segment.unsynced_name = False
            self._files.sync_dir(self.directory)

    def read(self, offset: int, size: int) -> bytes:
        """Copy of a range, by a file read (no mapping); it ends with its file at the latest. Empty where there is no file. Any two
        numbers may be asked for. May wait for the disk.

        Raises OSError when the bytes cannot be read, and when the file is shorter than it was made.
        """
        segment = self.find(offset)
        if segment is None or size <= 0 or offset < segment.base:
            return b""
        return segment.read(offset, min(size, segment.end - offset))

    def read_now(self, offset: int, size: int) -> bytes | bytearray | None:
        """As `read` of a range inside one file, without waiting for the disk: None when it, or some of it, is not in memory."""
        segment = self.find(offset)
        if segment is None or offset < segment.base or offset + size > segment.end:
            return None
        return segment.file.pread_now(size, offset - segment.base)

    def will_need(self, offset: int, size: int) -> None:
        """`File.will_need` of as much of a range as lies in the file where it begins. Any two numbers may be asked for."""
        segment = self.find(offset)
        if segment is not None and size > 0 and offset >= segment.base:
            segment.file.will_need(offset - segment.base, min(size, segment.end - offset))

    def close(self) -> None:
        for segment in self.segments:
            segment.release()
