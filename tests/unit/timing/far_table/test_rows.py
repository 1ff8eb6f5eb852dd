"""Rows of the far table: files, messages, names."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orbitmq.errors import RecordError
from orbitmq.limits.far import FAR_TABLE_ROW_GROUP_ROWS
from orbitmq.protocol.properties import decode_properties
from orbitmq.timing.far_table.rows import (
    ANY_QUEUE,
    SCHEMA,
    FarName,
    facts_of,
    file_bytes,
    messages_of,
    named_rows,
    rows_between,
    rows_due,
    sorted_rows,
    table_of,
)

NOW_MS = 1_790_000_000_000


def row(due_ms: int = NOW_MS, **more: Any) -> dict[str, Any]:
    return {"deliverTimestamp": due_ms, "topic": "orders", "body": b"b", "msgId": "M", **more}


def opened(table: pa.Table) -> pq.ParquetFile:
    return pq.ParquetFile(io.BytesIO(file_bytes(table)), page_checksum_verification=True)


def test_a_message_has_the_properties_of_one_that_was_sent_to_a_broker() -> None:
    full = row(
        NOW_MS + 1, queueId=3, tags="t", keys="k1 k2", shardingKey="s", msgId="ID", properties={"colour": "red", "a": "1"},
        flag=7, bornTimestamp=NOW_MS - 5,
    )  # fmt: skip
    (message,) = messages_of(table_of([full]))
    assert message[:5] == (NOW_MS + 1, "orders", 3, b"b", 7)
    assert decode_properties(message.properties) == {
        "WAIT": "true",
        "UNIQ_KEY": "ID",
        "TIMER_DELIVER_MS": str(NOW_MS + 1),
        "TAGS": "t",
        "KEYS": "k1 k2",
        "__SHARDINGKEY": "s",
        "colour": "red",
        "a": "1",
    }
    assert message[6:] == (NOW_MS - 5, "ID", "t", "k1 k2", "s")


def test_what_a_row_does_not_say_is_not_in_its_message() -> None:
    table = table_of([row(msgId="A"), row(msgId="B", tags="t", properties={"x": "y"}), row(msgId="C", keys="k")])
    messages = messages_of(table)
    assert [message.queue_id for message in messages] == [ANY_QUEUE] * 3
    due = {"WAIT": "true", "TIMER_DELIVER_MS": str(NOW_MS)}
    assert [decode_properties(message.properties) for message in messages] == [
        {**due, "UNIQ_KEY": "A"},
        {**due, "UNIQ_KEY": "B", "TAGS": "t", "x": "y"},
        {**due, "UNIQ_KEY": "C", "KEYS": "k"},
    ]


def test_messages_of_a_part_of_a_table_are_those_of_the_whole() -> None:
    table = table_of([row(NOW_MS + n, msgId=f"M{n}", properties={"n": str(n)} if n % 2 else {}) for n in range(9)])
    assert messages_of(table.slice(3, 4)) == messages_of(table)[3:7]
    assert messages_of(pa.concat_tables([table, table.slice(2, 1)]))[-1] == messages_of(table)[2]
    assert messages_of(table.slice(0, 0)) == []


@pytest.mark.parametrize("wrong", [{"keys": "a\x01"}, {"properties": {"a": "b\x02"}}, {"properties": {"a\x01": "b"}}])
def test_a_separator_in_a_text_is_damage(wrong: dict[str, Any]) -> None:
    with pytest.raises(RecordError, match="separator"):
        messages_of(table_of([row(**wrong)]))


def test_rows_are_sorted_by_due_time_and_equal_ones_stay_in_order() -> None:
    table = table_of(
        [row(NOW_MS + 2, msgId="c"), row(NOW_MS, msgId="a"), row(NOW_MS + 2, msgId="d"), row(NOW_MS, msgId="b")]
    )
    assert table.column("msgId").to_pylist() == ["a", "b", "c", "d"]
    assert sorted_rows(table) is table
    assert facts_of(table) == (4, NOW_MS, NOW_MS + 2)


def test_a_file_gives_back_its_rows_and_shows_what_people_look_for() -> None:
    parquet = opened(table_of([row(keys="k", properties={"colour": "red"})]))
    assert parquet.schema_arrow.names == SCHEMA.names
    (read,) = parquet.read().to_pylist()
    assert read["deliverTimestamp"] == datetime.fromtimestamp(NOW_MS / 1000, UTC)
    assert (read["topic"], read["keys"], dict(read["properties"])) == ("orders", "k", {"colour": "red"})


def test_rows_between_two_times_come_with_their_numbers_and_only_their_row_groups_are_read() -> None:
    count = 3 * FAR_TABLE_ROW_GROUP_ROWS
    times = pa.array(range(NOW_MS, NOW_MS + count), SCHEMA.field(0).type)
    first = table_of([row()])
    table = first.take(pa.array([0] * count)).set_column(0, SCHEMA.field(0), times)
    parquet = opened(table)
    assert parquet.metadata.num_row_groups == 3
    asked: list[int] = []
    read = parquet.read_row_group

    def counted(group: int, columns: list[str] | None = None) -> pa.Table:
        asked.append(group)
        return read(group, columns=columns)

    parquet.read_row_group = counted  # type: ignore[method-assign]
    edge = FAR_TABLE_ROW_GROUP_ROWS
    parts = list(rows_between(parquet, NOW_MS + edge - 2, NOW_MS + edge + 3))
    assert [(number, part.num_rows) for number, part in parts] == [(edge - 2, 2), (edge, 3)]
    assert asked == [0, 1]
    assert list(rows_between(parquet, NOW_MS + count, NOW_MS + count + 9)) == []
    assert sum(part.num_rows for _, part in rows_between(parquet, 0, NOW_MS + count)) == count


def test_a_file_of_something_else_is_refused() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1]}), sink)
    with pytest.raises(RecordError, match="those of a far table"):
        list(rows_between(pq.ParquetFile(sink.getvalue()), 0, 1))


def test_rows_due_are_a_piece_of_the_sorted_table() -> None:
    table = table_of([row(NOW_MS + n, msgId=str(n)) for n in range(5)])
    assert rows_due(table, NOW_MS + 1, NOW_MS + 3).column("msgId").to_pylist() == ["1", "2"]
    assert rows_due(table, NOW_MS + 3).column("msgId").to_pylist() == ["3", "4"]
    assert rows_due(table, NOW_MS + 9).num_rows == 0


def test_a_recall_names_rows_by_topic_and_one_of_their_keys_or_their_id() -> None:
    table = table_of(
        [
            row(msgId="A", keys="k1 k2"),
            row(msgId="B", keys="k2"),
            row(msgId="C"),
            row(msgId="D", topic="other", keys="k2"),
        ]
    )

    def named(*names: FarName) -> list[bool]:
        return list(named_rows(table, names).to_pylist())

    assert named(FarName("orders", "k2")) == [True, True, False, False]
    assert named(FarName("orders", "k1"), FarName("other", "k2")) == [True, False, False, True]
    assert named(FarName("orders", "C", is_id=True)) == [False, False, True, False]
    assert named(FarName("orders", "k"), FarName("orders", "D", is_id=True), FarName("orders", "A")) == [False] * 4
    assert named() == [False] * 4
