"""The folder that a report is written into.

Rules of this file
1. A file is written under a name that begins with a point, then renamed: what can be seen is whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from orbitmq.errors import ConfigurationError, StoreError
from orbitmq.spark.log_files.places import place_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Folder:
    """A local directory or one of a pyarrow file system; made if it is not there."""

    def __init__(self, to: str) -> None:
        self._to = to
        self._place = place_at(to)
        try:
            self._place.file_system.create_dir(self._place.path, recursive=True)
        except OSError as error:
            raise ConfigurationError(
                f"{to} cannot be made: {error}", remedy="name a directory in which this user may write"
            ) from error

    def name_of(self, name: str) -> str:
        """How people find a file of this folder."""
        return f"{self._to.rstrip('/')}/{name}"

    def write_table(self, name: str, table: pa.Table) -> None:
        self._write(name, lambda stream: pq.write_table(table, stream, compression="zstd"))

    def write_text(self, name: str, text: str) -> None:
        self._write(name, lambda stream: stream.write(text.encode()))

    def _write(self, name: str, fill: Callable[[Any], object]) -> None:
        hidden, path = self._place.under(f".{name}").path, self._place.under(name).path
        try:
            with self._place.file_system.open_output_stream(hidden, compression=None) as stream:
                fill(stream)
            self._place.file_system.move(hidden, path)
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{self.name_of(name)} cannot be written: {error}") from error
