"""Avro bodies become what fastavro reads from each, by the schema that it was written with; the rest are rows with reasons."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra 'spark' is not installed")
fastavro = pytest.importorskip("fastavro", reason="the extra 'typed' is not installed")

from fastavro import _read_py  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from orbitmq.errors import ConfigurationError  # noqa: E402
from orbitmq.spark.typed.avro_payloads import AvroDecoder, AvroEncoder, avro_schema, avro_type  # noqa: E402
from orbitmq.spark.typed.decoding import GivenSchema, PayloadRules  # noqa: E402
from orbitmq.spark.typed.fitting import check_fits, ddl_of  # noqa: E402
from orbitmq.spark.typed.framing import head  # noqa: E402
from orbitmq.spark.typed.payload_options import (  # noqa: E402
    PayloadFormat,
    PayloadFraming,
    PayloadOptions,
    RegistryOptions,
)

BAD = object()


def record(*fields: dict[str, Any], name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


ORDER = record(
    {"name": "id", "type": "long"},
    {"name": "amount", "type": ["null", "double"], "default": None},
    {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
    {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
    {
        "name": "items",
        "type": {
            "type": "array",
            "items": {"type": "record", "name": "Item", "fields": [{"name": "n", "type": "int"}]},
        },
    },
    {"name": "counts", "type": {"type": "map", "values": "int"}},
)
NODE = record({"name": "id", "type": "int"}, {"name": "next", "type": ["null", "Node"]}, name="Node")
ORDERS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "amount": st.none() | st.floats(allow_nan=False),
        "state": st.sampled_from(["NEW", "PAID"]),
        "at": st.integers(0, 4_000_000_000_000),
        "price": st.integers(-(10**9), 10**9).map(lambda cents: Decimal(cents).scaleb(-2)),
        "key": st.text(max_size=4),
        "items": st.lists(st.fixed_dictionaries({"n": st.integers(-(2**31), 2**31 - 1)}), max_size=3),
        "counts": st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=3),
    }
)


def written(text: str, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(text)), value)
    return stream.getvalue()


def decoded(
    bodies: list[bytes], writers: dict[int | None, str], reader: str | None = None, kind: Any = None
) -> list[Any]:
    schemas = {schema_id: avro_schema([text]) for schema_id, text in writers.items()}
    wanted = avro_schema([reader]) if reader is not None else None
    kind = kind or avro_type(wanted or next(iter(schemas.values())))
    values, reasons = AvroDecoder(kind, schemas, wanted).decode(pa.array(bodies, pa.binary()))
    assert values.type == kind
    assert len(values) == len(reasons) == len(bodies)
    pairs = zip(values.to_pylist(maps_as_pydicts="strict"), reasons.to_pylist(), strict=True)
    return [BAD if reason is not None else value for value, reason in pairs]


def model(body: bytes) -> Any:
    """What fastavro's plain code reads, where nothing is left."""
    stream = io.BytesIO(body)
    try:
        schema = avro_schema([ORDER]).parsed
        value = _read_py.schemaless_reader(stream, schema)
        column = pa.array([value], avro_type(avro_schema([ORDER])))
    except Exception:
        return BAD
    return column.to_pylist(maps_as_pydicts="strict")[0] if stream.tell() == len(body) else BAD


@given(
    st.lists(
        st.tuples(ORDERS, st.integers(0, 80), st.sampled_from([None, b"", b"\xff", b"\0", b"\x05\x05"])), max_size=8
    )
)
@settings(deadline=None)
def test_each_body_is_what_fastavro_reads(made: list[tuple[Any, int, bytes | None]]) -> None:
    bodies = []
    for value, at, spoilt in made:
        body = written(ORDER, value)
        bodies.append(body if spoilt is None else body[:at] + spoilt + body[at + 1 :])
    assert decoded(bodies, {None: ORDER}) == [model(body) for body in bodies]


@given(st.lists(ORDERS, max_size=5))
@settings(deadline=None)
def test_what_is_written_is_read(orders: list[Any]) -> None:
    schema = avro_schema([ORDER])
    values = [dict(order, at=pa.scalar(order["at"] * 1000, pa.timestamp("us", tz="UTC")).as_py()) for order in orders]
    bodies = [AvroEncoder(schema, head(7)).encode(value) for value in values]
    assert all(body.startswith(b"\0\0\0\0\7") for body in bodies)
    assert decoded(bodies, {7: ORDER}, ORDER) == values


