"""Property strings of many messages read at once say what each of them says alone."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from orbitmq.columns.properties import split
from orbitmq.protocol.properties import decode_properties

TEXTS = {
    "regular": [b"a\x01b\x02cc\x01dd\x02", b"", b"e\x01f\x02"],
    "no last separator": [b"a\x01b\x02c\x01d", b"e\x01f", b"", b"g\x01h\x02"],
    "pieces that are dropped": [b"\x02\x02", b"\x01b\x02", b"a\x01\x02", b"a\x02", b"\x01", b"a\x01b\x02\x02"],
    "separators in values": [b"a\x01b\x01c\x02", b"\x01\x01\x02", b"a\x01\x01\x02"],
    "equal names": [b"a\x01b\x02a\x01c\x02", b"a\x01b\x02a\x01\x02", b"aa\x01b\x02a\x01c\x02", b"long-nam-1\x01b\x02long-nam-2\x01c\x02"],
    "many names": [b"".join(b"n%d\x01v\x02" % (number % 40) for number in range(60)), b"n\x01v\x02"],
    "not UTF-8": [b"a\x01\xc3", b"\xa9b\x01c\x02", b"\xff\x01\xff\x02"],
    "what JSON escapes": [b'a\x01"\\\x02', b"b\x01\n\x02", "ü\x01\u2028\x02".encode(), b"c\x01d\x02"],
    "the same names": [b"a\x01%d\x02long-nam-1\x01v\x02" % number for number in range(5)],
    "names that end otherwise": [b"a\x01b\x02long-nam-1\x01c\x02", b"a\x01d\x02long-nam-2\x01e\x02"],
    "the same names, one twice": [b"a\x01b\x02c\x01d\x02a\x01e\x02", b"a\x01f\x02c\x01g\x02a\x01h\x02"],
    "as many names": [b"a\x01b\x02c\x01d\x02", b"c\x01f\x02a\x01g\x02"],
    "none at all": [b"", b""],
    "no message": [],
}  # fmt: skip


@pytest.mark.parametrize("stored", TEXTS.values(), ids=TEXTS)
def test_maps_texts_and_single_values(stored: list[bytes]) -> None:
    entries = split(pa.array(stored, pa.binary()))
    plain = [decode_properties(text) for text in stored]
    maps = [dict(pairs) for pairs in entries.as_map().to_pylist()]
    assert maps == plain
    assert [len(pairs) for pairs in entries.as_map().to_pylist()] == [len(values) for values in plain]
    assert [json.loads(text) for text in entries.as_json().to_pylist()] == plain
    for name in ("a", "aa", "c", "long-nam-1", "long-nam-2", "n5", "ü", "absent"):
        assert entries.values(name).to_pylist() == [values.get(name) for values in plain], name


def test_names_are_common_where_every_message_has_the_same_in_the_same_order() -> None:
    common = {name: split(pa.array(stored, pa.binary())).common_names for name, stored in TEXTS.items()}
    assert {name: names for name, names in common.items() if names} == {
        "the same names": (b"a", b"long-nam-1"),
        "the same names, one twice": (b"a", b"c", b"a"),
    }
