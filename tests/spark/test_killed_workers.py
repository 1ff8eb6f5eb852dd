"""A stream that reads while its Python processes and its broker are killed goes on exactly where it was."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from process_family import end_process, python_workers, source_processes
from server_process import ServedProcess, until

from .test_reading import fill

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROWS = 1_000
WHOM = ("tasks", "broker", "source", "tasks", "broker")
"""Who is killed, in this order: workers in the middle of a batch, the server, the process that looks for offsets."""

STARTS_MAX = 15
"""Some starts fail on a busy machine: Spark gives the process of a source ten seconds."""


class Kept:
    """Bodies by batch, and the numbers of batches that were run again and had other rows then."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}
        self.differing: list[int] = []
        self.collecting = False

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self.collecting = True
        try:
            rows = sorted(int(row.body) for row in frame.collect())
        finally:
            self.collecting = False
        if self.batches.setdefault(batch_id, rows) != rows:
            self.differing.append(batch_id)

    @property
    def numbers(self) -> list[int]:
        return sorted(number for rows in self.batches.values() for number in rows)


class Stream:
    """A query that is started again when it has ended."""

    def __init__(self, start: Callable[[], StreamingQuery], kept: Kept) -> None:
        self._start = start
        self._kept = kept
        self.query = start()
        self.starts = 1

    def reach(self, count: int) -> None:
        """Until so many rows were kept; the query runs then, unless these are all."""
        kept, query = self._kept, self.query
        while len(kept.numbers) < count or (not query.isActive and count < ROWS):
            if not query.isActive:
                assert self.starts < STARTS_MAX, query.exception()
                self.starts += 1
                self.query = query = self._start()
            until(lambda query=query: not query.isActive or len(kept.numbers) >= count, 120, f"{count} rows")  # type: ignore[misc]

    def kill_tasks(self) -> None:
        """Kill workers while a batch is collected, until that has ended the query."""
        query, kept = self.query, self._kept
        while query.isActive and len(kept.numbers) < ROWS:
            until(lambda: not query.isActive or kept.collecting or len(kept.numbers) == ROWS, 60, "a batch")
            for pid in python_workers(os.getpid())[0]:
                end_process(pid)

    def kill_source(self) -> None:
        assert [end_process(pid) for pid in source_processes(os.getpid())]
        until(lambda: not self.query.isActive, 60, "the end of the stream")


@pytest.mark.timeout(900)
def test_killed_workers_and_a_killed_broker_cost_no_row(
    spark: SparkSession, serve: Callable[..., ServedProcess], tmp_path: Path
) -> None:
    server = serve("killed")
    server.create_topic("orders", 4)
    ports = server.name_port, server.port
    fill(f"127.0.0.1:{server.name_port}", "orders", ROWS)
    kept = Kept()

    def slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        for batch in batches:
            time.sleep(0.1)  # so that a kill finds tasks at work
            yield batch

    def start() -> StreamingQuery:
        options = {"nameServer": f"127.0.0.1:{ports[0]}", "topic": "orders", "startingOffsets": "earliest"}
        rows = spark.readStream.format("orbitmq").schema("body binary").options(**options, maxOffsetsPerTrigger="100")
        rows = rows.load().mapInArrow(slowly, "body binary")
        writer = rows.writeStream.foreachBatch(kept).option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(processingTime="0 seconds").start()

    stream = Stream(start, kept)
    points = sorted(random.Random(7).sample(range(100, ROWS - 200), len(WHOM)))
    for point, who in zip(points, WHOM, strict=True):
        stream.reach(point)
        if who == "broker":
            server.kill()
            server = serve("killed", ports=ports)
        elif who == "source":
            stream.kill_source()
        else:
            stream.kill_tasks()
    stream.reach(ROWS)
    stream.query.stop()
    assert kept.numbers == list(range(ROWS))
    assert kept.differing == []
    assert stream.starts > WHOM.count("source")


def test_a_batch_that_comes_again_with_other_rows_is_noticed() -> None:
    class Frame:
        def collect(self) -> list[object]:
            return [type("Row", (), {"body": b"1"})]

    kept = Kept()
    kept.batches[0] = [2]
    kept(Frame(), 0)  # type: ignore[arg-type]
    assert kept.differing == [0]
