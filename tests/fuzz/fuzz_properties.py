"""Fuzzer of the property reader. Run: `python tests/fuzz/fuzz_properties.py --count 1000000 --seed 7`.

For every input: reading never fails; `find_property` agrees with the dictionary for every name and for names nearby;
what was read can be written and reads the same; removing a name removes it; ids, hashes and tag expressions made of
the input hold together.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path

from mutations import hex_corpus, run

from orbitmq.errors import OrbitError, RecordError
from orbitmq.protocol.filtering.tags import TagFilter, tags_code
from orbitmq.protocol.ids import decode_offset_id, encode_offset_id
from orbitmq.protocol.javahash import index_key_hash, java_hash
from orbitmq.protocol.names import topic_name_problem
from orbitmq.protocol.properties import (
    append_property,
    decode_properties,
    encode_properties,
    find_property,
    without_property,
)
from orbitmq.protocol.schedule import DelayLevels

TESTS = Path(__file__).resolve().parents[1]
TOKENS = [
    b"\x01",
    b"\x02",
    b"\x01\x02",
    b"\x02\x01",
    b"KEYS\x01",
    b"\x02TAGS\x01",
    b"\xf0\x9f\x98\x80",
    b"\xed\xa0\x80",
    b"||",
    b" ",
]
TRIMMED = "".join(map(chr, range(0x21)))
NAMES = (b"KEYS", b"TAGS", b"UNIQ_KEY", b"WAIT", b"a", b"KEY", b"")


def corpus() -> list[bytes]:
    inputs = hex_corpus(TESTS / "fuzz" / "corpus" / "properties.hex")
    for path in sorted((TESTS / "vectors" / "records").glob("*.jsonl.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                text = json.loads(line).get("propertiesString")
                if text is not None:
                    inputs.append(text.encode())
    return inputs


def parse(data: bytes) -> str:
    read = decode_properties(data)
    assert read == decode_properties(data.decode("utf-8", "replace")) == decode_properties(memoryview(data))
    for name in NAMES:
        assert find_property(data, name) == read.get(name.decode())
        assert name.decode() not in decode_properties(without_property(data, name)) or not name
    for key, value in read.items():
        if "\ufffd" not in key:
            assert find_property(data, key.encode()) == value
    assert decode_properties(encode_properties(read)) == read
    assert decode_properties(append_property(data, "TAGS", "fuzz"))["TAGS"] == "fuzz"
    _related(data, read)
    return "empty" if not read else "read"


def _related(data: bytes, read: dict[str, str]) -> None:
    text = data[:80].decode("utf-8", "replace")
    assert -(2**31) <= java_hash(text) < 2**31
    assert index_key_hash("T", text) == _index_form(java_hash(f"T#{text}"))
    topic_name_problem(text)
    for reader in (TagFilter.parse, DelayLevels.parse, decode_offset_id):
        try:
            reader(text)
        except OrbitError:
            continue
    unique = read.get("UNIQ_KEY", "")
    try:
        assert encode_offset_id(*decode_offset_id(unique)) == unique.upper()
    except OrbitError:
        assert len(unique) not in (32, 56) or set(unique) - set("0123456789abcdefABCDEF")
    tag = read.get("TAGS")
    if tag is not None and tag.strip(TRIMMED) == tag and "||" not in tag and tag != "*":
        accepted = TagFilter.parse(tag)
        assert accepted.code_test is None or accepted.code_test(tags_code(tag)) or not accepted.tags
    try:
        encode_properties({text: text})
    except RecordError:
        assert not text or "\x01" in text or "\x02" in text


def _index_form(value: int) -> int:
    return 0 if value == -(2**31) else abs(value)


if __name__ == "__main__":
    sys.exit(run("properties", corpus(), parse, TOKENS, refusals=()))