def test_null_is_not_zero() -> None:
    text = record({"name": "n", "type": ["null", "long"]}, {"name": "m", "type": "long"})
    assert decoded([written(text, {"n": None, "m": 0}), written(text, {"n": 0, "m": 1})], {None: text}) == [
        {"n": None, "m": 0},
        {"n": 0, "m": 1},
    ]


def test_ids_say_by_which_schema_a_body_was_written() -> None:
    first = record({"name": "id", "type": "int"}, {"name": "gone", "type": "string"})
    second = record({"name": "id", "type": "long"}, {"name": "new", "type": "string", "default": "none"})
    bodies = [
        head(1) + written(first, {"id": 1, "gone": "x"}), head(2) + written(second, {"id": 2, "new": "y"}), head(3) + b"\2", b"\0\0", b"",
        b"\1\0\0\0\1\2", head(1) + b"\2", head(2) + written(second, {"id": 2, "new": "y"}) + b"\0",
    ]  # fmt: skip
    assert decoded(bodies, {1: first, 2: second}, second) == [
        {"id": 1, "new": "none"},
        {"id": 2, "new": "y"},
        *[BAD] * 6,
    ]
    schemas = {1: avro_schema([first]), 2: avro_schema([second])}
    reasons = (
        AvroDecoder(avro_type(schemas[2]), schemas, schemas[2])
        .decode(pa.array(bodies, pa.binary()))
        .reasons.to_pylist()
    )
    assert reasons[2] == "it was written with schema 3, and the registry's subjects have 1, 2"
    assert "are left" in reasons[7]


