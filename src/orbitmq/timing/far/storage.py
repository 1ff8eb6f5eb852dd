"""Where the files of the far tier lie: a local directory, or any file system that pyarrow knows by URL; and which of them stay open.

Rules of this file
1. A file appears whole under its name: written under another one, made durable, renamed. Where the file system
   shows an object only when it is complete (s3, gs, abfs), it is written under its name at once.
2. Trouble of the file system is `FarUnreachableError`; a file that cannot be understood, or is not there
   although its neighbours are, is damage.
"""

from __future__ import annotations

import os
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from orbitmq.errors import RecordError
from orbitmq.timing.far.tier import FarFileDamagedError, FarUnreachableError
from orbitmq.units import NS_PER_MS

R = TypeVar("R")

TEMPORARY: Final = ".tmp"
_WHOLE_OBJECTS: Final = frozenset({"s3", "gcs", "abfs"})


class ListedFile(NamedTuple):
    """written_at_ms: by the clock of the file system; 0 where it does not say."""

    name: str
    size_bytes: int
    written_at_ms: int


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_directories(path: Path) -> None:
    """The file's name, and that of a new directory."""
    _sync_directory(path.parent)
    _sync_directory(path.parent.parent)


def _temporary(path: str) -> str:
    """Another one each time: where storage is shared two brokers may write one name at the same moment."""
    return f"{path}.{secrets.token_hex(4)}{TEMPORARY}"


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

    @contextmanager
    def _trouble(self, path: str, verb: str) -> Iterator[None]:
        """Errors of the file system become FarUnreachableError."""
        try:
            yield
        except OSError as error:
            raise FarUnreachableError(f"{path} cannot be {verb}: {error}") from error

    def make_directory(self, name: str) -> None:
        """Durable on return, with the directories above it that are new."""
        path = self._path(name)
        with self._trouble(path, "made"):
            new = [one for one in (Path(path), *Path(path).parents) if not one.is_dir()] if self._is_local else []
            self._fs.create_dir(path, recursive=True)
            for one in new:
                _sync_directory(one.parent)

    def write(self, name: str, content: bytes | memoryview | pa.Buffer) -> None:
        """Durable on return. Replaces what has that name. Raises FarUnreachableError."""
        path = self._path(name)
        with self._trouble(path, "written"):
            if self._is_local:
                self._write_local(Path(path), content)
                return
            is_whole = self._fs.type_name in _WHOLE_OBJECTS
            temporary = _temporary(path)
            with self._fs.open_output_stream(path if is_whole else temporary) as stream:
                stream.write(content)
            if not is_whole:
                self._fs.move(temporary, path)

    def write_once(self, name: str, content: bytes) -> bytes:
        """Durable on return, as `write`, unless there is such a file: it stays. Answers what it says. Two that come at the same moment
        get one answer in a local directory; at an object store each may get its own, and who asks later the one that stayed."""
        if (found := self.read(name)) is not None:
            return found
        path = self._path(name)
        if self._is_local:
            with self._trouble(path, "written"):
                self._write_local(Path(path), content, is_once=True)
        else:
            self.write(name, content)
        return self.read(name) or b""

    def _write_local(self, path: Path, content: bytes | memoryview | pa.Buffer, *, is_once: bool = False) -> None:
        temporary = Path(_temporary(str(path)))
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if is_once:
                try:
                    path.hardlink_to(temporary)
                except OSError:  # there by now; or a file system without links
                    if not path.exists():
                        raise
                temporary.unlink()
            else:
                temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)  # on a full disk its room is needed
            raise
        _sync_directories(path)

    def sync(self, name: str) -> None:
        """Make a file that others wrote durable, with its name. Where a file system shows whole objects they are."""
        path = self._path(name)
        with self._trouble(path, "synced"):
            if self._is_local:
                with Path(path).open("rb") as file:
                    os.fsync(file.fileno())
                _sync_directories(Path(path))

    def open(self, name: str) -> pa.NativeFile:
        """Raises FarFileDamagedError when it is gone, FarUnreachableError."""
        path = self._path(name)
        with self._trouble(path, "opened"):
            try:
                return self._fs.open_input_file(path)
            except FileNotFoundError as error:
                if self.exists(""):
                    raise FarFileDamagedError(f"the file {path} is gone", name) from error
                raise FarUnreachableError(f"the directory {self._root} is not there") from error

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
        path = self._path(name)
        with self._trouble(path, "read"), suppress(FileNotFoundError), self._fs.open_input_file(path) as file:
            return bytes(file.read())
        return None

    def exists(self, name: str) -> bool:
        with self._trouble(self._path(name), "looked at"):
            return bool(self._fs.get_file_info(self._path(name)).type != fs.FileType.NotFound)

    def remove(self, name: str) -> None:
        """Nothing happens when there is no such file."""
        with self._trouble(self._path(name), "removed"), suppress(FileNotFoundError):
            self._fs.delete_file(self._path(name))

    def files(self, directory: str) -> list[ListedFile]:
        """Files in a directory and those below it, sorted; none when it does not exist."""
        path, start = self._path(directory), len(self._root) + 1
        with self._trouble(path, "listed"):
            found = self._fs.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        return sorted(
            ListedFile(info.path[start:], info.size, (info.mtime_ns or 0) // NS_PER_MS)
            for info in found
            if info.type == fs.FileType.File
        )


class OpenFiles:
    """Parquet files that stay open with their footers: opening one costs a millisecond, more at an object store. 20 KB each."""

    def __init__(self, storage: Callable[[], Storage], open_max: int) -> None:
        """storage: asked for at the first use, for it may be away now."""
        self._storage: Final = storage
        self._open_max: Final = open_max
        self._open: OrderedDict[str, pq.ParquetFile] = OrderedDict()

    def reading(self, name: str, use: Callable[[pq.ParquetFile], R]) -> R:
        """Answer what `use` reads from a file. One that failed is opened anew the next time.

        Raises FarFileDamagedError where the file cannot be understood, FarUnreachableError where its bytes cannot be had.
        """
        try:
            return use(self._get(name))
        except (OSError, pa.ArrowException, RecordError, KeyError, ValueError) as error:
            self.forget(name)
            if isinstance(error, OSError) and not self._storage().is_readable(name):
                raise FarUnreachableError(f"{name} cannot be read: {error}") from error
            raise FarFileDamagedError(f"the file {name} of the far tier is damaged: {error}", name) from error

    def _get(self, name: str) -> pq.ParquetFile:
        if name not in self._open:
            self._open[name] = pq.ParquetFile(self._storage().open(name), page_checksum_verification=True)
            if len(self._open) > self._open_max:
                self._open.popitem(last=False)
        self._open.move_to_end(name)
        return self._open[name]

    def forget(self, name: str) -> None:
        self._open.pop(name, None)

    def clear(self) -> None:
        self._open.clear()
