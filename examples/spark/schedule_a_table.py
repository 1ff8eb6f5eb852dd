"""A CSV file of renewals becomes timer messages: near ones at the broker, far ones in files of the far table.

    mkdir /tmp/far
    orbitmq serve --data /tmp/orbitmq --set farTableOwner=broker-a --set farTableUrl=/tmp/far &
    python examples/spark/schedule_a_table.py [name-server] [far-table]

The same as `orbitmq pipeline schedule --input FILE --format csv --topic Renewals --due-column renews_at ...`. Each `# %%` is a cell.
"""

# %% A table: some renewals are due at once, some tomorrow, most in the years to come. What is due within some hours is near.
from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

import orbitmq.spark
from orbitmq.spark import pipelines

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"
FAR_TABLE = sys.argv[2] if len(sys.argv) > 2 else "/tmp/far"

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
    "name_server": NAME_SERVER, "far_table": FAR_TABLE,
    "idempotency_key": f"renewals-{now:%Y%m%d%H%M%S}", "row_key": "contract", "near_partitions": 2,
}  # fmt: skip
summary = pipelines.schedule(spark, **settings)
print(f"{summary.details['near']} at the broker, {summary.details['far']} in the far table")

# %% Once more: nothing is stored twice.
again = pipelines.schedule(spark, **settings)
print("scheduled before" if again.details["far_was_scheduled"] else "scheduled again")


# %% What is due is there, as JSON of the row.
def due() -> list[str]:
    topic = spark.read.format("orbitmq").schema("keys string, body binary").option("topic", "Renewals")
    rows = topic.option("nameServer", NAME_SERVER).load().where(f"keys like '{now:%H%M%S}-%'")
    return [row["body"] for row in rows.selectExpr("cast(body as string) as body").collect()]


while len(found := due()) < 20:
    time.sleep(0.5)
print(len(found), "were due:", sorted(found)[0])
