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
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent / "system"), str(HERE)]

from process_family import descendants, end_process  # noqa: E402
from server_process import ServedProcess  # noqa: E402

from orbitmq.client import Message  # noqa: E402
from orbitmq.sync import connect  # noqa: E402

TOPICS = ("read-a", "read-b")
LIMIT_S = 300
"""For one life of the driver."""

STARTS_MAX = 5
"""Of a driver: Spark gives the Python process of a source ten seconds to start and cannot be told otherwise."""

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
        self._log_began = 0
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
        """Start the stream and kill it, so many times, at each moment as often; how many drivers were killed at their work."""
        killed = 0
        moments = [list(Moment)[number % len(Moment)] for number in range(kills)]
        for moment in self._draw.sample(moments, kills):
            self.fill(400)
            killed += self._kill_at(moment, self._count(moment) + 1 + self._draw.randrange(3))
        return killed

    def finish(self) -> None:
        for _ in range(STARTS_MAX):
            driver = self._start(rows_per_batch=2_000)
            if driver.wait(LIMIT_S) == 0:
                return
            assert self._python_came_late(), self.log()[-3000:]
        raise AssertionError(f"Spark's Python came too late {STARTS_MAX} times\n{self.log()[-3000:]}")

    def close(self) -> None:
        self.server.kill()

    def log(self) -> str:
        return (self.folder / "driver.log").read_text(errors="replace")

    def _kill_at(self, moment: Moment, files: int) -> bool:
        for _ in range(STARTS_MAX):
            driver = self._start()
            try:
                until(lambda driver=driver: driver.poll() is not None or self._count(moment) >= files, self.log)  # type: ignore[misc]
                if driver.poll() is None:
                    return True
            finally:
                for pid in (driver.pid, *descendants(driver.pid)):
                    end_process(pid)
                driver.wait()
            if not self._python_came_late():
                break
        return False

    def _python_came_late(self) -> bool:
        """Whether the last driver ended for nothing but a busy machine."""
        return b"failed to connect back" in (self.folder / "driver.log").read_bytes()[self._log_began :]

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
            self._log_began = log.tell()
            return subprocess.Popen(
                [sys.executable, "-c", PROGRAM, self.name_server, str(self.folder), str(rows_per_batch)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
            )  # fmt: skip


def until(condition: Callable[[], bool], log: Callable[[], str]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, f"nothing happened for {LIMIT_S} s\n{log()[-3000:]}"
        time.sleep(0.01)
