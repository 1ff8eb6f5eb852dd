"""Removing files that nobody needs any more, where it holds nobody up.

Rules of this file
1. One job at a time, whatever is removed; what is asked for meanwhile goes together in the next.
2. Files of one directory go in the order in which they were named: a gap among log files would refuse the next start. So one that
   cannot be removed stops those behind it, is reported, and is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.limits.store import REMOVE_RETRY_MS
from orbitmq.store.files import Files
from orbitmq.store.worker import Worker
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.store")

WAKEUP: Final = "removals"

Release = Callable[[], None]
"""Closes a file that was forgotten."""


class Removals:
    """Owned by one open store and used on its thread."""

    def __init__(self, files: Files, worker: Worker, clock: Clock, deadlines: Deadlines) -> None:
        self._files = files
        self._worker = worker
        self._clock = clock
        self._deadlines = deadlines
        self._releases: list[Release] = []
        self._paths: list[Path] = []
        self._when_gone: list[Callable[[], None]] = []
        self._running = False
        deadlines.define(WAKEUP, self._start)

    def release(self, releases: Sequence[Release]) -> None:
        """Call these on the worker before the next files are removed: a save may be syncing the files they close."""
        self._releases += releases

    def remove(self, paths: Sequence[Path], when_gone: Callable[[], None] | None = None) -> None:
        """Remove files or directories; `when_gone` is called once nothing is left to be removed."""
        self._paths += paths
        if when_gone is not None:
            self._when_gone.append(when_gone)
        self._start()

    def _start(self) -> None:
        if self._running or not (self._paths or self._releases):
            return
        self._running = True
        paths, self._paths = self._paths, []
        releases, self._releases = self._releases, []

        def job() -> tuple[list[Path], str]:
            for release in releases:
                release()
            return self._remove_all(paths)

        def done(result: tuple[list[Path], str] | BaseException) -> None:
            self._running = False
            left, why = (paths, str(result)) if isinstance(result, BaseException) else result
            if not left:
                self._start()
                if not self._running:
                    told, self._when_gone = self._when_gone, []
                    for tell in told:
                        tell()
                return
            if isinstance(result, BaseException):
                self._releases = releases + self._releases  # calling them twice does no harm
            self._paths = left + self._paths
            logger.error("%d files could not be removed, trying again: %s", len(left), why)
            self._deadlines.arm(WAKEUP, self._clock.monotonic_ns() + REMOVE_RETRY_MS * NS_PER_MS)

        self._worker.submit(job, done)

    def _remove_all(self, paths: Sequence[Path]) -> tuple[list[Path], str]:
        """What is left, and why."""
        left: list[Path] = []
        stopped: set[Path] = set()
        why = ""
        for path in paths:
            if path.parent in stopped:
                left.append(path)
                continue
            try:
                if self._files.is_dir(path):
                    self._files.remove_tree(path)
                elif self._files.exists(path):
                    self._files.remove(path)
            except OSError as error:
                left.append(path)
                stopped.add(path.parent)
                why = why or str(error)
        return left, why

    def close(self) -> None:
        """After the worker has ended: close what is still open. What was not removed is found by the next start."""
        for release in self._releases:
            release()
        self._releases = []
