"""What becomes of a place in the log that is no whole record: the read fails, or the place is listed in a quarantine file.

A task that meets damage writes one file, a JSON object in each line:

    file, position (in the log), size, reason, bytes (base64, of the first QUARANTINED_BYTES_MAX)

Rules of this file
1. The name of the file is that of the range, so a task that is run again replaces what its first run wrote.
2. A file appears whole, when its task is done, or not at all.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from orbitmq.errors import StoreDamagedError, StoreError
from orbitmq.limits.columns import QUARANTINED_BYTES_MAX
from orbitmq.spark.log_files.places import place_at

Tell = Callable[[int, int, str, bytes], None]
"""Position in the log, size, reason, first bytes."""


class Failing:
    """The first damaged place ends the read."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> Tell:
        return self._fail

    def __exit__(self, *_: object) -> None:
        pass

    def _fail(self, position: int, size: int, reason: str, content: bytes) -> None:
        raise StoreDamagedError(
            f"the log is damaged at position {position} ({self._path}): {reason}; {size} bytes cannot be read",
            remedy="restore the file from a replica or a copy, or read with onDamage=quarantine and a quarantinePath",
        )


class DamageQuarantine:
    """Damaged places of one range."""

    def __init__(self, directory: str, path: str, first: int) -> None:
        self._place = place_at(directory)
        self._path = path
        self._name = f"damage-{first:020d}.jsonl"
        self._stream: Any = None

    def __enter__(self) -> Tell:
        return self._add

    def __exit__(self, kind: object, *_: object) -> None:
        if self._stream is None:
            return
        name, temporary = self._place.under(self._name).path, self._place.under("." + self._name).path
        try:
            self._stream.close()
            if kind is None:
                self._place.file_system.move(temporary, name)
            else:
                self._place.file_system.delete_file(temporary)
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{name} cannot be written: {error}") from error

    def _add(self, position: int, size: int, reason: str, content: bytes) -> None:
        line = {
            "file": self._path,
            "position": position,
            "size": size,
            "reason": reason,
            "bytes": base64.b64encode(content[:QUARANTINED_BYTES_MAX]).decode(),
        }
        temporary = self._place.under("." + self._name).path
        try:
            if self._stream is None:
                self._place.file_system.create_dir(self._place.path, recursive=True)
                self._stream = self._place.file_system.open_output_stream(temporary)
            self._stream.write(json.dumps(line).encode() + b"\n")
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{temporary} cannot be written: {error}") from error
