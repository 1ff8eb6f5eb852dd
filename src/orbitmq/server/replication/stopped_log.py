"""The log of a store that nobody has opened, mended from another copy: before a start that would refuse it, or by a command.

Rules of this file
1. The store is claimed meanwhile as by a broker. Nothing is written but damaged places of the log, each whole and synced.
2. Whether an answer may be used is decided by `MissingRange`, and whether one is given by the copy that is asked, as for an open store.
3. Who has this log is known from the files of the store: its id, and the epochs in which it was written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.broker.table_records.identity import IDENTITY_FILE, read_identity
from orbitmq.errors import ConnectionLostError, OrbitError, RequestTimeoutError, StoreError
from orbitmq.limits.replication import WALK_SLICE_BYTES
from orbitmq.protocol.remoting.replication_bodies import LogRangeRequest
from orbitmq.replication.kept_state import REPLICATION_FILE, read_state
from orbitmq.replication.missing_range import MissingRange
from orbitmq.replication.range_answers import OwnLog
from orbitmq.server.replication.range_fetching import fetched
from orbitmq.store.checkpoint import Checkpoint, read_checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.dispatch import no_levels
from orbitmq.store.files import Files
from orbitmq.store.mark import MARK_FILE, confirmed_offset
from orbitmq.store.opening import lock_folders
from orbitmq.store.recovery import find_end, find_record_after
from orbitmq.store.saving import CHECKPOINT_FILE
from orbitmq.store.walking import next_record, walk

logger = logging.getLogger("orbitmq.replication")

Ask = Callable[[LogRangeRequest], Awaitable[bytes]]
"""Asks one other copy for bytes of the log. Raises OrbitError where it gives none."""


class DamagedPlace(msgspec.Struct):
    """A part of the log that is damaged, or was."""

    position: int
    size_bytes: int
    why: str
    came_from: str = ""
    """The copy that gave what was missing; empty where none did."""
    refusals: str = ""
    """Why none did."""


class StoppedLog:
    """`copies`: main ports of brokers that had this log when it was open."""

    def __init__(self, files: Files, root: Path, log_directory: Path | None, segment_bytes: int) -> None:
        """Reads only. Raises OrbitError, OSError."""
        self._files: Final = files
        self._root: Final = root
        self._directory: Final = log_directory or root / "commitlog"
        self._log: Final = CommitLog(files, self._directory, segment_bytes)
        self._log.sequence.load()
        self._log.expose_files()
        state = read_state(ConfigFile(files, root / "config" / REPLICATION_FILE).load(), "")
        self.copies: Final = state.copies
        self._epochs = state.epochs
        self._log_id = read_identity(files, root / IDENTITY_FILE) or ""
        self.has_answered = False
        """Whether a copy that was asked said anything, a refusal too."""

    @property
    def has_copies(self) -> bool:
        """Whether any other broker can have this log."""
        return bool(self._log_id and self._epochs.marks)

    def stretches(self) -> list[tuple[int, int]]:
        """All of the log that is known to have been good, from, to: up to the recovery mark, and behind it where records follow on a bad
        one. May wait for the disk. Raises StoreError where nobody knows where the log ends."""
        log, files, root = self._log, self._files, self._root
        content = files.read_bytes(root / MARK_FILE) if files.exists(root / MARK_FILE) else b""
        page = read_checkpoint(files, root / CHECKPOINT_FILE) or Checkpoint()
        end = confirmed_offset(content, page, files.boot_id())
        if end is None:
            raise StoreError(
                f"{root} does not say up to where its log is confirmed: RocketMQ wrote last, or orbitmq.mark is lost",
                remedy="start the broker on it: a start mends what it meets",
            )
        found = [(log.start, end)] if end > log.start else []
        while (following := find_record_after(log, bad := find_end(log, end))) is not None:
            found.append((bad, following))
            end = following
        return found

    def places(self, begin: int, end: int) -> list[DamagedPlace]:
        """What is damaged in a stretch. May wait for the disk; reads only."""
        found: list[DamagedPlace] = []
        while begin < end:
            begin, why = walk(self._log, begin, end, WALK_SLICE_BYTES)
            if why:
                place, begin = begin, next_record(self._log, begin, end)
                found.append(DamagedPlace(place, begin - place, why))
        return found

    async def mend(
        self, begin: int, end: int, copies: Mapping[str, Ask], group: str, *, why: str = ""
    ) -> list[DamagedPlace]:
        """Fetch what is damaged in a stretch from the first of the copies that gives it. `why`: what is wrong at `begin`, where that is
        known. Durable on return, but for places without `came_from`. Raises StoreLockedError; OSError where the disk did not take it."""
        found: list[DamagedPlace] = []
        lock = lock_folders(self._files, self._root, self._directory, ())
        try:
            while begin < end:
                if not why:
                    begin, why = await asyncio.to_thread(walk, self._log, begin, end, WALK_SLICE_BYTES)
                    if not why:
                        continue
                place, begin = await self._mend(begin, end, copies, group, why)
                found.append(place)
                why = ""
        finally:
            lock.release()
        return found

    async def _mend(
        self, begin: int, end: int, copies: Mapping[str, Ask], group: str, why: str
    ) -> tuple[DamagedPlace, int]:
        """One place, and where to go on."""
        refusals: list[str] = []
        for address, ask in copies.items():
            try:
                missing = await self._fetched(begin, end, ask, group)
            except (ConnectionLostError, RequestTimeoutError) as error:
                refusals.append(f"{address}: {error}")
            except (OrbitError, ValueError) as error:
                self.has_answered = True
                refusals.append(f"{address}: {error}")
            else:
                await asyncio.to_thread(self._log.overwrite, begin, missing.data)
                logger.warning(
                    "the log was damaged at %d: %d bytes came from the copy at %s", begin, len(missing.data), address
                )
                return DamagedPlace(begin, missing.end - begin, why, came_from=address), missing.end
        following = await asyncio.to_thread(next_record, self._log, begin, end)
        why_not = "; ".join(refusals) or "no other copy is known"
        return DamagedPlace(begin, following - begin, why, refusals=why_not), following

    async def _fetched(self, begin: int, end: int, ask: Ask, group: str) -> MissingRange:
        log = self._log
        own = OwnLog(group, self._log_id, self._epochs, log.start, end, log.sequence.segment_size)
        return await fetched(log, own, begin, end, ask, asyncio.to_thread, no_levels)

    def command(self, address: str) -> str:
        """What a person runs to mend it from the broker at an address."""
        beside = "" if self._directory == self._root / "commitlog" else f" --commit-log {self._directory}"
        return f"orbitmq store mend {self._root}{beside} --from {address}"

    def close(self) -> None:
        self._log.close()
