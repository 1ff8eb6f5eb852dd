"""How far this broker came with the rows that it takes out of the far table, as its own log says.

Every row that is stored says which one it was (`row_marks`). Of each bucket the highest row is remembered: a broker that was killed
goes on behind it. The file `orbitmq.far-rows` keeps that with a log position, and the id of this store, by which the owner of
the table tells it from another store under the same broker name.

Rules of this file
1. A function of the log, learnt in `apply` alone, in a running broker as in recovery.
2. A bucket is forgotten when the owner does not name it any more, never because it looks finished from here.
3. The file is written, with the id, before the first row can be stored: where there is none, the log has no rows.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.clock import Clock
from orbitmq.errors import StoreDamagedError
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import Files
from orbitmq.store.queues import ConsumeQueues
from orbitmq.timing.far_table.row_marks import Bucket, MarkReader
from orbitmq.timing.rewriting import Taken

logger = logging.getLogger("orbitmq.timing")

ROWS_FILE: Final = "orbitmq.far-rows"


class _Saved(msgspec.Struct, kw_only=True):
    format: int = 1
    store: str
    position: int
    rows: list[tuple[str, int, int]]
    """Table, bucket, the number behind its highest row in the log."""


class PromotedRows:
    """Hand it to `open_store` as derived structure."""

    name = "far_rows"

    def __init__(self, files: Files, root: Path, clock: Clock) -> None:
        self._files = files
        self._path = root / ROWS_FILE
        self._clock = clock
        self._position = 0
        self._behind: dict[Bucket, int] = {}
        self._reader = MarkReader()
        self._is_changed = False
        self._saved_position: int | None = None
        """What the file on disk has; None without a file."""
        self._syncing: tuple[bytes, int] | None = None
        self.store_id = ""
        """Empty before `ensure_store_id`."""
        self.count = 0
        """Rows that came into the log since the start of the process."""
        self.applied: Callable[[], None] | None = None
        """Told when rows came into the log."""

    # --- questions --------------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Everything the log says below was applied."""
        return self._position

    def behind(self, table: str) -> dict[int, int]:
        """Bucket -> the number behind the highest row of it in this log."""
        return {bucket_ms: behind for (name, bucket_ms), behind in self._behind.items() if name == table}

    def keep_only(self, table: str, buckets: set[int]) -> None:
        """The owner of the table names shares of these buckets as this broker's, and of no others."""
        for key in [key for key in self._behind if key[0] == table and key[1] not in buckets]:
            del self._behind[key]
            self._is_changed = True

    def ensure_store_id(self) -> str:
        """The id of this store, durable on return. Blocks for a sync the first time. Raises OSError."""
        if not self.store_id:
            self.store_id = f"{self._clock.now_ms():x}-{os.urandom(6).hex()}"
            self._files.write_atomic(self._path, self._encoded())
            self._saved_position = self._position
        return self.store_id

    # --- what the log says (Derived) --------------------------------------------------------------------------------

    def apply(self, entries: Sequence[Dispatched]) -> None:
        known, count = self._position, 0
        for entry in entries:
            if entry.prepared_transaction_offset >= 0 or entry.physical_offset < known:
                continue
            found = self._reader.read(entry)
            if found is not None:
                bucket, row = found
                self._behind[bucket] = max(row + 1, self._behind.get(bucket, 0))
                count += 1
        if entries:
            self._position = max(known, entries[-1].end_offset)
        if count:
            self._is_changed = True
            self.count += count
            if self.applied is not None:
                self.applied()

    def state(self) -> object:
        return {"saved": self._saved_position, "changed": self._is_changed or self._syncing is not None}

    def write(self) -> None:
        """Nothing: what changed since the last durable save is in the log."""

    def begin_sync(self) -> None:
        if self._syncing is None and self._is_changed and self.store_id:
            self._syncing = self._encoded(), self._position
            self._is_changed = False

    def datasync(self) -> None:
        """Runs after the log was synced. What cannot be written stays needed in the log."""
        if self._syncing is None:
            return
        content, position = self._syncing
        self._syncing = None
        try:
            self._files.write_atomic(self._path, content)
        except OSError as error:
            self._is_changed = True
            logger.error(
                "how far the far table was taken over was not saved, the log stays as long as needed: %s", error
            )
            return
        self._saved_position = position

    def _encoded(self) -> bytes:
        rows = [(*bucket, behind) for bucket, behind in self._behind.items()]
        line = msgspec.json.encode(_Saved(store=self.store_id, position=self._position, rows=rows))
        return b"%s\n%08x\n" % (line, zlib.crc32(line))

    # --- recovery (Recoverable) -------------------------------------------------------------------------------------

    def restore(self, log: CommitLog, queues: ConsumeQueues, state: object, position: int | None) -> int:
        saved = self._load()
        if saved is None:
            self._position = log.end_of_files if position is None else position
            return self._position
        self.store_id, self._saved_position = saved.store, saved.position
        self._behind = {(table, bucket_ms): behind for table, bucket_ms, behind in saved.rows}
        is_whole = (
            position is not None
            and isinstance(state, dict)
            and state.get("saved") == saved.position
            and not state.get("changed")
        )
        self._position = position if is_whole and position is not None else saved.position
        return self._position

    def _load(self) -> _Saved | None:
        if not self._files.exists(self._path):
            return None
        line, _, rest = self._files.read_bytes(self._path).partition(b"\n")
        try:
            if rest.strip() != b"%08x" % zlib.crc32(line):
                raise ValueError("it fails its check")
            saved = msgspec.json.decode(line, type=_Saved)
            if saved.format != 1:
                raise ValueError(f"it has format {saved.format}")
        except (ValueError, msgspec.MsgspecError) as error:
            raise StoreDamagedError(
                f"{self._path} cannot be read: {error}",
                remedy="restore it from a backup; without it rows of the far table would be stored twice",
            ) from error
        return saved

    def finish_restore(self) -> None:
        """Everything is known."""

    # --- what retention asks (PendingOwner) -------------------------------------------------------------------------

    def lowest_needed(self) -> int | None:
        """The log is needed from where the file stands, while it does not say all."""
        return self._saved_position if self._is_changed or self._syncing is not None else None

    def bytes_below(self, position: int) -> int:
        """Nothing here is to be moved."""
        return 0

    def take_below(self, position: int, limit: int) -> list[Taken]:
        """As above."""
        return []

    def put_back(self, positions: Sequence[int]) -> None:
        """Nothing is ever taken."""
