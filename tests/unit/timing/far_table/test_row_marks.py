"""A record counts as a row of the far table when its property and its prepared offset agree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import StoreDamagedError
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import OsFiles
from orbitmq.testing.little_table import BUCKET_MS, LittleTable, table_rows
from orbitmq.timing.far_table.promoted_rows import ROWS_FILE, PromotedRows
from orbitmq.timing.far_table.row_marks import MarkReader, mark_entry, prepared_offset

Reopen = Callable[..., LittleTable]


def entry(properties: bytes, prepared: int, at: int = 0, sys_flag: int = 0) -> Dispatched:
    return Dispatched(at, 100, "rmq_sys_wheel_timer", 0, 0, 0, 0, None, None, sys_flag, prepared, properties)


@pytest.mark.parametrize("row", [0, 7, 10**9])
def test_a_row_says_which_one_it_is(row: int) -> None:
    reader = MarkReader()
    properties = b"KEYS\x01k\x02" + mark_entry("t", 2_000, row) + b"REAL_QID\x010\x02"
    for _ in range(2):  # the second time by what is remembered of the first
        assert reader.read(entry(properties, prepared_offset(row))) == (("t", 2_000), row)


@pytest.mark.parametrize(
    ("properties", "prepared", "sys_flag"),
    [
        (mark_entry("t", 2_000, 7), 0, 0),  # what a client could send
        (mark_entry("t", 2_000, 7), 4_712, 0),  # a copy that names its source: rescheduled, or put again
        (mark_entry("t", 2_000, 7), prepared_offset(8), 0),
        (b"KEYS\x01k\x02", prepared_offset(7), 0),
        (b"ORBITMQ_FAR_TABLE\x01t,2000\x02", prepared_offset(7), 0),
        (b"ORBITMQ_FAR_TABLE\x01t,x,7\x02", prepared_offset(7), 0),
        (mark_entry("t", 2_000, 7), prepared_offset(7), 4),  # a transaction has another number there
    ],
)
def test_everything_else_is_no_row(properties: bytes, prepared: int, sys_flag: int) -> None:
    assert MarkReader().read(entry(properties, prepared, sys_flag=sys_flag)) is None


def test_rows_are_remembered_by_bucket_until_the_owner_does_not_name_it(tmp_path: Path) -> None:
    rows = PromotedRows(OsFiles(), tmp_path, ManualClock())
    rows.ensure_store_id()
    rows.apply(
        [entry(mark_entry("t", 0, 3), prepared_offset(3), 0), entry(mark_entry("t", 2_000, 1), prepared_offset(1), 100)]
    )
    rows.apply([entry(mark_entry("t", 0, 2), prepared_offset(2), 200)])
    assert rows.behind("t") == {0: 4, 2_000: 2}
    assert rows.lowest_needed() == 0
    rows.keep_only("t", {2_000})
    assert rows.behind("t") == {2_000: 2}
    rows.begin_sync()
    rows.datasync()
    assert rows.lowest_needed() is None


def test_a_store_keeps_its_id_and_does_not_start_with_a_damaged_one(open_table: Reopen, tmp_path: Path) -> None:
    little = open_table()
    name = little.rows.store_id
    little.kill()
    again = open_table()
    assert again.rows.store_id == name
    again.kill()
    path = tmp_path / "store" / ROWS_FILE
    path.write_bytes(path.read_bytes().replace(b'"position"', b'"positiom"'))
    with pytest.raises(StoreDamagedError, match="stored twice"):
        open_table()


def test_a_start_without_the_recovery_mark_knows_the_rows_as_well(open_table: Reopen, tmp_path: Path) -> None:
    little = open_table()
    little.advance(2_000)
    opened = little.open()
    little.add(opened, little.write("landing/a.parquet", table_rows(opened.split_ms, 100, BUCKET_MS // 100)))
    while len(little.stored()) < 30:
        little.clock.advance(10)
        little.turn()
    before = little.rows.behind("table-1")
    little.kill()
    for mark in (tmp_path / "store").glob("orbitmq.mark*"):
        mark.unlink()
    assert open_table().rows.behind("table-1") == before
