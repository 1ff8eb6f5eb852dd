"""Streams that write and read while the leader of a replicated group fails: each row is stored once, and read once.

`GROUP_FAULTS="killed frozen switched"` plays more than one leader that is killed.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from group_processes import Group, answer_of
from server_process import RawClient, until
from stored_messages import bodies
from tests.worlds.etcd_process import MISSING, etcd_program

from orbitmq.protocol.remoting.bodies import TopicStatsTable
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.replication_bodies import DemoteRequest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.skipif(etcd_program() is None, reason=MISSING)

NAMES = ("a", "b", "c")
TOPIC, QUEUES = "written", 4
FAULTS = os.environ.get("GROUP_FAULTS", "killed").split()
FILES, FILE_ROWS = 4, 200
"""Files for each fault."""
STARTS_MAX = 8
"""Of a query, for each fault: it ends when its leader has gone in the middle of a batch."""
LIMIT_S = 120


class Written:
    """The rows of each batch; one that is run again replaces itself."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = [bytes(row.body) for row in frame.collect()]

    @property
    def rows(self) -> Counter[bytes]:
        return Counter(row for rows in self.batches.values() for row in rows)


class Query:
    """A stream that is started again, from its checkpoint, when it has failed."""

    def __init__(self, start: Callable[[], StreamingQuery]) -> None:
        self._start = start
        self._query = start()
        self.starts = 1

    def goes_on(self) -> bool:
        """Whether it runs, or did all."""
        if not self._query.isActive and self._query.exception() is not None:
            assert self.starts < STARTS_MAX * len(FAULTS), self._query.exception()
            self._query, self.starts = self._start(), self.starts + 1
        return True

    def stop(self) -> None:
        self._query.stop()


def stored_count(group: Group) -> int:
    """0 while nobody leads."""
    if not (leader := group.leader()):
        return 0
    with RawClient(group.members[leader].port) as client:
        answer = client.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": TOPIC})
    return sum(queue.max_offset for queue in TopicStatsTable.decode(bytes(answer.body)).offset_table.values())


def fail(group: Group, what: str) -> None:
    """Until another one leads, and all are in sync again."""
    leader = group.leader()
    if what == "killed":
        group.kill(leader)
    elif what == "frozen":
        group.members[leader].send_signal(signal.SIGSTOP)
    else:
        answer_of(group.members[leader], RequestCode.DEMOTE_MASTER, DemoteRequest(hands_over=True).encode())
    group.until_leader(but=leader)
    if what == "killed":
        group.start(leader)
    elif what == "frozen":
        group.members[leader].send_signal(signal.SIGCONT)
    until(lambda: group.in_sync(*NAMES), LIMIT_S, "all in sync")


def test_each_row_is_stored_and_read_once_across_changes_of_leader(
    spark: SparkSession, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    rows_count = FILES * FILE_ROWS * len(FAULTS)
    for at in range(0, rows_count, FILE_ROWS):
        (source / f"{at:06}.txt").write_text("".join(f"row {line}\n" for line in range(at, at + FILE_ROWS)))
    (tmp_path / "group").mkdir()
    group = Group(tmp_path / "group", *NAMES)
    name_server = f"127.0.0.1:{group.names.name_port}"
    written = Written()

    def slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        for batch in batches:
            for at in range(0, batch.num_rows, 20):
                time.sleep(0.05)  # so that the leader fails in the middle of a batch
                yield batch.slice(at, 20)

    def write() -> StreamingQuery:
        rows = spark.readStream.option("maxFilesPerTrigger", 2).text(str(source)).selectExpr("value AS body")
        writer = rows.mapInArrow(slowly, "body string").writeStream.format("orbitmq")
        writer = writer.option("nameServer", name_server).option("topic", TOPIC)
        return (
            writer.option("checkpointLocation", str(tmp_path / "written")).trigger(processingTime="0 seconds").start()
        )

    def read() -> StreamingQuery:
        reader = spark.readStream.format("orbitmq").schema("body binary").option("nameServer", name_server)
        rows = reader.option("topic", TOPIC).option("startingOffsets", "earliest").load()
        return (
            rows.writeStream.foreachBatch(written)
            .option("checkpointLocation", str(tmp_path / "read"))
            .trigger(processingTime="0 seconds")
            .start()
        )

    try:
        group.members[group.leader()].create_topic(TOPIC, QUEUES)
        queries = [Query(write), Query(read)]

        def goes_on_to(count: int) -> Callable[[], bool]:
            return lambda: (
                all(query.goes_on() for query in queries)
                and (stored_count(group) >= count and written.rows.total() >= min(count, rows_count))
            )

        for number, what in enumerate(FAULTS):
            wanted = FILES * FILE_ROWS * number + FILE_ROWS
            until(goes_on_to(wanted), LIMIT_S, f"{wanted} rows stored and read before the leader is {what}")
            fail(group, what)
        until(goes_on_to(rows_count), 2 * LIMIT_S, "all rows stored and read")
        for query in queries:
            query.stop()
        starts = ", ".join(str(query.starts) for query in queries)
        figure(
            f"leader {', '.join(FAULTS)}: {rows_count} rows; the writing and the reading stream began {starts} times"
        )
        wanted_rows = Counter(b"row %d" % number for number in range(rows_count))
        assert bodies(name_server, TOPIC) == wanted_rows
        assert written.rows == wanted_rows
    finally:
        group.end()
