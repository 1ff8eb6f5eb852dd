"""Archives from before they were Delta tables: one is taken over into a table, once, without Spark.

    topic=orders/day=2026-11-22/queue-broker-a-0-00000000000000000000.parquet
    _quarantine/orders-queue-broker-a-0-00000000000000000000.jsonl
    _archive/state.json                          how far it is, and files of the last batch that may not have their names yet
    _archive/staged/<run>/<attempt>-0            such a file

A file got its name behind the commit of its batch, so whatever has a name is counted. `topic` stood in the name of the directory alone.

Rules of this file
1. The old archive is only read, and has to be the same at the end.
2. All of it becomes one version of the table: rows, lines of the quarantine, and the numbers of its queues or logs. Before that the table
   is as it was; behind it the table knows whom it imported.
3. One file is open at a time, and of that one some rows are in memory.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import unquote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

from orbitmq.columns.message_columns import PropertiesForm, column_types
from orbitmq.columns.schema import TIME, arrow_schema
from orbitmq.errors import ConfigurationError, StoreDamagedError, StoreLockedError
from orbitmq.limits.spark import ARCHIVE_IMPORT_ROWS
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.durable import make_directory, replace_content
from orbitmq.spark.log_files.places import FilePlace, causes_of, place_at
from orbitmq.spark.pipelines.archiving.committing import ArchiveBatch, LandedFile, stored
from orbitmq.spark.pipelines.archiving.delta_log import DeltaLog
from orbitmq.spark.pipelines.archiving.landing import FileForm, Landing
from orbitmq.spark.pipelines.archiving.reached import (
    import_application,
    log_application,
    quarantine_application,
    queue_application,
    since_application,
)
from orbitmq.spark.pipelines.archiving.storage import table_place
from orbitmq.spark.pipelines.archiving.table import (
    OLD_STATE,
    ArchiveForm,
    SourceKind,
    begun,
    kinds_of,
    looked_up,
    opened,
)
from orbitmq.spark.pipelines.archiving.tasks import QUARANTINE
from orbitmq.spark.reading.offsets import Json, from_json

_RESTORE: Final = "restore it from a copy; what the brokers still have can be archived into a new directory"
_FILE: Final = re.compile(
    r"topic=(?P<topic>[^/]+)/day=(?P<day>-?\d+-\d\d-\d\d|__HIVE_DEFAULT_PARTITION__)/(?P<name>[^/]+)\.parquet"
)
_QUEUE_FILE: Final = re.compile(r"queue-(.+)-(\d+)-(\d{20})")
_LOG_FILE: Final = re.compile(r"log(?:-(.+))?-(\d{20})")


class ImportDone(msgspec.Struct, frozen=True, kw_only=True):
    """What came into the table. files: those that were written; all are 0 where an earlier import did it."""

    rows: int = 0
    quarantined: int = 0
    files: int = 0


class _OldFile(msgspec.Struct, frozen=True, kw_only=True):
    staged: str
    path: str
    size_bytes: int


class _OldState(msgspec.Struct, frozen=True, kw_only=True):
    """`_archive/state.json`. owner: the last run. files: of the last batch, until all have their names."""

    source: SourceKind
    owner: str
    fixed: dict[str, str]
    batch: int
    offsets: Json = {}
    positions: dict[str, int] = {}
    since: dict[str, int] = {}
    files: list[_OldFile] = []

    def numbers(self) -> Mapping[str, int]:
        return {
            **{queue_application(queue): offset for queue, offset in from_json(self.offsets).items()},
            **{log_application(name): position for name, position in self.positions.items()},
            **{since_application(name): since_ms for name, since_ms in self.since.items()},
        }


def import_archive(old: str, new: str) -> ImportDone:
    """Everything that the archive at `old` counts, into the Delta table at `new`, made if there is none; durable on return. Again is as
    good as once.

    ConfigurationError where `old` is no such archive, or `new` has messages of its queues or logs; StoreDamagedError where `old` is not
    whole; StoreLockedError where either changed meanwhile. After an error the table has nothing of it.
    """
    place, target = place_at(old), table_place(new)
    content = place.under(OLD_STATE).content()
    state, columns = _state_of(content, place)
    form = ArchiveForm(
        source=state.source, fixed={name: text for name, text in state.fixed.items() if name != "columns"}
    )
    there, ends, mark = looked_up(new, form).applications, state.numbers(), import_application(state.owner)
    if mark in there and there[mark] < state.batch:
        raise ConfigurationError(
            f"{new} has {old} up to batch {there[mark]}, and its run went on to batch {state.batch} since",
            remedy="import it into a new directory, when nothing archives into it any more",
        )
    if mark in there:
        DeltaLog(target).sync(opened(new).version())  # whoever put it may have been killed before
        return ImportDone()
    for name in ends:
        if name in there:
            raise ConfigurationError(
                f"{new} has {name} already, up to {there[name]}: messages would be in it twice",
                remedy="import into a new directory",
            )
    token = uuid.uuid4().hex
    landing = Landing(target, token, FileForm(columns=tuple(columns.names)))
    broken: list[LandedFile] = []
    for path, file in _counted(place, state):
        if path.startswith(QUARANTINE):
            broken.append(_copied(file, target, f"{QUARANTINE}/{token}-{len(broken):04d}.jsonl"))
            continue
        for rows in _rows(path, file, columns):
            landing.add(rows)
    files = landing.close()
    if place.under(OLD_STATE).content() != content:
        raise StoreLockedError(f"another run archives into {place.name}", remedy="import again when it has ended")
    ends = {**ends, **{quarantine_application(file.path): file.rows for file in broken}, mark: state.batch}
    table, snapshot = begun(new, form, columns)
    kinds = kinds_of(columns) if files else {}
    begins = dict.fromkeys(ends)
    stored(table, snapshot, ArchiveBatch(token=token, files=[*files, *broken], begins=begins, ends=ends, columns=kinds))
    return ImportDone(rows=_sum(files), quarantined=_sum(broken), files=len(files))


def _sum(files: list[LandedFile]) -> int:
    return sum(file.rows for file in files)


def _state_of(content: bytes | None, place: FilePlace) -> tuple[_OldState, pa.Schema]:
    """And the columns of the files, with the topic."""
    name = place.under(OLD_STATE).name
    if content is None:
        raise ConfigurationError(
            f"{place.name} is no archive from before Delta tables: there is no {name}",
            remedy="name the directory of such an archive; where the file was lost, " + _RESTORE,
        )
    try:
        state = msgspec.json.decode(content, type=_OldState)
        state.numbers()
        form, wanted = PropertiesForm(state.fixed["properties"]), {"topic", *state.fixed["columns"].split(",")}
        known = [column for column in column_types(form) if column in wanted]
        return state, arrow_schema([*known, *sorted(wanted.difference(known))], form)
    except (msgspec.DecodeError, ConfigurationError, KeyError, ValueError) as error:
        raise StoreDamagedError(f"{name} does not say how far the archive is: {error}", remedy=_RESTORE) from error


def _counted(place: FilePlace, state: _OldState) -> list[tuple[str, FilePlace]]:
    """Names of the files that the archive counts, by day, and where each lies."""
    root = place.under("").path
    with _damage(place):
        infos = place.file_system.get_file_info(fs.FileSelector(place.path, recursive=True))
    names = [info.path.removeprefix(root) for info in infos if info.type is fs.FileType.File]
    found = {
        name: place.under(name)
        for name in names
        if name.startswith((f"{QUARANTINE}/", "topic=")) and name.endswith((".parquet", ".jsonl"))
    }
    for file in state.files:
        places = (place.under(file.staged), place.under(file.path))
        there = next((one for one in places if one.size() == file.size_bytes), None)
        if there is None:
            raise StoreDamagedError(
                f"{places[1].name} is gone, or not the {file.size_bytes} bytes that its run wrote", remedy=_RESTORE
            )
        found[file.path] = there
    numbers = state.numbers()
    for path in found:
        if not path.startswith(QUARANTINE):
            _check_counted(path, place, numbers)
    return sorted(found.items(), key=lambda item: (item[0].split("/")[1], item[0]))


def _check_counted(path: str, place: FilePlace, numbers: Mapping[str, int]) -> None:
    """Raises StoreDamagedError for a file behind the numbers, as an older state leaves it. One that somebody merged has no number."""
    within = _FILE.fullmatch(path)
    if within is None:
        raise StoreDamagedError(f"{place.under(path).name} lies where no archive has files", remedy="take it away")
    if of_queue := _QUEUE_FILE.fullmatch(within["name"]):
        queue = MessageQueue(unquote(within["topic"]), unquote(of_queue[1]), int(of_queue[2]))
        name, first = queue_application(queue), int(of_queue[3])
    elif of_log := _LOG_FILE.fullmatch(within["name"]):
        name, first = log_application(unquote(of_log[1] or "")), int(of_log[2])
    else:
        return
    if first >= numbers.get(name, 0):
        raise StoreDamagedError(
            f"{place.under(path).name} is not counted: {OLD_STATE} has {name} up to {numbers.get(name, 0)}",
            remedy="restore the state that belongs to the files, or take the file away: the next run archives its messages",
        )


def _rows(path: str, file: FilePlace, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """With its topic, and with the beginning of its day where no column says when a row was stored."""
    within = _FILE.fullmatch(path)
    assert within is not None
    stored = None if within["day"].startswith("_") else int(np.datetime64(within["day"], "us").astype(int))
    constant = {"topic": pa.scalar(unquote(within["topic"]), pa.string()), "storeTimestamp": pa.scalar(stored, TIME)}
    with _damage(file), file.file_system.open_input_file(file.path) as handle:
        parquet = pq.ParquetFile(handle)
        _check_columns(parquet.schema_arrow, columns, file)
        for rows in parquet.iter_batches(batch_size=ARCHIVE_IMPORT_ROWS):
            there = dict(zip(rows.schema.names, rows.columns, strict=True))
            added = {name: pa.repeat(value, rows.num_rows) for name, value in constant.items() if name not in there}
            yield pa.RecordBatch.from_pydict(there | added)


def _check_columns(found: pa.Schema, columns: pa.Schema, file: FilePlace) -> None:
    there = {field.name: field.type for field in found}
    wanted = {field.name: field.type for field in columns if field.name != "topic"}
    for name in [*wanted, *there]:
        if there.get(name) != wanted.get(name):
            raise StoreDamagedError(
                f"column {name} of {file.name} is {there.get(name, 'not there')}, and in the archive {wanted.get(name, 'not there')}",
                remedy=_RESTORE,
            )


def _copied(file: FilePlace, target: FilePlace, path: str) -> LandedFile:
    """A file of the quarantine, under that name."""
    content = file.content() or b""
    make_directory(target.under(path).above)
    replace_content(target.under(path), content)
    return LandedFile(path=path, rows=content.count(b"\n"), size_bytes=len(content))


@contextmanager
def _damage(file: FilePlace) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StoreDamagedError(f"{file.name} cannot be read: {causes_of(error)}", remedy=_RESTORE) from error
