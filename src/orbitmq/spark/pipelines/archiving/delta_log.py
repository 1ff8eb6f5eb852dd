"""The directory `_delta_log` of a table: what delta-rs does not tell of it, and what it does not do for a power cut.

Rules of this file
1. Only versions up to one that delta-rs opened are read, from the newest whole checkpoint before it.
2. A hole in the log is an error. What a power cut left empty is repaired under its name: nobody can have counted it, because a version
   counts when it is synced. It is replaced, not removed, so whoever repairs at the same time does no harm. Only the first version, alone in
   the log, makes room: without it there is no table, and whoever comes next makes one.
3. Repairs and syncs are for local disks; elsewhere the storage keeps its own promise.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

from orbitmq.errors import StoreDamagedError, StoreError
from orbitmq.spark.durable import is_local, replace_content, sync, write_failures
from orbitmq.spark.log_files.places import FilePlace

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


class DeltaLog:
    """root: the table's directory."""

    def __init__(self, root: FilePlace) -> None:
        self._root = root
        self.place = root.under(_DIRECTORY)

    def applications(self, version: int) -> dict[str, int]:
        """The number of each application in a version. Cost: the commits behind the last checkpoint are read."""
        names = [name for name, _ in self.place.files()]
        commits = {int(found[1]) for found in map(_COMMIT.fullmatch, names) if found}
        first, checkpoint = _newest_checkpoint(names, version)
        numbers: dict[str, int] = {}
        for name in checkpoint:
            _take(numbers, self._checkpoint_actions(name))
        for number in range(first, version + 1):
            if number not in commits:
                raise StoreDamagedError(
                    f"{self.place.path} has no version {number}, and has later ones",
                    remedy="restore the file from a copy; without it nobody knows how far the archive is",
                )
            _take(numbers, self.actions(number) or ())
        return numbers

    def actions(self, version: int) -> list[dict[str, Any]] | None:
        """What a version did; None where there is none."""
        content = self.place.under(f"{version:020d}.json").content()
        return None if content is None else self._parsed(content, f"{version:020d}.json")

    def batch_of(self, version: int) -> str | None:
        """The batch that a version names, empty if it names none; None where there is no such version."""
        actions = self.actions(version)
        if actions is None:
            return None
        return next((str(one["commitInfo"].get(BATCH, "")) for one in actions if one.get("commitInfo")), "")

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
            with write_failures(self.place.under(name).path):
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

    def _checkpoint_actions(self, name: str) -> list[dict[str, Any]]:
        place = self.place.under(name)
        if name.endswith(".json"):
            return self._parsed(place.content() or b"", name)
        try:
            with place.file_system.open_input_file(place.path) as file:
                found = pq.ParquetFile(file)
                return found.read(columns=["txn"]).to_pylist() if "txn" in found.schema_arrow.names else []
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{place.path} cannot be read: {error}") from error

    def _parsed(self, content: bytes, name: str) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in content.splitlines() if line.strip()]
        except ValueError as error:
            raise StoreDamagedError(
                f"{self.place.under(name).path} is no version of a Delta table: {error}",
                remedy="restore the file from a copy",
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


def _take(numbers: dict[str, int], actions: Iterable[dict[str, Any]]) -> None:
    for action in actions:
        transaction = action.get("txn")
        if transaction:
            numbers[transaction["appId"]] = transaction["version"]
