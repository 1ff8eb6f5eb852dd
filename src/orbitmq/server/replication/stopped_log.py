"""The log of a store that nobody has opened, mended from another copy: before a start that would refuse it, or by a command.

Rules of this file
1. The store is claimed meanwhile as by a broker. Nothing is written but damaged places of the log, each whole and synced, or of a long
   one a part. A file that was lost is made beside the others, and comes among them when it is whole.
2. Whether an answer may be used is decided by `MissingRange`, and whether one is given by the copy that is asked, as for an open store.
3. Who has this log is known from the files of the store: its id, and the epochs in which it was written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.broker.table_records.identity import IDENTITY_FILE, read_identity
from orbitmq.errors import ConnectionLostError, OrbitError, RecordError, RequestTimeoutError, StoreError
from orbitmq.limits.replication import MEND_BEFORE_BYTES, WALK_SLICE_BYTES
from orbitmq.protocol.remoting.replication_bodies import LogRangeRequest
from orbitmq.replication.kept_state import REPLICATION_FILE, read_state
from orbitmq.replication.missing_range import MissingRange
from orbitmq.replication.range_answers import OwnLog
from orbitmq.server.replication.range_fetching import fetched, fill
from orbitmq.store.checkpoint import Checkpoint, read_checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.dispatch import no_levels
from orbitmq.store.files import Files
from orbitmq.store.lost_files import LostFile, lost_files
from orbitmq.store.mark import MARK_FILE, confirmed_offset
from orbitmq.store.opening import lock_folders
from orbitmq.store.recovery import find_end, find_record_after
from orbitmq.store.saving import CHECKPOINT_FILE
from orbitmq.store.walking import next_record, walk

logger = logging.getLogger("orbitmq.replication")

MENDING: Final = "mending"
"""Folder beside the files of the log, in which a lost one is made."""

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
        self._end = self._known_end()
        self.lost = lost_files(files, self._directory, segment_bytes, self._end or 0)
        """Files that have to be brought before the log can be looked at."""
        if not self.lost:
            self._take_up()
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

    def _take_up(self) -> None:
        self._log.sequence.load()
        self._log.expose_files()

    def _known_end(self) -> int | None:
        files, root = self._files, self._root
        content = files.read_bytes(root / MARK_FILE) if files.exists(root / MARK_FILE) else b""
        page = read_checkpoint(files, root / CHECKPOINT_FILE) or Checkpoint()
        return confirmed_offset(content, page, files.boot_id())

    def stretches(self) -> list[tuple[int, int]]:
        """All of the log that is known to have been good, from, to: up to the recovery mark, and behind it where records follow on a bad
        one. May wait for the disk. Raises StoreError where nobody knows where the log ends."""
        log, end = self._log, self._known_end()
        if end is None:
            raise StoreError(
                f"{self._root} does not say up to where its log is confirmed: RocketMQ wrote last, or orbitmq.mark is lost",
                remedy="start the broker on it: a start mends what it meets",
            )
        found = [(log.start, end)] if end > log.start else []
        while (following := find_record_after(log, bad := find_end(log, end))) is not None:
            found.append((bad, following))
            end = following
        return found

    # --- files that were lost -------------------------------------------------------------------------------------

    def lost_places(self) -> list[DamagedPlace]:
        """What of the log is gone with files, as far as that is known."""
        end = self._end or 0
        size = self._log.sequence.segment_size
        return [
            DamagedPlace(base, min(size, end - base) if base < end else size, file.why)
            for file in self.lost
            for base in [file.base]
        ]

    async def bring(self, copies: Mapping[str, Ask], group: str) -> list[DamagedPlace]:
        """Fetch the files that were lost, each whole, from the first of the copies that gives it. What came is durable on return, and the
        log can be looked at unless a place has no `came_from`. Raises as `mend`."""
        found: list[DamagedPlace] = []
        if not self.lost:
            return found
        lock = lock_folders(self._files, self._root, self._directory, ())
        try:
            for file, place in zip(self.lost, self.lost_places(), strict=True):
                found.append(await self._tried(place, copies, partial(self._bring, file, group=group)))
            if all(place.came_from for place in found):
                self.lost = []
                self._take_up()
        finally:
            lock.release()
        return found

    async def _bring(self, file: LostFile, ask: Ask, group: str) -> int:
        """How many bytes of records."""
        sequence = self._log.sequence
        end, size = file.base + sequence.segment_size, sequence.segment_size
        is_last = not self._files.exists(sequence.path_of(end)) and file == self.lost[-1]
        own = OwnLog(group, self._log_id, self._epochs, 0, max(self._end or 0, self.lost[-1].base + size), size)
        beside = self._directory / MENDING
        await asyncio.to_thread(self._files.make_dirs, beside)
        path = beside / sequence.path_of(file.base).name
        made = self._files.open(path, create=True)
        try:
            at, before, is_over = file.base, b"", False
            while not is_over:
                missing = MissingRange(at, end, size, before, in_pieces=True, ends_with_theirs=is_last)
                await fill(missing, own, ask, asyncio.to_thread, lambda _: None)
                await asyncio.to_thread(made.pwrite, missing.data, at - file.base)
                at, before, is_over = missing.end, missing.data[-MEND_BEFORE_BYTES:], missing.is_over
            if self._end is not None and at < min(self._end, end):
                raise RecordError(f"it ends at {at}, and ours was confirmed up to {self._end}")
            await asyncio.to_thread(made.truncate, size)
            await asyncio.to_thread(made.datasync)
        finally:
            made.close()
        self._files.rename(path, sequence.path_of(file.base))
        self._files.sync_dir(self._directory)
        self._files.remove_tree(beside)
        return at - file.base

    # --- places ---------------------------------------------------------------------------------------------------

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
                _append(found, place)
                why = ""
        finally:
            lock.release()
        return found

    async def _mend(
        self, begin: int, end: int, copies: Mapping[str, Ask], group: str, why: str
    ) -> tuple[DamagedPlace, int]:
        """One place, or a part of a long one, and where to go on."""

        async def mend(ask: Ask) -> int:
            missing = await self._fetched(begin, end, ask, group)
            await asyncio.to_thread(self._log.overwrite, begin, missing.data)
            return missing.end - begin

        place = await self._tried(DamagedPlace(begin, 0, why), copies, mend)
        if not place.came_from:
            place.size_bytes = await asyncio.to_thread(next_record, self._log, begin, end) - begin
        return place, begin + place.size_bytes

    async def _tried(
        self, place: DamagedPlace, copies: Mapping[str, Ask], bring: Callable[[Ask], Awaitable[int]]
    ) -> DamagedPlace:
        """Have the copies asked for it in turn, until one gives it; `bring(ask)` says how many bytes that were."""
        refusals: list[str] = []
        for address, ask in copies.items():
            try:
                place.size_bytes = await bring(ask)
            except (ConnectionLostError, RequestTimeoutError) as error:
                refusals.append(f"{address}: {error}")
            except (OrbitError, ValueError) as error:
                self.has_answered = True
                refusals.append(f"{address}: {error}")
            else:
                logger.warning(
                    "the log was damaged at %d: %d bytes came from the copy at %s",
                    place.position,
                    place.size_bytes,
                    address,
                )
                place.came_from = address
                return place
        place.refusals = "; ".join(refusals) or "no other copy is known"
        return place

    async def _fetched(self, begin: int, end: int, ask: Ask, group: str) -> MissingRange:
        log = self._log
        own = OwnLog(group, self._log_id, self._epochs, log.start, end, log.sequence.segment_size)
        return await fetched(log, own, begin, end, ask, asyncio.to_thread, no_levels, in_pieces=True)

    def command(self, address: str) -> str:
        """What a person runs to mend it from the broker at an address."""
        beside = "" if self._directory == self._root / "commitlog" else f" --commit-log {self._directory}"
        return f"orbitmq store mend {self._root}{beside} --from {address}"

    def close(self) -> None:
        self._log.close()


def _append(found: list[DamagedPlace], place: DamagedPlace) -> None:
    """Parts of a long place that came from one copy are one."""
    last = found[-1] if found else None
    if last and place.came_from == last.came_from and place.position == last.position + last.size_bytes:
        last.size_bytes += place.size_bytes
    else:
        found.append(place)
