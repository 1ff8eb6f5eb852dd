"""A stream that writes while its driver, its workers and the broker are killed: what is in the topic in the end.

`python tests/spark/killed_writes.py --seed 1 --drivers 6 --workers 20 --brokers 10` makes one run; with `--runs` several, each from
the next seed. Exit code 0 when every row was stored as often as it was written, 1 otherwise; with `--plant` repeats are not recognised,
and the exit code should then be 1.

Rules of this file
1. The points of the kills are numbers of stored rows, drawn from the seed; the timing inside a batch is left to the machine.
2. Only processes that this run has started are killed: the driver's, its descendants, and the broker's.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "system"), str(HERE)]

from server_process import ServedProcess  # noqa: E402
from stored_messages import bodies  # noqa: E402

from orbitmq.errors import OrbitError  # noqa: E402
from orbitmq.sync import connect  # noqa: E402

FILE_ROWS = 500
LIMIT_S = 1_500
TOPIC = "written"

PROGRAM = """
import sys
from orbitmq.spark import session
name_server, topic, dedup, source, checkpoint = sys.argv[1:]
settings = {"spark.ui.showConsoleProgress": False, "spark.sql.shuffle.partitions": 2, "spark.task.maxFailures": 20}
spark = session("local[2,20]", **settings)
frame = spark.readStream.option("maxFilesPerTrigger", 2).text(source).selectExpr("value AS body")
writer = frame.writeStream.format("orbitmq").option("nameServer", name_server).option("topic", topic)
writer = writer.option("dedup", dedup).option("batchBytes", 4096).option("checkpointLocation", checkpoint)
writer.trigger(availableNow=True).start().awaitTermination()
"""


class Kills(NamedTuple):
    drivers: int
    workers: int
    brokers: int


class Outcome(NamedTuple):
    """What a run found. kills: those that hit somebody. lost, twice: rows, and how many are missing or too many."""

    kills: Kills
    lost: Counter[bytes]
    twice: Counter[bytes]


def write_source(folder: Path, files: int) -> Counter[bytes]:
    """Files of rows, a few of them equal; all rows, and how often each is there."""
    folder.mkdir()
    rows: Counter[bytes] = Counter()
    for number in range(files):
        lines = [
            f"row {number * FILE_ROWS + line}" if line % 50 else "the same everywhere" for line in range(FILE_ROWS)
        ]
        (folder / f"{number:03}.txt").write_text("\n".join(lines) + "\n")
        rows.update(line.encode() for line in lines)
    return rows


def schedule(seed: int, kills: Kills, files: int) -> list[tuple[int, str]]:
    """(stored rows, who), in this order."""
    draw = random.Random(seed)
    points = [
        (draw.randrange(int(files * FILE_ROWS * 0.9)), who)
        for who, count in kills._asdict().items()
        for _ in range(count)
    ]
    return sorted(points)


class Run:
    def __init__(self, folder: Path, seed: int, dedup: str) -> None:
        self._folder = folder
        self._dedup = dedup
        self._draw = random.Random(seed)
        self._broker = ServedProcess(folder / "server")
        self._broker.create_topic(TOPIC, 4)
        self._ports = self._broker.name_port, self._broker.port
        self._driver: subprocess.Popen[bytes] | None = None
        self._starts_count = 0

    @property
    def name_server(self) -> str:
        return f"127.0.0.1:{self._ports[0]}"

    def carry_out(self, plan: list[tuple[int, str]], limit_s: float = LIMIT_S) -> Kills:
        """Kill by plan until the stream has ended by itself."""
        done = Counter[str]()
        end = time.monotonic() + limit_s
        left = list(plan)
        while True:
            assert time.monotonic() < end, f"the stream did not end in {limit_s} s\n{self.log()[-3000:]}"
            code = 0 if self._driver is None else self._driver.poll()
            if self._driver is None or code:
                self._start_driver()
            elif code == 0:
                return Kills(done["drivers"], done["workers"], done["brokers"])
            if left and self._stored_count() >= left[0][0]:
                _, who = left[0]
                if self._kill(who):
                    done[who] += 1
                    del left[0]
            time.sleep(0.02)

    def close(self) -> None:
        self._kill("drivers")
        self._broker.kill()

    def log(self) -> str:
        return (self._folder / "driver.log").read_text(errors="replace")

    def _start_driver(self) -> None:
        self._starts_count += 1
        program = [sys.executable, "-c", PROGRAM, self.name_server, TOPIC, self._dedup]
        with (self._folder / "driver.log").open("ab") as log:
            self._driver = subprocess.Popen(
                [*program, str(self._folder / "source"), str(self._folder / "checkpoint")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder, start_new_session=True,
            )  # fmt: skip

    def _stored_count(self) -> int:
        try:
            with connect(self.name_server) as client, client.pull_consumer("progress") as consumer:
                return sum(consumer.max_offset(queue) for queue in consumer.queues(TOPIC))
        except OrbitError:
            return -1

    def _kill(self, who: str) -> bool:
        """Whether there was somebody to kill."""
        if who == "brokers":
            self._broker.kill()
            self._broker = ServedProcess(self._folder / "server", ports=self._ports)
            return True
        driver = self._driver
        if driver is None or driver.poll() is not None:
            return False
        family = descendants(driver.pid)
        if who == "drivers":
            for pid in (driver.pid, *family):
                end_process(pid)
            driver.wait()
            return True
        workers = [pid for pid in family if is_worker(pid)]
        return bool(workers) and end_process(self._draw.choice(workers))


def end_process(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    ask = [pid]
    while ask:
        children = parents.get(ask.pop(), [])
        found += children
        ask += children
    return found


def is_worker(pid: int) -> bool:
    """A forked child of a worker daemon; the daemon itself is left alone, Spark starts another one only when it is needed."""
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return all(b"pyspark.daemon" in Path(f"/proc/{one}/cmdline").read_bytes() for one in (pid, parent))
    except OSError:
        return False


def run(folder: Path, seed: int, kills: Kills, dedup: str = "on", files: int = 40) -> Outcome:
    """One run; two files are a batch of the stream."""
    written = write_source(folder / "source", files)
    running = Run(folder, seed, dedup)
    try:
        done = running.carry_out(schedule(seed, kills, files))
        found = bodies(running.name_server, TOPIC)
    finally:
        running.close()
    return Outcome(done, written - found, found - written)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, count in (
        ("--seed", 1),
        ("--runs", 1),
        ("--drivers", 6),
        ("--workers", 20),
        ("--brokers", 10),
        ("--files", 40),
    ):
        parser.add_argument(name, type=int, default=count)
    parser.add_argument("--plant", action="store_true", help="write with dedup=none")
    given = parser.parse_args(arguments)
    kills, dedup = Kills(given.drivers, given.workers, given.brokers), "none" if given.plant else "on"
    failed = 0
    for seed in range(given.seed, given.seed + given.runs):
        with tempfile.TemporaryDirectory() as folder:
            outcome = run(Path(folder), seed, kills, dedup, given.files)
        print(
            f"seed {seed}: killed {outcome.kills.drivers} drivers, {outcome.kills.workers} workers, {outcome.kills.brokers} brokers; "
            f"lost {outcome.lost.total()}, twice {outcome.twice.total()}",
            flush=True,
        )
        failed += bool(outcome.lost or outcome.twice)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
