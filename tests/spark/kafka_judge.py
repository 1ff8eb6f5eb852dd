"""Kafka users' programs at Kafka and at orbitmq, in one session: `python -m tests.spark.kafka_judge`.

Exit code 0 when what comes out of each program is equal at both and by hand, 1 otherwise. Where Kafka cannot be had (it comes through
Maven) the reason is said, and the programs run at orbitmq alone.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

HERE: Final = Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE.parents[1]),
    str(HERE.parents[1] / "benchmarks" / "spark"),
    str(HERE.parents[1] / "benchmarks"),
    str(HERE),
    str(HERE.parent / "system"),
]

from kafka_cluster import KafkaBroker, connector_jars  # noqa: E402
from programs_for_kafka import PROGRAMS, Place  # noqa: E402
from rig.toolchain import Missing  # noqa: E402
from server_process import ServedProcess  # noqa: E402

from orbitmq.spark import session  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUES: Final = 3
KAFKA, OURS = "kafka", "orbitmq"


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="kafka-judge-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        settings = {
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.log.level": "ERROR",
        }
        places: dict[str, str] = {}
        try:
            settings["spark.jars"] = connector_jars()
            kafka = KafkaBroker(folder / "kafka", QUEUES)
            stack.callback(kafka.kill)
            kafka.start()
            places[KAFKA] = kafka.address
        except Missing as reason:
            settings.pop("spark.jars", None)
            print(f"without Kafka: {reason}", flush=True)
        server = ServedProcess(folder / "orbitmq")
        stack.callback(server.kill)
        places[OURS] = f"127.0.0.1:{server.name_port}"
        spark = session("local[2]", app_name="programs for Kafka", **settings)
        stack.callback(spark.stop)
        return 0 if all(_judge(spark, name, places, server, folder) for name in PROGRAMS) else 1


def _judge(spark: SparkSession, name: str, places: dict[str, str], server: ServedProcess, folder: Path) -> bool:
    program = PROGRAMS[name]
    wanted = program.by_hand()
    said, is_equal = [], True
    for side, address in places.items():
        prefix = f"p{list(PROGRAMS).index(name)}-"
        place = Place(side, address, prefix, folder / f"{prefix}{side}")
        place.folder.mkdir()
        if side == OURS:
            for topic in program.topics:
                server.create_topic(prefix + topic, QUEUES)
        begin = time.monotonic()
        try:
            found = program.run(spark, place)
            said.append(f"{side} {_difference(found, wanted)}, {time.monotonic() - begin:.1f} s")
            is_equal = is_equal and found == wanted
        except Exception as error:
            said.append(f"{side} FAILED: {' '.join(str(error).split())[:600]}")
            is_equal = False
    print(f"{name}: {wanted.total()} rows by hand; {'; '.join(said)}", flush=True)
    return is_equal


def _difference(found: Counter[Any], wanted: Counter[Any]) -> str:
    if found == wanted:
        return "equal"
    missing, surplus = wanted - found, found - wanted
    return f"DIFFERENT: {missing.total()} missing, {surplus.total()} too many, such as {list(missing + surplus)[:3]}"


if __name__ == "__main__":
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    sys.exit(main())
