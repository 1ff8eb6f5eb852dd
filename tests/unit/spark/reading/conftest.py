"""Readers as Spark uses them, without Spark: made by the source, pickled, and asked in its order.

Rules of this file
1. A reader that reads is a pickled copy of the one that planned, as it is between Spark's processes.
2. The broker is in this process; waiting is for real but short, because options bound it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from orbitmq.columns.message_columns import COLUMN_TYPES
from orbitmq.spark.reading.cluster import cluster_of
from orbitmq.spark.reading.stream_reader import StreamReader
from orbitmq.spark.source import OrbitmqSource
from orbitmq.testing import EmbeddedBroker, SyncEmbeddedBroker

TYPES: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
}


def schema(*names: str, **types: str) -> StructType:
    """The schema with these columns, or with all; `types` for those that are declared otherwise."""
    wanted = names or tuple(COLUMN_TYPES)
    return StructType([StructField(name, TYPES[types.get(name, COLUMN_TYPES.get(name, "string"))]) for name in wanted])


class Reading:
    """What Spark does with a source, against one broker. Options by name; the rest stands for every test."""

    def __init__(self, broker: SyncEmbeddedBroker) -> None:
        self.broker = broker

    def source(self, **options: str) -> OrbitmqSource:
        return OrbitmqSource(
            {"nameserver": self.broker.address, "retrytimeoutms": "1500", **{k.lower(): v for k, v in options.items()}}
        )

    def table(self, *names: str, **options: str) -> dict[str, list[Any]]:
        """A whole batch read, as columns."""
        reader = self.source(**options).reader(schema(*names))
        return self.read(reader, reader.partitions(), names or tuple(COLUMN_TYPES))

    def stream(self, *names: str, **options: str) -> StreamReader:
        reader = self.source(**options).streamReader(schema(*(names or ("body",))))
        assert isinstance(reader, StreamReader)
        return reader

    def forget_routes(self) -> None:
        """As if the time had passed for which routes are taken to hold."""
        cluster_of((self.broker.address,), 3000).forget_routes()

    @staticmethod
    def read(reader: Any, partitions: list[Any], names: tuple[str, ...]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {name: [] for name in names}
        for partition in partitions:
            copy, piece = pickle.loads(pickle.dumps((reader, partition)))
            for batch in copy.read(piece):
                assert tuple(batch.schema.names) == names
                for name in names:
                    found[name] += batch.column(name).to_pylist()
        return found

    def batch(self, reader: StreamReader, start: Any, end: Any) -> list[bytes]:
        """Bodies of one micro-batch."""
        return sorted(self.read(reader, reader.partitions(start, end), ("body",))["body"])


@pytest.fixture
def broker() -> Iterator[SyncEmbeddedBroker]:
    with EmbeddedBroker.sync() as running:
        yield running


@pytest.fixture
def reading(broker: SyncEmbeddedBroker) -> Reading:
    return Reading(broker)
