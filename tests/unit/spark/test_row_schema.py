"""Which columns a read has."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CalendarIntervalType,
    CharType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
    VariantType,
)

from orbitmq.columns.message_columns import PropertiesForm
from orbitmq.errors import ConfigurationError
from orbitmq.spark.options import read_options
from orbitmq.spark.row_schema import arrow_of, check_columns, row_view, whole_schema

BODY, TOPIC = StructField("body", BinaryType()), StructField("topic", StringType())
MAP = StructField("properties", MapType(StringType(), StringType()))
TEXT = StructField("properties", StringType())


def test_the_order_is_the_users() -> None:
    assert check_columns(StructType([TOPIC, BODY]), None) == (("topic", "body"), PropertiesForm.MAP)


def test_the_type_of_properties_says_their_form() -> None:
    assert check_columns(StructType([MAP]), None)[1] is PropertiesForm.MAP
    assert check_columns(StructType([TEXT]), None)[1] is PropertiesForm.JSON
    assert check_columns(StructType([TEXT]), PropertiesForm.JSON)[1] is PropertiesForm.JSON


def test_the_whole_schema() -> None:
    assert "properties map<string,string>" in whole_schema(PropertiesForm.MAP)
    assert "properties string" in whole_schema(PropertiesForm.JSON)
    assert "properties" not in whole_schema(PropertiesForm.NONE)


@pytest.mark.parametrize(
    ("fields", "form", "text"),
    [
        ([StructField("payload", BinaryType())], None, "no column 'payload' .the columns are topic, flag, body"),
        ([StructField("Body", BinaryType())], None, "no column 'Body'"),
        ([StructField("body", StringType())], None, "body is binary, not string"),
        ([StructField("flag", LongType())], None, "flag is int, not bigint"),
        ([StructField("body", BinaryType(), nullable=False)], None, "body may be null"),
        ([MAP], PropertiesForm.JSON, "properties is string, not map"),
        ([TEXT], PropertiesForm.MAP, "properties is map"),
        ([MAP], PropertiesForm.NONE, "left out by includeProperties=none"),
        ([BODY, BODY], None, "named twice"),
        ([], None, "at least one column"),
    ],
)
def test_mistakes(fields: list[StructField], form: PropertiesForm | None, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        check_columns(StructType(fields), form)


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def test_texts_of_a_fixed_or_bounded_length_are_strings_wherever_they_stand() -> None:
    inner = struct(a=CharType(3), b=VarcharType(5), at=TimestampType())
    found = arrow_of(struct(a=VarcharType(9), many=ArrayType(inner), by=MapType(VarcharType(4), CharType(2), False)))
    struct_of_strings = pa.struct([("a", pa.string()), ("b", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    assert found.field("a").type == pa.string()
    assert found.field("many").type.value_type == struct_of_strings
    assert found.field("by").type == pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False))


def test_what_may_be_null_stays_so() -> None:
    kept = StructType([StructField("a", CharType(3), False), StructField("b", CharType(3))])
    assert [field.nullable for field in arrow_of(kept)] == [False, True]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (struct(v=VariantType()), r"payload\.v is a variant, .*parse_json.*to_json"),
        (struct(many=ArrayType(struct(v=VariantType()))), r"payload\.many\[\]\.v is a variant"),
        (struct(by=MapType(StringType(), VariantType())), r"payload\.by\[\] is a variant"),
        (VariantType(), "payload is a variant"),
        (
            struct(v=CalendarIntervalType()),
            "a column is of a type that no message has: .*CalendarInterval.*use string,",
        ),
    ],
)
def test_types_that_no_payload_has(kind: DataType, text: str) -> None:
    given = {"nameServer": "a:1", "topic": "t", "payload": "json"}
    with pytest.raises(ConfigurationError, match=text):
        row_view(struct(payload=kind, payloadError=StringType()), read_options(given, streaming=False))
