"""The catalog of the far table in its owner's log: what it is, and that a start finds it again.

Every decision is one record in topic `orbitmq_sys_far_table`. The file `orbitmq.far-table` holds the catalog as it was at some
record, and its topic's queue leads to those behind it, so a start reads a bounded number of records. `manifest.json` beside the
table's files is a copy of that catalog; put in the place of a lost `orbitmq.far-table` it works as well.

Rules of this file
1. The state is a function of the log, learnt in `apply` alone, in a running broker as in recovery. Records know their version, so
   applying one twice changes nothing.
2. A catalog with a gap is damage: it answers nothing, and the broker does everything else.
3. The log is kept from the first record on that the file does not contain.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.errors import RecordError, StoreDamagedError
from orbitmq.limits.far import FAR_TABLE_SNAPSHOT_RECORDS
from orbitmq.protocol.names import FAR_TABLE_TOPIC
from orbitmq.protocol.records import decode_record
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import Files
from orbitmq.store.queues import ConsumeQueues
from orbitmq.timing.far_table.catalog import Catalog
from orbitmq.timing.far_table.changes import decode_changes
from orbitmq.timing.rewriting import Taken

logger = logging.getLogger("orbitmq.timing")

CATALOG_FILE: Final = "orbitmq.far-table"


class _Snapshot(NamedTuple):
    content: bytes
    version: int
    since: int
    """Log position of the first record that the file before it does not contain."""
    garbage: list[str]


class CatalogLog:
    """Hand it to `open_store` as derived structure."""

    name = "far_table"

    def __init__(self, files: Files, root: Path) -> None:
        self.catalog = Catalog()
        self.damage: str | None = None
        """Why the catalog is not to be believed."""
        self.applied: Callable[[int], None] | None = None
        """Told the log position behind a record that was applied."""
        self._files = files
        self._path = root / CATALOG_FILE
        self._log: CommitLog | None = None
        self._since: int | None = None
        """Log position of the first record that the file, or the one being written, does not contain."""
        self._records = 0
        """How many of them there are."""
        self._syncing: _Snapshot | None = None
        self._is_wanted = False
        self.saved_version = 0
        self.saved: bytes | None = None
        """The catalog as the file has it."""
        self.saved_garbage: list[str] = []
        """What was garbage then."""

    # --- what the log says (Derived) --------------------------------------------------------------------------------

    def apply(self, entries: Sequence[Dispatched]) -> None:
        for entry in entries:
            if entry.topic == FAR_TABLE_TOPIC:
                self._take(entry.physical_offset)
                if self.applied is not None:
                    self.applied(entry.end_offset)

    def _take(self, position: int) -> None:
        assert self._log is not None
        if self._since is None:
            self._since = position
        self._records += 1
        if self.damage is not None:
            return
        try:
            view = self._log.record_view(position)
            if view is None:
                raise RecordError(f"the record at {position} is not in the log")
            self.catalog.apply_record(decode_changes(bytes(decode_record(view).body)))
        except (RecordError, StoreDamagedError) as error:
            self.damage = str(error)
            logger.error("the catalog of the far table is damaged, this broker does not answer for it: %s", error)

    def state(self) -> object:
        return None

    def write(self) -> None:
        """Nothing: what changed since the last durable save is in the log."""

    def want_save(self) -> None:
        """Let the next durable save contain the catalog, however few records are new."""
        self._is_wanted = True

    @property
    def is_saved(self) -> bool:
        """Whether the file contains everything."""
        return self._since is None and self._syncing is None

    def begin_sync(self) -> None:
        if self._since is None or self._syncing is not None or self.damage is not None:
            return
        if not self._is_wanted and self._records < FAR_TABLE_SNAPSHOT_RECORDS:
            return
        catalog = self.catalog
        self._syncing = _Snapshot(catalog.to_bytes(), catalog.version, self._since, list(catalog.garbage))
        self._since, self._records, self._is_wanted = None, 0, False

    def datasync(self) -> None:
        """Runs after the log was synced, so the file never leads it. What cannot be written stays needed in the log."""
        if self._syncing is None:
            return
        syncing = self._syncing
        try:
            self._files.write_atomic(self._path, syncing.content)
        except OSError as error:
            self._since, self._is_wanted = syncing.since, True
            logger.error("the catalog of the far table was not saved, the log stays as long as it is needed: %s", error)
        else:
            self.saved, self.saved_version, self.saved_garbage = syncing.content, syncing.version, syncing.garbage
        self._syncing = None

    # --- recovery (Recoverable) -------------------------------------------------------------------------------------

    def restore(self, log: CommitLog, queues: ConsumeQueues, state: object, position: int | None) -> int:
        """Reads the records behind the file by way of their queue, 30 us each."""
        self._log = log
        if self._files.exists(self._path):
            content = self._files.read_bytes(self._path)
            try:
                self.catalog = Catalog.from_bytes(content)
                self.saved, self.saved_version = content, self.catalog.version
                self.saved_garbage = list(self.catalog.garbage)
            except StoreDamagedError as error:
                raise StoreDamagedError(
                    f"{self._path}: {error}",
                    remedy="copy manifest.json from the far table's directory over it; records behind it are in the log",
                ) from error
        end = log.end_of_files if position is None else position
        queue = queues.get(FAR_TABLE_TOPIC, 0)
        if queue is not None:
            for offset in range(queue.max_offset - 1, queue.min_offset - 1, -1):
                if (unit := queue.kept_unit(offset)) is not None and self._is_contained(unit[0]):
                    break
            else:
                offset = queue.min_offset - 1
            for following in range(offset + 1, queue.max_offset):
                unit = queue.kept_unit(following)
                if unit is not None and unit[0] < end:
                    self._take(unit[0])
        return end

    def _is_contained(self, position: int) -> bool:
        """Whether the catalog as it was loaded contains the record at a log position, or it is gone."""
        assert self._log is not None
        view = self._log.record_view(position)
        if view is None:
            return True
        try:
            return decode_changes(bytes(decode_record(view).body)).version <= self.catalog.version
        except RecordError:
            return False  # what it said is missing: found out when it is applied

    def finish_restore(self) -> None:
        """Everything is known."""

    # --- what retention asks (PendingOwner) -------------------------------------------------------------------------

    def lowest_needed(self) -> int | None:
        """Log position of the first record that the file does not contain."""
        if self._syncing is not None:
            return self._syncing.since
        return self._since

    def bytes_below(self, position: int) -> int:
        """Nothing here is to be moved: the file is written, and then nothing of the log is needed."""
        return 0

    def take_below(self, position: int, limit: int) -> list[Taken]:
        """As above; asks for the file to be written."""
        if (lowest := self.lowest_needed()) is not None and lowest < position:
            self.want_save()
        return []

    def put_back(self, positions: Sequence[int]) -> None:
        """Nothing is ever taken."""
