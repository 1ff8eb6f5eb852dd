"""Bytes that outlive a power cut: synced where the files are on a local disk; elsewhere the file system's own promise holds.

Rules of this file
1. A small file is replaced as a whole: a reader sees the old one or the new one.
2. Failures are StoreErrors that name the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.fs as fs

from orbitmq.errors import StoreError
from orbitmq.spark.log_files.places import STORAGE_REMEDY, FilePlace, causes_of


def is_local(place: FilePlace) -> bool:
    return isinstance(place.file_system, fs.LocalFileSystem)


def make_directory(place: FilePlace) -> None:
    with write_failures(place.name):
        place.file_system.create_dir(place.path, recursive=True)


def replace_content(place: FilePlace, content: bytes | pa.Buffer) -> None:
    """The file has this content on return, or the old one if this raises."""
    new = place.above.under(f".{place.path.rpartition('/')[2]}.new")
    with write_failures(place.name):
        with new.file_system.open_output_stream(new.path, compression=None) as stream:
            stream.write(content)
        sync(new)
        new.file_system.move(new.path, place.path)
        sync(place.above)


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


@contextmanager
def write_failures(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{path} cannot be written: {causes_of(error)}", remedy=STORAGE_REMEDY) from error
