"""Rows and records that cannot be used: one JSON object in each line of a file, and a count for the summary.

    {"topic": "orders", "brokerName": "broker-a", "queueId": 0, "queueOffset": 17, "reason": "...", "bytes": "<base64>"}

Every line says where (keys of the caller's), why, and the first QUARANTINED_BYTES_MAX of what was there.

Rules of this file
1. There is no file without a line: the first one makes it.
2. A file appears whole, when it is closed, and is on disk then where that is a local one: a place may be noted behind what it tells of.
3. There is none when the work failed: whoever works again tells again. The error of the work is the one that is raised.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from orbitmq.errors import StoreError
from orbitmq.limits.columns import QUARANTINED_BYTES_MAX
from orbitmq.spark.durable import is_local, make_directory, sync, write_failures
from orbitmq.spark.log_files.places import FilePlace


class Quarantine:
    """One file. `count` is the number of its lines; its name is the caller's to choose, so that a repeat replaces it."""

    def __init__(self, place: FilePlace) -> None:
        self.place = place
        # What is written to an object store appears when it is whole.
        self._written = place.above.under(f".{place.path.rpartition('/')[2]}") if is_local(place) else place
        self.count = 0
        self.size_bytes = 0
        self._stream: Any = None

    def add(self, where: Mapping[str, int | str | None], reason: str, content: bytes = b"") -> None:
        line = {**where, "reason": reason, "bytes": base64.b64encode(content[:QUARANTINED_BYTES_MAX]).decode()}
        text = json.dumps(line).encode() + b"\n"
        with write_failures(self.place.name):
            if self._stream is None:
                make_directory(self.place.above)
                self._stream = self._written.file_system.open_output_stream(self._written.path, compression=None)
            self._stream.write(text)
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
            with write_failures(self.place.name):
                self._stream.close()
                if kind is not None:
                    self._written.file_system.delete_file(self._written.path)
                elif self._written != self.place:
                    sync(self._written)
                    self.place.file_system.move(self._written.path, self.place.path)
                    sync(self.place.above)
        except StoreError as problem:
            if error is None:
                raise
            error.add_note(f"beside that: {problem}")
