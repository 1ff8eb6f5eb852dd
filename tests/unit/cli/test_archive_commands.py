"""orbitmq archive: check, compact, vacuum, delete-key on a table of an archive, and import of one that was no table."""

from __future__ import annotations

import datetime
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from scripted_server import Ran

from orbitmq.spark.pipelines.archiving.table import ArchiveForm, SourceKind, begun

Run = Callable[..., Ran]

COLUMNS = pa.schema(
    [
        ("topic", pa.string()),
        ("brokerName", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("keys", pa.string()),
    ]
)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    place = tmp_path / "archive"
    begun(str(place), ArchiveForm(source=SourceKind.LOGS), COLUMNS)
    for offset in range(3):
        add(place, offset)
    return place


def add(place: Path, offset: int) -> None:
    row = {"topic": "orders", "brokerName": "a", "queueId": 0, "queueOffset": offset, "keys": f"k{offset}"}
    schema = COLUMNS.append(pa.field("day", pa.date32()))
    table = pa.Table.from_pylist([{**row, "day": datetime.date(2026, 11, 22)}], schema)
    write_deltalake(place, table, mode="append", partition_by=["day"])


def test_an_archive_is_counted_merged_and_counted_again(orbitmq: Run, archive: Path) -> None:
    ran = orbitmq("archive", "check", archive, "-o", "json")
    assert ran.code == 0, ran.err
    [queue] = json.loads(ran.out)
    assert (queue["topic"], queue["rows"], queue["missing"], queue["twice"]) == ("orders", 3, 0, 0)
    ran = orbitmq("archive", "compact", archive)
    assert (ran.code, ran.err) == (0, "3 files became 1\n")
    assert json.loads(orbitmq("archive", "check", archive, "-o", "json").out) == [queue]
    ran = orbitmq("archive", "delete-key", archive, "k1", "-o", "json")
    assert json.loads(ran.out) == {"rows": 1}
    assert json.loads(orbitmq("archive", "check", archive, "-o", "json").out)[0]["missing"] == 1


def test_rows_that_are_there_twice_are_a_finding(orbitmq: Run, archive: Path) -> None:
    add(archive, 1)
    ran = orbitmq("archive", "check", archive)
    assert ran.code == 1
    assert "twice" in ran.out


def test_vacuum_keeps_what_a_run_may_be_about_to_commit(orbitmq: Run, archive: Path) -> None:
    ran = orbitmq("archive", "vacuum", archive, "--older-than", "1h")
    assert (ran.code, "keep at least 24 hours" in ran.err) == (2, True)
    ran = orbitmq("archive", "vacuum", archive, "--dry-run")
    assert (ran.code, ran.err) == (0, "0 files would go\n")


def test_what_is_no_archive_is_named(orbitmq: Run, tmp_path: Path) -> None:
    ran = orbitmq("archive", "check", tmp_path)
    assert ran.code == 2
    assert "is no archive: there is no Delta table" in ran.err


def test_an_archive_that_was_no_table_names_the_command_that_imports_it(orbitmq: Run, tmp_path: Path) -> None:
    with tarfile.open(Path(__file__).parents[2] / "vectors" / "archives" / "before-delta.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    old, new = tmp_path / "topics", tmp_path / "new"
    ran = orbitmq("archive", "check", old)
    assert (ran.code, f"run `orbitmq archive import {old} NEW` once" in ran.err) == (2, True)
    ran = orbitmq("archive", "import", old, new, "-o", "json")
    assert (ran.code, json.loads(ran.out)) == (0, {"rows": 13, "quarantined": 4, "files": 3})
    assert orbitmq("archive", "check", new).code == 0
    ran = orbitmq("archive", "import", old, new)
    assert (ran.code, ran.err) == (0, "0 rows imported in 0 files, and 0 lines of the quarantine\n")
