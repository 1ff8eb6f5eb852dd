"""Where an archive lies: a local directory, or a URL of the object stores that delta-rs knows.

Rules of this file
1. Log and files go through the same library, so one set of credentials counts for both: those of the environment.
2. A store where two writers could both make the same version is refused for writing.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as fs

from orbitmq.errors import ConfigurationError
from orbitmq.spark.log_files.places import FilePlace, place_at

_UNSAFE: Final = {
    "AWS_S3_ALLOW_UNSAFE_RENAME": ("true", "1", "yes", "on"),
    "AWS_CONDITIONAL_PUT": ("disabled",),
}
"""Variables of the environment by which delta-rs gives up comparing."""

_NO_TABLE: Final = re.compile(r"[\x00-\x1f\x7f\[\\\]^|]|%[0-9A-Fa-f]{2}")
"""In a path of this machine: delta-rs panics, or reads and writes another directory than the one that is named."""


def table_place(text: str) -> FilePlace:
    """Raises ConfigurationError for what is no place of a table."""
    if "://" not in text or text.startswith("file://"):
        place = place_at(text.removeprefix("file://"))
        if found := _NO_TABLE.search(place.path):
            raise ConfigurationError(
                f"{place.path!r} is no place of a table: delta-rs takes no path with {found[0]!r}",
                remedy="name a directory without such characters",
            )
        return place
    if "?" in text:
        raise ConfigurationError(
            f"{text} is no place of an archive",
            remedy="say region and server in the environment instead: AWS_REGION, AWS_ENDPOINT_URL, AWS_ALLOW_HTTP",
        )
    from deltalake.exceptions import DeltaError

    try:
        handler = _delta_files()(text)
    except (DeltaError, OSError, ValueError) as error:
        raise ConfigurationError(f"{text} is no place of an archive: {error}") from error
    return FilePlace(fs.PyFileSystem(handler), "", text)


@functools.cache
def _delta_files() -> type[Any]:
    """Of files of delta-rs, which takes bytes alone, and gets buffers from a stream of pyarrow that is written to from Python."""
    from deltalake.fs import DeltaStorageHandler

    class DeltaFiles(DeltaStorageHandler):
        def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> pa.PythonFile:
            return pa.PythonFile(_TakesBuffers(self._handler.open_output_stream(path, metadata)))

    return DeltaFiles


class _TakesBuffers:
    """A file that is written to."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        written: int = self._file.write(bytes(data))
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def table_url(text: str) -> str:
    """The place as delta-rs takes it."""
    return text if "://" in text and not text.startswith("file://") else table_place(text).path


def check_writable(text: str, environment: Mapping[str, str] = os.environ) -> None:
    """Raises ConfigurationError where a version of the log could be written twice."""
    for name, values in _UNSAFE.items():
        if "://" in text and environment.get(name, "").lower() in values:
            raise ConfigurationError(
                f"{name}={environment[name]} lets two runs store the same version of {text}",
                remedy="take it out of the environment; the store has to know conditional puts",
            )
