"""Records in bulk give what the plain decoders give of each of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.columns.message_columns import COLUMN_TYPES, PropertiesForm, column_types
from orbitmq.columns.records import examine, record_batches, walk
from orbitmq.columns.schema import arrow_schema
from orbitmq.protocol.records import CheckStatus, check_record, encode_blank, encode_stored

from .plain_rows import batch_rows, plain_rows, record_batch
from .random_records import record_data

_FORMS = st.sampled_from(list(PropertiesForm))


@given(record_data(), _FORMS, st.sampled_from(["broker-a", None]))
@settings(max_examples=120, deadline=None)
def test_every_column_is_what_the_plain_decoder_says(
    drawn: tuple[bytes, list[int]], properties: PropertiesForm, broker_name: str | None
) -> None:
    data, starts = drawn
    names = list(column_types(properties))
    found = walk(data)
    assert found.starts.tolist() == starts
    assert found.end == len(data)
    assert found.stopped is None
    batch = record_batch(data, found.starts, names, broker_name, properties)
    assert batch.schema == arrow_schema(names, properties)
    assert batch_rows(batch) == plain_rows(data, starts, names, broker_name, properties)


@given(record_data(), st.lists(st.sampled_from(list(COLUMN_TYPES)), unique=True))
@settings(max_examples=60, deadline=None)
def test_any_columns_in_any_order(drawn: tuple[bytes, list[int]], names: list[str]) -> None:
    data, starts = drawn
    batch = record_batch(data, np.array(starts, np.int64), names, "b", PropertiesForm.MAP)
    assert batch.schema.names == names
    if names:
        assert batch_rows(batch) == plain_rows(data, starts, names, "b", PropertiesForm.MAP)


@given(record_data(base=1000, plain=True), st.data())
@settings(max_examples=120, deadline=None)
def test_a_changed_byte_is_judged_as_the_plain_check_does(drawn: tuple[bytes, list[int]], data: st.DataObject) -> None:
    original, starts = drawn
    changed = bytearray(original)
    for _ in range(data.draw(st.integers(0, 3)) if original else 0):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    examined = examine(changed, np.array(starts, np.int64), base=1000, sums=True)
    damaged = {damage.position for damage in examined.damaged}
    for start in starts:
        check = check_record(bytes(changed), start, len(changed), expect_physical_offset=1000 + start)
        assert (start in damaged) == (check.status is not CheckStatus.VALID), check
    assert sorted([*damaged, *examined.layout.starts.tolist()]) == starts
    assert [damage.position for damage in examined.damaged] == sorted(damaged)


@pytest.mark.parametrize("topic", [b"orders", b"t" * 200], ids=["V1", "V2"])
def test_a_length_with_its_top_bit_is_told_as_the_plain_check_tells_it(topic: bytes) -> None:
    host = b"\x7f\0\0\1\0\0\x2a\x9f"
    record = bytearray(encode_stored(topic, 0, 0, 0, 0, 0, 1, host, 1, host, 0, 0, b"x" * 16, b"", 0))
    record[88 + 16] |= 0x80
    [damaged] = examine(bytes(record), np.array([0], np.int64)).damaged
    assert damaged.why == check_record(bytes(record), 0, len(record), crc=False).problem


@given(record_data(), st.integers(1, 2000))
@settings(max_examples=60, deadline=None)
def test_small_batches_hold_the_same_rows(drawn: tuple[bytes, list[int]], batch_bytes: int) -> None:
    data, starts = drawn
    names = list(COLUMN_TYPES)
    layout = examine(data, np.array(starts, np.int64)).layout
    rows = []
    for batch in record_batches(
        data, layout, names, broker_name=None, properties=PropertiesForm.MAP, batch_bytes=batch_bytes
    ):
        assert batch.num_rows
        rows += batch_rows(batch)
    assert rows == plain_rows(data, starts, names, None, PropertiesForm.MAP)


@given(record_data(), st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_a_walk_stops_before_what_is_not_whole(drawn: tuple[bytes, list[int]], missing: int) -> None:
    data, starts = drawn
    cut = data[: max(len(data) - missing, 0)]
    ends = [*starts[1:], len(data)][: len(starts)]
    whole = [start for start, end in zip(starts, ends, strict=True) if end <= len(cut)]
    found = walk(cut)
    assert found.starts.tolist() == whole
    assert found.end == (ends[len(whole) - 1] if whole else 0)
    assert (found.stopped is None) == (found.end == len(cut))


def test_a_walk_names_what_stopped_it() -> None:
    found = walk(encode_blank(20) + b"\xff" * 12)
    assert (found.starts.tolist(), found.end, found.stopped) == ([], 0, "an end-of-file filler of 20 bytes")
    found = walk(bytes(100), 20)
    assert (found.end, found.stopped) == (20, "0x00000000 is not the magic code of a record")


def test_records_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="ascending"):
        examine(bytes(500), np.array([5, 5]))
