"""The latest row of each key: a second table beside an archive, brought up to date by merging what is new.

Rules of this file
1. Merging is repeatable: of two rows with a topic and keys the one that was stored later stays, whatever was merged before.
2. How far it is, is a number in the table: the version of the archive that it holds. It changes in the last commit of a run. Versions of
   another archive say nothing, so the table names its archive, by the id that Delta gives a table.
3. Rows without keys have no place in it. What is deleted from the archive is deleted here by its own `delete_key`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq.limits.spark import ARCHIVE_MERGED_ROWS
from orbitmq.spark.archives import plain_table
from orbitmq.spark.log_files.places import storage_failures
from orbitmq.spark.pipelines.archiving.delta_log import DeltaLog
from orbitmq.spark.pipelines.archiving.storage import table_place
from orbitmq.spark.pipelines.archiving.table import (
    DAY,
    ArchiveForm,
    SourceKind,
    begun,
    check_columns,
    form_of,
    opened,
    table_failures,
)
from orbitmq.spark.pipelines.archiving.upkeep import settle

if TYPE_CHECKING:
    from deltalake import DeltaTable

_HOLDS: Final = "latest of the archive"
"""The application whose number is the version of the archive."""
_ORDER: Final = ("storeTimestamp", "queueOffset")
_NEEDED: Final = ("topic", "keys", *_ORDER)
_LATER: Final = (
    's."storeTimestamp" > t."storeTimestamp" '
    'OR (s."storeTimestamp" = t."storeTimestamp" AND s."queueOffset" >= t."queueOffset")'
)


def keep_latest(place: str, to: str, topics: Sequence[str] = ()) -> int:
    """Bring the table at `to`, made if there is none, up to the archive; how many rows were merged into it.

    topics: only these; the same in every run. ConfigurationError where either is something else, or the archive lacks a column.
    """
    archive = plain_table(place)  # rows are read from its files
    form = form_of(archive, place)
    schema = pa.schema(archive.schema().to_arrow())
    check_columns(place, schema.names, _NEEDED, "a table of latest rows")
    fixed = {**form.fixed, "topics": ",".join(sorted(topics)) or "all", "archive": str(archive.metadata().id)}
    whole = ArchiveForm(source=SourceKind.LATEST, fixed=fixed)
    _, snapshot = begun(to, whole, schema.remove(schema.get_field_index(DAY)))
    version = archive.version()
    rows = 0
    for part in _merged(_new_rows(archive, place, snapshot.applications.get(_HOLDS, -1), frozenset(topics))):
        _merge(to, part)
        rows += part.num_rows
    if snapshot.applications.get(_HOLDS) != version:
        _note(to, version)
    settle(to, snapshot.version)
    return rows


def _new_rows(archive: DeltaTable, place: str, after: int, topics: frozenset[str]) -> Iterator[pa.Table]:
    """The rows that have keys, of files that came behind that version of the archive, or of all of them where nobody knows."""
    root, log = table_place(place), DeltaLog(table_place(place))
    versions = [log.actions(version) for version in range(after + 1, archive.version() + 1)]
    known = {unquote(path) for path in pa.table(archive.get_add_actions())["path"].to_pylist()}
    added = {
        unquote(action.added.path)
        for actions in versions
        for action in actions or ()
        if action.added is not None and action.added.data_change
    }
    # What was merged into other files since is read there: a merge of the same rows changes nothing.
    schema = pa.schema(archive.schema().to_arrow())
    files = sorted(known if after < 0 or None in versions or not added <= known else added)
    for path in files:
        day = path.split("/")[0].removeprefix(f"{DAY}=")
        with storage_failures(root.under(path).name), root.file_system.open_input_file(root.under(path).path) as file:
            for batch in pq.ParquetFile(file).iter_batches():
                # what delta-rs wrote anew has texts as views, which Arrow cannot filter
                rows = pa.table(batch).cast(pa.schema([schema.field(name) for name in batch.schema.names]))
                wanted = pc.is_valid(rows["keys"])
                if topics:
                    wanted = pc.and_(wanted, pc.is_in(rows["topic"], pa.array(sorted(topics))))
                days = pa.array([day if day[:1].isdigit() else None] * len(rows), pa.string()).cast(pa.date32())
                yield rows.append_column(DAY, days).filter(wanted)


def _merged(parts: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The latest row of each key of many rows at a time."""
    waiting: list[pa.Table] = []
    for part in parts:
        if part.num_rows:
            waiting.append(_latest(part))
        if sum(one.num_rows for one in waiting) >= ARCHIVE_MERGED_ROWS:
            yield _latest(pa.concat_tables(waiting, promote_options="default"))
            waiting = []
    if waiting:
        yield _latest(pa.concat_tables(waiting, promote_options="default"))


def _latest(rows: pa.Table) -> pa.Table:
    ordered = rows.take(pc.sort_indices(rows.select(_ORDER), [(name, "ascending") for name in _ORDER]))
    numbered = ordered.select(["topic", "keys"]).append_column("row", pa.array(range(ordered.num_rows)))
    last = numbered.group_by(["topic", "keys"]).aggregate([("row", "max")])
    return ordered.take(last["row_max"])


def _merge(to: str, rows: pa.Table) -> None:
    with table_failures(to):
        merger = opened(to).merge(
            rows, "t.topic = s.topic AND t.keys = s.keys", source_alias="s", target_alias="t", streamed_exec=False
        )
        merger.when_matched_update_all(predicate=_LATER).when_not_matched_insert_all().execute()


def _note(to: str, version: int) -> None:
    from deltalake import CommitProperties, Transaction

    table = opened(to)
    moved = CommitProperties(app_transactions=[Transaction(_HOLDS, version)])
    with table_failures(to):
        table.create_write_transaction([], "append", table.schema(), [DAY], commit_properties=moved)
