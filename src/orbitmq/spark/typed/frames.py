"""Decoding the bodies of any data frame: archives, commit-log files, dead letters.

Rules of this file
1. The same columns as a read with the option `payload` has, by the same code, in the place of `body`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbitmq.errors import ConfigurationError
from orbitmq.spark.carrying import ArrowTask
from orbitmq.spark.given_options import GivenOptions
from orbitmq.spark.reading.row_view import PAYLOAD_COLUMNS, RowView, shaped
from orbitmq.spark.row_schema import arrow_of
from orbitmq.spark.typed.decoding import payload_rules, payload_schema
from orbitmq.spark.typed.payload_options import PAYLOAD_READ_OPTIONS, payload_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def decoded(frame: DataFrame, **options: str) -> DataFrame:
    """`frame` with `payload`, `payloadError` and `corruptBody` in the place of its column `body`, which is binary.

    options: those of a read that begin with `payload`, by their names. Files and the registry are asked now, also for a stream: bodies of
    versions that are registered later have a reason, unless this is called in `foreachBatch`. `ConfigurationError`,
    `SchemaUnavailableError`.

        orders = orbitmq.spark.decoded(spark.read.parquet("/data/archive"), payload="json", payloadSchema="id bigint, amount double")
    """
    given = payload_options(GivenOptions(options, PAYLOAD_READ_OPTIONS, "decoding"))
    if given is None:
        raise ConfigurationError("nothing says what the bodies hold", remedy='for example payload="json"')
    from pyspark.sql.types import StructType

    if dict(frame.dtypes).get("body") != "binary":
        raise ConfigurationError("the data frame has no column body of the type binary")
    ddl = ", ".join(f"{name} {kind or payload_schema(given)}" for name, kind in PAYLOAD_COLUMNS.items())
    made = frame.sparkSession.createDataFrame([], ddl).schema
    fields = [field for one in frame.schema.fields for field in (made.fields if one.name == "body" else [one])]
    schema = StructType(fields)
    arrow = arrow_of(schema)
    view = RowView(arrow, payload_rules(given, arrow.field("payload").type).renewed())

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return shaped(batches, view)

    return frame.mapInArrow(ArrowTask(run), schema)
