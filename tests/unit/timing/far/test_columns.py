"""Records as rows, and the same bytes back; rows as other readers of Parquet see them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.protocol.names import FAR_TIMER_TOPIC
from orbitmq.protocol.properties import encode_properties
from orbitmq.protocol.records import MagicCode, Record, decode_record, encode_record
from orbitmq.timing.far.arrow_tier import ArrowTier
from orbitmq.timing.far.columns import SCHEMA, records_of, table_of

HOST = bytes((10, 0, 0, 1, 0, 0, 0x2A, 0x9F))
SIX = bytes(range(16)) + bytes((0, 0, 0x2A, 0x9F))
NAMES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=8)


def record(
    number: int = 0,
    due_ms: int = 1_790_000_000_000,
    *,
    body: bytes = b"body",
    properties: dict[str, str] | None = None,
    tail: bytes = b"",
    six: bool = False,
) -> Record:
    values = {"REAL_TOPIC": "orders", "REAL_QID": "3", "ORBITMQ_DUE_MS": str(due_ms)} | (properties or {})
    made = Record(
        MagicCode.V1, 7, 0, 5, number, number * 400, 0x10 if six else 0, 1_700_000_000_123, SIX if six else HOST,
        1_700_000_000_456, HOST, 2, 99, body, FAR_TIMER_TOPIC, encode_properties(values) + tail,
    )  # fmt: skip
    return decode_record(encode_record(made))


@given(
    body=st.binary(max_size=40),
    properties=st.dictionaries(NAMES.map(lambda name: "x" + name), NAMES, max_size=4),
    tail=st.sampled_from([b"", b"x", b"a\x01\x02", b"\xff\x01\xfe\x02", b"b\x011\x02b\x012\x02"]),
    six=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_record_comes_back_with_its_bytes(body: bytes, properties: dict[str, str], tail: bytes, six: bool) -> None:
    before = record(1, body=body, properties=properties, tail=tail, six=six)
    assert list(records_of(table_of([before]))) == [encode_record(before)]


def test_rows_are_sorted_by_due_time_and_then_by_position() -> None:
    table = table_of([record(3, 1_790_000_000_002), record(2, 1_790_000_000_001), record(1, 1_790_000_000_002)])
    assert table.column("commitLogOffset").to_pylist() == [800, 400, 1200]


def test_a_file_shows_what_people_look_for(tmp_path: Path) -> None:
    one = record(1, body=b"hello", properties={"KEYS": "k1 k2", "TAGS": "t", "UNIQ_KEY": "U", "colour": "red"})
    tier = ArrowTier(str(tmp_path))
    tier.open()
    file = tier.land("landing/a.parquet", encode_record(one))
    table = pq.read_table(tmp_path / file.name)
    assert table.schema.names == SCHEMA.names
    row = table.to_pylist()[0]
    assert row["deliverTimestamp"].timestamp() == 1_790_000_000
    assert (row["topic"], row["queueId"], row["body"]) == ("orders", 3, b"hello")
    assert (row["keys"], row["tags"], row["msgId"]) == ("k1 k2", "t", "U")
    assert dict(row["properties"])["colour"] == "red"
    assert (row["bornHost"], row["rawProperties"]) == ("10.0.0.1:10911", None)
