"""A stream that reads topics while its driver is killed again and again, on a server of its own.

Rules of this file
1. The stream is restarted from its checkpoint after every kill, and new messages come meanwhile.
2. A kill waits until a batch is planned, or is written and not committed, or is committed, as the seed says: the three places where a
   restart has something else to do. Only processes that this run has started are killed.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "system"), str(HERE)]

from process_family import descendants, end_process  # noqa: E402
from server_process import ServedProcess  # noqa: E402

from orbitmq.client import Message  # noqa: E402
from orbitmq.sync import connect  # noqa: E402

TOPICS = ("read-a", "read-b")
LIMIT_S = 300
"""For one life of the driver."""

PROGRAM = """
import sys
from orbitmq.spark import session
name_server, folder, rows_per_batch = sys.argv[1:]
quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a life is too short for better code
settings = {"spark.ui.showConsoleProgress": False, "spark.sql.shuffle.partitions": 2, "spark.driver.extraJavaOptions": quick}
spark = session("local[2]", **settings)
rows = spark.readStream.format("orbitmq").option("nameServer", name_server).option("subscribe", "read-a,read-b")
rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", rows_per_batch).option("group", "killed-reads").load()
writer = rows.writeStream.format("parquet").option("path", folder + "/rows").option("checkpointLocation", folder + "/checkpoint")
writer.trigger(availableNow=True).start().awaitTermination()
"""


class Moment(Enum):
    """When a driver is killed, by the files of its checkpoint."""

    PLANNED = "offsets"
    WRITTEN = "sources"
    COMMITTED = "commits"


class KilledReads:
    """A server with messages, and the stream that reads them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self._draw = random.Random(seed)
        self._sent_count = 0
        self.server = ServedProcess(folder / "server")
        for topic in TOPICS:
            self.server.create_topic(topic, 3)

    @property
    def name_server(self) -> str:
        return f"127.0.0.1:{self.server.name_port}"

    def fill(self, count: int) -> None:
        with connect(self.name_server) as client, client.producer("fillers") as producer:
            for topic in TOPICS:
                numbers = range(self._sent_count, self._sent_count + count)
                producer.send_batch(
                    topic, [Message(f"row {number}".encode(), tag=f"t{number % 7}") for number in numbers]
                )
        self._sent_count += count

    def kill_often(self, kills: int) -> int:
        """Start the stream and kill it, so many times; how many drivers were killed in the middle of their work."""
        killed = 0
        for _ in range(kills):
            self.fill(400)
            moment, files = self._draw.choice(list(Moment)), 1 + self._draw.randrange(3)
            killed += self._kill_at(moment, self._count(moment) + files)
        return killed

    def finish(self) -> None:
        assert self._start(rows_per_batch=2_000).wait(LIMIT_S) == 0, self.log()[-3000:]

    def close(self) -> None:
        self.server.kill()

    def log(self) -> str:
        return (self.folder / "driver.log").read_text(errors="replace")

    def _kill_at(self, moment: Moment, files: int) -> bool:
        driver = self._start()
        try:
            until(lambda: driver.poll() is not None or self._count(moment) >= files, self.log)
            return driver.poll() is None
        finally:
            for pid in (driver.pid, *descendants(driver.pid)):
                end_process(pid)
            driver.wait()

    def _count(self, moment: Moment) -> int:
        """Numbers of batches up to the newest: Spark removes old files."""
        place = (
            self.folder / "rows" / "_spark_metadata"
            if moment is Moment.WRITTEN
            else self.folder / "checkpoint" / moment.value
        )
        numbers = [int(path.name.removesuffix(".compact")) for path in place.glob("[0-9]*")] if place.is_dir() else []
        return max(numbers, default=-1) + 1

    def _start(self, rows_per_batch: int = 70) -> subprocess.Popen[bytes]:
        with (self.folder / "driver.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", PROGRAM, self.name_server, str(self.folder), str(rows_per_batch)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
            )  # fmt: skip


def until(condition: Callable[[], bool], log: Callable[[], str]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, f"nothing happened for {LIMIT_S} s\n{log()[-3000:]}"
        time.sleep(0.01)
