"""The column `payload` of a data frame that is written: what it says, and the body that stands in its place.

Rules of this file
1. Runs on the driver, before anything is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from orbitmq.errors import ConfigurationError
from orbitmq.spark.row_schema import arrow_of
from orbitmq.spark.typed.encoding import encoding_rules
from orbitmq.spark.writing_options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def with_encoding(options: WriteOptions, schema: StructType) -> tuple[WriteOptions, StructType]:
    """The options with what it takes to encode, and the schema of the rows as they are then. `ConfigurationError`."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    assert options.payload is not None
    places = [place for place, field in enumerate(schema.fields) if field.name.lower() == "payload"]
    if len(places) != 1:
        raise ConfigurationError(
            "there is no column payload",
            remedy="make one: struct(id, amount) AS payload; or leave the option payload out",
        )
    [place] = places
    kind = _nullable(arrow_of(StructType([schema.fields[place]])).field(0).type)
    fields = list(schema.fields)
    fields[place] = StructField("body", BinaryType())
    rules = encoding_rules(options.payload, kind, place)
    return msgspec.structs.replace(options, encoding=rules), StructType(fields)


def _nullable(kind: Any) -> Any:
    """The type without what is said of nulls: expressions in SQL say so without anybody's wish."""
    from orbitmq.spark.typed.decoded import with_inner

    return with_inner(kind, _nullable)
