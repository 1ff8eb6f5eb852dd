"""Saving the tables of topics and groups on a thread, and answering when what an answer speaks of is saved.

A table is one file, written whole: with 10,000 topics 30 ms of work and four syncs of the disk, which nobody else is to wait for.

Rules of this file
1. An answer to a request that changed a table leaves when the file with the change is durable, and the record of it in the log is
   confirmed; other answers do not wait.
2. One save at a time. What changes meanwhile is covered by the next one, however many requests that were.
3. A failed save is told to those who waited for it, reported once, and tried again with the next change or a little later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from orbitmq.broker.versions import next_version
from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.errors import StoreDamagedError
from orbitmq.limits.broker import TABLE_RETRY_NS
from orbitmq.protocol.remoting.bodies import DataVersion
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.store.worker import Worker

logger = logging.getLogger("orbitmq.broker")

TABLES = "configuration tables"
"""Those of topics and groups together."""


OnDone = Callable[[BaseException | None], None]


class TableFile(Protocol):
    """Where a table is kept; `store.config_files.ConfigFile` in a broker."""

    def load(self) -> Mapping[str, object] | None: ...
    def save(self, document: Mapping[str, object]) -> None: ...


class Snapshots:
    """States of one table on their way into its file: an older one never replaces a newer one, whichever thread is first."""

    def __init__(self, file: TableFile) -> None:
        self._file = file
        self._writing = threading.Lock()
        self._taken = self._written = 0

    def job(self, document: Callable[[], Mapping[str, object]]) -> Callable[[], None]:
        """Writes what `document()` makes, which runs on the thread of the job and looks at nothing that changes. A job that begins
        after a later one has ended does nothing."""
        self._taken += 1
        number = self._taken

        def write() -> None:
            with self._writing:
                if number > self._written:
                    self._file.save(document())
                    self._written = number

        return write


class SavedTable:
    """A table that is kept in one file, written whole, and has a version of its own."""

    def __init__(self, file: TableFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._snapshots = Snapshots(file)
        self.version = DataVersion(counter=0, state_version=0, timestamp=clock.now_ms())
        self.dirty = False
        self.change_count = 0
        """Grows with every change that is saved before its answer leaves."""

    def _frozen(self) -> Callable[[], Mapping[str, object]]:
        """What makes the document of the table as it is now. It runs on another thread, and looks at nothing that changes."""
        raise NotImplementedError

    def snapshot(self) -> Callable[[], None]:
        """A job that writes the table as it is now, for another thread. The table counts as saved at once: whoever runs the job sets
        `dirty` again when it fails. A job that begins after a later one has ended does nothing. Costs what `_frozen` costs."""
        document = self._frozen()
        self.dirty = False
        return self._snapshots.job(document)

    def save(self) -> None:
        """Write the table if it changed since the last save. Raises `OSError`; the table then stays dirty. Blocks."""
        if self.dirty:
            try:
                self.snapshot()()
            except OSError:
                self.dirty = True
                raise

    def _changed(self) -> None:
        self.version = next_version(self.version, self._clock.now_ms())
        self.dirty = True
        self.change_count += 1


Saved = TypeVar("Saved", bound=msgspec.Struct)


def read_table(document: Mapping[str, object], kind: type[Saved], file: str, table: str) -> Saved:
    """The content of a table's file. Raises `StoreDamagedError`, which names the file and calls it no such table."""
    try:
        return msgspec.convert(document, kind, strict=False)
    except msgspec.ValidationError as error:
        raise StoreDamagedError(
            f"{file} is JSON but not {table}: {error}",
            remedy="repair it, or restore it from a backup: its .bak, where there is one",
        ) from error


