"""A stream source that has its rows in memory: what a micro-batch of a Python source takes when nothing has to be fetched.

Rows come into being at a steady rate; each holds the moment of that, in milliseconds, as text. `stamp` compares it with the clock.

Rules of this file
1. It is imported by Spark's workers: nothing of this benchmark, nothing slow.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa

BODY = "body binary"


class Numbers(InputPartition):
    def __init__(self, begin: int, end: int) -> None:
        super().__init__((begin, end))
        self.begin, self.end = begin, end


class FloorReader(DataSourceStreamReader):
    """Row n is there from second n / rate on."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def initialOffset(self) -> dict[str, int]:
        return {"row": self._reached()}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        return {"row": self._reached()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [Numbers(start["row"], end["row"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        assert isinstance(partition, Numbers)
        bodies = [b"%.1f" % (row * 1000 / self.rate) for row in range(partition.begin, partition.end)]
        yield pa.RecordBatch.from_arrays([pa.array(bodies, pa.binary())], names=["body"])

    def _reached(self) -> int:
        return int(time.time() * self.rate)


class FloorSource(DataSource):
    """`format("benchmark-floor")`, option `rate`: rows per second."""

    @classmethod
    def name(cls) -> str:
        return "benchmark-floor"

    def schema(self) -> str:
        return BODY

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return FloorReader(float(self.options["rate"]))


class Stamp:
    """For `mapInArrow`: notes how old each row is when a worker has it, in milliseconds, one line each, in files of `folder`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            now_ms = time.time() * 1000
            lines = [f"{now_ms - float(body):.1f}\n" for body in batch.column(0).to_pylist()]
            with (Path(self.folder) / str(os.getpid())).open("a") as out:
                out.writelines(lines)
            yield batch


def count_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: one row with the number of rows of a partition, having seen every batch."""
    import pyarrow as pa

    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_arrays([pa.array([rows], pa.int64())], names=["rows"])
