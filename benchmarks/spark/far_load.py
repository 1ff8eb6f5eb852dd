"""What a timer costs that Spark loads into a far tier: to write, to have count, to promote, and in bytes.

usage: far_load.py [--rows 1000000] [--body 200] [--days 365] [--promoted-rows 100000]

One broker, one Spark session with two cores, both measured as families of processes. The rows have 50 bytes of keys and tag beside the
body, and are due at random times. Rates are of the wall clock, so they say something only on a machine that has nothing else to do; what
is said per row is CPU of everything that works for it. The tier's horizon is two minutes, so that rows come near while one waits.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "system"))
from family_meter import FamilyMeter
from server_process import ServedProcess

import orbitmq.sync
from orbitmq.clock import SystemClock
from orbitmq.spark import session
from orbitmq.spark.pipelines import schedule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "timers"
DAY_MS = 86_400_000
HORIZON_S = 120
"""Rows due in it are near: what is loaded beyond it is promoted two minutes before its time."""

LOADING_S = 45
"""Rows that are to be promoted come near so long after their load began."""


def source(spark: SparkSession, path: Path, rows: int, body: int, begin_ms: int, span_ms: int) -> DataFrame:
    """Rows due at random times of a span, written and read again: making them is not what is measured."""
    digits = "concat(sha2(cast(id as string), 256), sha2(cast(-id as string), 256))"
    frame = spark.range(rows, numPartitions=4).selectExpr(
        f"timestamp_millis({begin_ms} + cast(rand(1) * {span_ms} as bigint)) as deliverTimestamp",
        "concat('order-', substring(sha2(cast(id as string), 224), 1, 32)) as keys",
        "'timeout' as tags",
        f"substring(repeat({digits}, {body // 128 + 1}), 1, {body}) as body",
    )
    frame.write.parquet(str(path))
    return spark.read.parquet(str(path))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--body", type=int, default=200)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--promoted-rows", type=int, default=100_000)
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
    spark_meter = FamilyMeter(os.getsid(0))  # without its thread, which would count as well
    with tempfile.TemporaryDirectory() as folder:
        server = ServedProcess(
            Path(folder) / "server", settings={"timerFarHorizonSec": HORIZON_S, "timerMaxDelaySec": 0}
        )
        try:
            server.create_topic(TOPIC, 4)
            broker_meter = FamilyMeter(os.getsid(server.pid))
            spark = session("local[2]", app_name="far load", **{"spark.ui.showConsoleProgress": "false"})
            given = {"topic": TOPIC, "name_server": f"127.0.0.1:{server.name_port}", "near_partitions": 1}
            begin_ms = clock.now_ms() + 10 * DAY_MS
            rows = source(
                spark, Path(folder) / "rows", arguments.rows, arguments.body, begin_ms, arguments.days * DAY_MS
            )
            for name in ("warm", "measured"):
                spark_s, broker_s, began_ns = spark_meter.cpu_s(), broker_meter.cpu_s(), time.perf_counter_ns()
                summary = schedule(spark, rows, idempotency_key=name, **given)
                wall_s = (time.perf_counter_ns() - began_ns) / 1e9
                assert summary.details["loaded"] == arguments.rows, summary
                figures[f"{name}_rows_s"] = round(arguments.rows / wall_s)
                figures[f"{name}_spark_us_a_row"] = round((spark_meter.cpu_s() - spark_s) / arguments.rows * 1e6, 2)
                figures[f"{name}_broker_us_a_row"] = round((broker_meter.cpu_s() - broker_s) / arguments.rows * 1e6, 2)
            files = list((Path(folder) / "server").rglob("loads/*.parquet"))
            figures["files"] = len(files)
            figures["bytes_a_row"] = round(sum(file.stat().st_size for file in files) / arguments.rows / 2, 1)
            print(json.dumps(figures), file=sys.stderr)
            with orbitmq.sync.connect(given["name_server"]) as mq:
                key = rows.limit(1).collect()[0]["keys"]
                for kind in ("first", "second"):
                    began_ns = time.perf_counter_ns()
                    assert list(mq.timers.list(topic=TOPIC, key=key))
                    figures[f"{kind}_look_up_by_key_ms"] = round((time.perf_counter_ns() - began_ns) / 1e6)
            figures |= promotion(spark, server, Path(folder), arguments.promoted_rows, arguments.body, given)
            spark.stop()
        finally:
            server.kill()
    figures["load_after"] = round(os.getloadavg()[0], 1)
    print(json.dumps(figures, indent=2))
    return 0


def promotion(
    spark: SparkSession, server: ServedProcess, folder: Path, count: int, body: int, given: dict[str, object]
) -> dict[str, float | int]:
    """Rows that come near together: the broker's CPU from when they do until all are in the wheel."""
    clock = SystemClock()
    begin_ms = clock.now_ms() + (HORIZON_S + LOADING_S) * 1_000
    rows = source(spark, folder / "soon", count, body, begin_ms, 900)
    summary = schedule(spark, rows, idempotency_key="promoted", **given)  # type: ignore[arg-type]
    assert summary.details["loaded"] == count, summary
    meter = FamilyMeter(os.getsid(server.pid))
    with orbitmq.sync.connect(str(given["name_server"])) as mq:
        before = mq.timers.counts(topic=TOPIC)
        while mq.timers.counts(topic=TOPIC).far == before.far:
            idle_s, began_s = meter.cpu_s(), time.monotonic()
            time.sleep(0.02)
        while mq.timers.counts(topic=TOPIC).far > before.far - count:
            time.sleep(0.05)
        wall_s, took_s = time.monotonic() - began_s, meter.cpu_s() - idle_s
        late = clock.now_ms() >= begin_ms
    return {
        "promoted_rows": count,
        "promoted_rows_s": round(count / wall_s),
        "promote_us_a_row": round(took_s / count * 1e6, 1),
        "promotion_was_late": int(late),
    }


if __name__ == "__main__":
    sys.exit(main())
