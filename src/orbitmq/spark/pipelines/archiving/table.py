"""The table of an archive, by delta-rs: how it is made, opened, and given one more version.

Rules of this file
1. delta-rs tries a version once and never moves a commit to a later one by itself (`max_commit_retries=0`): `committing.py` decides.
2. What the table is made of stands in its description, and never changes: an archive is of topics or of logs, never of both.
3. Columns are added before files that have them; none is ever taken away or changed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from orbitmq.clock import SystemClock
from orbitmq.errors import ConfigurationError, StoreError
from orbitmq.limits.spark import ARCHIVE_CHECKPOINT_VERSIONS, ARCHIVE_WRITER_VERSION_MAX
from orbitmq.spark.durable import is_local, make_directory, sync
from orbitmq.spark.log_files.places import STORAGE_REMEDY, FilePlace, causes_of
from orbitmq.spark.pipelines.archiving.committing import ArchiveBatch, LandedFile, Snapshot
from orbitmq.spark.pipelines.archiving.delta_log import BATCH, DeltaLog
from orbitmq.spark.pipelines.archiving.storage import check_writable, table_place, table_url

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

log = logging.getLogger("orbitmq.spark")

DAY: Final = "day"
"""The column by which the table is divided: the day of `storeTimestamp` in UTC."""

OLD_STATE: Final = "_archive/state.json"
"""What an archive had before it was a Delta table; `importing.py` reads it."""

FORM_VERSION: Final = 1

_CLOCK: Final = SystemClock()
_WRITTEN_FEATURES: Final = frozenset({"appendOnly", "invariants", "changeDataFeed", "deletionVectors", "v2Checkpoint"})
"""What a table may ask of its writers, beyond what all of them do."""
_REFUSED_VERSIONS: Final = (6,)
"""Of the protocol for writers, from before features had names: identity columns."""


class SourceKind(StrEnum):
    """What an archive is made of."""

    TOPICS = "topics"
    LOGS = "logs"
    LATEST = "latest rows"
    """Of the keys of an archive (`latest.py`)."""
    TYPED = "typed rows"
    """Of a stream that decodes payloads (`serving/typed_table.py`)."""
    UNDECODED = "rows that cannot be decoded"
    """The quarantine of such a stream."""


class ArchiveForm(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the description of the table. fixed: settings that make one whole of the rows of many runs, as texts."""

    orbitmq_archive: int = FORM_VERSION
    source: SourceKind
    fixed: dict[str, str] = {}


class ArchiveTable:
    """A table that is there. Made by `begun` and `opened`; it is the `TableLog` of its commits."""

    def __init__(self, text: str, place: FilePlace) -> None:
        self.place = place
        self._name = text
        self._url = table_url(text)
        self._log = DeltaLog(place)

    def open(self) -> Snapshot:
        with table_failures(self._name):
            self._log.repair()
            table = delta_table(self._url)
            form_of(table, self._name)
            check_protocol(table, self._name)
            version = table.version()
            return Snapshot(
                version=version,
                applications=self._log.applications(version, str(table.metadata().id)),
                columns={field.name: _kind(field.type.to_json()) for field in table.schema().fields},
                handle=table,
            )

    def prove(self, files: Sequence[LandedFile]) -> LandedFile | None:
        directories = sorted({file.path.rpartition("/")[0] for file in files})
        sizes: dict[str, int] = {}
        with table_failures(self._name):
            if is_local(self.place):
                sizes = {file.path: self.place.under(file.path).size() or 0 for file in files}
            else:  # one request for each day, not for each file
                for path in directories:
                    sizes.update((f"{path}/{name}", size) for name, size in self.place.under(path).files())
        for file in files:
            if sizes.get(file.path) != file.size_bytes:
                return file
        for path in (*directories, ""):
            sync(self.place.under(path))
        return None

    def put(self, snapshot: Snapshot, batch: ArchiveBatch) -> None:
        from deltalake import CommitProperties, PostCommitHookProperties, Transaction
        from deltalake.transaction import AddAction

        now_ms = _CLOCK.now_ms()
        added = [
            AddAction(file.path, file.size_bytes, {DAY: file.day}, now_ms, True, file.stats)
            for file in batch.files
            if file.stats is not None
        ]
        moved = [Transaction(name, number) for name, number in sorted(batch.ends.items())]
        with table_failures(self._name):
            snapshot.handle.create_write_transaction(
                added,
                "append",
                snapshot.handle.schema(),
                [DAY],
                commit_properties=CommitProperties(
                    custom_metadata={BATCH: batch.token}, max_commit_retries=0, app_transactions=moved
                ),
                post_commithook_properties=PostCommitHookProperties(
                    create_checkpoint=False, cleanup_expired_logs=False
                ),
            )

    def token_of(self, version: int) -> str | None:
        return self._log.batch_of(version)

    def keep(self, version: int) -> None:
        self._log.sync(version)
        if version % ARCHIVE_CHECKPOINT_VERSIONS == 0:
            self._checkpoint(version)

    def add_columns(self, snapshot: Snapshot, wanted: pa.Schema) -> Snapshot:
        """The table with those columns, each of the type that it has there, or a struct with the fields of both. ConfigurationError for one
        of another type."""
        from deltalake import Schema

        fields = {field.name: field for field in Schema.from_arrow(wanted).fields}
        for name, field in fields.items():
            before = snapshot.columns.get(name)
            if before is not None and not _go_together(json.loads(before), json.loads(field.type.to_json())):
                raise ConfigurationError(
                    f"column {name} of {self._name} is {before}, and this run has {_kind(field.type.to_json())}",
                    remedy="archive into another directory",
                )
        new = [
            field
            for name, field in fields.items()
            if name not in snapshot.columns
            or _lacks(json.loads(snapshot.columns[name]), json.loads(field.type.to_json()))
        ]
        if not new:
            return snapshot
        with table_failures(self._name):
            snapshot.handle.alter.add_columns(new)
        snapshot = self.open()
        self._log.sync(snapshot.version)
        return snapshot

    def _checkpoint(self, version: int) -> None:
        """Nothing depends on it but the time that opening takes, so its failure ends nothing."""
        try:
            with table_failures(self._name):
                delta_table(self._url, version).create_checkpoint()
                self._log.sync(version, checkpoint=True)
        except StoreError as error:
            log.warning("no checkpoint of version %d: %s", version, error)


