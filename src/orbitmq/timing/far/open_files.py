"""Parquet files of a far tier that stay open, and what their failures mean.

Rules of this file
1. What cannot be understood is damage of that file, unless its bytes cannot be had: then the storage is away.
2. A file that failed is opened anew the next time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from orbitmq.errors import RecordError
from orbitmq.timing.far.storage import Storage
from orbitmq.timing.far.tier import FarFileDamagedError, FarUnreachableError

R = TypeVar("R")


class OpenFiles:
    """At most `most` open files; beyond it the one that was used longest ago is closed.

    storage: asked for at the first use, for it may be away now. whose: for errors, `the far tier`.
    """

    def __init__(self, storage: Callable[[], Storage], whose: str, most: int) -> None:
        self._storage: Final = storage
        self._whose: Final = whose
        self._most: Final = most
        self._open: OrderedDict[str, pq.ParquetFile] = OrderedDict()

    def get(self, name: str) -> pq.ParquetFile:
        """The file, opened if it is not. Call it within `guarded`."""
        known = self._open.get(name)
        if known is not None:
            self._open.move_to_end(name)
            return known
        parquet = pq.ParquetFile(self._storage().open(name), page_checksum_verification=True)
        self._open[name] = parquet
        if len(self._open) > self._most:
            self._open.popitem(last=False)
        return parquet

    def guarded(self, name: str, use: Callable[[], R]) -> R:
        """What `use`, which reads that file, gives. Raises FarUnreachableError and FarFileDamagedError."""
        try:
            return use()
        except (OSError, pa.ArrowException, RecordError, KeyError, ValueError) as error:
            self.forget(name)
            if isinstance(error, OSError) and not self._storage().is_readable(name):
                raise FarUnreachableError(f"{name} cannot be read: {error}") from error
            raise FarFileDamagedError(f"the file {name} of {self._whose} is damaged: {error}", name) from error

    def forget(self, name: str) -> None:
        self._open.pop(name, None)

    def clear(self) -> None:
        self._open.clear()
