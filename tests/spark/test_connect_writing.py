"""Writing through Spark Connect: a batch job, a stream, and pipelines, all from a client that has no Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from server_process import ServedProcess
from stored_messages import bodies

from orbitmq.sync import connect

PROGRAM = """
import sys
from orbitmq.spark import session
from orbitmq.spark.pipelines import redrive, replay
remote, name_server, topic, folder = sys.argv[1:]
spark = session(remote=remote)

def write(start):
    return start.format("orbitmq").option("nameServer", name_server).option("topic", topic)

rows = spark.range(0, 1000, 1, 2).selectExpr("concat('batch ', id) AS body")
for _ in range(2):  # the second one is a repeat
    write(rows.write).option("idempotencyKey", topic + " night").mode("append").save()

spark.range(0, 500, 1, 2).selectExpr("concat('stream ', id) AS value").write.text(folder + "/source")
stream = spark.readStream.text(folder + "/source").selectExpr("value AS body")
for _ in range(2):  # the second one finds nothing new
    query = write(stream.writeStream).option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()

def each(batch, batch_id):
    for _ in range(2):  # the second one is a repeat
        rows = batch.sparkSession.range(3).selectExpr("concat('each ', id) AS body")
        write(rows.write).option("idempotencyKey", f"{topic} each {batch_id}").mode("append").save()

spark.readStream.text(folder + "/source").writeStream.foreachBatch(each).trigger(availableNow=True).start().awaitTermination()

done = replay(spark, topic=[topic], to=topic + "-again", name_server=name_server, where="body LIKE 'batch %'", queues="keep", rate=100000)
print("replayed", done.rows_read, done.rows_written)
done = redrive(spark, group=topic, to=topic + "-again", name_server=name_server)
print("redriven", done.rows_read, done.rows_written)
try:
    replay(spark, topic=[topic], to=topic + "-again", name_server=name_server, where="price > 3")
except Exception as error:
    print(type(error).__name__, "price" in str(error))
"""


def printed_by(program: str, folder: Path, *arguments: str) -> list[str]:
    """The lines of a Python program that runs in `folder` with an empty PATH, and has to succeed."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env={**os.environ, "PATH": ""},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_a_client_writes_in_batches_in_a_stream_and_by_pipelines(
    connect_server: str, server: ServedProcess, name_server: str, topic: str, tmp_path: Path
) -> None:
    server.create_topic(f"{topic}-again", 4)
    server.create_topic(f"%DLQ%{topic}", 1)
    with connect(name_server) as client, client.producer("senders") as producer:
        for number in range(3):
            producer.send(f"%DLQ%{topic}", f"letter {number}".encode())
    said = printed_by(PROGRAM, tmp_path, connect_server, name_server, topic, str(tmp_path))
    assert said == ["replayed 1503 1000", "redriven 3 3", "ConfigurationError True"]
    batch = Counter(f"batch {number}".encode() for number in range(1_000))
    stream = Counter(f"stream {number}".encode() for number in range(500))
    assert bodies(name_server, topic) == batch + stream + Counter(f"each {number}".encode() for number in range(3))
    assert bodies(name_server, f"{topic}-again") == batch + Counter(f"letter {number}".encode() for number in range(3))


TIMERS = """
import json, sys
from orbitmq.spark import session
from orbitmq.spark.pipelines import schedule
remote, name_server, topic, aside = sys.argv[1:]
spark = session(remote=remote)
for part in range(2):
    rows = spark.range(0, 40, 1, 2).selectExpr(
        "timestamp_millis(unix_millis(timestamp '2026-01-01') + if(id < 10, 0, 400L * 86400000 * 10) + id) AS deliverTimestamp",
        f"concat('{part}-', id) AS keys", "if(id = 3, '', 'body') AS body",
    )
    done = schedule(
        spark, rows, topic=topic, name_server=name_server, idempotency_key=f"{topic}-{part}", row_key="keys", near_partitions=1,
        on_error="quarantine", quarantine=f"{aside}-{part}.jsonl",
    )
    print(json.dumps([done.rows_read, done.rows_written, done.rows_quarantined]))
try:
    schedule(spark, rows, topic=topic, name_server=name_server, where="price > 3")
except Exception as error:
    print(json.dumps([type(error).__name__, "price" in str(error)]))
"""


def test_a_client_schedules(
    connect_server: str, server: ServedProcess, name_server: str, topic: str, tmp_path: Path
) -> None:
    server.create_topic(topic, 2)
    lines = printed_by(TIMERS, tmp_path, connect_server, name_server, topic, str(tmp_path / "aside"))
    assert [json.loads(line) for line in lines] == [[40, 39, 1], [40, 39, 1], ["ConfigurationError", True]]
    assert len((tmp_path / "aside-1.jsonl").read_text().splitlines()) == 1
    with connect(name_server) as client:
        assert client.timers.counts(topic=topic).pending == 60