def begun(text: str, form: ArchiveForm, columns: pa.Schema) -> tuple[ArchiveTable, Snapshot]:
    """The archive at a path or URL, made if there is none, with these columns at least. Raises ConfigurationError as `looked_up` does."""
    place = table_place(text)
    if is_local(place):
        make_directory(place)
    table = ArchiveTable(text, place)
    with table_failures(text):
        DeltaLog(place).repair()
        if not _is_table(text):
            _make(text, form, columns)
    snapshot = table.open()
    _check_same(form_of(snapshot.handle, text), form, text)
    return table, table.add_columns(snapshot, columns)


def looked_up(text: str, form: ArchiveForm) -> Snapshot:
    """The archive at a path or URL as it is now; without numbers and columns where there is none. ConfigurationError where it is of another
    kind, no archive of ours, or cannot be one."""
    check_writable(text)
    place = table_place(text)
    _check_not_old(text)
    with table_failures(text):
        DeltaLog(place).repair()
        if not _is_table(text):
            return Snapshot(version=-1, applications={}, columns={})
    snapshot = ArchiveTable(text, place).open()
    _check_same(form_of(snapshot.handle, text), form, text)
    return snapshot


def opened(text: str, version: int | None = None) -> DeltaTable:
    """A table to read, the newest version if none is named. ConfigurationError where there is none."""
    with table_failures(text):
        if not _is_table(text):
            _check_not_old(text)
            raise ConfigurationError(
                f"{text} is no archive: there is no Delta table", remedy="name the directory of an archive"
            )
        return delta_table(table_url(text), version)


def check_columns(place: str, names: Iterable[str], needed: Sequence[str], what: str) -> None:
    """ConfigurationError names those of the needed columns that a table lacks. what: what needs them."""
    there = set(names)
    missing = [name for name in needed if name not in there]
    if missing:
        raise ConfigurationError(
            f"archive {place} has no column {', '.join(missing)}", remedy=f"{what} needs {', '.join(needed)}"
        )


