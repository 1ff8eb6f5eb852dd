"""The dialect's parser against a simple model: a writer of all its forms, and Python's own JSON."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ProtocolError
from orbitmq.protocol.remoting.fastjson import ObjectKey, dumps, loads

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
object_keys = st.dictionaries(texts, st.integers() | texts | st.booleans(), max_size=3).map(ObjectKey.of)
keys = texts | st.integers(-(2**31), 2**31).map(str) | object_keys
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=15
).filter(lambda value: "$ref" not in repr(value))


class Writer:
    """Writes a value in the dialect; `choose` decides between the forms it allows."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data

    def choose(self, *forms: str) -> str:
        return self.data.draw(st.sampled_from(forms))

    def blank(self) -> str:
        return self.choose("", "", " ", "\n\t")

    def text(self, text: str) -> str:
        quoted = json.dumps(text, ensure_ascii=self.data.draw(st.booleans()))
        single = "'" + quoted[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"
        return self.choose(quoted, single)

    def key(self, key: Any) -> str:
        if isinstance(key, ObjectKey):
            return self.value(key.members())
        bare = key.lstrip("-").isascii() and key.removeprefix("-").isdigit()
        return self.choose(key, self.text(key)) if bare else self.text(key)

    def value(self, value: Any) -> str:
        if isinstance(value, dict):
            members = (
                f"{self.blank()}{self.key(key)}{self.blank()}:{self.blank()}{self.value(item)}"
                for key, item in value.items()
            )
            return "{" + ",".join(members) + self.blank() + "}"
        if isinstance(value, list):
            return "[" + ",".join(self.blank() + self.value(item) for item in value) + self.blank() + "]"
        return self.text(value) if isinstance(value, str) else json.dumps(value)


@given(values, st.data())
def test_reads_every_form(value: Any, data: st.DataObject) -> None:
    assert loads(Writer(data).value(value)) == value


@given(values)
def test_reads_what_it_writes(value: Any) -> None:
    written = dumps(value)
    assert loads(written) == value
    assert dumps(loads(written)) == written


@given(st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=10))
def test_agrees_with_strict_json(value: Any) -> None:
    assert json.loads(dumps(value)) == value


@given(st.text("{}[]:,'\"0123456789.-eE$refabcnulltrue\\ @\n", max_size=60))
def test_noise_is_refused_or_read(text: str) -> None:
    try:
        value = loads(text)
    except ProtocolError:
        return
    assert loads(dumps(value)) == value


@given(st.integers(1, 8), st.integers(0, 7))
def test_references_share_the_value(size: int, index: int) -> None:
    document = [{"n": number, "tags": [number]} for number in range(size)]
    reference = {"$ref": f"$.a[{index}].tags"}
    text = json.dumps({"a": document, "b": reference})
    if index < size:
        assert loads(text)["b"] == [index]
    else:
        try:
            loads(text)
        except ProtocolError:
            return
        raise AssertionError("a reference to nothing was resolved")