@pytest.mark.parametrize("size", [10_000, 4_000_000])
def test_a_chain_of_itself_ends_no_process(size: int) -> None:
    kind = pa.struct([("id", pa.int32()), ("next", pa.struct([("id", pa.int32())]))])
    good = written(NODE, {"id": 1, "next": {"id": 2, "next": None}})
    found = decoded([good, b"\2\2" * (size // 2) + b"\2\0", good], {None: NODE}, kind=kind)
    assert found == [{"id": 1, "next": {"id": 2}}, BAD, {"id": 1, "next": {"id": 2}}]


@pytest.mark.parametrize("body", [b"\xff" * 4_000_000, b"\xff" * 10 + b"\1\0", b"\x80" * 4_000_000])
def test_a_number_of_many_bytes_is_given_up_at_once(body: bytes) -> None:
    """Python has room for a number of any length, and adding to one of a megabyte takes as long as copying it."""
    kind = pa.struct([("id", pa.int32())])
    assert decoded([body, written(NODE, {"id": -(2**31), "next": None})], {None: NODE}, kind=kind) == [
        BAD,
        {"id": -(2**31)},
    ]


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_of_a_schema_that_names_itself(number: int) -> None:
    text = record({"name": "id", "type": "long"}, {"name": "next", "type": ["null", "Node"]}, name="Node")
    kind = pa.struct([("id", pa.int64())])
    assert decoded([written(text, {"id": number, "next": None})], {None: text}, kind=kind) == [{"id": number}]


def test_a_version_of_the_registry_that_is_of_no_use_is_the_reason_of_its_own_bodies() -> None:
    empty = record({"name": "a", "type": {"type": "array", "items": "null"}})
    good = record({"name": "id", "type": "int"})
    options = PayloadOptions(
        format=PayloadFormat.AVRO,
        framing=PayloadFraming.CONFLUENT,
        registry=RegistryOptions(url="http://host", subjects=("s",)),
    )
    rules = PayloadRules(
        options=options, kind=avro_type(avro_schema([good])), schema=GivenSchema((good,)), writers={1: (empty,), 2: (good,)}
    )  # fmt: skip
    bodies = [head(1) + b"\0", head(2) + written(good, {"id": 5})]
    values, reasons = rules.decoder().decode(pa.array(bodies, pa.binary()))
    assert values.to_pylist() == [None, {"id": 5}]
    assert reasons.to_pylist() == [
        "it was written with schema 1: an Avro schema has an array whose items take no bytes", None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (NODE, r"the Avro schema is recursive: payload.next is a Node inside of itself"),
        (record({"name": "a", "type": ["int", "string"]}), "payload.a is of several types in the Avro schema"),
        (record({"name": "a", "type": "null"}), "payload.a is null in the Avro schema"),
        (record({"name": "a", "type": {"type": "array", "items": "null"}}), "an array whose items take no bytes"),
        (
            record({"name": "a", "type": {"type": "array", "items": json.loads(record(name="E"))}}),
            "an array whose items take no bytes",
        ),
        ("{", "an Avro schema cannot be read"),
        ('{"type": "record"}', "an Avro schema cannot be read"),
        (record({"name": "a", "type": "Unknown"}), "an Avro schema cannot be read"),
        ('{"type": ' * 5_000 + '"int"' + "}" * 5_000, "an Avro schema cannot be read"),
    ],
)
def test_schemas_that_no_column_holds(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        avro_type(avro_schema([text]))


def test_a_schema_of_the_user_goes_around_what_no_column_holds() -> None:
    text = record({"name": "a", "type": ["int", "string"]}, {"name": "id", "type": "int"})
    wanted = pa.struct([("id", pa.int64())])
    check_fits(wanted, avro_type(avro_schema([text]), wanted), "its avro schema")
    assert decoded([written(text, {"a": "x", "id": 5})], {None: text}, kind=wanted) == [{"id": 5}]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (pa.struct([("ID", pa.int64())]), r"the Avro schema has no payload.ID .the fields there are id, amount"),
        (pa.struct([("id", pa.string())]), "payload.id is int64 by its avro schema, and string is asked for"),
        (pa.struct([("items", pa.list_(pa.struct([("n", pa.int16())])))]), r"payload.items\[\].n is int32"),
        (pa.struct([("at", pa.timestamp("us"))]), "payload.at is timestamp"),
    ],
)
def test_a_schema_that_does_not_fit(wanted: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        check_fits(wanted, avro_type(avro_schema([ORDER]), wanted), "its avro schema")


def test_the_type_in_ddl() -> None:
    assert ddl_of(avro_type(avro_schema([ORDER]))) == (
        "struct<`id`: bigint, `amount`: double, `state`: string, `at`: timestamp, `price`: decimal(10,2), `key`: string, "
        "`items`: array<struct<`n`: int>>, `counts`: map<string, int>>"
    )


def test_schemas_that_refer_to_others() -> None:
    item = record({"name": "n", "type": "int"}, name="Item")
    order = record({"name": "item", "type": "Item"})
    schema = avro_schema([item, order])
    body = AvroEncoder(schema, b"").encode({"item": {"n": 3}})
    assert AvroDecoder(avro_type(schema), {None: schema}, None).decode(
        pa.array([body], pa.binary())
    ).values.to_pylist() == [{"item": {"n": 3}}]


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ({"type": {"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 2}}, pa.binary()),
        ({"type": {"type": "bytes", "logicalType": "decimal"}}, pa.binary()),
        ({"type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}}, pa.decimal128(38, 2)),
        ({"type": {"type": "long", "logicalType": ["uuid"]}}, pa.int64()),
        ({"type": ["null", "string"], "logicalType": "uuid"}, pa.string()),
        ({"type": {"type": "string", "logicalType": "decimal", "precision": 4}}, pa.string()),
    ],
)
def test_a_logical_type_that_no_column_has_is_what_it_is_stored_as(field: dict[str, Any], kind: Any) -> None:
    assert avro_type(avro_schema([record({"name": "a", **field})])) == pa.struct([("a", kind)])


def test_a_schema_of_types_that_are_used_again_and_again_is_looked_at_in_no_time() -> None:
    """Each of thirty types has two fields of the next: a thousand million fields in some lines of text."""
    inner: Any = "string"
    for level in range(30):
        again = inner if isinstance(inner, str) else inner["name"]
        inner = {
            "type": "record", "name": f"A{level}", "fields": [{"name": "a", "type": inner}, {"name": "b", "type": again}],
        }  # fmt: skip
    schema = avro_schema([json.dumps(inner)])
    assert not schema.recursive
    with pytest.raises(ConfigurationError, match="has more than 2000 fields"):
        avro_type(schema)
