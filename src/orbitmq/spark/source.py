"""The data source `orbitmq` as Spark sees it: which options and columns a read or a write has, and who carries it out.

Rules of this file
1. Spark makes a new source for nearly every step and pickles it: it holds the options and nothing else.
2. Parameter names are Spark's, which passes them by name.
3. Heavy imports are inside the methods: the module is loaded whenever Spark looks for any format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from orbitmq.columns.message_columns import PropertiesForm
from orbitmq.spark.carrying import Carried

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

    from orbitmq.spark.reading.fetching import Fetch
    from orbitmq.spark.writing_options import WriteOptions


class OrbitmqSource(Carried, DataSource):
    """`format("orbitmq")`."""

    @classmethod
    def name(cls) -> str:
        return "orbitmq"

    def schema(self) -> str:
        """All columns; called when the user gives no schema."""
        from orbitmq.spark.given_options import KAFKA_SERVERS, GivenOptions
        from orbitmq.spark.options import READ_OPTIONS
        from orbitmq.spark.row_schema import kafka_schema, whole_schema
        from orbitmq.spark.typed.decoding import payload_schema
        from orbitmq.spark.typed.payload_options import payload_options

        given = GivenOptions(self.options, READ_OPTIONS, "reading")
        options = payload_options(given)
        payload = None if options is None else payload_schema(options)
        if given.get(KAFKA_SERVERS.name):
            return kafka_schema(headers=given.flag("includeHeaders", default=False), payload=payload)
        return whole_schema(given.properties_form() or PropertiesForm.MAP, payload)

    def reader(self, schema: StructType) -> DataSourceReader:
        from orbitmq.spark.reading.batch_reader import BatchReader, PushdownReader

        fetch = self._fetch(schema, streaming=False)
        return (PushdownReader if fetch.options.pushdown else BatchReader)(fetch)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from orbitmq.spark.reading.stream_reader import StreamReader

        return StreamReader(self._fetch(schema, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from orbitmq.spark.writing.batch_writer import BatchWriter

        return BatchWriter(*self._write(schema, overwrite, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from orbitmq.spark.writing.stream_writer import StreamWriter

        return StreamWriter(*self._write(schema, overwrite, streaming=True))

    def _write(self, schema: StructType, overwrite: bool, *, streaming: bool) -> tuple[WriteOptions, dict[str, int]]:
        from orbitmq.errors import ConfigurationError
        from orbitmq.spark.writing.payload_column import with_encoding
        from orbitmq.spark.writing.row_columns import row_columns
        from orbitmq.spark.writing_options import write_options

        if overwrite and not streaming:  # of a stream it is the mode complete: each batch writes its whole result
            raise ConfigurationError("messages cannot be overwritten", remedy='use .mode("append")')
        options = write_options(self.options, streaming=streaming)
        if options.payload is not None:
            options, schema = with_encoding(options, schema)
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        return options, row_columns(fields, options.row_key, topic_needed=options.topic is None)

    def _fetch(self, schema: StructType, *, streaming: bool) -> Fetch:
        from orbitmq.spark.options import read_options
        from orbitmq.spark.reading.fetching import Fetch
        from orbitmq.spark.row_schema import row_view

        options = read_options(self.options, streaming=streaming)
        names, form, view = row_view(schema, options)
        return Fetch(options=options, names=names, properties=form, view=view)
