"""Many small jobs left many files; compaction puts the rows of the far table together by due day.

    mkdir /tmp/far
    orbitmq serve --data /tmp/orbitmq --set farTableOwner=broker-a --set farTableUrl=/tmp/far &
    python examples/spark/compact_the_far_table.py [name-server] [far-table]

The same as `orbitmq pipeline compact --far-table /tmp/far`, which belongs into every night. Each `# %%` is a cell.
"""

# %% Three jobs schedule appointments for the same five days of next month.
from __future__ import annotations

import sys
import time

import orbitmq.spark
import orbitmq.sync
from orbitmq.spark import pipelines

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"
FAR_TABLE = sys.argv[2] if len(sys.argv) > 2 else "/tmp/far"
TOPIC = "Appointments"

spark = orbitmq.spark.session(app_name="compact-the-far-table")
run = int(time.time())
first_day = (run // 86_400 + 30) * 86_400
for job in range(3):
    rows = spark.range(500, numPartitions=1).selectExpr(
        f"timestamp_seconds({first_day} + id % 5 * 86400 + id) as deliverTimestamp",
        f"concat('{run}-{job}-', id) as keys",
        "'see you' as body",
    )
    pipelines.schedule(
        spark,
        rows,
        topic=TOPIC,
        name_server=NAME_SERVER,
        far_table=FAR_TABLE,
        idempotency_key=f"appointments-{run}-{job}",
    )

# %% One appointment is cancelled.
with orbitmq.sync.connect(NAME_SERVER) as mq:
    [recalled] = mq.far_table.recall(TOPIC, key=f"{run}-1-42")
print(recalled.verdict)

# %% Every file has rows of all days. Then each day gets one of its own, here from a hundred rows on: a broker reads one instead of all.
summary = pipelines.compact(spark, far_table=FAR_TABLE, name_server=NAME_SERVER, day_rows=100)
print(
    f"{summary.details['files_before']} files became {summary.details['files_after']}; {summary.rows_skipped} row was recalled"
)

# %% The files are plain Parquet, a directory for each day.
days = (
    spark.read.parquet(f"{FAR_TABLE}/buckets").where(f"keys like '{run}-%'").groupBy("dueDay").count().orderBy("dueDay")
)
days.show()
print(sum(row["count"] for row in days.collect()), "appointments")
