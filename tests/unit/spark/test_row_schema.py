"""Which columns a read has."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructField, StructType

from orbitmq.columns.message_columns import PropertiesForm
from orbitmq.errors import ConfigurationError
from orbitmq.spark.row_schema import check_columns, whole_schema

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
