"""What Java knows of Spark's classes, read once and kept in a file, so that the many Javas of these tests start sooner.

A Java that starts Spark and runs a small stream reads and checks some fifteen thousand classes, which is most of what it does.
HotSpot can keep them (`-XX:ArchiveClassesAtExit`) and map the file at the next start. CPU of a program that starts a session: 13 s,
7 s with the quick options alone, 4 s with the archive; with a batch and a small stream of rows through Python 25, 16 and 8 s.

Rules of this file
1. An archive belongs to one Java and one PySpark, and its name says which. One that does not fit is left aside by Java itself.
2. Two test runs at once make one archive: the other one waits for it.
3. Nothing but the time of a start depends on it. Where it cannot be made, a warning says so and tests go on without it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from orbitmq.errors import SparkUnavailableError
from orbitmq.spark.java import find_java

VARIABLE: Final = "JDK_JAVA_OPTIONS"
"""Every `java` of Java 9 or later reads it, whoever starts it; words of the command line come after these and win."""

QUICK: Final = "-Xlog:disable -Xlog:all=error,cds*=off:stderr -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Nothing is said on standard output, which `spark-class` reads. A life is too short for better code."""

FOLDER: Final = Path(__file__).resolve().parents[2] / ".cache" / "java"
LIMIT_S: Final = 600

REHEARSAL: Final = """
import os, subprocess, sys
from pyspark import SparkContext
from orbitmq.spark import session

folder, archive, options = sys.argv[1:]
settings = {
    "spark.driver.extraJavaOptions": f"{options} -XX:ArchiveClassesAtExit={archive}",
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.port": "0",
    "spark.sql.catalogImplementation": "hive",
    "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:{folder}/metastore;create=true",
    "spark.sql.warehouse.dir": f"{folder}/warehouse",
    "spark.sql.shuffle.partitions": 2,
    "spark.ui.showConsoleProgress": False,
}
spark = session("local[2]", **settings)

def unchanged(batches):
    yield from batches

rows = spark.range(100).selectExpr("id", "id % 7 AS day", "concat('row ', id) AS body")
rows.mapInArrow(unchanged, rows.schema).write.partitionBy("day").parquet(folder + "/rows")
stored = spark.read.parquet(folder + "/rows")
stored.groupBy("day").count().join(stored, "day").orderBy("id").toPandas()
spark.sql("CREATE TABLE days USING parquet AS SELECT day, count(*) AS rows FROM parquet.`" + folder + "/rows` GROUP BY day")

stream = spark.readStream.schema(stored.schema).parquet(folder + "/rows").mapInArrow(unchanged, stored.schema)
files = stream.writeStream.format("parquet").option("path", folder + "/copy")
batches = stream.writeStream.foreachBatch(lambda frame, number: frame.count())
for number, writer in enumerate((files, batches)):
    writer.option("checkpointLocation", f"{folder}/checkpoint-{number}").trigger(availableNow=True).start().awaitTermination()

service = getattr(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
address = f"sc://127.0.0.1:{getattr(service, 'MODULE$').localPort()}"
client = "import sys; from orbitmq.spark import session; session(remote=sys.argv[1]).range(9).selectExpr('sum(id)').collect()"
environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
subprocess.run([sys.executable, "-c", client, address], check=True, env=environment)

spark.stop()
gateway = SparkContext._gateway
gateway.shutdown()
gateway.proc.stdin.close()
sys.exit(gateway.proc.wait())
"""
"""A little of all that tests do, and an orderly end, at which Java writes the archive."""


COMPILED_PYSPARK: Final = Path(__file__).resolve().parent / "compiled_pyspark"


def quick_environment() -> dict[str, str]:
    """Variables with which everything that Spark starts from here starts quickly. Empty without PySpark or Java."""
    options = quick_start()
    if not options:
        return {}
    return {VARIABLE: options, "PYTHONPATH": os.pathsep.join([str(COMPILED_PYSPARK), *_words("PYTHONPATH")])}


def _words(name: str) -> list[str]:
    return [word for word in os.environ.get(name, "").split(os.pathsep) if word]


def quick_start() -> str:
    """What `VARIABLE` should be: the quick options, with an archive, which is made if there is none. Empty without PySpark or Java.

    Making it takes 50 s of CPU, once for each Java and PySpark; the file has some 260 MB.
    """
    if find_spec("pyspark") is None:
        return ""
    try:
        java = find_java(os.environ)
    except SparkUnavailableError:
        return ""
    FOLDER.mkdir(parents=True, exist_ok=True)
    archive = FOLDER / f"spark-{_origin(java)}.jsa"
    with (FOLDER / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            for outdated in FOLDER.glob("spark-*.jsa"):
                outdated.unlink()
            problem = _make(archive)
            if problem:
                warnings.warn(
                    f"Java keeps no archive of Spark's classes, and tests take longer: {problem}", stacklevel=1
                )
    return f"{QUICK} -XX:SharedArchiveFile={archive}" if archive.exists() else QUICK


def _origin(java: Path) -> str:
    """Names a Java, a PySpark and what they are rehearsed with."""
    import pyspark

    modules = (java / "lib" / "modules").stat() if (java / "lib" / "modules").exists() else None
    of_java = None if modules is None else (modules.st_size, modules.st_mtime_ns)
    words = (java, of_java, pyspark.__file__, pyspark.__version__, QUICK, REHEARSAL)
    return hashlib.sha256(repr(words).encode()).hexdigest()[:16]


def _make(archive: Path) -> str:
    """Make it, whole or not at all; what went wrong otherwise."""
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as folder:
        draft = archive.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        try:
            done = subprocess.run(
                [sys.executable, "-c", REHEARSAL, folder, str(draft), QUICK],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=folder, timeout=LIMIT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"the rehearsal did not end within {LIMIT_S} s"
        if done.returncode or not draft.exists():
            draft.unlink(missing_ok=True)
            return f"the rehearsal ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"
        draft.rename(archive)
    return ""
