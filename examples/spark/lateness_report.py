"""How late were the reminders? A page with plots, and tables to go on with; each `# %%` is a cell.

    orbitmq serve --data /tmp/orbitmq &
    python examples/spark/lateness_report.py [name-server]

The same as `orbitmq pipeline report --to FOLDER --topic LateReminders --per 1m`.
"""

# %% Five hundred reminders fall due in six to seven seconds.
from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

import orbitmq.spark
from orbitmq.spark import pipelines

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"
TOPIC = "LateReminders"

spark = orbitmq.spark.session(app_name="lateness-report")
options = {"nameServer": NAME_SERVER, "topic": TOPIC}
reminders = spark.range(500).selectExpr(
    "concat('reminder-', id) as body",
    "timestamp_millis(unix_millis(now()) + 6000 + id * 2) as deliverTimestamp",
)
reminders.write.format("orbitmq").options(**options).mode("append").save()
while spark.read.format("orbitmq").schema("queueOffset long").options(**options).load().count() < 500:
    time.sleep(0.5)

# %% The report.
folder = Path(tempfile.mkdtemp())
summary = pipelines.report(
    spark, to=str(folder), name_server=NAME_SERVER, topic=[TOPIC], per_ms=60_000, title="Reminders and their due times"
)
latest = summary.details.get("max_ms", "unknown")  # where all were due before they were sent, none was on time or late
print(f"{summary.rows_read} messages, {summary.details['early']} early, {latest} ms late at most")
print("open", summary.details["page"])

# %% Its tables are Parquet. The line with an empty topic and no span is about everything.
lateness = pd.read_parquet(folder / "lateness.parquet")
print(lateness.to_string(index=False))
