"""Where the changes of a version are, by what a real table's log says of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from orbitmq.errors import ConfigurationError, StoreDamagedError
from orbitmq.spark.log_files.places import place_at
from orbitmq.spark.pipelines.archiving.delta_log import DeltaLog
from orbitmq.spark.pipelines.publishing import publish
from orbitmq.spark.pipelines.publishing.plan import FEED_PROPERTY, VersionPlan, Where, plan_version
from orbitmq.spark.pipelines.publishing.publish import ChangesSettings, WrittenVersions, check_history, written_of


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{number}" for number in ids]})


def planned(place: Path, versions: int, *, has_feed: bool = False) -> list[VersionPlan]:
    log, found = DeltaLog(place_at(str(place))), []
    for version in range(versions):
        plan = plan_version(str(place), version, log.content(version), has_feed=has_feed)
        has_feed = plan.has_feed
        found.append(plan)
    return found


def test_what_was_only_added_needs_no_feed(tmp_path: Path) -> None:
    write_deltalake(tmp_path, rows(1, 2))
    write_deltalake(tmp_path, rows(3), mode="append")
    DeltaTable(tmp_path).optimize.compact()
    found = planned(tmp_path, 3)
    assert [plan.where for plan in found] == [Where.ADDED_FILES, Where.ADDED_FILES, Where.NOWHERE]
    assert [len(plan.files) for plan in found] == [1, 1, 0]


def test_what_was_changed_is_in_the_feed_from_where_the_table_keeps_one(tmp_path: Path) -> None:
    write_deltalake(tmp_path, rows(1, 2), configuration={FEED_PROPERTY: "true"})
    DeltaTable(tmp_path).delete("id = 1")
    DeltaTable(tmp_path).update({"name": "'x'"}, predicate="id = 2")
    assert [plan.where for plan in planned(tmp_path, 3)] == [Where.ADDED_FILES, Where.FEED, Where.FEED]


def test_what_was_changed_without_a_feed_is_told_and_a_feed_that_comes_later_counts_from_there(tmp_path: Path) -> None:
    write_deltalake(tmp_path, rows(1, 2))
    DeltaTable(tmp_path).delete("id = 1")
    with pytest.raises(
        ConfigurationError,
        match=r"version 1 .* kept no changes .* since-version = 2",
    ):
        planned(tmp_path, 2)
    DeltaTable(tmp_path).alter.set_table_properties({FEED_PROPERTY: "true"})
    DeltaTable(tmp_path).delete("id = 2")
    log = DeltaLog(place_at(str(tmp_path)))
    assert plan_version("t", 2, log.content(2), has_feed=False) == VersionPlan(Where.NOWHERE, (), True)
    assert plan_version("t", 3, log.content(3), has_feed=True).where is Where.FEED


def test_a_version_that_left_the_log_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="version 7 of the table t is not in its log any more"):
        plan_version("t", 7, None, has_feed=True)


def settings(folder: Path, **more: str) -> ChangesSettings:
    given = {"table": "/t", "to": "changes", "name_server": "ns:1", "checkpoint": str(folder), **more}
    return ChangesSettings(**given)  # type: ignore[arg-type]


def test_a_checkpoint_is_of_one_table_and_one_topic(tmp_path: Path) -> None:
    folder = place_at(str(tmp_path))
    assert written_of(folder, settings(tmp_path), "id-1", 5).next == 0
    (tmp_path / "changes.json").write_text('{"table": "id-1", "to": "changes", "next": 4}')
    assert written_of(folder, settings(tmp_path), "id-1", 3).next == 4
    with pytest.raises(ConfigurationError, match="is of the table with the id id-1"):
        written_of(folder, settings(tmp_path), "id-2", 3)
    with pytest.raises(ConfigurationError, match="and topic 'changes'"):
        written_of(folder, settings(tmp_path, to="others"), "id-1", 3)
    with pytest.raises(ConfigurationError, match="has 3 versions, and 4 were written"):
        written_of(folder, settings(tmp_path), "id-1", 2)
    (tmp_path / "changes.json").write_text("{")
    with pytest.raises(StoreDamagedError, match="cannot be read"):
        written_of(folder, settings(tmp_path), "id-1", 3)


def test_a_version_that_the_run_before_wrote_while_this_one_began_is_no_older_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, folder = tmp_path / "table", tmp_path / "checkpoint"
    write_deltalake(place, rows(1))

    @contextmanager
    def held_behind_another(_: object) -> Iterator[None]:
        write_deltalake(place, rows(2), mode="append")
        folder.mkdir()
        written = {"table": str(DeltaTable(place).metadata().id), "to": "changes", "next": 2}
        (folder / "changes.json").write_text(json.dumps(written))
        yield

    monkeypatch.setattr(publish, "held", held_behind_another)
    spark: Any = None
    done = publish.changes(spark, table=str(place), to="changes", name_server="ns:1", checkpoint=str(folder))
    assert (done.rows_written, done.details["next_version"]) == (0, 2)


def test_another_history_under_the_same_numbers_is_refused(tmp_path: Path) -> None:
    """A copy from before the last version, written on elsewhere, has the id of the table and as many versions."""
    place, copy = tmp_path / "table", tmp_path / "copy"
    write_deltalake(place, rows(1))
    shutil.copytree(place, copy)
    for table, number in ((place, 2), (copy, 3)):
        write_deltalake(table, rows(number), mode="append")
        write_deltalake(table, rows(number), mode="append")
    here, there = DeltaLog(place_at(str(place))), DeltaLog(place_at(str(copy)))
    given = settings(tmp_path)
    written = WrittenVersions(table="id-1", to="changes", next=2, last=here.digest(1) or "")
    check_history(here, given, written)
    with pytest.raises(
        ConfigurationError, match=r"version 1 of the table /t is not the one that was written to topic 'changes'"
    ):
        check_history(there, given, written)
    check_history(there, given, WrittenVersions(table="id-1", to="changes", next=1, last=here.digest(0) or ""))


def test_without_a_digest_or_without_the_version_it_goes_on(tmp_path: Path) -> None:
    """As after a release that kept none, and where retention has taken the version."""
    write_deltalake(tmp_path, rows(1))
    log = DeltaLog(place_at(str(tmp_path)))
    assert (log.digest(1), log.content(1)) == (None, None)
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "changes.json").write_text('{"table": "id-1", "to": "changes", "next": 1}')
    check_history(log, settings(folder), written_of(place_at(str(folder)), settings(folder), "id-1", 0))
    check_history(log, settings(folder), WrittenVersions(table="id-1", to="changes", next=2, last="0" * 32))
