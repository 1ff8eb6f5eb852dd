"""Bytes that outlive a power cut: synced where the files are on a local disk; elsewhere the file system's own promise holds.

Rules of this file
1. A small file is replaced as a whole: a reader sees the old one or the new one.
2. Failures are StoreErrors that name the file.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final

import pyarrow as pa
import pyarrow.fs as fs

from orbitmq.errors import StoreLockedError
from orbitmq.spark.log_files.places import FilePlace, storage_failures

LOCK: Final = "lock"
"""File in a directory that one run at a time has."""


def is_local(place: FilePlace) -> bool:
    return isinstance(place.file_system, fs.LocalFileSystem)


def make_directory(place: FilePlace) -> None:
    with write_failures(place.name):
        place.file_system.create_dir(place.path, recursive=True)


def replace_content(place: FilePlace, content: bytes | pa.Buffer) -> None:
    """The file has this content on return, or the old one if this raises; of two that replace it at once, that of either."""
    new = place.above.under(f".{place.path.rpartition('/')[2]}.{uuid.uuid4().hex}.new")
    with write_failures(place.name):
        try:
            with new.file_system.open_output_stream(new.path, compression=None) as stream:
                stream.write(content)
            sync(new)
            new.file_system.move(new.path, place.path)
        except BaseException:
            with suppress(OSError, pa.ArrowException):
                new.file_system.delete_file(new.path)
            raise
        sync(place.above)


@contextmanager
def held(folder: FilePlace) -> Iterator[None]:
    """A directory, made if there is none, that nobody else holds meanwhile, if it is of this machine. StoreLockedError where another one
    does. The hold goes with the process, however it ends."""
    make_directory(folder)
    if not is_local(folder):
        yield
        return
    with write_failures(folder.name):
        descriptor = os.open(folder.under(LOCK).path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        lock(descriptor, folder.path)
        yield
    finally:
        os.close(descriptor)


def lock(descriptor: int, directory: str) -> None:
    """For as long as the file is open. StoreLockedError where another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise StoreLockedError(
            f"another run has the directory {directory}", remedy="let one run at a time have it; give this one another"
        ) from error


def sync(place: FilePlace) -> None:
    """A local file or directory is on disk on return."""
    if not is_local(place):
        return
    with write_failures(place.name):
        descriptor = os.open(place.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_failures(path: str) -> AbstractContextManager[None]:
    return storage_failures(path, "written")
