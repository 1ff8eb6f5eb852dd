"""Properties: the tolerant reader, the strict writer, and the reader that builds no dictionary."""

from __future__ import annotations

import pytest

from orbitmq.errors import RecordError
from orbitmq.protocol.properties import (
    RESERVED,
    USER_MAY_SET,
    Property,
    append_property,
    decode_properties,
    encode_properties,
    find_property,
    user_property_problem,
    without_property,
)


def test_every_entry_ends_in_its_separator() -> None:
    assert encode_properties({"KEYS": "k1", "TAGS": "TagA"}) == b"KEYS\x01k1\x02TAGS\x01TagA\x02"
    assert encode_properties({}) == b""


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (b"", {}),
        (b"KEYS\x01k1\x02TAGS\x01TagA\x02", {"KEYS": "k1", "TAGS": "TagA"}),
        (b"KEYS\x01k1\x02TAGS\x01TagA", {"KEYS": "k1", "TAGS": "TagA"}),
        (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
        (b"a\x01\x02b\x01c", {"b": "c"}),
        (b"\x01a\x02b\x01c", {"b": "c"}),
        (b"alone\x02b\x01c", {"b": "c"}),
        (b"a\x011\x02a\x012\x02", {"a": "2"}),
        (b"a\x011\x02a\x01\x02", {"a": "1"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        ("k\x01你好\x02".encode(), {"k": "你好"}),
        (b"k\x01\xff\x02", {"k": "\ufffd"}),
        (b"\x01\x02\x01", {}),
    ],
)
def test_reading(stored: bytes, expected: dict[str, str]) -> None:
    assert decode_properties(stored) == expected
    assert decode_properties(memoryview(stored)) == expected
    assert decode_properties(stored.decode("utf-8", "replace")) == expected
    for name in ["a", "b", "k", "KEYS", "TAGS", "alone", ""]:
        assert find_property(stored, name.encode()) == expected.get(name)


def test_a_name_that_ends_like_another_is_not_found() -> None:
    stored = b"MYTAGS\x01x\x02TAGS2\x01y\x02"
    assert find_property(stored, b"TAGS") is None
    assert find_property(stored, b"MYTAGS") == "x"
    assert find_property(b"x\x01\x01TAGS\x01y\x02", b"TAGS") is None


@pytest.mark.parametrize("name", ["", "a\x01", "a\x02b"])
def test_names_that_could_not_be_read_back_are_refused(name: str) -> None:
    with pytest.raises(RecordError):
        encode_properties({"ok": "1", name: "v"})


def test_values_that_could_not_be_read_back_are_refused() -> None:
    with pytest.raises(RecordError, match="'a' contains the separator"):
        encode_properties({"a": "x\x02y"})
    with pytest.raises(RecordError, match="lone surrogate"):
        encode_properties({"a": "\ud800"})


def test_a_value_with_the_name_separator_survives_a_broker() -> None:
    assert decode_properties(encode_properties({"a": "x\x01y"})) == {"a": "x\x01y"}


def test_append_repairs_a_missing_separator() -> None:
    assert append_property(b"", "a", "1") == b"a\x011\x02"
    assert append_property(b"x\x01y", "a", "1") == b"x\x01y\x02a\x011\x02"
    assert append_property(b"x\x01y\x02", "a", "1") == b"x\x01y\x02a\x011\x02"


def test_without_property_takes_every_entry_of_the_name() -> None:
    stored = b"POP_CK\x011\x02a\x01POP_CK\x02POP_CK\x012\x02XPOP_CK\x013\x02"
    assert without_property(stored, b"POP_CK") == b"a\x01POP_CK\x02XPOP_CK\x013\x02"
    untouched = b"XPOP_CK\x013\x02"
    assert without_property(untouched, b"POP_CK") is untouched
    assert without_property(b"POP_CK\x011", b"POP_CK") == b""


def test_reserved_names_are_those_of_the_protocol() -> None:
    assert len(RESERVED) >= 63
    assert {"KEYS", "1ST_POP_TIME", "__CRC32#", "__transactionId__", "__BORNHOST", "TIMER_DELIVER_MS"} <= RESERVED
    assert USER_MAY_SET < RESERVED
    assert not any(name.startswith("orbitmq") for name in RESERVED)


@pytest.mark.parametrize("name", ["KEYS", "TAGS", "DELAY", "UNIQ_KEY", "__CRC32#", "TIMER_OUT_MS"])
def test_programs_may_not_set_reserved_names(name: str) -> None:
    assert user_property_problem(name, "v") == f"the property name {name!r} is reserved"


@pytest.mark.parametrize(("name", "value"), [("", "v"), (" ", "v"), ("a", ""), ("a", " \t")])
def test_programs_may_not_set_blanks(name: str, value: str) -> None:
    assert "blank" in str(user_property_problem(name, value))


def test_programs_may_set_everything_else() -> None:
    assert user_property_problem("colour", "red") is None
    assert user_property_problem(Property.SHARDING_KEY, "order-1") is None
    assert "separator" in str(user_property_problem("a", "x\x01"))
