"""Writes whose driver, workers and broker are killed: what is in the topics in the end.

`python tests/spark/killed_writes.py --seed 1 --drivers 6 --workers 20 --brokers 10` makes one run; with `--runs` several, each from
the next seed, and the kinds of writes in turn (`killed_driver.Kind`). Exit code 0 when every row was stored as often as it was written,
1 otherwise. With `--plant` something goes wrong on purpose (`killed_driver.Plant`), and the exit code should be 1.

Rules of this file
1. The points of the kills are numbers of stored rows, drawn from the seed; the timing inside a batch is left to the machine.
2. A driver or a worker is killed only when this driver has stored rows: a kill before that would hit nobody's work.
3. Only processes that this run has started are killed: the driver's, its descendants, and the broker's.
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
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent / "system"), str(HERE)]

from class_archive import quick_environment  # noqa: E402
from killed_driver import DUE_WITHIN_S, LATER, WRITTEN, Kind, Plant, expected  # noqa: E402
from process_family import descendants, end_process, python_workers  # noqa: E402
from server_process import ClosedByServer, RawClient, ServedProcess  # noqa: E402
from stored_messages import bodies  # noqa: E402

from orbitmq.protocol.remoting.bodies import TopicStatsTable  # noqa: E402
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode  # noqa: E402

FILE_ROWS = 500
FILES = 24
LIMIT_S = 1_500
QUIET_S = 20
"""When nothing came for so long and everything is due, nothing will come any more."""

TASK_SHARE = 0.9
"""Of the workers that are killed; the others plan for the driver, and their end is mostly the query's."""

LOOK_S = 0.02
KINDS = tuple(Kind)


class Kills(NamedTuple):
    drivers: int
    workers: int
    brokers: int


class Outcome(NamedTuple):
    """What a run found. kills: those that hit somebody. lost, twice: topics and bodies, and how many are missing or too many."""

    kills: Kills
    lost: Counter[tuple[str, bytes]]
    twice: Counter[tuple[str, bytes]]
    row_count: int


def write_source(folder: Path, files: int) -> None:
    folder.mkdir()
    for number in range(files):
        lines = range(number * FILE_ROWS, (number + 1) * FILE_ROWS)
        (folder / f"{number:03}.csv").write_text("".join(f"{line}\n" for line in lines))


def schedule(seed: int, kills: Kills, rows: int) -> list[tuple[int, str]]:
    """(stored rows, who), in this order."""
    draw = random.Random(seed)
    points = [(draw.randrange(int(rows * 0.9)), who) for who, count in kills._asdict().items() for _ in range(count)]
    return sorted(points)


class Run:
    def __init__(self, folder: Path, seed: int, kind: Kind, rows: int, plant: Plant | None) -> None:
        self._folder = folder
        self._draw = random.Random(seed)
        program = (str(HERE / "forgetful_broker.py"),) if plant is Plant.FORGETFUL else None
        self._server = {} if program is None else {"program": program}
        self._broker = ServedProcess(folder / "server", **self._server)
        for topic in (WRITTEN, LATER):
            self._broker.create_topic(topic, 4)
        self._ports = self._broker.name_port, self._broker.port
        self._began_ms = int(time.time() * 1_000)
        words = [kind, self.name_server, rows, self._began_ms, folder, *([] if plant is None else [plant])]
        self._command = [sys.executable, str(HERE / "killed_driver.py"), *map(str, words)]
        self._driver: subprocess.Popen[bytes] | None = None
        self._client: RawClient | None = None
        self._count_at_start = 0
        """Rows that were stored when the driver was started."""

    @property
    def name_server(self) -> str:
        return f"127.0.0.1:{self._ports[0]}"

    def carry_out(self, plan: list[tuple[int, str]], limit_s: float = LIMIT_S) -> Kills:
        """Kill by plan until the write has ended by itself."""
        done = Counter[str]()
        end = time.monotonic() + limit_s
        left = list(plan)
        stored = 0
        while True:
            assert time.monotonic() < end, f"the write did not end in {limit_s} s\n{self.log()[-3000:]}"
            code = 0 if self._driver is None else self._driver.poll()
            stored = max(stored, self._stored_count(WRITTEN))
            if self._driver is None or code:
                self._count_at_start = stored
                self._start_driver()
            elif code == 0:
                return Kills(done["drivers"], done["workers"], done["brokers"])
            if left and stored >= left[0][0] and (left[0][1] == "brokers" or stored > self._count_at_start):
                _, who = left[0]
                if self._kill(who):
                    done[who] += 1
                    del left[0]
            time.sleep(LOOK_S)

    def found(self, written: Counter[tuple[str, bytes]]) -> Counter[tuple[str, bytes]]:
        """What is in the topics when all that was written can be there; what waits is waited for."""
        wanted = Counter(topic for topic, _ in written.elements())
        before: dict[str, int] = {}
        quiet_at = time.monotonic() + QUIET_S
        while time.monotonic() < quiet_at or time.time() * 1_000 < self._began_ms + DUE_WITHIN_S * 1_000:
            now = {topic: self._stored_count(topic) for topic in wanted}
            if all(now[topic] >= count for topic, count in wanted.items()):
                break
            if now != before:
                before, quiet_at = now, time.monotonic() + QUIET_S
            time.sleep(0.5)
        time.sleep(2)  # a row too many may come a little later
        return Counter(
            {
                (topic, body): count
                for topic in (WRITTEN, LATER)
                for body, count in bodies(self.name_server, topic).items()
            }
        )

    def close(self) -> None:
        self._kill("drivers")
        if self._client is not None:
            self._client.close()
        self._broker.kill()

    def log(self) -> str:
        return (self._folder / "driver.log").read_text(errors="replace")

    def _start_driver(self) -> None:
        with (self._folder / "driver.log").open("ab") as log:
            self._driver = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
            )

    def _stored_count(self, topic: str) -> int:
        """-1 while the broker cannot be asked."""
        try:
            self._client = self._client or RawClient(self._ports[1])
            answer = self._client.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        except (OSError, ClosedByServer):
            self._hang_up()
            return -1
        if answer.code != ResponseCode.SUCCESS:
            return -1
        table = TopicStatsTable.decode(bytes(answer.body)).offset_table
        return sum(queue.max_offset for queue in table.values())

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _kill(self, who: str) -> bool:
        """Whether there was somebody to kill."""
        if who == "brokers":
            self._hang_up()
            self._broker.kill()
            self._broker = ServedProcess(self._folder / "server", ports=self._ports, **self._server)
            return True
        driver = self._driver
        if driver is None or driver.poll() is not None:
            return False
        if who == "drivers":
            for pid in (driver.pid, *descendants(driver.pid)):
                end_process(pid)
            driver.wait()
            return True
        tasks, planners = python_workers(driver.pid)
        chosen = tasks if tasks and self._draw.random() < TASK_SHARE else planners
        return bool(chosen) and end_process(self._draw.choice(chosen))


