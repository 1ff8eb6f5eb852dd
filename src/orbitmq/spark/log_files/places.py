"""Where files lie: a local path or a URL of a pyarrow file system, and reading bytes of them at positions.

Rules of this file
1. Every failure names the file.
2. Nothing here is pickled: a place travels as the text it was made of.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as fs

from orbitmq.errors import ConfigurationError, StoreDamagedError, StoreError


class FilePlace(NamedTuple):
    """A directory or file in its file system."""

    file_system: Any
    path: str

    def under(self, name: str) -> FilePlace:
        return FilePlace(self.file_system, f"{self.path.rstrip('/')}/{name}")

    @property
    def above(self) -> FilePlace:
        return FilePlace(self.file_system, self.path.rstrip("/").rpartition("/")[0] or "/")

    def kind(self) -> Any:
        """`pyarrow.fs.FileType` of what is there."""
        with _failures(self.path):
            return self.file_system.get_file_info(self.path).type

    def size(self) -> int | None:
        """Bytes of the file that is there; None when there is none."""
        with _failures(self.path):
            info = self.file_system.get_file_info(self.path)
        return info.size if info.type is fs.FileType.File else None

    def files(self) -> list[tuple[str, int]]:
        """Names and sizes of the files in a directory, by name."""
        with _failures(self.path):
            found = self.file_system.get_file_info(fs.FileSelector(self.path, recursive=False))
        return sorted((info.base_name, info.size) for info in found if info.type is fs.FileType.File)

    def content(self) -> bytes | None:
        """The bytes of a small file; None when there is none."""
        with _failures(self.path):
            try:
                with self.file_system.open_input_stream(self.path, compression=None) as stream:
                    content: bytes = stream.read()
                    return content
            except FileNotFoundError:
                return None

    @contextmanager
    def opened(self) -> Iterator[OpenFile]:
        with _failures(self.path):
            handle = self.file_system.open_input_file(self.path)
        with handle, _descriptor(self) as descriptor:
            yield OpenFile(handle, self.path, descriptor)


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
        with _failures(self.path):
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
    """The place that a local path or a URL names. Raises ConfigurationError."""
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
    with _failures(place.path):
        descriptor = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _failures(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
