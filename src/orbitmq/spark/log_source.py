"""The data source `orbitmq-log` as Spark sees it: commit-log files, read without a broker.

Rules of this file
1. Spark pickles sources, readers and partitions: they hold values and nothing else.
2. Parameter names are Spark's, which passes them by name.
3. Heavy imports are inside the methods: the module is loaded whenever Spark looks for any format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from orbitmq.columns.message_columns import PropertiesForm
from orbitmq.spark.carrying import Carried

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from orbitmq.spark.log_files.ranges import LogRange
    from orbitmq.spark.log_files.reading import RowRules


class LogSource(Carried, DataSource):
    """`format("orbitmq-log")`. Batch reads only: a stream reads from brokers, with the format `orbitmq`."""

    @classmethod
    def name(cls) -> str:
        return "orbitmq-log"

    def schema(self) -> str:
        """All columns; called when the user gives no schema."""
        from orbitmq.spark.log_files.log_options import log_options
        from orbitmq.spark.row_schema import whole_schema

        return whole_schema(log_options(self.options).properties or PropertiesForm.MAP)

    def reader(self, schema: StructType) -> DataSourceReader:
        from orbitmq.spark.log_files.log_options import log_options
        from orbitmq.spark.log_files.reading import RowRules
        from orbitmq.spark.row_schema import check_columns

        options = log_options(self.options)
        names, form = check_columns(schema, options.properties)
        return LogSourceReader(RowRules(options=options, names=names, properties=form))


class LogPartition(InputPartition):
    """One range."""

    def __init__(self, part: LogRange) -> None:
        self.part = part


class LogSourceReader(Carried, DataSourceReader):
    def __init__(self, rules: RowRules) -> None:
        self._rules = rules

    def partitions(self) -> Sequence[InputPartition]:
        from orbitmq.spark.log_files.directory import look_at
        from orbitmq.spark.log_files.ranges import cut

        options = self._rules.options
        ranges = cut(look_at(options.path), options.starting_position, options.ending_position, options.partition_bytes)
        return [LogPartition(part) for part in ranges]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """None stands for no range at all: Spark makes a partition of an empty list."""
        if not isinstance(partition, LogPartition):
            return iter(())
        from orbitmq.spark.log_files.reading import range_batches

        return range_batches(partition.part, self._rules)
