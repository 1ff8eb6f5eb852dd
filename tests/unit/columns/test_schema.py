"""The columns and their types."""

from __future__ import annotations

import pyarrow as pa
import pytest

from orbitmq.columns.schema import COLUMNS, PropertiesAs, arrow_schema, column_names
from orbitmq.errors import ConfigurationError


def test_columns_in_the_order_asked_for() -> None:
    schema = arrow_schema(["body", "topic"], PropertiesAs.NONE)
    assert schema == pa.schema([("body", pa.binary()), ("topic", pa.string())])
    assert all(field.nullable for field in arrow_schema(COLUMNS, PropertiesAs.MAP))


def test_forms_of_properties() -> None:
    forms = {form: arrow_schema(["properties"], form).field(0).type for form in PropertiesAs if form.value != "none"}
    assert forms == {
        PropertiesAs.MAP: pa.map_(pa.string(), pa.string()),
        PropertiesAs.JSON: pa.string(),
        PropertiesAs.RAW: pa.binary(),
    }
    assert "properties" not in column_names(PropertiesAs.NONE)


def test_an_unknown_column_lists_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"no column 'offset' .*topic, flag, body, properties"):
        arrow_schema(["offset"], PropertiesAs.MAP)
    with pytest.raises(ConfigurationError, match="no column 'properties'"):
        arrow_schema(["properties"], PropertiesAs.NONE)
