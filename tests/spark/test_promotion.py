"""A stream that writes while its master is killed and the slave promoted stores each row once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from promoted_pair import PromotedPair, promoted_pair
from server_process import RawClient, until
from stored_messages import bodies

from orbitmq.protocol.remoting.bodies import TopicStatsTable
from orbitmq.protocol.remoting.codes import RequestCode

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

TOPIC = "written"
FILES, FILE_ROWS = 6, 200
ROWS = FILES * FILE_ROWS
STARTS_MAX = 8
"""Of the query, which ends when its master has gone in the middle of a batch."""


def stored_count(pair: PromotedPair) -> int:
    with RawClient(pair.master.port) as client:
        answer = client.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": TOPIC})
    return sum(queue.max_offset for queue in TopicStatsTable.decode(bytes(answer.body)).offset_table.values())


def test_each_row_is_stored_once_when_the_slave_becomes_master(
    spark: SparkSession, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(FILES):
        lines = range(number * FILE_ROWS, (number + 1) * FILE_ROWS)
        (source / f"{number}.txt").write_text("".join(f"row {line}\n" for line in lines))

    def slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        for batch in batches:
            for at in range(0, batch.num_rows, 20):
                time.sleep(0.05)  # so that the master is killed in the middle of a batch
                yield batch.slice(at, 20)

    def start(pair: PromotedPair) -> StreamingQuery:
        rows = spark.readStream.option("maxFilesPerTrigger", 2).text(str(source)).selectExpr("value AS body")
        writer = rows.mapInArrow(slowly, "body string").writeStream.format("orbitmq")
        writer = writer.option("nameServer", pair.name_server).option("topic", TOPIC)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    with promoted_pair(tmp_path / "pair", "SYNC_MASTER") as pair:
        pair.create_topic(TOPIC, 4)
        query, starts = start(pair), 1
        until(lambda: not query.isActive or stored_count(pair) > ROWS // 2, 60, "rows at the master")
        before = stored_count(pair)
        assert ROWS // 2 < before < ROWS, "in the middle"
        pair.master.kill()
        pair.promote()
        while not query.awaitTermination(60) or query.exception() is not None:
            assert starts < STARTS_MAX, query.exception()
            query, starts = start(pair), starts + 1
        figure(f"stream across a promotion: {before} of {ROWS} rows stored before, {starts} starts")
        assert bodies(pair.name_server, TOPIC) == Counter(b"row %d" % number for number in range(ROWS))
