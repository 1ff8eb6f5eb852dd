"""Records of tables: what is written is read back, in parts below the bound; what cannot be read is no record."""

from __future__ import annotations

import msgspec
import pytest

from orbitmq.broker.table_records.record_form import (
    Changed,
    Dropped,
    Ended,
    change_parts,
    decode,
    encode_dropped,
    encode_ended,
)
from orbitmq.errors import RecordError
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.remoting.bodies import DataVersion

VERSION = DataVersion(counter=3, state_version=1, timestamp=9)


def test_a_change_is_read_back() -> None:
    [part] = change_parts("topics", VERSION, [("a", b'{"n":1}'), ("b", None)], 1_000)
    record = decode(part.body, "here")
    assert isinstance(record, Changed)
    assert record.values() == {"a": b'{"n":1}', "b": None}
    assert (record.table, record.data_version()) == ("topics", VERSION)
    assert (part.put, part.deleted) == (["a"], ["b"])


def test_changes_go_into_parts_below_the_bound_and_a_large_one_alone() -> None:
    values: list[tuple[str, bytes | None]] = [(f"k{number}", b'"%s"' % (b"x" * 30)) for number in range(10)]
    values.insert(4, ("large", b'"%s"' % (b"x" * 500)))
    parts = list(change_parts("t", VERSION, values, 100))
    assert [key for part in parts for key in part.put] == [key for key, _ in values]
    assert ["large"] in [part.put for part in parts]
    assert all(len(part.put) <= 2 for part in parts)


def test_nothing_makes_no_record() -> None:
    assert list(change_parts("t", VERSION, [], 100)) == []


def test_ends_are_read_back() -> None:
    body, properties = encode_ended("orders")
    assert decode(body, "here") == Ended(1, "orders")
    assert decode_properties(properties) == {"ORBITMQ_ENDED_TOPIC": "orders"}
    assert decode(encode_dropped("offsets"), "here") == Dropped(1, "offsets")


def test_a_field_of_tomorrow_is_ignored() -> None:
    body = msgspec.json.encode({"version": 1, "kind": "dropped", "table": "t", "why": "who knows"})
    assert decode(body, "here") == Dropped(1, "t")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"[]",
        b'{"version": 1}',
        b'{"version": 1, "kind": "other"}',
        b'{"version": 2, "kind": "ended"}',
        b"\xff",
    ],
)
def test_what_is_no_record_is_told_with_its_place(body: bytes) -> None:
    with pytest.raises(RecordError, match="log position 7"):
        decode(body, "log position 7")
