"""Laws of property strings, hashes, ids and tag expressions."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ProtocolError
from orbitmq.protocol.filtering.tags import TagFilter, tags_code
from orbitmq.protocol.ids import decode_offset_id, encode_offset_id, pack_host, unpack_host
from orbitmq.protocol.javahash import index_key_hash, java_hash
from orbitmq.protocol.properties import (
    append_property,
    decode_properties,
    encode_properties,
    find_property,
    without_property,
)

names = st.text(st.characters(blacklist_characters="\x01\x02", blacklist_categories=["Cs"]), min_size=1, max_size=8)
values = st.text(st.characters(blacklist_characters="\x02", blacklist_categories=["Cs"]), min_size=1, max_size=12)
few_names = st.sampled_from(["a", "aa", "b", "KEYS"])
messy = st.lists(
    st.sampled_from([b"\x01", b"\x02", b"a", b"aa", b"b", b"KEYS", b"KEYS\x01v\x02", b"\xe4\xbd", b"\xff"]), max_size=14
).map(b"".join)


def slow_read(stored: bytes) -> dict[str, str]:
    """The rules of the format, piece by piece."""
    result = {}
    for piece in stored.decode("utf-8", "replace").split("\x02"):
        found = re.fullmatch(r"([^\x01]+)\x01(.+)", piece, re.DOTALL)
        if len(piece) >= 3 and found:
            result[found[1]] = found[2]
    return result


def slow_hash(text: str) -> int:
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (value * 31 + int.from_bytes(data[at : at + 2], "big")) % 2**32
    return value - 2**32 if value >= 2**31 else value


@given(st.dictionaries(names, values, max_size=6))
def test_properties_round_trip(properties: dict[str, str]) -> None:
    stored = encode_properties(properties)
    assert decode_properties(stored) == properties
    assert decode_properties(stored[:-1]) == properties
    for name, value in properties.items():
        assert find_property(stored, name.encode()) == value


@given(messy)
def test_reading_agrees_with_the_rules(stored: bytes) -> None:
    expected = slow_read(stored)
    assert decode_properties(stored) == expected
    for name in ("a", "aa", "b", "KEYS", "KEY"):
        assert find_property(stored, name.encode()) == expected.get(name)


@given(messy, few_names, values)
def test_append_and_remove(stored: bytes, name: str, value: str) -> None:
    expected = slow_read(stored)
    assert decode_properties(append_property(stored, name, value)) == expected | {name: value}
    expected.pop(name, None)
    assert decode_properties(without_property(stored, name.encode())) == expected


@given(st.text(st.characters(), max_size=60))
def test_hash_agrees_with_the_loop(text: str) -> None:
    assert java_hash(text) == slow_hash(text)


@given(
    st.text(max_size=20),
    st.one_of(st.text(st.characters(), max_size=60), st.text("0123456789ABCDEF", min_size=32, max_size=32)),
)
def test_index_hash_agrees_with_the_whole_text(topic: str, key: str) -> None:
    value = slow_hash(f"{topic}#{key}")
    assert index_key_hash(topic, key) == (0 if value == -(2**31) else abs(value))


@given(st.ip_addresses(), st.integers(0, 65535), st.integers(0, 2**63 - 1))
def test_offset_ids_round_trip(address: object, port: int, physical_offset: int) -> None:
    host = pack_host(str(address), port)
    text = encode_offset_id(host, physical_offset)
    assert decode_offset_id(text) == (host, physical_offset)
    assert pack_host(*unpack_host(host)) == host


@given(st.lists(st.sampled_from(["a", "TagB", "||", "|", " ", "*", "\t"]), max_size=8).map("".join))
def test_tag_expressions(expression: str) -> None:
    pieces = expression.split("||")
    try:
        parsed = TagFilter.parse(expression)
    except ProtocolError:
        assert expression
        assert not expression.replace("||", "")
        return
    if expression in ("", "*"):
        assert parsed.accepts_all
        return
    tags = {piece.strip() for piece in pieces} - {""}
    assert parsed.tags == tags
    assert parsed.codes == {tags_code(tag) for tag in tags}
