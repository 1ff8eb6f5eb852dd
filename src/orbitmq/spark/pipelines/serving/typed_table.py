"""Typed rows of a stream into a Delta table, and what cannot be decoded into another one: each batch once.

The tasks write files that nobody knows; the driver commits them. The number of the batch is that of an application of the table, which
changes in the commit that adds the files, so a batch that Spark runs again finds itself stored.

Rules of this file
1. The quarantine is committed first. A batch whose rows are in the table is done, and nothing of it is looked at again.
2. A batch that is run again and finds other rows broken than its quarantine has is refused: some would be in neither table, or in both.
3. Every batch is committed, so numbers of the table have no gap: where one is, rows were lost, and nothing is put behind it.
4. The application is named after the query, whose name goes with its checkpoint: a new checkpoint counts batches anew.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from orbitmq.errors import StoreDamagedError
from orbitmq.spark.carrying import Carried
from orbitmq.spark.log_files.places import place_at
from orbitmq.spark.pipelines.archiving.committing import ArchiveBatch, LandedFile
from orbitmq.spark.pipelines.failed_jobs import job_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_ERROR: Final = "payloadError"
_NOT_IN_TABLE: Final = (_ERROR, "corruptBody")
_NOT_IN_QUARANTINE: Final = ("payload",)


class _Landed(msgspec.Struct, frozen=True):
    """Files of one task."""

    good: list[LandedFile]
    bad: list[LandedFile]


class TypedTable:
    """The sink of one query. `store` is what its `foreachBatch` calls."""

    def __init__(self, to: str, quarantine: str, checkpoint: str) -> None:
        self._to = to
        self._quarantine = quarantine
        self._checkpoint = checkpoint
        self.stored: dict[int, tuple[int, int]] = {}
        """Rows that were committed and rows that were put aside, by batch, until somebody takes them; nothing of a batch that was stored
        before."""

    def store(self, batch: DataFrame, batch_id: int) -> None:
        """The rows of a batch are committed on return."""
        import pyarrow as pa
        from deltalake import Schema

        from orbitmq.spark.pipelines.archiving.table import ArchiveForm, SourceKind, begun

        schema = pa.schema(Schema.from_json(batch.schema.json()).to_arrow())
        application = f"stream {self._query_id()}"
        good, bad = _without(schema, _NOT_IN_TABLE), _without(schema, _NOT_IN_QUARANTINE)
        table, snapshot = begun(self._to, ArchiveForm(source=SourceKind.TYPED), good)
        aside, aside_snapshot = begun(self._quarantine, ArchiveForm(source=SourceKind.UNDECODED), bad)
        last = snapshot.applications.get(application, -1)
        if last >= batch_id:
            return
        self._check_next(last, batch_id)
        landed = self._land(batch, good.names, bad.names)
        broken = [file for one in landed for file in one.bad]
        count = sum(file.rows for file in broken)
        if aside_snapshot.applications.get(application, -1) >= batch_id:
            _check_same(self._quarantine, aside_snapshot.applications.get(f"{application} rows"), count)
        elif broken:
            ends = {application: batch_id, f"{application} rows": count}
            _commit(aside, aside_snapshot, broken, ends, bad.names)
        whole = [file for one in landed for file in one.good]
        _commit(table, snapshot, whole, {application: batch_id}, good.names)
        self.stored[batch_id] = sum(file.rows for file in whole), count

    def _check_next(self, last: int, batch_id: int) -> None:
        """StoreDamagedError where batches between the last one of the table and this one are not there: Spark runs one only when the one
        before it was stored."""
        if batch_id > last + 1:
            stored = f"ends with batch {last}" if last >= 0 else "has no batch of it"
            raise StoreDamagedError(
                f"batch {batch_id} of the stream is to be stored, and the table {self._to} {stored}: the rows between them are missing, as "
                "after a restore, or where the table was made anew",
                remedy="put back the version that has them; or give the stream a new checkpoint and a new table: it reads everything again",
            )

    def _query_id(self) -> str:
        """That of the checkpoint, where Spark notes it before the first batch."""
        content = place_at(self._checkpoint.removeprefix("file://")).under("metadata").content()
        if content is None:
            raise StoreDamagedError(
                f"the checkpoint {self._checkpoint} has no file metadata: nobody knows which batches these are"
            )
        return str(json.loads(content)["id"])

    def _land(self, batch: DataFrame, good: list[str], bad: list[str]) -> list[_Landed]:
        tasks = LandingTasks((self._to, tuple(good)), (self._quarantine, tuple(bad)))
        with job_errors(f"a batch of the table {self._to}"):
            rows = batch.mapInArrow(tasks, "done string").collect()
        return [msgspec.json.decode(row[0], type=_Landed) for row in rows]


class LandingTasks(Carried):
    """The function that Spark runs over the rows of a batch."""

    def __init__(self, good: tuple[str, tuple[str, ...]], bad: tuple[str, tuple[str, ...]]) -> None:
        """Directory and columns of each table."""
        self._good = good
        self._bad = bad

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        from orbitmq.spark.pipelines.archiving.landing import FileForm, Landing
        from orbitmq.spark.pipelines.archiving.storage import table_place

        landings = [
            Landing(table_place(root), uuid.uuid4().hex, FileForm(columns=columns))
            for root, columns in (self._good, self._bad)
        ]
        for batch in batches:
            is_good = batch.column(_ERROR).is_null()
            for landing, rows in zip(landings, (batch.filter(is_good), batch.filter(pc.invert(is_good))), strict=True):
                if rows.num_rows:
                    landing.add(rows)
        done = _Landed(*(landing.close() for landing in landings))
        yield pa.record_batch({"done": [msgspec.json.encode(done).decode()]})


def _commit(table: Any, snapshot: Any, files: list[LandedFile], ends: Mapping[str, int], names: list[str]) -> None:
    """names: of the columns, whose types are those that the table had when the batch began: a payload may lack fields of it."""
    from orbitmq.spark.pipelines.archiving.committing import commit

    begins = {name: snapshot.applications.get(name) for name in ends}
    columns = {name: snapshot.columns[name] for name in names}
    commit(
        table, snapshot, ArchiveBatch(token=uuid.uuid4().hex, files=files, begins=begins, ends=ends, columns=columns)
    )


def _check_same(place: str, before: int | None, now: int) -> None:
    if before != now:
        raise StoreDamagedError(
            f"a batch is run again after its quarantine was stored: {before} rows could not be decoded then, and {now} cannot now",
            remedy=f"the schema was changed meanwhile: decode as before until it is stored, or restore the version before of {place}",
        )


def _without(schema: pa.Schema, names: tuple[str, ...]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([field for field in schema if field.name not in names])
