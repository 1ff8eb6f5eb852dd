"""Jobs of `schedule` whose driver, workers and broker are killed at every step: each row waits once, or was delivered once.

`python tests/spark/killed_loads.py --seed 1 --kills 100` makes one run: job after job under its own name, with far rows that are
loaded as files and near ones that are sent, until so many processes have been killed. A driver that was killed is started again and goes
on with the job that was not done. Exit code 0 when every row is there once, 1 otherwise. With `--plant` the name of a job changes with
every driver, the first of which is killed when its files count already, and the exit code should be 1.

Rules of this file
1. Who is killed, and how long after the last kill, is drawn from the seed; the step that it hits is left to the machine.
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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent / "system"), str(HERE)]

from class_archive import quick_environment  # noqa: E402
from process_family import descendants, end_process, python_workers  # noqa: E402
from server_process import ServedProcess  # noqa: E402
from stored_messages import bodies  # noqa: E402

import orbitmq.sync  # noqa: E402

TOPIC = "loaded"
FAR_ROWS = 300
NEAR_ROWS = 60
PART_S = 0.25
"""A part of a job's rows takes so long to read, so that kills find tasks at work."""

PAUSE_S = (0.2, 3.0)
"""Between two kills, counted from when a driver is at work."""

WHO = ("driver",) + ("worker",) * 2 + ("broker",) * 2
LIMIT_S = 3_600
DAY_MS = 86_400_000


class Outcome(NamedTuple):
    """What a run found. kills: by whom they hit. wrong: keys that are not there once, and how often they are."""

    kills: Counter[str]
    jobs: int
    wrong: dict[str, int]


def far_key(job: int, row: int) -> str:
    return f"far-{job}-{row}"


def near_key(job: int, row: int) -> str:
    return f"near-{job}-{row}"


# --- the driver -----------------------------------------------------------------------------------------------------


def slowly(batches: Iterable[Any]) -> Iterator[Any]:
    time.sleep(PART_S)
    yield from batches


def drive(name_server: str, folder: Path, began_ms: int, *, planted: bool) -> None:
    """Job after job until a file says that it is enough."""
    from orbitmq.spark import session
    from orbitmq.spark.pipelines import schedule

    spark = session(
        "local[2,20]",
        **{
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.ui.showConsoleProgress": False,
            "spark.sql.shuffle.partitions": 2,
            "spark.task.maxFailures": 20,
        },
    )
    while True:
        job = len(list(folder.glob("done-*")))
        begun = folder / f"begun-{job}"
        if (folder / "enough").exists() and not begun.exists():
            return
        begun.touch()
        name = f"job-{job}-{os.getpid()}" if planted else f"job-{job}"
        far = spark.range(FAR_ROWS, numPartitions=3).selectExpr(
            f"{began_ms} + {5 * DAY_MS} + id * {DAY_MS} as deliverTimestamp", f"concat('far-{job}-', id) as keys"
        )
        near = spark.range(NEAR_ROWS, numPartitions=1).selectExpr(
            f"{began_ms} - id as deliverTimestamp", f"concat('near-{job}-', id) as keys"
        )
        rows = far.union(near).selectExpr("deliverTimestamp", "keys", "keys as body")
        (folder / "at-work").touch()
        summary = schedule(
            spark,
            rows.mapInArrow(slowly, rows.schema),
            topic=TOPIC,
            name_server=name_server,
            idempotency_key=name,
            near_partitions=2,
            file_bytes=1 << 16,
        )
        assert summary.details["loaded"] == FAR_ROWS, summary
        print(f"{name}: {summary}", flush=True)
        if planted and not (committed := folder / "committed").exists():
            committed.touch()
            time.sleep(LIMIT_S)  # the killer comes
        (folder / f"done-{job}").touch()


# --- the killer -----------------------------------------------------------------------------------------------------


