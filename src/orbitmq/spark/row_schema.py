"""The columns of a read: the whole schema, or the part of it that the user's own schema names.

Rules of this file
1. Spark offers a Python source no column pruning, so `.schema("topic string, body binary")` is how a user reads less: any subset of the
   columns, in any order, by name.
2. A name that does not exist, or another type, is an error; nothing is cast.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from orbitmq.columns.message_columns import COLUMN_TYPES, PROPERTIES, PropertiesForm, column_types
from orbitmq.errors import ConfigurationError
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.reading.row_view import KAFKA_COLUMNS, PAYLOAD_COLUMNS, RowView
from orbitmq.spark.typed.decoding import payload_rules
from orbitmq.spark.typed.payload_options import PayloadMode

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

NO_OTHERS: Final[Mapping[str, str | None]] = {}


def whole_schema(form: PropertiesForm, payload: str | None = None) -> str:
    """All columns, as Spark's DDL text. payload: its type, where bodies are decoded; it then stands in the place of `body`."""
    return _ddl(column_types(form), "body", payload)


def kafka_schema(*, headers: bool, payload: str | None = None) -> str:
    """The columns of Kafka's source, in its order."""
    types = {"key": "binary", "value": "binary", "topic": "string", **KAFKA_COLUMNS}
    if not headers:
        del types["headers"]
    return _ddl(types, "value", payload)


def _ddl(types: Mapping[str, str], body: str, payload: str | None) -> str:
    found: dict[str, str] = {}
    for name, kind in types.items():
        if name == body and payload is not None:
            found |= {made: made_kind or payload for made, made_kind in PAYLOAD_COLUMNS.items()}
        else:
            found[name] = kind
    return ", ".join(f"{name} {kind}" for name, kind in found.items())


def check_columns(
    schema: StructType, form: PropertiesForm | None, others: Mapping[str, str | None] = NO_OTHERS
) -> tuple[tuple[str, ...], PropertiesForm]:
    """The columns of a read in their order, and the form that `properties` has by option or by the type asked for.

    form: what the option includeProperties says, None where it was not given. others: columns that are made of those of a message.
    """
    properties = form or PropertiesForm.MAP
    for field in schema.fields:
        name, kind = field.name, field.dataType.simpleString()
        expected = COLUMN_TYPES.get(name) or others.get(name)
        if expected is None and name not in others:
            raise ConfigurationError(
                f"a message has no column {name!r}", remedy=f"the columns are {', '.join((*COLUMN_TYPES, *others))}"
            )
        if name == PROPERTIES:
            if form is None and kind == "string":
                properties = PropertiesForm.JSON
            if properties is PropertiesForm.NONE:
                raise ConfigurationError("column properties is left out by includeProperties=none")
            expected = "string" if properties is PropertiesForm.JSON else expected
        if expected is not None and kind != expected:
            raise ConfigurationError(
                f"column {name} is {expected}, not {kind}", remedy="read it as it is and cast it in the query"
            )
        if not field.nullable:
            raise ConfigurationError(f"column {name} may be null", remedy="leave NOT NULL out of the schema")
    if not schema.fields:
        raise ConfigurationError(
            "a read needs at least one column", remedy=f"the columns are {', '.join(COLUMN_TYPES)}"
        )
    if len(set(schema.fieldNames())) < len(schema.fields):
        raise ConfigurationError("a column is named twice in the schema")
    return tuple(schema.fieldNames()), properties


def arrow_of(schema: StructType) -> pa.Schema:
    """The schema of the rows in Arrow, times in UTC. `char(n)` and `varchar(n)` are strings, which nobody pads or cuts.
    `ConfigurationError` for a type that no message has."""
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(_with_strings(schema, ""), timezone="UTC")
    except PySparkTypeError as error:
        raise ConfigurationError(
            f"a column is of a type that no message has: {error}",
            remedy="use string, binary, boolean, a number, date, timestamp, array, map or struct",
        ) from error


def _with_strings(kind: DataType, path: str) -> Any:
    """The type with strings in the place of `char(n)` and `varchar(n)`."""
    from pyspark.sql.types import (
        ArrayType,
        CharType,
        MapType,
        StringType,
        StructField,
        StructType,
        VarcharType,
        VariantType,
    )

    if isinstance(kind, VariantType):
        raise ConfigurationError(
            f"{path} is a variant, which is bytes in a form of Spark's own: no body is written so",
            remedy="read a string and make it one in the query, parse_json(...); write to_json(...) of it, or a struct of its fields",
        )
    if isinstance(kind, CharType | VarcharType):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(_with_strings(kind.elementType, f"{path}[]"), kind.containsNull)
    if isinstance(kind, MapType):
        keys, values = (_with_strings(one, f"{path}[]") for one in (kind.keyType, kind.valueType))
        return MapType(keys, values, kind.valueContainsNull)
    if isinstance(kind, StructType):
        inner = [(field, f"{path}.{field.name}" if path else field.name) for field in kind.fields]
        return StructType(
            [
                StructField(field.name, _with_strings(field.dataType, place), field.nullable, field.metadata)
                for field, place in inner
            ]
        )
    return kind


def row_view(schema: StructType, options: ReadOptions) -> tuple[tuple[str, ...], PropertiesForm, RowView | None]:
    """The columns that are fetched, the form of their `properties`, and what becomes of them; None for nothing.

    What the payload's schema is made of, files and registries, is asked here.
    """
    payload = options.payload
    others: dict[str, str | None] = {**KAFKA_COLUMNS, **(PAYLOAD_COLUMNS if payload is not None else {})}
    names, form = check_columns(schema, options.properties, others)
    if payload is None and not set(names) & set(others):
        return names, form, None
    arrow = arrow_of(schema)
    rules = None
    if payload is not None:
        if "payload" not in names:
            raise ConfigurationError(
                "option payload has no effect without a column payload",
                remedy="name it in the schema, or leave the option out",
            )
        if payload.mode is PayloadMode.PERMISSIVE and "payloadError" not in names:
            raise ConfigurationError(
                "bodies that cannot be decoded would not be seen: there is no column payloadError",
                remedy="add payloadError string to the schema, or say payloadMode=failfast",
            )
        rules = payload_rules(payload, arrow.field("payload").type)
    view = RowView(arrow, rules)
    if "headers" in names and form is not PropertiesForm.MAP:
        raise ConfigurationError("column headers is made of properties as a map", remedy="leave includeProperties out")
    return view.fetched, form, view
