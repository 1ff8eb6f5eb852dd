"""The JSON dialect: its three liberties, what other peers write, references, bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orbitmq.errors import ProtocolError
from orbitmq.limits.wire import JSON_DEPTH_MAX
from orbitmq.protocol.remoting import fastjson
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.fastjson import ObjectKey, dumps, loads

QUEUE = '{"brokerName":"b-a","queueId":0,"topic":"T"}'
QUEUE_KEY = ObjectKey.of({"topic": "T", "brokerName": "b-a", "queueId": 0})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"x",1:"y"}', {"0": "x", "1": "y"}),
        ('{"0":"x", -1 : "y"}', {"0": "x", "-1": "y"}),
        ("{" + QUEUE + ":42}", {QUEUE_KEY: 42}),
        ("{" + QUEUE + ':{"a":[]},{"queueId":1}:2}', {QUEUE_KEY: {"a": []}, ObjectKey.of({"queueId": 1}): 2}),
        ("{'a':'it\\'s \"q\"'}", {"a": 'it\'s "q"'}),
        ("['\\u0041\\n\\\\', '']", ["A\n\\", ""]),
        ("{a:1,$b_2:[true,false,null]}", {"a": 1, "$b_2": [True, False, None]}),
        ("\ufeff\t{ a :\r\n[ 1 , 2.5 ,-3e2, 1.0E10] }\n", {"a": [1, 2.5, -300.0, 1e10]}),
        ("{1:9223372036854775807,2:-9223372036854775808}", {"1": 2**63 - 1, "2": -(2**63)}),
        ("{0:'{1:2}'}", {"0": "{1:2}"}),
        ('{0:"\t\n"}', {"0": "\t\n"}),
        ('{0:1,0:2,"0":3}', {"0": 3}),
        ('{0:"\\ud83d\\ude00标\\u2028"}', {"0": "😀标\u2028"}),
        ('{"a":1}\n', {"a": 1}),
        ("[]", []),
        ("{}", {}),
    ],
)
def test_reading(text: str, value: Any) -> None:
    assert loads(text) == value
    assert loads(text.encode()) == value
    assert loads(memoryview(text.encode())) == value


def test_data_inside_strings_is_never_touched() -> None:
    text = '{0:"{1:2},{{}:3},{\\"$ref\\":\\"$\\"}"}'
    assert loads(text) == {"0": '{1:2},{{}:3},{"$ref":"$"}'}


def test_quoted_objects_as_keys() -> None:
    text = json.dumps({QUEUE: 1, "T": 2})
    assert loads(text) == {QUEUE: 1, "T": 2}
    assert loads(text, quoted_objects=True) == {QUEUE_KEY: 1, "T": 2}
    queue = MessageQueue("T", "b-a", 0)
    assert loads(text, object_key=MessageQueue.of, quoted_objects=True) == {queue: 1, "T": 2}


def test_object_keys_of_a_type() -> None:
    assert loads("{" + QUEUE + ":1}", object_key=MessageQueue.of) == {MessageQueue("T", "b-a", 0): 1}
    with pytest.raises(ProtocolError, match="map key"):
        loads('{{"topic":1}:1}', object_key=MessageQueue.of)


# --- references ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":{"x":1},"b":{"$ref":"$.a"}}', {"a": {"x": 1}, "b": {"x": 1}}),
        ('{"l":[{"m":[1]},{"$ref":"$.l[0].m"}]}', {"l": [{"m": [1]}, [1]]}),
        ('[[1],{"$ref":"$[0]"},{"$ref":"$[1]"}]', [[1], [1], [1]]),
        ('{"a":{0:{"x":1}},"b":{"$ref":"$.a[0]"}}', {"a": {"0": {"x": 1}}, "b": {"x": 1}}),
        ('{"a":{"b.c [d]":[2]},"e":{"$ref":"$.a.b\\\\.c\\\\ \\\\[d\\\\]"}}', {"a": {"b.c [d]": [2]}, "e": [2]}),
        ('{"b":{"$ref":"$.a"},"a":{"x":1}}', {"a": {"x": 1}, "b": {"x": 1}}),
        ('{"a":{"$ref":"$.b"},"a":5,"b":[]}', {"a": 5, "b": []}),
        ('{"$ref":"$.a","a":1}', {"$ref": "$.a", "a": 1}),
        ('{"$ref":7}', {"$ref": 7}),
        ('{"a":"$ref"}', {"a": "$ref"}),
    ],
)
def test_references(text: str, value: Any) -> None:
    assert loads(text) == value


def test_reference_into_a_map_keyed_by_objects() -> None:
    path = r"$.t.MessageQueue\\ \\[topic\\=T\\,\\ brokerName\\=b-a\\,\\ queueId\\=0\\]"
    text = '{"t":{' + QUEUE + ':{"v":1}},"o":{"$ref":"' + path + '"}}'
    assert loads(text)["o"] == {"v": 1}
    assert loads(text, object_key=MessageQueue.of)["o"] == {"v": 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a":{"$ref":"$"}}', "contains it"),
        ('{"a":{"$ref":"@"}}', "contains it"),
        ('{"a":[{"$ref":".."}]}', "contains it"),
        ('{"a":{"b":{"$ref":"$.a"}}}', "circle"),
        ('{"a":[{"$ref":"$.b"}],"b":[{"$ref":"$.a"}]}', "circle"),
        ('{"a":{"$ref":"$.a"}}', "not known at this place"),
        ('{"$ref":"$"}', "nothing but a reference"),
        ('{"a":{"$ref":"$.x"}}', "names nothing"),
        ('{"l":[1],"a":{"$ref":"$.l[1]"}}', "names nothing"),
        ('{"l":[1],"a":{"$ref":"$.l.x"}}', "names nothing"),
        ('{"l":5,"a":{"$ref":"$.l[0]"}}', "names nothing"),
        ('{"l":"text","a":{"$ref":"$.l[0]"}}', "names nothing"),
        ('{"l":[1],"a":{"$ref":"$l"}}', "cannot be read"),
        ('{"l":[1],"a":{"$ref":"$.l[x]"}}', "cannot be read"),
        ('{"l":[1],"a":{"$ref":"l"}}', "not a path"),
        ('{{"$ref":"$.a"}:1}', "map key"),
        ('{{"k":{"$ref":"$.a"}}:1}', "map key"),
    ],
)
def test_references_that_cannot_be_resolved(text: str, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        loads(text)


def test_references_cannot_multiply_a_document() -> None:
    members = ['"l0":[1,1,1,1]']
    members += [f'"l{n}":[{",".join([json.dumps({"$ref": f"$.l{n - 1}"})] * 4)}]' for n in range(1, 30)]
    with pytest.raises(ProtocolError, match="grows by its references"):
        loads("{" + ",".join(members) + "}")


def test_references_cannot_deepen_a_document() -> None:
    members = ['"l0":[]'] + [f'"l{n}":[{{"$ref":"$.l{n - 1}"}}]' for n in range(1, JSON_DEPTH_MAX + 1)]
    with pytest.raises(ProtocolError, match="grows by its references"):
        loads("{" + ",".join(members) + "}")


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no value at character 0"),
        ("  ", "no value at character 2"),
        ("{0:1", "not closed"),
        ("[1", "not closed"),
        ("{0:1}x", "goes on after its end at character 5"),
        ("{0:1,}", "comma before the end"),
        ("[1,]", "no value"),
        ("[,1]", "no value"),
        ("{,}", "no key"),
        ("{0}", "without a colon"),
        ("{0:}", "no value"),
        ("{0:nul}", "no value"),
        ("{0:undefined}", "no value"),
        ("{0:1 2}", "not closed"),
        ('{0:"x}', "string is malformed"),
        ("{0:'x}", "not closed"),
        ("{0:'\\u12'}", "string is malformed"),
        ('{0:"\\q"}', "string is malformed"),
        ('{0:"\\ud800"}', "surrogate"),
        ("{[1]:2}", "no key"),
        ("{{0:[1]}:2}", "plain value"),
        ("{0:" + "9" * 401 + "}", "too long"),
        ("{0:" + "[" * 1000, "nested deeper"),
        ("[" * 100_000, "nested deeper"),
        ("{" * 100_000, "nested deeper"),
        ("{0:__import__('os')}", "no value"),
    ],
)
def test_malformed(text: str, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        loads(text)


def test_bad_utf8() -> None:
    with pytest.raises(ProtocolError, match="not UTF-8"):
        loads(b'{0:"\xff"}')
    with pytest.raises(ProtocolError, match="UTF-8"):
        loads('"\ud800"')


def test_size_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastjson, "JSON_BYTES_MAX", 10)
    assert loads("[12345678]") == [12345678]
    with pytest.raises(ProtocolError, match="over the limit of 10 bytes"):
        loads("[123456789]")


def test_depth_bound_is_exact() -> None:
    deepest = "[" * (JSON_DEPTH_MAX - 1) + "{0:1}" + "]" * (JSON_DEPTH_MAX - 1)
    loads(deepest)
    with pytest.raises(ProtocolError, match="nested deeper"):
        loads(f"[{deepest}]")


# --- writing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, "é"]}, '{"a":[true,null,"é"],"b":1}'),
        ({1: "x", 0: "y"}, '{"0":"y","1":"x"}'),
        ({"t": {2: {MessageQueue("T", "b", 1): 5}}}, '{"t":{"2":{{"brokerName":"b","queueId":1,"topic":"T"}:5}}}'),
        ({QUEUE_KEY: {"b": 1, "a": 2}}, "{" + QUEUE + ':{"a":2,"b":1}}'),
        ([{QUEUE_KEY: float("nan")}, float("inf")], "[{" + QUEUE + ":null},null]"),
        ({"a": {1: {}}, "b": ()}, '{"a":{"1":{}},"b":[]}'),
    ],
)
def test_writing(value: Any, text: str) -> None:
    assert dumps(value).decode() == text


def test_what_has_no_form() -> None:
    with pytest.raises(ProtocolError, match="no form"):
        dumps({"a": object()})
