"""The whole way of far rows with a real broker: scheduled, compacted, promoted, delivered. Each once, none early."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import orbitmq.sync
from orbitmq.clock import SystemClock
from orbitmq.spark.pipelines.compacting.job import compact
from orbitmq.spark.pipelines.scheduling.job import schedule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from server_process import ServedProcess

TOPIC = "renewals"
COUNT = 120
SETTINGS = {
    "brokerName": "owner",
    "farTableOwner": "owner",
    "farTableBucketSec": 2,
    "farTableHorizonSec": 5,
    "farTableMarginSec": 15,
    "farTableLeaseSec": 3,
}


@pytest.mark.timeout(600)
def test_rows_are_delivered_once_and_not_early_whether_they_were_near_or_far(
    spark: SparkSession, serve: Callable[..., ServedProcess], tmp_path: Path
) -> None:
    url = tmp_path / "far"
    url.mkdir()
    server = serve("owner", settings={**SETTINGS, "farTableUrl": url})
    server.create_topic(TOPIC, 2)
    name_server = f"127.0.0.1:{server.name_port}"
    now_ms = SystemClock().now_ms()
    soon_ms, far_ms = now_ms + 45_000, now_ms + 9 * 86_400_000
    rows = spark.range(COUNT, numPartitions=2).selectExpr(
        f"case id % 3 when 0 then {now_ms} + id when 1 then {soon_ms} + id else {far_ms} + id end as deliverTimestamp",
        "cast(id as string) as keys",
        "cast(id as string) as body",
    )
    settings = {
        "topic": TOPIC,
        "name_server": name_server,
        "far_table": str(url),
        "idempotency_key": "renewals-1",
        "row_key": "keys",
        "near_partitions": 2,
    }
    first = schedule(spark, rows, **settings)
    assert first.rows_written == COUNT
    assert first.details["far"] >= COUNT // 3
    with orbitmq.sync.connect(name_server) as mq:
        (recalled,) = mq.far_table.recall(TOPIC, key="2")
        assert (recalled.verdict, recalled.due_ms) == ("recalled", far_ms + 2)
        summary = compact(spark, far_table=str(url), name_server=name_server, day_rows=1, apply_recalls=True)
        assert (summary.details["rounds"], summary.rows_skipped) == (1, 1)
        again = schedule(spark, rows, **settings)
        assert again.details["far_was_scheduled"]

        due = {str(n): now_ms + n if n % 3 == 0 else soon_ms + n for n in range(COUNT) if n % 3 != 2}
        clock = SystemClock()
        reader = spark.read.format("orbitmq").option("nameServer", name_server).option("topic", TOPIC)
        stored: list[tuple[str, int]] = []
        while len(stored) < len(due) and clock.now_ms() < soon_ms + 120_000:
            columns = "keys", "unix_millis(storeTimestamp)"
            stored = [(row[0], row[1]) for row in reader.load().selectExpr(*columns).collect()]
        assert sorted(key for key, _ in stored) == sorted(due)
        assert [key for key, stored_ms in stored if stored_ms < due[key]] == []
        assert sum(file.rows for file in mq.far_table.files(start=far_ms)) == COUNT // 3 - 1
    server.stop()
