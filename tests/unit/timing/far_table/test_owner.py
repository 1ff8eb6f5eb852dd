"""The owner of the far table: what it answers is in its log, and a start finds it again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import StoreDamagedError
from orbitmq.protocol.far_table import (
    ClaimShare,
    FilesQuery,
    OpenJob,
    RecallRows,
    StatusQuery,
    TableStatus,
    TableVerdict,
)
from orbitmq.protocol.names import FAR_TABLE_TOPIC
from orbitmq.testing.little_table import BUCKET_MS, LittleTable, table_rows
from orbitmq.timing.far.tier import FarUnreachableError
from orbitmq.timing.far_table.catalog import Catalog
from orbitmq.timing.far_table.catalog_log import CATALOG_FILE

Reopen = Callable[..., LittleTable]


def test_the_first_start_makes_the_table(little: LittleTable) -> None:
    status = little.status()
    assert (status.table, status.bucket_ms, status.version) == ("table-1", BUCKET_MS, 1)
    assert (little.url / "table.json").exists()
    little.advance(20_000)
    assert Catalog.from_bytes((little.url / "manifest.json").read_bytes()).table == "table-1"


def test_an_answer_leaves_when_its_record_is_in_the_log(little: LittleTable) -> None:
    told: list[object] = []
    little.owner.ask(OpenJob("table-1", "one", 0), told.append)
    little.owner.ask(OpenJob("table-1", "two", 0), told.append)
    assert told == []
    little.turn()
    little.clock.advance(1)
    little.turn()
    assert len(told) == 2
    assert len(little.records(FAR_TABLE_TOPIC)) == 3


@pytest.mark.parametrize("saves", [False, True])
def test_a_start_finds_everything_again(open_table: Reopen, saves: bool) -> None:
    little = open_table()
    little.advance(2_000)
    opened = little.open()
    file = little.write("landing/a.parquet", table_rows(opened.split_ms + 10 * BUCKET_MS, 5))
    little.add(opened, file)
    little.ask(RecallRows("table-1", "Topic", "m3"))
    if saves:
        little.advance(60_000)
        assert little.log.is_saved
    before = little.log.catalog.to_bytes()
    little.kill()
    again = open_table()
    assert again.log.catalog.to_bytes() == before


def test_a_lost_catalog_comes_back_from_the_manifest(open_table: Reopen, tmp_path: Path) -> None:
    little = open_table()
    little.advance(2_000)
    opened = little.open()
    little.add(opened, little.write("landing/a.parquet", table_rows(opened.split_ms + 10 * BUCKET_MS, 5)))
    little.advance(60_000)
    little.open("another")
    before = little.log.catalog.to_bytes()
    little.close()
    path = tmp_path / "store" / CATALOG_FILE
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(StoreDamagedError, match=r"manifest\.json"):
        open_table()
    path.write_bytes((little.url / "manifest.json").read_bytes())
    assert open_table().log.catalog.to_bytes() == before


def test_a_table_that_is_ahead_of_the_log_is_not_owned(open_table: Reopen, tmp_path: Path, clock: ManualClock) -> None:
    little = open_table()
    little.advance(20_000)
    little.open()
    little.advance(20_000)
    little.close()
    other = LittleTable(tmp_path / "other", clock, url=little.url)
    other.advance(3_000)
    assert "ahead" in str(other.owner.trouble)
    with pytest.raises(FarUnreachableError, match="ahead"):
        other.ask(StatusQuery())


def test_a_store_from_a_backup_answers_nothing(open_table: Reopen, tmp_path: Path, clock: ManualClock) -> None:
    little = open_table()
    little.advance(20_000)
    little.kill()
    shutil.copytree(tmp_path / "store", tmp_path / "backup")
    little = open_table()
    little.advance(20_000)
    opened = little.open()
    little.add(opened, little.write("landing/a.parquet", table_rows(opened.split_ms + 10 * BUCKET_MS, 5)))
    little.advance(20_000)
    little.kill()
    shutil.rmtree(tmp_path / "store")
    shutil.copytree(tmp_path / "backup", tmp_path / "store")
    back = open_table()
    assert back.log.catalog.table == "table-1"
    with pytest.raises(FarUnreachableError, match=r"ahead of this broker's log.*from a backup.*copy manifest\.json"):
        back.ask(ClaimShare("table-1", "broker-b", "store-b", wants=True, keeps=True))
    back.kill()
    (tmp_path / "store" / CATALOG_FILE).write_bytes((little.url / "manifest.json").read_bytes())
    assert open_table().status().file_count == 1


def test_nothing_is_answered_before_the_storage_was_looked_at(open_table: Reopen) -> None:
    little = open_table()
    little.advance(20_000)
    little.kill()
    again = open_table()
    told: list[object] = []
    again.owner.ask(StatusQuery(), told.append)
    assert told == []
    again.advance(1_000)
    assert [type(each) for each in told] == [TableStatus]
    again.kill()
    away = open_table()
    away.files.is_away = True
    away.advance(1_000)
    with pytest.raises(FarUnreachableError, match="the storage is away"):
        away.ask(StatusQuery())


def test_files_that_the_storage_does_not_have_are_refused(little: LittleTable) -> None:
    opened = little.open()
    file = little.write("landing/a.parquet", table_rows(opened.split_ms, 5))
    (little.url / file.name).rename(little.url / "landing/b.parquet")
    changed = little.add(opened, file)
    assert (changed.verdict, changed.names) == (TableVerdict.BAD_FILE, [file.name])


@pytest.mark.parametrize("name", ["../store/config/topics.json", "table.json", "landing/../table.json"])
def test_a_file_outside_of_the_tables_directories_is_refused(little: LittleTable, name: str) -> None:
    opened = little.open()
    file = little.write("landing/a.parquet", table_rows(opened.split_ms, 5))
    file.name = name
    assert little.add(opened, file).verdict is TableVerdict.BAD_FILE


def test_garbage_goes_when_the_saved_catalog_does_not_speak_of_it(little: LittleTable) -> None:
    opened = little.open()
    file = little.write("landing/a.parquet", table_rows(opened.split_ms, 5))
    little.add(opened, file)
    while little.status().garbage_count == 0:
        little.advance(1_000)
    assert (little.url / file.name).exists()
    little.advance(60_000)
    assert not (little.url / file.name).exists()
    assert little.status().garbage_count == 0


def test_what_needs_no_file_is_answered_while_the_storage_is_away(little: LittleTable) -> None:
    little.files.is_away = True
    assert little.open().verdict is TableVerdict.OK
    assert little.ask(FilesQuery("table-1")).files == []
    little.advance(60_000)
    assert little.owner.trouble is not None
    little.files.is_away = False
    little.advance(120_000)
    assert little.owner.trouble is None


def test_a_damaged_catalog_answers_nothing(little: LittleTable) -> None:
    from orbitmq.store.message import NewMessage

    little.store.append(NewMessage(FAR_TABLE_TOPIC, 0, b'{"table":"table-1","version":99,"changes":[]}', b""))
    little.store.commit()
    with pytest.raises(FarUnreachableError, match="damaged"):
        little.ask(StatusQuery())


def test_a_search_that_is_too_large_asks_for_the_time(little: LittleTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.timing.far_table.owner.FAR_TABLE_SEARCH_ROWS_MAX", 3)
    opened = little.open()
    messages = table_rows(opened.split_ms + BUCKET_MS, 5)
    little.add(opened, little.write("landing/a.parquet", messages))
    refused = little.ask(RecallRows("table-1", "Topic", "m3"))
    assert (refused.verdict, refused.rows) == (TableVerdict.TOO_MANY, [])
    assert "say when the message is due" in refused.reason
    due_ms = int(messages[3]["deliverTimestamp"])
    assert little.ask(RecallRows("table-1", "Topic", "m3", due_ms=due_ms)).rows[0].verdict.value == "recalled"


def test_a_key_that_too_many_rows_have_recalls_none(little: LittleTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.timing.far_table.owner.FAR_TABLE_RECALL_ROWS_MAX", 1)
    opened = little.open()
    little.add(opened, little.write("landing/a.parquet", table_rows(opened.split_ms + BUCKET_MS, 5)))
    refused = little.ask(RecallRows("table-1", "Topic", key="key-0"))
    assert (refused.verdict, refused.rows) == (TableVerdict.TOO_MANY, [])
    assert little.status().recall_count == 0


def test_another_broker_gets_no_share_of_what_is_begun(little: LittleTable) -> None:
    opened = little.open()
    little.add(opened, little.write("landing/a.parquet", table_rows(opened.split_ms, 5)))
    little.advance(30_000)
    answer = little.ask(ClaimShare("table-1", "broker-b", "store-b", wants=True, keeps=True))
    assert (answer.verdict, answer.shares) == (TableVerdict.OK, [])


def test_the_log_is_kept_until_the_catalog_is_saved(little: LittleTable) -> None:
    assert little.log.lowest_needed() == little.records(FAR_TABLE_TOPIC)[0].physical_offset
    little.advance(60_000)
    assert little.log.lowest_needed() is None
