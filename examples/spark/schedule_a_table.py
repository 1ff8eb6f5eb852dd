"""A CSV file of renewals becomes timer messages, due at once, tomorrow, and in the years to come.

    orbitmq serve --data /tmp/orbitmq &
    python examples/spark/schedule_a_table.py [name-server]

The same as `orbitmq pipeline schedule --input FILE --format csv --topic Renewals --due-column renews_at ...`. Each `# %%` is a cell.
"""

# %% A table: some renewals are due at once, some tomorrow, most in the years to come.
from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

import orbitmq.spark
from orbitmq.spark import pipelines
from orbitmq.sync import connect

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"

spark = orbitmq.spark.session(app_name="schedule-a-table")
now = pd.Timestamp.now("UTC").floor("s")
days = pd.to_timedelta([0] * 20 + [1] * 30 + [40 + number for number in range(950)], unit="D")
renewals = pd.DataFrame({"contract": [f"{now:%H%M%S}-{number}" for number in range(1_000)], "price": 10})
renewals["renews_at"] = (now + days).strftime("%Y-%m-%dT%H:%M:%SZ")
path = Path(tempfile.mkdtemp()) / "renewals.csv"
renewals.to_csv(path, index=False)

# %% The job has a name, so it may be started again.
settings = {
    "input": str(path), "format": "csv", "option": {"header": "true"},
    "topic": "Renewals", "due_column": "renews_at", "column": {"keys": "contract"}, "body_json": True,
    "name_server": NAME_SERVER, "idempotency_key": f"renewals-{now:%Y%m%d%H%M%S}", "row_key": "contract", "near_partitions": 2,
}  # fmt: skip
summary = pipelines.schedule(spark, **settings)
print(f"{summary.rows_written} scheduled")

# %% Once more: nothing is stored twice.
again = pipelines.schedule(spark, **settings)
with connect(NAME_SERVER) as client:
    print(f"{again.rows_written} scheduled, {client.timers.counts(topic='Renewals').pending} wait")


# %% What is due is there, as JSON of the row.
def due() -> list[str]:
    topic = spark.read.format("orbitmq").schema("keys string, body binary").option("topic", "Renewals")
    rows = topic.option("nameServer", NAME_SERVER).load().where(f"keys like '{now:%H%M%S}-%'")
    return [row["body"] for row in rows.selectExpr("cast(body as string) as body").collect()]


while len(found := due()) < 20:
    time.sleep(0.5)
print(len(found), "were due:", sorted(found)[0])