def run(folder: Path, seed: int, kills: Kills, kind: Kind, plant: Plant | None = None, files: int = FILES) -> Outcome:
    """One run; two files are a batch of a stream."""
    rows = files * FILE_ROWS
    write_source(folder / "source", files)
    written = expected(kind, rows)
    running = Run(folder, seed, kind, rows, plant)
    try:
        stored_rows = sum(count for (topic, _), count in written.items() if topic == WRITTEN)
        done = running.carry_out(schedule(seed, kills, stored_rows))
        found = running.found(written)
    finally:
        running.close()
    return Outcome(done, written - found, found - written, rows)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, number in (
        ("--seed", 1),
        ("--runs", 1),
        ("--drivers", 6),
        ("--workers", 20),
        ("--brokers", 10),
        ("--files", FILES),
    ):
        parser.add_argument(name, type=int, default=number)
    parser.add_argument("--kind", choices=KINDS, help="one kind of writes instead of all in turn")
    parser.add_argument("--plant", choices=tuple(Plant), help="let this go wrong")
    given = parser.parse_args(arguments)
    os.environ.update(quick_environment())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended by the run
    kills = Kills(given.drivers, given.workers, given.brokers)
    killed, lost, twice, rows, failed = Kills(0, 0, 0), 0, 0, 0, 0
    for seed in range(given.seed, given.seed + given.runs):
        kind = Kind(given.kind or KINDS[seed % len(KINDS)])
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            outcome = run(Path(folder), seed, kills, kind, given.plant and Plant(given.plant), given.files)
        print(f"seed {seed}, {kind}, {time.monotonic() - began:.0f} s: {told(outcome)}", flush=True)
        for counted in (outcome.lost, outcome.twice):
            for (topic, body), count in counted.most_common(3):
                print(f"  {topic}: {body!r} {count} times", flush=True)
        killed = Kills(*(before + now for before, now in zip(killed, outcome.kills, strict=True)))
        lost, twice, rows = lost + outcome.lost.total(), twice + outcome.twice.total(), rows + outcome.row_count
        failed += bool(outcome.lost or outcome.twice)
    print(f"all: {told(Outcome(killed, Counter(lost=lost), Counter(twice=twice), rows))}; {failed} runs failed")  # type: ignore[arg-type]
    return 1 if failed else 0


def told(outcome: Outcome) -> str:
    kills = outcome.kills
    return (
        f"{sum(kills)} kills ({kills.drivers} drivers, {kills.workers} workers, {kills.brokers} brokers), {outcome.row_count} rows, "
        f"lost {outcome.lost.total()}, twice {outcome.twice.total()}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
