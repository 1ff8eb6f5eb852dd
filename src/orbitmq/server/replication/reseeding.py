"""A slave begins anew: its store is put aside, and it copies its master from the oldest byte on.

What is to be done is decided and saved while the slave runs; it is done by the next start, before the store is opened. Nothing is deleted.

Rules of this file
1. Where no master answers nothing is put aside: it might be the only copy. What the slave has and its master has not is put aside only
   where somebody says so.
2. What is no part of the store stays: users, settings, certificates, files of a name server, and the id of the directory, by which its
   master knows it.
3. A start that was killed on its way goes on where it was: each file is in one place or in the other.
4. Who leads begins with nothing never, whatever was decided before: its store may be the only one.
5. Who began with nothing knows from the first moment what its master had: without that it does not become master.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from orbitmq.clock import Clock
from orbitmq.errors import OrbitError, StoreDamagedError
from orbitmq.limits.replication import RESEED_LOG_FILES
from orbitmq.replication.kept_state import REPLICATION_FILE, begun_anew, withdrawn
from orbitmq.replication.log_relation import LogRelation
from orbitmq.server.replication.asking import Asking
from orbitmq.server.replication.kept_file import KeptFile
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import Files
from orbitmq.store.reserve import bytes_to_set_aside
from orbitmq.store.settings import StoreSettings
from orbitmq.store.store import MessageStore

logger = logging.getLogger("orbitmq.replication")

ASIDE: Final = "aside"
_FOLDER: Final = re.compile(rf"{ASIDE}/[0-9]{{8}}T[0-9]{{9}}Z")

STORE_NAMES: Final = (
    "commitlog", "consumequeue", "consumequeue_ext", "consumequeue.removed", "index", "checkpoint", "abort", "timerwheel", "timerlog",
    "far", "orbitmq.far", "orbitmq.id", "orbitmq.led", "orbitmq.mark", "orbitmq.once", "orbitmq.queues", "orbitmq.timerindex",
    "orbitmq.timers",
)  # fmt: skip
"""What lies in the root of a store, but for what is set aside for a full disk: that stays, so that the start has it."""

TABLE_NAMES: Final = (
    "topics.json", "subscriptionGroup.json", "consumerOffset.json", "consumerFilter.json", "consumerOrderInfo.json", "delayOffset.json",
    "messageRequestMode.json", "orbitmqDelayLevels.json", "timercheck", "timermetrics", "transactionMetrics",
)  # fmt: skip
"""What lies in `config`, and comes again from the log of the master; each may have a `.bak`."""


class ReseedRefused(OrbitError):
    """A slave does not begin anew; the remedy says what to do first."""


class Reseeding:
    """Of one slave."""

    def __init__(
        self, asking: Asking, kept: KeptFile, store: MessageStore, clock: Clock, files: Files, root: Path
    ) -> None:
        self._files = files
        self._root = root
        self._asking = asking
        self._kept = kept
        self._store = store
        self._clock = clock

    async def prepare(self, master: str, log_id: str, *, although_parted: bool) -> str:
        """The next start puts the store aside; where, from the root of the store. `master` is `host:port` of its main port, empty where
        nobody knows it. Raises OrbitError where that is not to be, or could not be saved."""
        if not self._store.log.end:
            raise ReseedRefused("this slave has nothing yet that could be put aside")
        if not master:
            raise ReseedRefused("nobody says where its master is", remedy="set haMasterAddress, or namesrvAddr")
        if why_not := why_not_aside(self._files, self._root, self._store.settings):
            raise ReseedRefused(f"the store cannot be put aside: {why_not}")
        compared = await self._asking.compared(master, log_id)
        own_end = self._store.log.written_end
        has_more = own_end > compared.end or compared.relation in (LogRelation.PARTED.value, LogRelation.OTHER.value)
        if has_more and not although_parted:
            raise ReseedRefused(
                f"this slave has what its master at {master} has not: {compared.why or f'it ends at {own_end}, that at {compared.end}'}",
                remedy="look which of both logs counts; or ask for it although they have parted, and what this one has is only put aside",
            )
        return await decide_aside(self._kept, self._clock, compared.end)


async def decide_aside(kept: KeptFile, clock: Clock, end: int) -> str:
    """The next start puts the store aside; where, from its root. `end`: where the log ends that is copied then. Raises ReseedRefused where
    that could not be saved."""
    state = kept.state
    state.aside_end = end
    aside = state.aside = f"{ASIDE}/{datetime.fromtimestamp(clock.now_ms() / 1_000, UTC):%Y%m%dT%H%M%S%f}"[:-3] + "Z"
    if why_not := await kept.saved():
        state.aside, state.aside_end = "", 0
        kept.save()  # another save that was on its way may have kept it
        raise ReseedRefused(f"that it is to begin anew would be forgotten with the next start: {why_not}")
    return aside


def why_not_aside(files: Files, root: Path, settings: StoreSettings) -> str:
    """Why a store cannot be put aside, or could not be opened behind it; empty where it can."""
    log_directory = settings.store_path_commit_log
    for source, _ in _moves(root, root / ASIDE, log_directory):
        if os.path.ismount(source):
            return f"{source} is a mount point, and cannot be renamed: stop this broker, and empty the store by hand"
    needed = RESEED_LOG_FILES * settings.mapped_file_size_commit_log + bytes_to_set_aside(
        settings.mapped_file_size_commit_log
    )
    for directory in (root, log_directory or root):
        free = files.disk_usage(directory).free_bytes
        if free < needed:
            return (
                f"{free} bytes are free for {directory}, and the first file of another log and what is set aside for a full disk take "
                f"{needed}; all of that log takes as much as this one"
            )
    return ""


def put_aside(files: Files, root: Path, settings: StoreSettings, *, is_slave: bool) -> None:
    """Where a command said so, put the store aside, before it is opened. `is_slave`: by the settings, or a member of a group, of which the
    command knew that another one leads; the store of a master stays, or comes back. What became impossible since is told, and waits for the
    next start. Durable on return. Raises OrbitError, OSError."""
    log_directory = settings.store_path_commit_log
    kept = ConfigFile(files, root / "config" / REPLICATION_FILE)
    table = kept.load()
    folder = table.get("aside") if table else None
    if not folder or table is None:
        return
    if not isinstance(folder, str) or not _FOLDER.fullmatch(folder):
        raise StoreDamagedError(
            f"{kept.path} names {folder!r} as the place for this store",
            remedy=f"remove `aside` from it, or name {ASIDE}/YYYYMMDDTHHMMSSmmmZ",
        )
    target = root / folder
    moves = list(_moves(root, target, log_directory))
    lock = files.lock_dir(root)
    try:
        if table.get("promoted") or not (is_slave or table.get("demoted")):
            _bring_back(files, moves)
            kept.save(withdrawn(table))
            logger.warning(
                "the store is not put aside, as a command said when this broker was a slave: it leads, and goes on with what it has"
            )
            return
        if not files.exists(target) and (why_not := why_not_aside(files, root, settings)):
            logger.warning(
                "the store is not put aside before the next start, and its master is followed as before: %s", why_not
            )
            return
        files.make_dirs(target / "config")
        for source, place in moves:
            if files.exists(source):
                files.make_dirs(place.parent)
                files.rename(source, place)
        if not files.exists(target / "config" / REPLICATION_FILE):
            ConfigFile(files, target / "config" / REPLICATION_FILE).save(withdrawn(table))
        beside = () if log_directory is None else (log_directory.parent,)
        for directory in (target, target / "config", target.parent, root / "config", root, *beside):
            files.sync_dir(directory)
        kept.save(begun_anew(table))
    finally:
        lock.release()
    logger.warning(
        "the store was put aside, in %s, by a command: this broker begins with nothing, and copies its master",
        target,
    )


def _bring_back(files: Files, moves: list[tuple[Path, Path]]) -> None:
    """What a start that was killed had put aside by then."""
    changed: set[Path] = set()
    for source, place in moves:
        if files.exists(place) and not files.exists(source):
            files.make_dirs(source.parent)
            files.rename(place, source)
            changed |= {source.parent, place.parent}
    for directory in sorted(changed):
        files.sync_dir(directory)


def _moves(root: Path, target: Path, log_directory: Path | None) -> Iterator[tuple[Path, Path]]:
    """Where each part of a store lies, and where it is to lie."""
    if log_directory is not None and log_directory != root / "commitlog":
        yield log_directory, log_directory.with_name(f"{log_directory.name}.{target.name}")
    for name in STORE_NAMES:
        yield root / name, target / name
    for name in TABLE_NAMES:
        for file in (name, f"{name}.bak"):
            yield root / "config" / file, target / "config" / file
