"""Where files lie: a local path or a URL of a pyarrow file system, and reading bytes of them at positions.

Rules of this file
1. Every failure names the file.
2. Nothing here is pickled: a place travels as the text it was made of.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.fs as fs

from orbitmq.errors import ConfigurationError, StoreDamagedError, StoreError
from orbitmq.limits.spark import STORAGE_REASON_CHARS

STORAGE_REMEDY: Final = (
    "look whether the storage can be reached, and whether its credentials are good and may do this; then run it again"
)
_COLOUR: Final = re.compile(r"\x1b\[\d*m")
_FRAME: Final = re.compile(r" *\d+: ")


class FilePlace(NamedTuple):
    """A directory or file in its file system. root: what errors say before the path, where the file system begins somewhere below."""

    file_system: Any
    path: str
    root: str = ""

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.root}{self.path}"

    def under(self, name: str) -> FilePlace:
        return self._replace(path=f"{self.path.rstrip('/')}/{name}")

    @property
    def above(self) -> FilePlace:
        return self._replace(path=self.path.rstrip("/").rpartition("/")[0] or "/")

    def kind(self) -> Any:
        """`pyarrow.fs.FileType` of what is there."""
        with storage_failures(self.name):
            return self.file_system.get_file_info(self.path).type

    def size(self) -> int | None:
        """Bytes of the file that is there; None when there is none."""
        with storage_failures(self.name):
            info = self.file_system.get_file_info(self.path)
        return info.size if info.type is fs.FileType.File else None

    def files(self) -> list[tuple[str, int]]:
        """Names and sizes of the files in a directory, by name."""
        with storage_failures(self.name):
            found = self.file_system.get_file_info(fs.FileSelector(self.path, recursive=False))
        return sorted((info.base_name, info.size) for info in found if info.type is fs.FileType.File)

    def content(self) -> bytes | None:
        """The bytes of a small file; None when there is none."""
        with storage_failures(self.name):
            try:
                with self.file_system.open_input_stream(self.path, compression=None) as stream:
                    content: bytes = stream.read()
                    return content
            except FileNotFoundError:
                return None

    @contextmanager
    def opened(self) -> Iterator[OpenFile]:
        with storage_failures(self.name):
            handle = self.file_system.open_input_file(self.path)
        with handle, _descriptor(self) as descriptor:
            yield OpenFile(handle, self.name, descriptor)


class OpenFile:
    """A file that is read at positions."""

    __slots__ = ("_descriptor", "_handle", "path")

    def __init__(self, handle: Any, path: str, descriptor: int | None = None) -> None:
        """descriptor: of the same file, where it is one of this machine."""
        self._handle = handle
        self._descriptor = descriptor
        self.path = path

    def read(self, position: int, size: int) -> bytes:
        """Exactly so many bytes. Raises StoreDamagedError when the file ends before."""
        with storage_failures(self.path):
            data: bytes = self._handle.read_at(size, position)
        if len(data) < size:
            raise StoreDamagedError(
                f"{self.path} ends at {position + len(data)}, but had more bytes before",
                remedy="it was cut while it was read, or is still being copied; read it again when it is whole",
            )
        return data

    def behind_hole(self, position: int, size: int) -> int:
        """The first position, this one or one behind it, from which on the file may have something else than zeros; `size`, that
        of the file, where there is none. This very position where nobody knows."""
        if self._descriptor is None:
            return position
        try:
            return min(os.lseek(self._descriptor, position, os.SEEK_DATA), size)
        except OSError as error:
            return size if error.errno == errno.ENXIO else position


def place_at(text: str) -> FilePlace:
    """The place that a local path or a URL names. Raises ConfigurationError, also for an empty one: that would be the directory of the
    process."""
    if not text or "\0" in text:
        raise ConfigurationError(f"{text!r} names no place", remedy="name a directory, or a URL")
    if "://" not in text:
        return FilePlace(fs.LocalFileSystem(), str(Path(text).absolute()))
    try:
        return FilePlace(*fs.FileSystem.from_uri(text))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ConfigurationError(f"{text} is no place that pyarrow reads: {error}") from error


@contextmanager
def _descriptor(place: FilePlace) -> Iterator[int | None]:
    """Descriptor of a file of this machine, where the system says which parts of a file were never written."""
    if not (isinstance(place.file_system, fs.LocalFileSystem) and hasattr(os, "SEEK_DATA")):
        yield None
        return
    with storage_failures(place.name):
        descriptor = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def storage_failures(path: str, verb: str = "read") -> Iterator[None]:
    """What a file system raises becomes a StoreError that says what cannot be done."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{path} cannot be {verb}: {causes_of(error)}", remedy=STORAGE_REMEDY) from error


def causes_of(error: Exception) -> str:
    """The causes of a failure of Arrow or delta-rs in one line; they have a line each, and behind them where in its program it was."""
    lines = itertools.takewhile(lambda line: not _FRAME.match(line), _COLOUR.sub("", str(error)).splitlines())
    text = ": ".join(filter(None, (line.strip(" ↳") for line in lines)))
    return text[:STORAGE_REASON_CHARS] or type(error).__name__
