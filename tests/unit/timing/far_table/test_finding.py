"""Looking at rows of the table: pages over files that overlap, and where a row stands."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from orbitmq.protocol.far_table import (
    BeginShare,
    ClaimShare,
    FindRows,
    RecallRows,
    ReplaceFiles,
    RowsFound,
    RowStanding,
    RowVerdict,
    TableVerdict,
)
from orbitmq.testing.little_table import BUCKET_MS, LittleTable, table_rows
from orbitmq.timing.far_table import row_pages


def all_pages(little: LittleTable, limit: int = 3, **query: Any) -> list[RowsFound]:
    pages: list[RowsFound] = []
    cursor = None
    while True:
        page: RowsFound = little.ask(FindRows("table-1", limit=limit, cursor=cursor, **query))
        assert page.verdict is TableVerdict.OK, page
        assert len(page.rows) <= limit or page.cursor is None
        pages.append(page)
        cursor = page.cursor
        if cursor is None:
            return pages


def ids(pages: list[RowsFound]) -> list[str]:
    return [row.message_id for page in pages for row in page.rows]


@pytest.mark.parametrize("seed", range(4))
def test_pages_are_the_rows_of_all_files_by_due_time(
    little: LittleTable, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("orbitmq.timing.far_table.rows.FAR_TABLE_ROW_GROUP_ROWS", 4)
    random = Random(seed)
    monkeypatch.setattr(row_pages, "FAR_TABLE_PAGE_READ_ROWS", random.choice((1, 10_005, 40_000)))
    opened = little.open()
    start_ms = opened.split_ms + BUCKET_MS
    rows: list[dict[str, Any]] = [
        {
            "deliverTimestamp": start_ms + random.randrange(12) * 1_000,
            "topic": random.choice(("T", "U")),
            "body": b"x",
            "msgId": f"m{number:03}",
            "keys": random.choice((None, "red", "red green", "reddish")),
        }
        for number in range(60)
    ]
    parts = [rows[part::4] for part in range(4)]
    little.add(opened, *[little.write(f"landing/{number}.parquet", part) for number, part in enumerate(parts)])
    ordered = sorted(rows, key=lambda row: (row["deliverTimestamp"], row["msgId"]))

    def expected(which: Any) -> list[str]:
        return [str(row["msgId"]) for row in ordered if which(row)]

    for limit in (1, 7, 100):
        assert ids(all_pages(little, limit)) == expected(lambda row: True)
        assert ids(all_pages(little, limit, topic="T", is_waiting=True)) == expected(lambda row: row["topic"] == "T")
    low, high = start_ms + 3_000, start_ms + 7_001
    assert ids(all_pages(little, from_ms=low, until_ms=high)) == expected(
        lambda row: low <= row["deliverTimestamp"] < high
    )
    assert ids(all_pages(little, topic="T", key="red")) == expected(
        lambda row: row["topic"] == "T" and row["keys"] in ("red", "red green")
    )
    assert ids(all_pages(little, topic="U", key_prefix="gr")) == expected(
        lambda row: row["topic"] == "U" and row["keys"] == "red green"
    )
    assert ids(all_pages(little, topic="U", key_prefix="red")) == expected(
        lambda row: row["topic"] == "U" and row["keys"]
    )
    (one,) = [row for row in rows if row["msgId"] == "m007"]
    assert ids(all_pages(little, topic=str(one["topic"]), message_id="m007")) == ["m007"]


def test_rows_stand_as_the_catalog_says(little: LittleTable) -> None:
    opened = little.open()
    rows = table_rows(opened.split_ms + 10 * BUCKET_MS, 6, BUCKET_MS // 2)
    file = little.write("landing/a.parquet", rows)
    little.add(opened, file)
    assert little.ask(RecallRows("table-1", "Topic", "m4")).rows[0].verdict is RowVerdict.RECALLED

    def standings(**query: Any) -> dict[str, str]:
        return {
            row.message_id: row.standing.value
            for page in all_pages(little, topic="Topic", **query)
            for row in page.rows
        }

    assert standings() == dict.fromkeys(["m0", "m1", "m2", "m3", "m5"], "pending") | {"m4": "recalled"}
    assert list(standings(is_waiting=True)) == ["m0", "m1", "m2", "m3", "m5"]
    little.promotion.paused = True
    little.clock.advance(110_000)
    (view,) = little.ask(ClaimShare("table-1", "b", "s", wants=True, keeps=True)).shares
    assert list(standings(is_waiting=True)) == ["m0", "m1", "m2", "m3", "m5"], "claimed is not begun"
    little.ask(BeginShare("table-1", "b", "s", view.bucket_ms, view.first, view.epoch))
    assert list(standings(is_waiting=True)) == ["m2", "m3", "m5"]
    assert standings()["m0"] == RowStanding.HANDED_OVER.value
    row = next(row for page in all_pages(little) for row in page.rows if row.message_id == "m0")
    assert (row.brokers, row.keys, row.topic, row.due_ms) == (["b"], "key-0", "Topic", rows[0]["deliverTimestamp"])

    job = little.open("compaction")
    kept = [each for each in rows[2:] if each["msgId"] != "m4"]
    smaller = little.write("buckets/b.parquet", kept)
    from_ms = int(rows[2]["deliverTimestamp"]) // BUCKET_MS * BUCKET_MS
    replaced = ReplaceFiles("table-1", "compaction", 0, job.attempt, [file.name], [smaller], from_ms)
    assert little.ask(replaced).verdict is TableVerdict.OK
    assert little.status().recall_count == 0
    assert standings(message_id="m4") == {"m4": "recalled"}
    assert standings(key="key-1") == {"m1": "handed_over", "m4": "recalled"}
    assert [row.verdict for row in little.ask(RecallRows("table-1", "Topic", key="key-1")).rows] == [
        RowVerdict.HANDED_OVER,
        RowVerdict.ALREADY_RECALLED,
    ]


def test_what_would_take_too_long_is_refused_with_a_way_out(
    little: LittleTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.timing.far_table.finding.FAR_TABLE_SEARCH_ROWS_MAX", 5)
    monkeypatch.setattr(row_pages, "FAR_TABLE_PAGE_FILES_MAX", 1)
    opened = little.open()
    start_ms = opened.split_ms + BUCKET_MS
    little.add(opened, *[little.write(f"landing/{part}.parquet", table_rows(start_ms, 5, part=part)) for part in "ab"])
    refused = little.ask(FindRows("table-1", topic="Topic", key="key-1"))
    assert (refused.verdict, refused.rows) == (TableVerdict.TOO_MANY, [])
    assert "say when the message is due" in refused.reason
    refused = little.ask(FindRows("table-1"))
    assert (refused.verdict, "compact" in refused.reason) == (TableVerdict.TOO_MANY, True)
    assert little.ask(FindRows("u")).verdict is TableVerdict.WRONG_TABLE


def test_a_file_that_goes_while_it_is_read_is_replaced(little: LittleTable, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = little.open()
    rows = table_rows(opened.split_ms + 10 * BUCKET_MS, 5)
    old = little.write("landing/a.parquet", rows)
    little.add(opened, old)
    job = little.open("compaction")
    new = little.write("buckets/b.parquet", rows)
    read = little.files.read_page
    gone: list[Path] = []

    def replaced_first(request: Any) -> Any:
        if not gone:
            gone.append(little.url / old.name)
            gone[0].unlink()
            from_ms = int(rows[0]["deliverTimestamp"]) // BUCKET_MS * BUCKET_MS
            replace = ReplaceFiles("table-1", "compaction", 0, job.attempt, [old.name], [new], from_ms)
            little.owner.ask(replace, lambda answer: None)
            little.owner_worker.step()
        return read(request)

    monkeypatch.setattr(little.files, "read_page", replaced_first)
    assert ids([little.ask(FindRows("table-1"))]) == [f"m{number}" for number in range(5)]
