"""The file of what a broker keeps about copies, saved as it changes.

Rules of this file
1. What somebody is told is saved first: an answer that depends on it waits for the disk, and says so where that failed.
2. A change that could not be saved is tried again, and is told as trouble until it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.limits.replication import KEPT_FILE_RETRY_MS
from orbitmq.replication.kept_state import KeptState, read_state
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.worker import Worker
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.replication")

WAKEUP: Final = "what is kept about copies"

OnSaved = Callable[[str], None]
"""Told why it could not be saved; empty where it was."""


class KeptFile:
    """`state` is changed by others, who call `save`."""

    def __init__(
        self, file: ConfigFile, new_directory: str, worker: Worker, deadlines: Deadlines, clock: Clock
    ) -> None:
        """Raises StoreDamagedError for a file that cannot be read."""
        found = file.load()
        self.state: Final[KeptState] = read_state(found, new_directory)
        self._is_new = found is None
        self.trouble = ""
        """Why the file is older than `state`; empty where it is not, or is about to be written."""
        self._file = file
        self._worker = worker
        self._deadlines = deadlines
        self._clock = clock
        self._saving = 0
        deadlines.define(WAKEUP, self.save)

    @property
    def path(self) -> str:
        return str(self._file.path)

    async def saved(self, save: Callable[[OnSaved], None] | None = None) -> str:
        """Save, or `save_first`; why that could not be, empty where it could. Whoever waits may be cancelled."""
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        (save or self.save)(lambda why_not: None if told.done() else told.set_result(why_not))
        return await told

    def save_first(self, done: OnSaved) -> None:
        """The id of the directory is to be told to others: a next start has to have it as well."""
        if self._is_new:
            self.save(done)
        else:
            done("")

    @property
    def is_saved(self) -> bool:
        """Whether the file has what `save` was called for."""
        return not (self._saving or self.trouble)

    def save(self, done: OnSaved = lambda why_not: None) -> None:
        """Durable when `done` is told so. On the loop."""
        table, file = self.state.table(), self._file

        def saved(error: BaseException | None) -> None:
            self._saving -= 1
            why_not = "" if error is None else f"{self.path} could not be saved: {error}"
            if why_not and not self.trouble:
                logger.error("what is kept about copies is not on the disk, trying again: %s", why_not)
            self.trouble = why_not
            self._is_new = self._is_new and bool(why_not)
            if why_not:
                self._deadlines.arm(WAKEUP, self._clock.monotonic_ns() + KEPT_FILE_RETRY_MS * NS_PER_MS)
            done(why_not)

        self._saving += 1
        self._worker.submit(lambda: file.save(table), saved)
