"""Payloads become bodies before anything is sent, and what cannot names its row."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra 'spark' is not installed")

from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, VariantType  # noqa: E402

from orbitmq.errors import ConfigurationError, MessageIllegalError  # noqa: E402
from orbitmq.spark.source import OrbitmqSource  # noqa: E402
from orbitmq.spark.typed.decoding import GivenSchema  # noqa: E402
from orbitmq.spark.typed.encoding import EncodingRules, encoded  # noqa: E402
from orbitmq.spark.typed.json_payloads import JsonDecoder, JsonEncoder  # noqa: E402
from orbitmq.spark.typed.payload_options import PayloadFormat, PayloadOptions  # noqa: E402

AVRO = json.dumps(
    {
        "type": "record",
        "name": "A",
        "fields": [{"name": "id", "type": "long"}, {"name": "n", "type": ["null", "string"]}],
    }
)
ORDER = StructType([StructField("id", LongType(), False), StructField("n", StringType())])


def bodies(
    values: list[Any], kind: Any, form: PayloadFormat = PayloadFormat.JSON, schema: GivenSchema | None = None
) -> list[Any]:
    rules = EncodingRules(options=PayloadOptions(format=form), schema=schema or GivenSchema(), place=1)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(range(len(values))), pa.array(values, kind)], names=["queueId", "payload"]
    )
    [found] = encoded([batch], rules, 3)
    assert found.schema.names == ["queueId", "body"]
    return found.column(1).to_pylist()


def test_what_is_written_as_json_is_read() -> None:
    kind = pa.struct(
        [("id", pa.int64()), ("price", pa.decimal128(10, 2)), ("at", pa.timestamp("us", tz="UTC")), ("local", pa.timestamp("us")),
         ("day", pa.date32()), ("data", pa.binary()), ("counts", pa.map_(pa.string(), pa.int32())), ("tags", pa.list_(pa.string()))]
    )  # fmt: skip
    column = pa.array(
        [{"id": 2**62, "price": Decimal("1.20"), "at": 1_700_000_000_123_456, "local": 5, "day": 20_000, "data": b"\0", "counts": {"a": 1},
          "tags": ["x", None]}, {}],
        kind,
    )  # fmt: skip
    found = bodies(column.to_pylist(maps_as_pydicts="strict"), kind)
    assert json.loads(found[0])["price"] == 1.2
    assert JsonDecoder(kind).decode(pa.array(found, pa.binary())).values.equals(column)


def test_null_is_no_body() -> None:
    assert bodies([None, {"id": 1}], pa.struct([("id", pa.int64())])) == [None, b'{"id":1}']


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_know_is_no_null(value: float) -> None:
    with pytest.raises(ValueError, match="NaN or infinity"):
        JsonEncoder().encode({"items": [{"n": value}]})
    assert JsonEncoder().encode({"name": "null", "n": None}) == b'{"name":"null","n":null}'


def test_what_cannot_be_written_names_its_row() -> None:
    with pytest.raises(MessageIllegalError, match="row 1 of partition 3 has a payload that cannot be written as avro"):
        bodies(
            [{"id": 1}, {"id": None}],
            pa.struct([("id", pa.int64()), ("n", pa.string())]),
            PayloadFormat.AVRO,
            GivenSchema((AVRO,)),
        )


def writer(schema: StructType, **options: str) -> Any:
    return OrbitmqSource({"nameserver": "a:1", "topic": "t", **options}).writer(schema, False)


def test_a_payload_stands_in_the_place_of_a_body() -> None:
    made = writer(
        StructType([StructField("keys", StringType()), StructField("payload", ORDER)]),
        payload="avro",
        payloadSchema=AVRO,
    )
    assert made._places == {"keys": 0, "body": 1}


@pytest.mark.parametrize(
    ("schema", "options", "words"),
    [
        (StructType([StructField("body", StringType())]), {"payload": "json"}, "there is no column payload"),
        (StructType([StructField("payload", ORDER), StructField("body", StringType())]), {"payload": "json"}, "column body is there twice"),
        (StructType([StructField("payload", ORDER)]), {}, "column 'payload' is nothing that a message has"),
        (StructType([StructField("payload", StringType())]), {"payload": "json"}, "column payload is string .it is a struct"),
        (
            StructType([StructField("payload", StructType([StructField("v", VariantType())]))]),
            {"payload": "json"},
            r"payload\.v is a variant, .*write to_json",
        ),
        (
            StructType([StructField("payload", StructType([StructField("id", DoubleType())]))]),
            {"payload": "avro", "payloadSchema": AVRO},
            "payload.id is double by the data frame, and int64 is asked for",
        ),
        (
            StructType([StructField("payload", StructType([StructField("ID", LongType())]))]),
            {"payload": "avro", "payloadSchema": AVRO},
            "the Avro schema has no payload.ID",
        ),
        (
            StructType([StructField("payload", ORDER)]),
            {"payload": "avro", "payloadSchema": "/no/such/file"},
            r"payloadSchema: .*No such file .*driver's machine",
        ),
        (StructType([StructField("key", StringType()), StructField("keys", StringType()), StructField("value", StringType())]), {},
         "column keys is there twice"),
    ],
)  # fmt: skip
def test_mistakes(schema: StructType, options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        writer(schema, **options)


def test_rows_as_kafkas_sink_has_them() -> None:
    schema = StructType([StructField("key", StringType()), StructField("value", StringType())])
    made = OrbitmqSource({"kafka.bootstrap.servers": "a:1,b:2", "topic": "t"}).writer(schema, False)
    assert made._places == {"keys": 0, "shardingKey": 0, "body": 1}
    assert made._options.name_servers == ("a:1", "b:2")