class Run:
    def __init__(self, folder: Path, seed: int, *, planted: bool) -> None:
        self._folder = folder
        self._draw = random.Random(seed)
        self._broker = ServedProcess(folder / "server")
        self._broker.create_topic(TOPIC, 4)
        self._planted = planted
        self._ports = self._broker.name_port, self._broker.port
        self._began_ms = int(time.time() * 1_000)
        words = [self.name_server, folder, self._began_ms, int(planted)]
        self._command = [sys.executable, str(HERE / "killed_loads.py"), "--drive", *map(str, words)]
        self._driver: subprocess.Popen[bytes] | None = None
        self.kills: Counter[str] = Counter()

    @property
    def name_server(self) -> str:
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def jobs(self) -> int:
        return len(list(self._folder.glob("done-*")))

    def carry_out(self, kills: int) -> None:
        """Kill so often, then let the driver end its job."""
        end = time.monotonic() + LIMIT_S
        if self._planted:
            self._await_work(end)
            while not (self._folder / "committed").exists():
                assert time.monotonic() < end, self.log()[-3_000:]
                time.sleep(0.05)
            self._kill("driver")
        while self.kills.total() < kills:
            assert time.monotonic() < end, self.log()[-3_000:]
            self._await_work(end)
            time.sleep(self._draw.uniform(*PAUSE_S))
            self._kill(self._draw.choice(WHO))
        (self._folder / "enough").touch()
        while self._driver is None or self._driver.poll() != 0:
            assert time.monotonic() < end, self.log()[-3_000:]
            self._await_work(end)
            time.sleep(0.1)

    def _await_work(self, end: float) -> None:
        """A driver runs and has begun a job, or ended well."""
        at_work = self._folder / "at-work"
        if self._driver is None or self._driver.poll():
            at_work.unlink(missing_ok=True)
            with (self._folder / "driver.log").open("ab") as log:
                self._driver = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
        while not at_work.exists() and self._driver.poll() is None:
            assert time.monotonic() < end, self.log()[-3_000:]
            time.sleep(0.05)

    def _kill(self, who: str) -> None:
        driver = self._driver
        assert driver is not None
        if who == "broker":
            self._broker.kill()
            self._broker = ServedProcess(self._folder / "server", ports=self._ports)
        elif driver.poll() is not None:
            return
        elif who == "driver":
            for pid in (driver.pid, *descendants(driver.pid)):
                end_process(pid)
            driver.wait()
        else:
            tasks, _ = python_workers(driver.pid)
            if not tasks or not end_process(self._draw.choice(tasks)):
                return
        self.kills[who] += 1

    def wrong(self) -> dict[str, int]:
        """What is not there once, of the jobs that were done."""
        found: Counter[str] = Counter()
        with orbitmq.sync.connect(self.name_server) as client:
            found.update(timer.keys[0] for timer in client.timers.list(topic=TOPIC))
        found.update({body.decode(): count for body, count in bodies(self.name_server, TOPIC).items()})
        wanted = [far_key(job, row) for job in range(self.jobs) for row in range(FAR_ROWS)]
        wanted += [near_key(job, row) for job in range(self.jobs) for row in range(NEAR_ROWS)]
        return {key: found[key] for key in {*wanted, *found} if found[key] != 1 or key not in set(wanted)}

    def close(self) -> None:
        if self._driver is not None and self._driver.poll() is None:
            for pid in (self._driver.pid, *descendants(self._driver.pid)):
                end_process(pid)
            self._driver.wait()
        self._broker.kill()

    def log(self) -> str:
        return (self._folder / "driver.log").read_text(errors="replace")


def run(folder: Path, seed: int, kills: int, *, planted: bool = False) -> Outcome:
    running = Run(folder, seed, planted=planted)
    try:
        running.carry_out(kills)
        time.sleep(2)  # what is due is delivered a little later
        return Outcome(running.kills, running.jobs, running.wrong())
    finally:
        running.close()


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--drive"]:
        name_server, folder, began_ms, planted = arguments[1:]
        drive(name_server, Path(folder), int(began_ms), planted=planted == "1")
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--plant", action="store_true", help="let the name of a job change with every driver")
    given = parser.parse_args(arguments)
    os.environ.update(quick_environment())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended by the run
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(Path(folder), given.seed, given.kills, planted=given.plant)
    print(
        f"seed {given.seed}, {time.monotonic() - began:.0f} s: {outcome.kills.total()} kills ({dict(outcome.kills)}), "
        f"{outcome.jobs} jobs of {FAR_ROWS + NEAR_ROWS} rows, {len(outcome.wrong)} rows are not there once"
    )
    for key, count in sorted(outcome.wrong.items())[:5]:
        print(f"  {key}: {count} times")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
