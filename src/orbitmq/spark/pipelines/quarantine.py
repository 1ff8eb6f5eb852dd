"""Rows and records that a pipeline cannot use: one JSON object in each line of a file, and a count for the summary.

    {"topic": "orders", "brokerName": "broker-a", "queueId": 0, "queueOffset": 17, "reason": "...", "bytes": "<base64>"}

Every line says where (keys of the caller's), why, and the first QUARANTINED_BYTES_MAX of what was there.

Rules of this file
1. There is no file without a line: the first one makes it.
2. A file is whole when it is closed, and removed when the work failed: whoever works again tells again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from orbitmq.errors import StoreError
from orbitmq.limits.columns import QUARANTINED_BYTES_MAX
from orbitmq.spark.log_files.places import Place


class Quarantine:
    """One file. `count` is the number of its lines; its name is the caller's to choose, so that a repeat replaces it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.count = 0
        self.size_bytes = 0
        self._stream: Any = None

    def add(self, where: Mapping[str, int | str | None], reason: str, content: bytes = b"") -> None:
        line = {**where, "reason": reason, "bytes": base64.b64encode(content[:QUARANTINED_BYTES_MAX]).decode()}
        text = json.dumps(line).encode() + b"\n"
        try:
            if self._stream is None:
                system = self.place.file_system
                system.create_dir(self.place.above.path, recursive=True)
                self._stream = system.open_output_stream(self.place.path, compression=None)
            self._stream.write(text)
        except OSError as error:
            raise StoreError(f"{self.place.path} cannot be written: {error}") from error
        self.count += 1
        self.size_bytes += len(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is None:
            return
        try:
            self._stream.close()
            if kind is not None:
                self.place.file_system.delete_file(self.place.path)
        except OSError as problem:
            raise StoreError(f"{self.place.path} cannot be written: {problem}") from problem
