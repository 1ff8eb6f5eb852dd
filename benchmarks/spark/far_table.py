"""What a timer in the far table costs: to write, to compact, to promote, and in bytes. CPU of everything that works for it.

usage: far_table.py [--rows 300000] [--promoted-rows 60000] [--body 200] [--days 365]

One broker that owns a table, one Spark session with two cores, both measured as families of processes. The rows have 60 bytes of keys and
tag beside the body. What is said per row is CPU; the wall time says something only on a machine that has nothing else to do. Takes six
minutes, most of which it waits for a bucket to come near; more rows make the start of processes count less.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "system"))
from family_meter import FamilyMeter
from server_process import ServedProcess

import orbitmq.sync
from orbitmq.clock import SystemClock
from orbitmq.spark import session
from orbitmq.spark.pipelines import compact, schedule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "timers"
BUCKET_S = 60
SETTINGS = {
    "brokerName": "owner",
    "farTableOwner": "owner",
    "farTableBucketSec": BUCKET_S,
    "farTableHorizonSec": 2 * BUCKET_S,
    "farTableMarginSec": 1,
}
DAY_MS = 86_400_000


def source(spark: SparkSession, path: Path, rows: int, body: int, begin_ms: int, span_ms: int) -> DataFrame:
    """Rows due at random times of a span, written and read again: making them is not what is measured."""
    digits = "concat(sha2(cast(id as string), 256), sha2(cast(-id as string), 256))"
    frame = spark.range(rows, numPartitions=4).selectExpr(
        f"timestamp_millis({begin_ms} + cast(rand(1) * {span_ms} as bigint)) as deliverTimestamp",
        "concat('order-', sha2(cast(id as string), 224)) as keys",
        "'timeout' as tags",
        f"substring(repeat({digits}, {body // 128 + 1}), 1, {body}) as body",
    )
    frame.write.parquet(str(path))
    return spark.read.parquet(str(path))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--promoted-rows", type=int, default=60_000)
    parser.add_argument("--body", type=int, default=200)
    parser.add_argument("--days", type=int, default=365)
    arguments = parser.parse_args()
    if os.getpid() != os.getsid(0):  # the family that is measured is a session
        return subprocess.run([sys.executable, *sys.argv], start_new_session=True, check=False).returncode
    clock = SystemClock()
    figures: dict[str, float | int | str] = {
        "rows": arguments.rows,
        "body_bytes": arguments.body,
        "days": arguments.days,
        "cores": os.cpu_count() or 0,
        "load_before": round(os.getloadavg()[0], 1),
    }
    spark_meter = FamilyMeter(
        os.getsid(0)
    )  # without its thread, which would count as well: the workers outlive what is measured
    with tempfile.TemporaryDirectory() as folder:
        url = Path(folder) / "far"
        url.mkdir()
        server = ServedProcess(Path(folder) / "server", settings={**SETTINGS, "farTableUrl": url})
        try:
            server.create_topic(TOPIC, 4)
            spark = session("local[2]", app_name="far table", **{"spark.ui.showConsoleProgress": "false"})
            name_server = f"127.0.0.1:{server.name_port}"
            now_ms = clock.now_ms()
            rows = source(
                spark, Path(folder) / "rows", arguments.rows, arguments.body, now_ms + DAY_MS, arguments.days * DAY_MS
            )
            given = {"topic": TOPIC, "name_server": name_server, "far_table": str(url), "near_partitions": 1}
            for name in ("warm", "measured"):
                begin_s, began_ns = spark_meter.cpu_s(), time.perf_counter_ns()
                summary = schedule(spark, rows, idempotency_key=name, **given)
                assert summary.details["far"] == arguments.rows, summary
                took_s, wall_s = spark_meter.cpu_s() - begin_s, (time.perf_counter_ns() - began_ns) / 1e9
            figures["schedule_us_a_row"] = round(took_s / arguments.rows * 1e6, 2)
            figures["schedule_wall_s"] = round(wall_s, 1)
            figures["landing_bytes_a_row"] = round(int(summary.details["size_bytes"]) / arguments.rows, 1)
            figures["landing_files"] = int(summary.details["files"])
            begin_s = spark_meter.cpu_s()
            compacted = compact(spark, far_table=str(url), name_server=name_server)
            figures["compact_us_a_row"] = round((spark_meter.cpu_s() - begin_s) / compacted.rows_read * 1e6, 2)
            figures["compacted_rows"] = compacted.rows_read
            figures["day_files"] = int(compacted.details["files_after"])
            figures["day_bytes_a_row"] = round(int(compacted.details["size_bytes"]) / compacted.rows_written, 1)
            print(json.dumps(figures), file=sys.stderr)
            figures.update(promotion(spark, server, Path(folder), arguments.promoted_rows, arguments.body, given))
            spark.stop()
        finally:
            server.kill()
    figures["load_after"] = round(os.getloadavg()[0], 1)
    print(json.dumps(figures, indent=2))
    return 0


def promotion(
    spark: SparkSession, server: ServedProcess, folder: Path, count: int, body: int, given: dict[str, object]
) -> dict[str, float | int]:
    """Rows of one bucket, which the broker takes a bucket's width before the first is due: its CPU from idle to taken."""
    clock = SystemClock()
    bucket_ms = BUCKET_S * 1_000
    begin_ms = (clock.now_ms() // bucket_ms + 5) * bucket_ms
    rows = source(spark, folder / "soon", count, body, begin_ms, bucket_ms - 1)
    meter = FamilyMeter(os.getsid(server.pid))
    with orbitmq.sync.connect(str(given["name_server"])) as mq:
        summary = schedule(spark, rows, idempotency_key="promoted", **given)  # type: ignore[arg-type]
        far = int(summary.details["far"])
        before = mq.far_table.status().frontier_ms
        idle_s = meter.cpu_s()
        while mq.far_table.status().frontier_ms == before and clock.now_ms() < begin_ms + bucket_ms:
            idle_s = meter.cpu_s()
            time.sleep(0.2)
        begun_s = time.monotonic()
        while mq.far_table.status().share_count and clock.now_ms() < begin_ms + bucket_ms:
            time.sleep(0.2)
        wall_s, took_s = time.monotonic() - begun_s, meter.cpu_s() - idle_s
        if clock.now_ms() >= begin_ms:
            return {"promotion_was_late": 1, "promotion_wall_s": round(wall_s, 1)}
    return {"promote_us_a_row": round(took_s / far * 1e6, 2), "promote_wall_s": round(wall_s, 1), "promoted_rows": far}


if __name__ == "__main__":
    sys.exit(main())
