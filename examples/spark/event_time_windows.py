"""How many messages were due in each second: a stream with event time on `deliverTimestamp`; each `# %%` is a cell.

    orbitmq serve --data /tmp/orbitmq &
    python examples/spark/event_time_windows.py [name-server]

The due time is when something was meant to happen, so windows are made of it, and what comes much later than that is late.
"""

# %% A session, and reminders that fall due in three seconds that begin soon: a hundred each second.
from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import orbitmq.spark

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"

spark = orbitmq.spark.session(app_name="event-time-windows")
folder = Path(tempfile.mkdtemp())
begin_s = int(time.time()) + 2
options = {"nameServer": NAME_SERVER, "topic": f"DueReminders-{begin_s}"}


def send(first: int, count: int, due_ms: str) -> None:
    """Reminders with numbers from `first`, each due at `due_ms`, an expression over its number `id`."""
    (
        spark.range(first, first + count)
        .select(
            f.col("id").cast("string").alias("body"), f.expr(f"timestamp_millis({due_ms})").alias("deliverTimestamp")
        )
        .write.format("orbitmq")
        .options(**options)
        .mode("append")
        .save()
    )


send(0, 300, f"{begin_s}000 + id * 10")

# %% The stream: seconds of due times, closed half a second behind the latest that was seen.
COLUMNS = "body binary, deliverTimestamp timestamp, storeTimestamp timestamp"
reminders = spark.readStream.format("orbitmq").schema(COLUMNS).options(**options, startingOffsets="earliest").load()
seconds = (
    reminders.withWatermark("deliverTimestamp", "500 milliseconds")
    .groupBy(f.window("deliverTimestamp", "1 second"))
    .agg(f.count("*").alias("due"), f.max(f.expr("storeTimestamp - deliverTimestamp")).alias("latest"))
    .select(f.col("window.start").alias("second"), "due", "latest")
)


def run() -> int:
    """Read what is there; closed windows go to files. How many rows were too late for their window."""
    query = (
        seconds.writeStream.format("parquet")
        .option("path", str(folder / "seconds"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(
        state["numRowsDroppedByWatermark"] for batch in query.recentProgress for state in batch["stateOperators"]
    )


# %% When all have come, two windows are closed; the third stays open, because more of its reminders may come.
def arrived() -> DataFrame:
    """The topic as a table. A table that was loaded keeps its end, so each look loads it anew."""
    return spark.read.format("orbitmq").schema(COLUMNS).options(**options).load()


while arrived().count() < 300:
    time.sleep(0.5)
run()
closed = spark.read.parquet(str(folder / "seconds")).orderBy("second")
closed.show(truncate=False)
print([row.due for row in closed.collect()], "due in the windows that are closed")

# %% Ten reminders come ten minutes late, and one that is due now, which closes the third window.
send(300, 10, f"{begin_s}000 - 600000")
send(310, 1, f"{int(time.time() * 1000)} + 1000")
while arrived().count() < 311:
    time.sleep(0.5)
dropped = run()
counts = [row.due for row in spark.read.parquet(str(folder / "seconds")).orderBy("second").collect()]
print(counts, "due in the windows that are closed;", "some" if dropped else "none", "came too late for theirs")

# %% Who is late is told by two columns of the message itself.
late = arrived().where("storeTimestamp > deliverTimestamp + interval 5 minutes")
print(late.count(), "reminders came more than five minutes late")
