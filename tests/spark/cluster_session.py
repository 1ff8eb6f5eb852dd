"""A driver on `local-cluster` whose workers run another Python than it does; prints a line of JSON for each thing it tried.

cluster_session.py NAME_SERVER TOPIC GROUP FOLDER '{"good": PYTHON, "bare": PYTHON, "old": PYTHON, "missing": PYTHON}'
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orbitmq.spark
from orbitmq.errors import OrbitError
from orbitmq.spark import workers
from orbitmq.spark.pipelines import archive, redrive, replay, report, schedule

ROWS = 200


def main(name_server: str, topic: str, group: str, folder: str, pythons: dict[str, str]) -> None:
    settings = {"spark.pyspark.python": pythons["good"], "spark.ui.showConsoleProgress": False}
    spark = orbitmq.spark.session("local-cluster[2,1,1024]", **settings, **{"spark.sql.shuffle.partitions": 2})
    options = {"nameServer": name_server, "topic": topic}
    rows = spark.range(0, ROWS, 1, 2).selectExpr("concat('row ', id) AS body")

    def paths(batches: Iterator[Any]) -> Iterator[Any]:
        import sys

        import pyarrow

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"path": [sys.executable]})

    tell("paths", lambda: sorted({row.path for row in spark.range(4).mapInArrow(paths, "path string").collect()}))
    tell("sink", lambda: rows.write.format("orbitmq").options(**options).mode("append").save())
    tell("source", lambda: spark.read.format("orbitmq").options(**options).load().count())
    place = f"{folder}/archive"
    tell("archive", lambda: archive(spark, to=place, name_server=name_server, topic=[topic]).rows_written)
    due = rows.selectExpr("body", "timestamp_millis(unix_millis(now()) + 3600000) AS due")
    timed = {"topic": topic, "due_column": "due", "name_server": name_server}
    tell("schedule", lambda: schedule(spark, due, **timed).rows_written)
    tell("replay", lambda: replay(spark, archive=place, to=topic, name_server=name_server).rows_written)
    tell("redrive", lambda: redrive(spark, group=group, name_server=name_server).rows_written)
    tell("report", lambda: report(spark, to=f"{folder}/page", archive=place).rows_read)
    for kind in ("bare", "old", "missing"):
        spark.sparkContext.pythonExec = pythons[kind]
        workers._ready.discard(spark)
        tell(f"{kind}: archive", lambda: archive(spark, to=f"{folder}/{kind}", name_server=name_server, topic=[topic]))  # noqa: B023
    # A source that was planned here and whose tasks run elsewhere: Spark has one path for both, so its functions show it.
    from orbitmq.spark.carrying import ArrowTask

    spark.sparkContext.pythonExec = pythons["bare"]
    tell("bare: task", lambda: spark.range(4).mapInArrow(ArrowTask(iter), "id long").collect())
    spark.stop()


def tell(name: str, what: Callable[[], object]) -> None:
    try:
        said = [name, "ok", what()]
    except OrbitError as error:
        said = [name, type(error).__name__, str(error)]
    except Exception as error:
        said = [name, type(error).__name__, str(error)[:4000]]
    print(json.dumps(said, default=str), flush=True)


if __name__ == "__main__":
    Path(sys.argv[4]).mkdir(exist_ok=True)
    main(*sys.argv[1:5], json.loads(sys.argv[5]))
