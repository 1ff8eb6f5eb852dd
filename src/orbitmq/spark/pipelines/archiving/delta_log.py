"""The directory `_delta_log` of a table: what delta-rs does not tell of it, and what it does not do for a power cut.

Rules of this file
1. Only versions up to one that delta-rs opened are read, from the newest whole checkpoint before it.
2. A hole in the log is an error. What a power cut left empty is repaired under its name: nobody can have counted it, because a version
   counts when it is synced. It is replaced, not removed, so whoever repairs at the same time does no harm. Only the first version, alone in
   the log, makes room: without it there is no table, and whoever comes next makes one.
3. Repairs and syncs are for local disks; elsewhere the storage keeps its own promise.
"""

from __future__ import annotations

import hashlib
import logging
import re
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.fs as fs
import pyarrow.parquet as pq

from orbitmq.errors import StoreDamagedError
from orbitmq.spark.durable import is_local, replace_content, sync, write_failures
from orbitmq.spark.log_files.places import FilePlace, storage_failures

log = logging.getLogger("orbitmq.spark")

BATCH: Final = "orbitmqBatch"
"""Key in the information of a commit: the batch that made it."""

_DIRECTORY: Final = "_delta_log"
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(
    r"(\d{20})\.checkpoint\.(?:\d{10}\.(?P<parts>\d{10})\.|[0-9a-f-]{36}\.)?(?:parquet|json)"
)
_LAST_CHECKPOINT: Final = "_last_checkpoint"
_FIRST: Final = f"{0:020d}.json"
_NOTHING: Final = b'{"commitInfo":{"operation":"REPAIR","operationParameters":{}}}\n'


class Moved(msgspec.Struct, rename={"application": "appId"}):
    """The number of an application."""

    application: str
    version: int


class Added(msgspec.Struct, rename="camel"):
    """A file, by its path as the log quotes it."""

    path: str
    data_change: bool


class CommitInfo(msgspec.Struct, rename={"batch": BATCH}):
    """What a commit says of itself."""

    batch: str = ""


class LogLine(msgspec.Struct, rename={"moved": "txn", "added": "add", "info": "commitInfo"}):
    """A line of a version: one of these, or what nobody here asks for."""

    moved: Moved | None = None
    added: Added | None = None
    info: CommitInfo | None = None


_LINES: Final = msgspec.json.Decoder(LogLine)


