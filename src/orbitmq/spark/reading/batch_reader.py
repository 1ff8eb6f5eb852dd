"""A batch read: bounds are looked up once, when the query is planned.

Rules of this file
1. Spark pickles the reader to its workers: it holds values only.
2. `PushdownReader` differs by one method, because Spark refuses every read of a class that has it while its setting is off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.datasource import DataSourceReader, InputPartition

from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.carrying import Carried
from orbitmq.spark.reading.cluster import cluster_of
from orbitmq.spark.reading.fetching import Fetch, fetch_ranges
from orbitmq.spark.reading.narrowing import Narrowing, narrowing
from orbitmq.spark.reading.plan import QueueRange, partitions
from orbitmq.spark.reading.retrying import Retrying
from orbitmq.spark.reading.starting import ranges_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from orbitmq.spark.typed.decoding import PayloadRules


class Ranges(InputPartition):
    """Ranges of offsets that one task reads."""

    def __init__(self, ranges: tuple[QueueRange, ...], payload: PayloadRules | None = None) -> None:
        """payload: how bodies of this batch are decoded, where that is known only now."""
        super().__init__(ranges)
        self.ranges = ranges
        self.payload = payload


def planned(fetch: Fetch, parts: Iterable[tuple[QueueRange, ...]]) -> list[InputPartition]:
    """The tasks of a batch whose ends are fixed: what a registry lists now has the schema of every message in it."""
    found = list(parts)
    view = fetch.view
    payload = view.payload if view is not None and found else None
    renewed = None if payload is None or payload.options.registry is None else payload.renewed()
    return [Ranges(part, renewed) for part in found]


def rows_of(fetch: Fetch, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Spark gives a partition of its own making when there were none."""
    if not isinstance(partition, Ranges):
        return fetch_ranges(fetch, ())
    if partition.payload is not None and fetch.view is not None:
        fetch = msgspec.structs.replace(fetch, view=fetch.view._replace(payload=partition.payload))
    return fetch_ranges(fetch, partition.ranges)


class BatchReader(Carried, DataSourceReader):
    def __init__(self, fetch: Fetch) -> None:
        self.options = fetch.options
        self.fetch = fetch
        self.narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        """What is there now, cut into tasks; none for nothing to read."""
        options = self.options
        doing = f"planning a read of {options.subscribed} (name server {';'.join(options.name_servers)})"
        found = Retrying(options.retry_timeout_ms).run(doing, lambda: self._narrowed(ranges_of(options)))
        parts = partitions(found, min_partitions=options.min_partitions, max_rows=options.max_partition_rows)
        return planned(self.fetch, parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_of(self.fetch, partition)

    def _narrowed(self, found: list[QueueRange]) -> list[QueueRange]:
        limits = self.narrowing
        kept = [narrow for piece in found if (narrow := limits.apply(piece)) is not None]
        if limits.stored_from_ms is None or not kept:
            return kept
        cluster = cluster_of(self.options.name_servers, self.options.pull_timeout_ms, self.options.connect)
        times_ms: dict[MessageQueue, int] = dict.fromkeys((piece.queue for piece in kept), limits.stored_from_ms)
        first = cluster.offsets_at(times_ms)
        return [QueueRange(piece.queue, max(piece.begin, first[piece.queue]), piece.end) for piece in kept]


class PushdownReader(BatchReader):
    """A batch read that filters may narrow."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes what it can use of the filters and gives all of them back: Spark compares every row again."""
        self.narrowing = narrowing(filters)
        return iter(filters)
