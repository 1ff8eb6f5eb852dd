"""Writing through Spark Connect: a batch job, a stream, and pipelines, all from a client that has no Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
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
    assert said == ["replayed 1500 1000", "redriven 3 3", "ConfigurationError True"]
    batch = Counter(f"batch {number}".encode() for number in range(1_000))
    assert bodies(name_server, topic) == batch + Counter(f"stream {number}".encode() for number in range(500))
    assert bodies(name_server, f"{topic}-again") == batch + Counter(f"letter {number}".encode() for number in range(3))


FAR = """
import json, sys
from orbitmq.spark import session
from orbitmq.spark.pipelines import compact, schedule
remote, name_server, topic, far_table = sys.argv[1:]
spark = session(remote=remote)
for part in range(2):
    rows = spark.range(0, 40, 1, 2).selectExpr(
        "timestamp_millis(unix_millis(timestamp '2026-01-01') + if(id < 10, 0, 400L * 86400000 * 10) + id) AS deliverTimestamp",
        f"concat('{part}-', id) AS keys", "if(id = 3, '', 'body') AS body",
    )
    done = schedule(
        spark, rows, topic=topic, name_server=name_server, far_table=far_table, idempotency_key=f"{topic}-{part}", row_key="keys",
        near_partitions=1, on_error="quarantine", quarantine=f"{far_table}-aside-{part}.jsonl",
    )
    print(json.dumps([done.details["far"], done.details["near"], done.rows_quarantined]))
done = compact(spark, far_table=far_table, name_server=name_server, day_rows=1)
print(json.dumps([done.rows_written, done.details["files_before"], done.details["files_after"] < 4]))
try:
    schedule(spark, rows, topic=topic, name_server=name_server, where="price > 3")
except Exception as error:
    print(json.dumps([type(error).__name__, "price" in str(error)]))
"""


def test_a_client_schedules_and_compacts(
    connect_server: str, serve: Callable[..., ServedProcess], tmp_path: Path
) -> None:
    far_table = tmp_path / "far"
    far_table.mkdir()
    settings = {"brokerName": "owner", "farTableOwner": "owner", "farTableUrl": far_table}
    server = serve("owner", settings=settings)
    server.create_topic("renewals", 2)
    name_server = f"127.0.0.1:{server.name_port}"
    lines = printed_by(FAR, tmp_path, connect_server, name_server, "renewals", str(far_table))
    said = [json.loads(line) for line in lines]
    assert said == [[30, 9, 1], [30, 9, 1], [60, 4, True], ["ConfigurationError", True]]
    assert len((tmp_path / "far-aside-1.jsonl").read_text().splitlines()) == 1
