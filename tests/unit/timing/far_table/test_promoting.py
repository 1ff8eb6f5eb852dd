"""One broker takes rows out of its far table: in order, once, whatever fails on the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orbitmq.clock import ManualClock
from orbitmq.protocol.far_table import RecallRows, RowVerdict, TableVerdict
from orbitmq.protocol.properties import decode_properties
from orbitmq.testing.little_table import BUCKET_MS, LittleTable, table_rows
from orbitmq.timing.far.tier import FarUnreachableError
from orbitmq.timing.far_table.table_calls import TakenRows, TakeRows

Reopen = Callable[..., LittleTable]

COUNT = 120


def fill(little: LittleTable, count: int = COUNT) -> list[str]:
    """Rows of two buckets; their unique keys in due order."""
    opened = little.open()
    messages = table_rows(opened.split_ms, count, 2 * BUCKET_MS // count)
    half = [little.write("landing/a.parquet", messages[::2]), little.write("landing/b.parquet", messages[1::2])]
    assert little.add(opened, *half).verdict is TableVerdict.OK
    return [str(message["msgId"]) for message in messages]


def test_every_row_comes_into_the_wheel_once_and_in_due_order(little: LittleTable) -> None:
    expected = fill(little)
    little.advance(60_000)
    assert little.stored() == expected
    record = little.records()[7]
    values = decode_properties(record.properties)
    assert values["ORBITMQ_FAR_TABLE"] == f"table-1,{int(values['TIMER_DELIVER_MS']) // BUCKET_MS * BUCKET_MS},7"
    assert record.prepared_transaction_offset == -8
    assert (values["REAL_TOPIC"], values["REAL_QID"], values["CLUSTER"]) == ("Topic", "3", "c")
    assert int(values["TIMER_OUT_MS"]) < int(values["TIMER_DELIVER_MS"]) <= int(values["TIMER_OUT_MS"]) + 1_000
    assert little.status().share_count == 0


def test_nothing_is_taken_before_its_bucket_is_near(little: LittleTable, clock: ManualClock) -> None:
    opened = little.open()
    late = table_rows(opened.split_ms + 10 * BUCKET_MS, 10)
    assert little.add(opened, little.write("landing/late.parquet", late)).verdict is TableVerdict.OK
    little.advance(20_000)
    assert little.stored() == []
    little.advance(11 * BUCKET_MS)
    assert len(little.stored()) == 10


def test_the_next_rows_are_read_while_rows_are_put_into_the_log(
    little: LittleTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.timing.far_table.promoting.FAR_TABLE_READ_ROWS", 7)
    monkeypatch.setattr("orbitmq.timing.far_table.promoting.FAR_TABLE_SLICE_ROWS", 2)
    take = little.files.take_rows
    asked: list[tuple[int, int]] = []
    stored: list[int] = []

    def counted(request: TakeRows) -> tuple[TakenRows, list[bytes]]:
        asked.append((request.bucket_ms, request.start))
        stored.append(len(little.stored()))
        return take(request)

    monkeypatch.setattr(little.files, "take_rows", counted)
    expected = fill(little)
    little.advance(60_000)
    assert little.stored() == expected
    assert len(asked) == len(set(asked)) >= COUNT // 7, "nothing was read twice"
    of_first = [count for (bucket_ms, _), count in zip(asked, stored, strict=True) if bucket_ms == asked[0][0]]
    before = [7 * number for number in range(len(of_first))]
    assert sum(count < begin for count, begin in zip(of_first, before, strict=True)) >= len(of_first) // 2, of_first


def test_rows_that_could_not_be_read_ahead_are_read_again(little: LittleTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.timing.far_table.promoting.FAR_TABLE_READ_ROWS", 7)
    take = little.files.take_rows
    calls = 0

    def failing(request: TakeRows) -> tuple[TakenRows, list[bytes]]:
        nonlocal calls
        calls += 1
        if calls % 3 == 2:
            raise FarUnreachableError("the storage stumbles")
        return take(request)

    monkeypatch.setattr(little.files, "take_rows", failing)
    expected = fill(little)
    little.advance(90_000)
    assert little.stored() == expected


def test_a_recalled_row_is_left_out(little: LittleTable) -> None:
    expected = fill(little)
    answer = little.ask(RecallRows("table-1", "Topic", "m7"))
    assert [row.verdict for row in answer.rows] == [RowVerdict.RECALLED]
    by_key = little.ask(RecallRows("table-1", "Topic", key="key-1"))
    gone = {"m7", *(row.message_id for row in by_key.rows)}
    assert len(gone) == COUNT // 3
    little.advance(60_000)
    assert little.stored() == [name for name in expected if name not in gone]
    assert little.promotion.recalled_count == len(gone)
    late = little.ask(RecallRows("table-1", "Topic", "m8", due_ms=int(little.clock.now_ms())))
    assert [row.verdict for row in late.rows] in ([RowVerdict.HANDED_OVER], [RowVerdict.NOT_FOUND])


@pytest.mark.parametrize("turns", [3, 7, 12, 20, 33, 60, 95])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_killed_broker_goes_on_behind_its_last_row(open_table: Reopen, turns: int, flush: str) -> None:
    from orbitmq.store.settings import FlushDiskType

    little = open_table(flush_disk_type=FlushDiskType(flush))
    little.advance(2_000)
    expected = fill(little)
    while not little.stored():
        little.clock.advance(10)
        little.turn()
    for _ in range(turns):
        little.turn()
        little.clock.advance(1)
    little.kill()
    again = open_table(flush_disk_type=FlushDiskType(flush))
    again.advance(60_000)
    assert again.stored() == expected
    assert again.status().share_count == 0


def test_a_row_that_cannot_be_stored_goes_to_quarantine_and_blocks_nothing(little: LittleTable) -> None:
    opened = little.open()
    messages = table_rows(opened.split_ms, 6)
    messages[1]["topic"] = "forbidden"
    messages[2]["queueId"] = 9
    messages[3]["properties"] = {"REAL_TOPIC": "Other"}
    messages[4]["properties"] = {"a\x02b": "c"}
    assert little.add(opened, little.write("landing/odd.parquet", messages)).verdict is TableVerdict.OK
    little.advance(60_000)
    assert little.stored() == ["m0", "m5"]
    reasons = little.quarantined()
    assert [
        word in reason for word, reason in zip(("no topic", "queue 9", "REAL_TOPIC", "separator"), reasons, strict=True)
    ]
    assert little.status().share_count == 0


def test_a_storage_that_is_away_is_tried_again(little: LittleTable) -> None:
    expected = fill(little)
    little.files.is_away = True
    little.advance(20_000)
    assert little.stored() == []
    assert little.promotion.trouble is not None
    little.files.is_away = False
    little.advance(90_000)
    assert little.stored() == expected
    assert little.promotion.trouble is None


def test_a_damaged_file_stops_only_the_shares_that_need_it(little: LittleTable) -> None:
    opened = little.open()
    bad = little.write("landing/bad.parquet", table_rows(opened.split_ms, 5, part="bad"))
    good = little.write("landing/good.parquet", table_rows(opened.split_ms + BUCKET_MS, 5, part="good"))
    content = (little.url / bad.name).read_bytes()
    (little.url / bad.name).write_bytes(b"no Parquet at all")
    assert little.add(opened, bad, good).verdict is TableVerdict.OK
    little.advance(60_000)
    assert "bad.parquet" in str(little.promotion.trouble)
    (little.url / bad.name).write_bytes(content)
    little.advance(120_000)
    assert sorted(little.stored()) == sorted([f"bad{n}" for n in range(5)] + [f"good{n}" for n in range(5)])


def test_a_full_store_makes_promotion_wait(little: LittleTable) -> None:
    expected = fill(little)
    while not little.stored():
        little.advance(10)
    little.store._writability.stop("space", "the disk is full")
    little.advance(5_000)
    count = len(little.stored())
    little.store.allow("space")
    little.advance(90_000)
    assert count < len(expected)
    assert little.stored() == expected
