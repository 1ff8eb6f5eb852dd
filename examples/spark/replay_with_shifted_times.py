"""Yesterday's reminders once more, for a rehearsal: replayed from the archive with their due times moved to now.

    orbitmq serve --data /tmp/orbitmq &
    python examples/spark/replay_with_shifted_times.py [name-server]

The same as `orbitmq pipeline replay --archive FOLDER --topic Reminders --to ReminderRehearsal --shift-due 1d`. Each `# %%` is a cell.
"""

# %% Fifty reminders were due, a tenth of a second apart, and are in the archive.
from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame

import orbitmq.spark
import orbitmq.sync
from orbitmq.spark import pipelines

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"
BEGAN_MS = int(time.time() * 1000)
TOPIC, REHEARSAL = f"Reminders-{BEGAN_MS}", f"ReminderRehearsal-{BEGAN_MS}"

spark = orbitmq.spark.session(app_name="replay-with-shifted-times")
archive = str(Path(tempfile.mkdtemp()) / "archive")


def table(topic: str) -> DataFrame:
    source = spark.read.format("orbitmq").schema("keys string, storeTimestamp timestamp, deliverTimestamp timestamp")
    return source.option("nameServer", NAME_SERVER).option("topic", topic).load()


def wait_for(topic: str, count: int) -> None:
    while table(topic).count() < count:
        time.sleep(0.5)


reminders = spark.range(50).selectExpr(
    "concat('reminder-', id) as keys", "'do it' as body", f"timestamp_millis({BEGAN_MS} + id * 100) as deliverTimestamp"
)
reminders.write.format("orbitmq").option("nameServer", NAME_SERVER).option("topic", TOPIC).mode("append").save()
wait_for(TOPIC, 50)
print(pipelines.archive(spark, to=archive, name_server=NAME_SERVER, topic=[TOPIC]).rows_written, "archived")

# %% The rehearsal has a topic of its own, and its first reminder is due in five seconds.
with orbitmq.sync.connect(NAME_SERVER) as mq:
    mq.admin.create_topic(REHEARSAL, queues_count=4)
shift_ms = int(time.time() * 1000) + 5_000 - BEGAN_MS
replayed = pipelines.replay(spark, archive=archive, to=REHEARSAL, name_server=NAME_SERVER, shift_due_ms=shift_ms)
print(replayed.rows_written, "replayed")

# %% They fall due in the same rhythm, and none is early.
wait_for(REHEARSAL, 50)
both = table(TOPIC).alias("before").join(table(REHEARSAL).alias("now"), "keys")
shifts = both.selectExpr("unix_millis(now.deliverTimestamp) - unix_millis(before.deliverTimestamp) as shift").distinct()
moved = [row["shift"] for row in shifts.collect()]
early = table(REHEARSAL).where("storeTimestamp < deliverTimestamp").count()
print("all moved by the same time," if moved == [shift_ms] else f"moved by {moved} ms,", early, "early")
