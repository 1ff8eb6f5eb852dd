"""A task that writes a file of the far table again without its first rows.

Rules of this file
1. The old file stays: whoever asked for it decides when it goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from orbitmq.spark.pipelines.far_table.file_writing import FileWriter
from orbitmq.spark.pipelines.far_table.reports import Kind, Line, batches_of
from orbitmq.timing.far.storage import Storage
from orbitmq.timing.far_table.rows import rows_due


class TrimTask(NamedTuple):
    """names: the files, of which a row of a batch takes one by its number."""

    url: str
    prefix: str
    names: tuple[str, ...]
    from_ms: int

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from batches_of(self.trim(number))

    def trim(self, number: int) -> Iterator[Line]:
        with Storage.at(self.url).open(self.names[number]) as source:
            table = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=True).read()
        kept = rows_due(table, self.from_ms)
        yield from FileWriter(self.url, self.prefix, number).write(kept)
        yield Line(Kind.NEAR, number, rows=table.num_rows - kept.num_rows)
