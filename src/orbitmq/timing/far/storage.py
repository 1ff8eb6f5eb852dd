"""Where the files of the far tier lie: a local directory, or any file system that pyarrow knows by URL.

Rules of this file
1. A file appears whole under its name: written under another one, made durable, renamed. Where the file system
   shows an object only when it is complete (s3, gs, abfs), it is written under its name at once.
2. Trouble of the file system is `FarUnreachableError`; a file that is not there although its neighbours are is damage.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import fs

from orbitmq.timing.far.tier import FarFileDamagedError, FarUnreachableError

TEMPORARY: Final = ".tmp"
_WHOLE_OBJECTS: Final = frozenset({"s3", "gcs", "abfs"})


class StoredFile(NamedTuple):
    """written_at_ms: by the clock of the file system; 0 where it does not say."""

    name: str
    size_bytes: int
    written_at_ms: int


def _sync_directories(path: Path) -> None:
    """The file's name, and that of a new directory."""
    for directory in (path.parent, path.parent.parent):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class Storage:
    """A directory of a pyarrow file system. Names are relative to it, with slashes."""

    def __init__(self, file_system: fs.FileSystem, root: str) -> None:
        self._fs = file_system
        self._root = root.rstrip("/")
        self._is_local = isinstance(file_system, fs.LocalFileSystem)

    @classmethod
    def at(cls, url: str) -> Storage:
        """By URL or local path. Raises FarUnreachableError."""
        try:
            if "://" in url:
                return cls(*fs.FileSystem.from_uri(url))
            return cls(fs.LocalFileSystem(), str(Path(url).absolute()))
        except (OSError, ValueError, pa.ArrowException) as error:
            raise FarUnreachableError(f"the far tier's place {url} cannot be used: {error}") from error

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def make_directory(self, name: str) -> None:
        try:
            self._fs.create_dir(self._path(name), recursive=True)
        except OSError as error:
            raise FarUnreachableError(f"{self._path(name)} cannot be made: {error}") from error

    def write(self, name: str, content: bytes | memoryview | pa.Buffer) -> None:
        """Durable on return. Replaces what has that name. Raises FarUnreachableError."""
        path = self._path(name)
        try:
            if self._is_local:
                self._write_local(Path(path), content)
            elif self._fs.type_name in _WHOLE_OBJECTS:
                with self._fs.open_output_stream(path) as stream:
                    stream.write(content)
            else:
                with self._fs.open_output_stream(path + TEMPORARY) as stream:
                    stream.write(content)
                self._fs.move(path + TEMPORARY, path)
        except OSError as error:
            raise FarUnreachableError(f"{path} cannot be written: {error}") from error

    def _write_local(self, path: Path, content: bytes | memoryview | pa.Buffer) -> None:
        temporary = path.with_name(path.name + TEMPORARY)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)  # on a full disk its room is needed
            raise
        _sync_directories(path)

    def sync(self, name: str) -> None:
        """Make a file that others wrote durable, with its name. Where a file system shows whole objects they are."""
        if not self._is_local:
            return
        path = Path(self._path(name))
        try:
            with path.open("rb") as file:
                os.fsync(file.fileno())
            _sync_directories(path)
        except OSError as error:
            raise FarUnreachableError(f"{path} cannot be synced: {error}") from error

    def open(self, name: str) -> pa.NativeFile:
        """Raises FarFileDamagedError when it is gone, FarUnreachableError."""
        path = self._path(name)
        try:
            return self._fs.open_input_file(path)
        except FileNotFoundError as error:
            if self.exists(""):
                raise FarFileDamagedError(f"the file {path} is gone", name) from error
            raise FarUnreachableError(f"the directory {self._root} is not there") from error
        except OSError as error:
            raise FarUnreachableError(f"{path} cannot be opened: {error}") from error

    def is_readable(self, name: str) -> bool:
        """Whether every byte of the file can be read, whatever it says."""
        try:
            with self.open(name) as file:
                while file.read(1 << 20):
                    pass
        except (OSError, FarUnreachableError):
            return False
        return True

    def read(self, name: str) -> bytes | None:
        """The whole content; None when there is no such file."""
        try:
            with self._fs.open_input_file(self._path(name)) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FarUnreachableError(f"{self._path(name)} cannot be read: {error}") from error

    def exists(self, name: str) -> bool:
        try:
            return bool(self._fs.get_file_info(self._path(name)).type != fs.FileType.NotFound)
        except OSError as error:
            raise FarUnreachableError(f"{self._path(name)} cannot be looked at: {error}") from error

    def remove(self, name: str) -> None:
        """Nothing happens when there is no such file."""
        try:
            self._fs.delete_file(self._path(name))
        except FileNotFoundError:
            return
        except OSError as error:
            raise FarUnreachableError(f"{self._path(name)} cannot be removed: {error}") from error

    def names(self, directory: str) -> list[str]:
        """Files in a directory and those below it, sorted; none when it does not exist."""
        return [file.name for file in self.files(directory)]

    def files(self, directory: str) -> list[StoredFile]:
        """The same with their sizes, and when they were written."""
        try:
            found = self._fs.get_file_info(fs.FileSelector(self._path(directory), recursive=True, allow_not_found=True))
        except OSError as error:
            raise FarUnreachableError(f"{self._path(directory)} cannot be listed: {error}") from error
        start = len(self._root) + 1
        return sorted(
            StoredFile(info.path[start:], info.size, (info.mtime_ns or 0) // 1_000_000)
            for info in found
            if info.type == fs.FileType.File
        )