class TableSaving:
    def __init__(
        self,
        tables: Sequence[SavedTable],
        worker: Worker,
        deadlines: Deadlines,
        clock: Clock,
        name: str = TABLES,
        when_recorded: Callable[[OnDone], None] | None = None,
    ) -> None:
        """`name`: of the tables, in the log, and of the wake-up that tries again. `when_recorded`: tells when what changed up to now is
        a record of the log."""
        self._when_recorded = when_recorded
        self._tables = tables
        self._name = name
        self._worker = worker
        self._deadlines = deadlines
        self._clock = clock
        self._running = False
        self._waiting: list[OnDone] = []
        self._failure: str | None = None
        self._noticed = -1  # a table that was loaded may be dirty
        deadlines.define(name, self.begin)

    def _change_count(self) -> int:
        return sum(table.change_count for table in self._tables)

    def has_new_changes(self) -> bool:
        """Whether something changed since the last call."""
        before, self._noticed = self._noticed, self._change_count()
        return self._noticed != before

    def begin(self) -> None:
        """Save what changed, unless a save runs already; its end looks again."""
        if self._running:
            return
        on_done, self._waiting = self._waiting, []
        jobs = [table.snapshot() for table in self._tables if table.dirty]
        if not jobs:
            for one in on_done:
                one(None)
            return
        self._running = True

        def write() -> None:
            for job in jobs:
                job()

        self._worker.submit(write, lambda result: self._done(on_done, result))

    def _done(self, on_done: list[OnDone], result: object) -> None:
        self._running = False
        error = result if isinstance(result, BaseException) else None
        if error is not None:
            for table in self._tables:
                table.dirty = True
            if self._failure is None:
                logger.error("%s could not be saved: %s; they are tried again", self._name, error)
            self._deadlines.arm(self._name, self._clock.monotonic_ns() + TABLE_RETRY_NS)
        self._failure = None if error is None else str(error)
        for one in on_done:
            one(error)
        if self._waiting or (error is None and any(table.dirty for table in self._tables)):
            self.begin()

    def when_saved(self, on_done: OnDone) -> None:
        """Tell when everything that changed up to now is durable, or why it is not."""
        if self._when_recorded is not None:
            on_done = _second_of_two(on_done)
            self._when_recorded(on_done)
        self._waiting.append(on_done)
        self.begin()

    def until_saved(self) -> Callable[[Callable[[], None]], None]:
        """A way for later calls: each is made once everything that changed up to now is durable, or could not be saved."""
        held: list[Callable[[], None]] = []
        is_open = False

        def opened(_: BaseException | None) -> None:
            nonlocal is_open
            is_open = True
            for call in held:
                call()

        def run(call: Callable[[], None]) -> None:
            if is_open:
                call()
            else:
                held.append(call)

        self.when_saved(opened)
        return run

    def answer(
        self, command: Command, peer: Peer, answer: Command, *, refuses: bool, then: Callable[[], bool] = lambda: False
    ) -> Command | None:
        """`answer` where everything is saved by now, or None, and it is sent when that is so. With `refuses` a failure is answered
        SYSTEM_ERROR. `then`, called after the save, says whether it takes the answer over."""
        at_once: list[Command] = []
        is_later = False

        def saved(error: BaseException | None) -> None:
            final = answer
            if error is not None and refuses:
                remark = f"the table could not be saved and may be lost with this process: {error}"
                final = response(command, ResponseCode.SYSTEM_ERROR, remark)
            elif then():
                return
            if not is_later:
                at_once.append(final)
            elif not command.is_oneway:
                peer.send(final)

        self.when_saved(saved)
        is_later = True
        return at_once[0] if at_once else None

    def finish(self) -> None:
        """Have what is being saved count as changed: the caller saves every table itself."""
        if self._running:
            for table in self._tables:
                table.dirty = True


def _second_of_two(on_done: OnDone) -> OnDone:
    """Calls `on_done` when it was called twice, with the first error of the two."""
    results: list[BaseException | None] = []

    def one(error: BaseException | None) -> None:
        results.append(error)
        if len(results) == 2:
            on_done(results[0] or results[1])

    return one
