"""The directory of a service: one service at a time, and which runs of its jobs were made.

Rules of this file
1. The lock goes with the process, however it ends.
2. A run is noted when it has ended; what cannot be read counts as never noted, and the job says so in the log.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
from pathlib import Path
from typing import Final

from orbitmq.errors import ConfigurationError, StoreLockedError
from orbitmq.spark.durable import replace_content
from orbitmq.spark.log_files.places import place_at

logger = logging.getLogger("orbitmq.service")

_LOCK: Final = "lock"
_RUNS: Final = "runs.json"


class ServiceDirectory:
    """Held from its making until `close`. StoreLockedError when another service has it, ConfigurationError when there can be none."""

    def __init__(self, directory: str) -> None:
        self._root = Path(directory)
        self._writing = threading.Lock()
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigurationError(
                f"state is {directory}, and it cannot be written: {error.strerror}", remedy="name a local directory"
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if not isinstance(error, BlockingIOError):
                raise ConfigurationError(
                    f"state is {directory}, and files there cannot be locked: {error.strerror}",
                    remedy="name a directory of a disk of this machine",
                ) from error
            raise StoreLockedError(
                f"another service has the directory {directory}",
                remedy="stop it, or give this one a `state` and sinks of its own",
            ) from error
        self._runs = self._read()

    def last_ms(self, job: str) -> int | None:
        """The instant of the last run that was made, or from when on runs are looked for. None where nothing is noted."""
        return self._runs.get(job)

    def note(self, job: str, planned_ms: int) -> None:
        """On disk on return. StoreError."""
        with self._writing:
            self._runs[job] = planned_ms
            replace_content(place_at(str(self._root / _RUNS)), json.dumps(self._runs, indent=1).encode())

    def checkpoint(self, stream: str) -> str:
        """Where the checkpoint of a stream is, if it names none."""
        return str(self._root / "checkpoints" / stream)

    def close(self) -> None:
        os.close(self._descriptor)

    def _read(self) -> dict[str, int]:
        path = self._root / _RUNS
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return {str(name): int(at_ms) for name, at_ms in found.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError, TypeError, OverflowError, RecursionError) as error:
            logger.warning("%s cannot be read (%s): no run of a job is known", path, error)
            return {}
