"""The columns of a read: the whole schema, or the part of it that the user's own schema names.

Rules of this file
1. Spark offers a Python source no column pruning, so `.schema("topic string, body binary")` is how a user reads less: any subset of the
   columns, in any order, by name.
2. A name that does not exist, or another type, is an error; nothing is cast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orbitmq.errors import ConfigurationError
from orbitmq.spark.options import PropertiesForm

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

PROPERTIES: Final = "properties"

COLUMN_TYPES: Final = {
    "topic": "string",
    "flag": "int",
    "body": "binary",
    PROPERTIES: "map<string,string>",
    "brokerName": "string",
    "queueId": "int",
    "queueOffset": "bigint",
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp",
    "msgId": "string",
    "tags": "string",
    "keys": "string",
    "reconsumeTimes": "int",
    "sysFlag": "int",
    "commitLogOffset": "bigint",
    "bornHost": "string",
    "storeHost": "string",
    "deliverTimestamp": "timestamp",
}
"""Every column with its Spark type, in order; the Arrow side is `orbitmq.columns`, and a test holds one against the other."""


def whole_schema(form: PropertiesForm) -> str:
    """All columns, as Spark's DDL text."""
    types = {**COLUMN_TYPES, PROPERTIES: "string"} if form is PropertiesForm.JSON else COLUMN_TYPES
    return ", ".join(
        f"{name} {kind}" for name, kind in types.items() if name != PROPERTIES or form is not PropertiesForm.NONE
    )


def check_columns(schema: StructType, form: PropertiesForm | None) -> tuple[tuple[str, ...], PropertiesForm]:
    """The columns of a read in their order, and the form that `properties` has by option or by the type asked for.

    form: what the option includeProperties says, None where it was not given.
    """
    properties = form or PropertiesForm.MAP
    for field in schema.fields:
        name, kind = field.name, field.dataType.simpleString()
        expected = COLUMN_TYPES.get(name)
        if expected is None:
            raise ConfigurationError(
                f"a message has no column {name!r}", remedy=f"the columns are {', '.join(COLUMN_TYPES)}"
            )
        if name == PROPERTIES:
            if form is None and kind == "string":
                properties = PropertiesForm.JSON
            if properties is PropertiesForm.NONE:
                raise ConfigurationError("column properties is left out by includeProperties=none")
            expected = "string" if properties is PropertiesForm.JSON else expected
        if kind != expected:
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