class DeltaLog:
    """root: the table's directory."""

    def __init__(self, root: FilePlace) -> None:
        self._root = root
        self._known: tuple[str, int, dict[str, int]] = ("", -1, {})
        """The id of the table, a version of it, and the numbers there."""
        self._batches: dict[int, str] = {}
        """Of the versions that `applications` read last, the batches that they name."""
        self.place = root.under(_DIRECTORY)

    def applications(self, version: int, table_id: str = "") -> dict[str, int]:
        """The number of each application in a version. Cost: the commits behind the last checkpoint are read, or those behind the version
        that was asked for before, where the table has the same id as then."""
        names = [name for name, _ in self.place.files()]
        commits = {int(found[1]) for found in map(_COMMIT.fullmatch, names) if found}
        first, checkpoint = _newest_checkpoint(names, version)
        numbers: dict[str, int] = {}
        if table_id and self._known[0] == table_id and first <= self._known[1] + 1 <= version + 1:
            first, checkpoint, numbers = self._known[1] + 1, [], dict(self._known[2])
        for name in checkpoint:
            numbers.update(self._checkpoint_numbers(name))
        self._batches = {}
        for number in range(first, version + 1):
            if number not in commits:
                raise StoreDamagedError(
                    f"{self.place.name} has no version {number}, and has later ones",
                    remedy="restore the file from a copy; without it nobody knows how far the archive is",
                )
            actions = self.actions(number) or ()
            numbers.update(_numbers(actions))
            self._batches[number] = _batch(actions)
        self._known = (table_id, version, dict(numbers))
        return numbers

    def can_be_opened(self, version: int) -> bool:
        """Whether the log has all that a version stands on; what is older than a retention leaves it behind a checkpoint."""
        names = {name for name, _ in self.place.files()}
        first, _ = _newest_checkpoint(names, version)
        return all(f"{number:020d}.json" in names for number in range(first, version + 1))

    def content(self, version: int) -> bytes | None:
        """The file of a version; None where there is none."""
        return self.place.under(f"{version:020d}.json").content()

    def digest(self, version: int) -> str | None:
        """What tells a version from another one under the same number; None where it is not in the log any more."""
        content = self.content(version)
        return None if content is None else hashlib.blake2b(content, digest_size=16).hexdigest()

    def actions(self, version: int) -> list[LogLine] | None:
        """What a version did; None where there is none."""
        content = self.content(version)
        return None if content is None else self._parsed(content, f"{version:020d}.json")

    def check_last(self) -> None:
        """Raises StoreDamagedError where the last version is not whole."""
        last = max((name for name, _ in self.place.files() if _COMMIT.fullmatch(name)), default=None)
        if last is not None:
            self._parsed(
                self.place.under(last).content() or b"",
                last,
                "restore the file from a copy, or take it away: the archive is as it was before, and the next run takes the rest again",
            )

    def batch_of(self, version: int) -> str | None:
        """The batch that a version names, empty if it names none; None where there is no such version. Cost: nothing, where `applications`
        has just read it."""
        if version in self._batches:
            return self._batches[version]
        actions = self.actions(version)
        return None if actions is None else _batch(actions)

    def repair(self) -> None:
        """Make good what a power cut left empty, on a local disk."""
        if not is_local(self.place) or self.place.kind() is not fs.FileType.Directory:
            return
        files = dict(self.place.files())
        commits = sorted(name for name in files if _COMMIT.fullmatch(name))
        if commits == [_FIRST] and (self._is_empty(_FIRST) or self.place.under(_FIRST).content() == _NOTHING):
            self._make_room()
        elif commits and self._is_empty(commits[-1]):
            log.warning(
                "%s is empty, as a power cut leaves it; it stands for nothing now", self.place.under(commits[-1]).path
            )
            replace_content(self.place.under(commits[-1]), _NOTHING)
        torn = [name for name in files if _CHECKPOINT.fullmatch(name) and self._is_empty(name)]
        if _LAST_CHECKPOINT in files and (torn or self._is_empty(_LAST_CHECKPOINT)):
            torn.insert(0, _LAST_CHECKPOINT)
        for name in torn:  # the versions are there without it
            log.warning("%s is empty, as a power cut leaves it, and is removed", self.place.under(name).path)
            with write_failures(self.place.under(name).name):
                self.place.file_system.delete_file(self.place.under(name).path)

    def _make_room(self) -> None:
        """Take the empty first version away. It is renamed before it is looked at: if somebody made the table meanwhile, it comes back."""
        first = Path(self.place.under(_FIRST).path)
        aside = first.with_name(f".{uuid.uuid4().hex}.tmp")
        with write_failures(str(first)):
            try:
                first.rename(aside)
            except FileNotFoundError:
                return
            if aside.read_bytes().strip(b"\0") not in (b"", _NOTHING):
                first.hardlink_to(aside)
            else:
                log.warning("%s is empty, as a power cut leaves it: there was no table yet", first)
            aside.unlink()

    def sync(self, version: int, *, checkpoint: bool = False) -> None:
        sync(self.place.under(f"{version:020d}.json"))
        if checkpoint and is_local(self.place):
            for name, _ in self.place.files():
                if name == _LAST_CHECKPOINT or name.startswith(f"{version:020d}.checkpoint"):
                    sync(self.place.under(name))
        sync(self.place)

    def _is_empty(self, name: str) -> bool:
        """Some file systems give a file its length before its bytes: zeros are as good as nothing."""
        with self.place.under(name).opened() as file:
            return not (self.place.under(name).size() and file.read(0, 1) != b"\0")

    def _checkpoint_numbers(self, name: str) -> dict[str, int]:
        place = self.place.under(name)
        if name.endswith(".json"):
            return _numbers(self._parsed(place.content() or b"", name))
        with storage_failures(place.name), place.file_system.open_input_file(place.path) as file:
            found = pq.ParquetFile(file)
            if "txn" not in found.schema_arrow.names:
                return {}
            moved = found.read(columns=["txn.appId", "txn.version"])["txn"].drop_null().to_pylist()
            return {one["appId"]: one["version"] for one in moved}

    def _parsed(self, content: bytes, name: str, remedy: str = "restore the file from a copy") -> list[LogLine]:
        try:
            return _LINES.decode_lines(content)
        except msgspec.DecodeError as error:
            raise StoreDamagedError(
                f"{self.place.under(name).name} is no version of a Delta table: {error}", remedy=remedy
            ) from error


def _newest_checkpoint(names: Iterable[str], version: int) -> tuple[int, list[str]]:
    """The version behind the newest checkpoint that is whole, and its files; 0 and none without one."""
    found: dict[int, dict[str, int]] = {}
    for name in names:
        match = _CHECKPOINT.fullmatch(name)
        if match and int(match[1]) <= version:
            found.setdefault(int(match[1]), {})[name] = int(match["parts"] or 1)
    for number in sorted(found, reverse=True):
        single = [name for name, parts in found[number].items() if parts == 1]
        if single:
            return number + 1, single[:1]
        for parts in set(found[number].values()):
            whole = [name for name, of in found[number].items() if of == parts]
            if len(whole) == parts:
                return number + 1, whole
    return 0, []


def _numbers(actions: Iterable[LogLine]) -> dict[str, int]:
    return {action.moved.application: action.moved.version for action in actions if action.moved is not None}


def _batch(actions: Iterable[LogLine]) -> str:
    return next((action.info.batch for action in actions if action.info is not None), "")
