"""The columns and their types."""

from __future__ import annotations

import pyarrow as pa
import pytest

from orbitmq.columns.message_columns import COLUMN_TYPES, PropertiesForm, column_types
from orbitmq.columns.schema import arrow_schema
from orbitmq.errors import ConfigurationError


def test_columns_in_the_order_asked_for() -> None:
    schema = arrow_schema(["body", "topic"], PropertiesForm.NONE)
    assert schema == pa.schema([("body", pa.binary()), ("topic", pa.string())])
    assert all(field.nullable for field in arrow_schema(COLUMN_TYPES, PropertiesForm.MAP))


def test_forms_of_properties() -> None:
    forms = {form: arrow_schema(["properties"], form).field(0).type for form in PropertiesForm if form.value != "none"}
    assert forms == {
        PropertiesForm.MAP: pa.map_(pa.string(), pa.string()),
        PropertiesForm.JSON: pa.string(),
    }
    assert "properties" not in column_types(PropertiesForm.NONE)


def test_an_unknown_column_lists_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"no column 'offset' .*topic, flag, body, properties"):
        arrow_schema(["offset"], PropertiesForm.MAP)
    with pytest.raises(ConfigurationError, match="no column 'properties'"):
        arrow_schema(["properties"], PropertiesForm.NONE)
