"""Looking after an archive: whatever is merged, removed or deleted, the rows that are to stay stay."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

sys.path.insert(0, str(Path(__file__).resolve().parent))

from archived_rows import COLUMNS, QUEUE, add

from orbitmq.errors import ConfigurationError, StoreLockedError
from orbitmq.limits.spark import ARCHIVE_BATCH_MS_MAX
from orbitmq.spark.durable import held
from orbitmq.spark.log_files.places import place_at
from orbitmq.spark.pipelines.archiving import upkeep
from orbitmq.spark.pipelines.archiving.committing import ArchiveBatch, commit
from orbitmq.spark.pipelines.archiving.latest import keep_latest
from orbitmq.spark.pipelines.archiving.reached import queue_application
from orbitmq.spark.pipelines.archiving.table import ArchiveForm, SourceKind, begun

WEEK_MS = 7 * 86_400_000


def offsets(root: Path) -> list[int]:
    return sorted(DeltaTable(root).to_pyarrow_table(columns=["queueOffset"])["queueOffset"].to_pylist())


def test_small_files_become_one_and_every_reader_sees_the_same(tmp_path: Path) -> None:
    for begin in range(0, 50, 10):
        add(tmp_path, range(begin, begin + 10))
    assert upkeep.compact(str(tmp_path)) == {"files_before": 5, "files_after": 1}
    assert upkeep.compact(str(tmp_path)) == {"files_before": 0, "files_after": 0}
    table = DeltaTable(tmp_path)
    archived = table.to_pyarrow_dataset()  # noqa: F841 - DuckDB finds it by its name
    wanted = [(n, b"row %d" % n) for n in range(50)]
    assert duckdb.sql('select "queueOffset", body from archived order by 1').fetchall() == wanted
    assert sorted(table.to_pandas()["queueOffset"]) == list(range(50))
    found = table.to_pyarrow_table(columns=["queueOffset", "properties"]).to_pylist()
    assert all(row["properties"] == [("n", str(row["queueOffset"]))] for row in found)
    add(tmp_path, range(50, 60))
    assert offsets(tmp_path) == list(range(60)), "a run goes on behind it"
    assert len(list(tmp_path.glob("day=*/*.parquet"))) == 7, "the old ones are there, so the directory is not the table"


def test_one_compaction_at_a_time(tmp_path: Path) -> None:
    """delta-rs commits both of two, and every row is there twice."""
    for begin in range(0, 30, 10):
        add(tmp_path, range(begin, begin + 10))
    with held(place_at(str(tmp_path / "_compacting"))), pytest.raises(StoreLockedError):
        upkeep.compact(str(tmp_path))
    assert upkeep.compact(str(tmp_path)) == {"files_before": 3, "files_after": 1}
    assert offsets(tmp_path) == list(range(30))


def test_a_batch_that_was_planned_before_a_compaction_is_stored(tmp_path: Path) -> None:
    add(tmp_path, range(10))
    add(tmp_path, range(10, 20))
    table, snapshot = begun(str(tmp_path), ArchiveForm(source=SourceKind.TOPICS), COLUMNS)
    upkeep.compact(str(tmp_path))
    name = queue_application(QUEUE)
    batch = ArchiveBatch(token="later", files=(), begins={name: 20}, ends={name: 21}, columns={})
    assert commit(table, snapshot, batch) == snapshot.version + 2


def test_rows_of_one_key_are_deleted_and_those_of_longer_keys_stay(tmp_path: Path) -> None:
    add(tmp_path, range(30))
    assert upkeep.delete_key(str(tmp_path), "k1") == 1
    assert offsets(tmp_path) == [0, *range(2, 30)]
    assert upkeep.delete_key(str(tmp_path), "all-1", "payments") == 0
    assert upkeep.delete_key(str(tmp_path), "all-1", "orders") == 11
    assert offsets(tmp_path) == sorted({*range(0, 30, 2), *range(5, 30, 10)})
    assert upkeep.delete_key(str(tmp_path), "it's") == 0
    with pytest.raises(ConfigurationError, match="is no key"):
        upkeep.delete_key(str(tmp_path), "two keys")
    add(tmp_path, range(30, 40))
    assert max(offsets(tmp_path)) == 39


def test_vacuum_takes_what_nobody_needs_and_nothing_young(tmp_path: Path) -> None:
    add(tmp_path, range(10), broken=(3,))
    add(tmp_path, range(10, 20))
    upkeep.compact(str(tmp_path))
    [day] = tmp_path.glob("day=*")
    for path in (day / "orphan.parquet", tmp_path / "_quarantine" / "orphan.jsonl", day / "young.parquet"):
        path.write_bytes(b"x")
    old = 1_700_000_000
    for path in (*tmp_path.glob("day=*/*"), *tmp_path.glob("_quarantine/*")):
        if path.name != "young.parquet":
            os.utime(path, (old, old))
    wanted = ["_quarantine/orphan.jsonl", f"{day.name}/orphan.parquet"]
    assert upkeep.vacuum(str(tmp_path), WEEK_MS, dry_run=True) == wanted
    assert upkeep.vacuum(str(tmp_path), WEEK_MS) == wanted
    assert (day / "young.parquet").exists()
    assert len(list((tmp_path / "_quarantine").iterdir())) == 1
    assert offsets(tmp_path) == list(range(20))
    assert DeltaTable(tmp_path, version=2).to_pyarrow_table().num_rows == 20, "what was merged a moment ago is not old"
    with pytest.raises(ConfigurationError, match="keep at least 24 hours"):
        upkeep.vacuum(str(tmp_path), ARCHIVE_BATCH_MS_MAX - 1)


def test_a_table_that_may_have_deletion_vectors_is_not_vacuumed(tmp_path: Path) -> None:
    """delta-rs takes the file of one for a file that nobody needs, and the table opens no more."""
    add(tmp_path, range(10))
    vector = tmp_path / "deletion_vector_aff3ed9e-55bd-45f7-a3df-6d00276e1dd7.bin"
    vector.write_bytes(b"x")
    os.utime(vector, (1_700_000_000, 1_700_000_000))
    named = ["deletionVectors"]
    asked = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": named, "writerFeatures": named}
    version = tmp_path / "_delta_log" / "00000000000000000002.json"
    version.write_text(
        json.dumps({"protocol": asked}) + "\n" + json.dumps({"commitInfo": {"operation": "UPGRADE"}}) + "\n"
    )
    for dry_run in (True, False):
        with pytest.raises(ConfigurationError, match="by deletion vectors, whose files"):
            upkeep.vacuum(str(tmp_path), WEEK_MS, dry_run=dry_run)
    assert vector.exists()
    with pytest.raises(ConfigurationError, match="asks its readers for deletionVectors"):
        keep_latest(str(tmp_path), str(tmp_path / "latest"))
    add(tmp_path, range(10, 20))
    assert upkeep.compact(str(tmp_path)) == {"files_before": 2, "files_after": 1}, "delta-rs leaves out what is deleted"


def test_offsets_are_counted_against_rows(tmp_path: Path) -> None:
    add(tmp_path, range(5, 10), broken=(7,))
    [count] = upkeep.counts(str(tmp_path))
    assert (count.first, count.next, count.rows, count.quarantined, count.missing, count.twice) == (5, 10, 5, 1, 0, 0)
    add(tmp_path, range(20, 25), end=30)
    [count] = upkeep.counts(str(tmp_path))
    assert (count.next, count.rows, count.missing) == (30, 10, 14)
    rows = DeltaTable(tmp_path).to_pyarrow_table().slice(0, 2)
    write_deltalake(tmp_path, rows, mode="append")
    assert [one.twice for one in upkeep.counts(str(tmp_path))] == [2], "planted: rows that are there twice"


def test_a_table_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"keys": ["a"]}))
    for work in (
        lambda: upkeep.compact(str(tmp_path)),
        lambda: upkeep.delete_key(str(tmp_path), "a"),
        lambda: upkeep.vacuum(str(tmp_path), WEEK_MS),
        lambda: upkeep.counts(str(tmp_path)),
    ):
        with pytest.raises(ConfigurationError, match="is no archive of orbitmq"):
            work()
    with pytest.raises(ConfigurationError, match="is no archive: there is no Delta table"):
        upkeep.compact(str(tmp_path / "none"))