def delta_table(url: str, version: int | None = None) -> DeltaTable:
    """Raises StoreDamagedError where the last version is what keeps it from opening."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        return DeltaTable(url, version=version)
    except DeltaError:
        DeltaLog(table_place(url)).check_last()
        raise


@contextmanager
def table_failures(place: str) -> Iterator[None]:
    """What delta-rs raises becomes a StoreError that names the table."""
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise StoreError(f"the table in {place}: {causes_of(error)}", remedy=STORAGE_REMEDY) from error


def _check_not_old(text: str) -> None:
    """Raises ConfigurationError for the directory of an archive that was no Delta table: a second one would begin in it."""
    if table_place(text).under(OLD_STATE).size() is not None:
        raise ConfigurationError(
            f"{text} is an archive that an earlier orbitmq wrote, which was no Delta table: {OLD_STATE} says how far it is",
            remedy=f"run `orbitmq archive import {text} NEW` once, and take NEW from then on",
        )


def _is_table(text: str) -> bool:
    from deltalake import DeltaTable

    return DeltaTable.is_deltatable(table_url(text))


def _make(text: str, form: ArchiveForm, columns: pa.Schema) -> None:
    """Nothing, where somebody else makes it at the same time."""
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        DeltaTable.create(
            table_url(text),
            columns.append(pa.field(DAY, pa.date32())),
            partition_by=[DAY],
            name="orbitmq archive",
            description=msgspec.json.encode(form).decode(),
            commit_properties=CommitProperties(
                max_commit_retries=0
            ),  # else it is made twice, and the second has its columns
        )
    except DeltaError:
        if not _is_table(text):
            raise
    place = table_place(text)
    DeltaLog(place).sync(0)
    sync(place)


def form_of(table: DeltaTable, place: str) -> ArchiveForm:
    """Raises ConfigurationError where a table is no archive of ours, of a later version, or not divided as ours are."""
    try:
        form = msgspec.json.decode(table.metadata().description or "", type=ArchiveForm)
    except msgspec.DecodeError as error:
        raise ConfigurationError(
            f"the Delta table in {place} is no archive of orbitmq", remedy="archive into another directory"
        ) from error
    if form.orbitmq_archive > FORM_VERSION:
        raise ConfigurationError(
            f"{place} was written by a later orbitmq (form {form.orbitmq_archive}, this one knows {FORM_VERSION})",
            remedy="run the archive with that version",
        )
    if (divided := table.metadata().partition_columns) != [
        DAY
    ]:  # delta-rs would add files whose days make it open no more
        raise ConfigurationError(
            f"somebody divided the archive in {place} by {', '.join(divided) or 'nothing'}, and its files are divided by {DAY}",
            remedy="restore a version before that, or archive into another directory",
        )
    return form


def check_protocol(table: DeltaTable, place: str) -> None:
    """Raises ConfigurationError where a table asks its writers for what delta-rs does not do: it would refuse each commit."""
    asked = table.protocol()
    missing = sorted(set(asked.writer_features or ()) - _WRITTEN_FEATURES)
    if (
        missing
        or asked.min_writer_version in _REFUSED_VERSIONS
        or asked.min_writer_version > ARCHIVE_WRITER_VERSION_MAX
    ):
        raise ConfigurationError(
            f"{place} asks its writers for {', '.join(missing) or f'version {asked.min_writer_version}'}, which this orbitmq does not do",
            remedy="drop the feature from the table, or archive into another directory",
        )


def _check_same(found: ArchiveForm, form: ArchiveForm, place: str) -> None:
    """Raises ConfigurationError when a run would put into an archive what does not go with the rest."""
    if found.source is not form.source:
        raise ConfigurationError(
            f"{place} is an archive of {found.source}, and this run is one of {form.source}: messages would be in it twice",
            remedy="archive into another directory",
        )
    for name, text in form.fixed.items():
        before = found.fixed.get(name, text)
        if before != text:
            raise ConfigurationError(
                f"{place} was begun with {name} {before or 'not given'!r}, and this run has {text or 'not given'!r}",
                remedy="give the same, or archive into another directory",
            )


def _kind(text: str) -> str:
    """The type of a column in a form that can be compared."""
    return json.dumps(json.loads(text), sort_keys=True)


def _go_together(one: Any, other: Any) -> bool:
    """Whether values of both types, as Delta writes them, can be in one column: structs may lack fields of each other."""
    fields, others = _fields(one), _fields(other)
    if fields is None or others is None:
        return bool(one == other)
    return all(_go_together(fields[name], others[name]) for name in fields.keys() & others.keys())


def _lacks(one: Any, other: Any) -> bool:
    """Whether the first of two such types lacks a field of the other."""
    fields, others = _fields(one) or {}, _fields(other) or {}
    return any(name not in fields or _lacks(fields[name], kind) for name, kind in others.items())


def _fields(kind: Any) -> dict[str, Any] | None:
    """Types of a struct's fields."""
    if not isinstance(kind, dict) or kind["type"] != "struct":
        return None
    return {field["name"]: field["type"] for field in kind["fields"]}


def kinds_of(schema: pa.Schema) -> Mapping[str, str]:
    """The types of columns as `Snapshot` has them."""
    from deltalake import Schema

    return {field.name: _kind(field.type.to_json()) for field in Schema.from_arrow(schema).fields}
