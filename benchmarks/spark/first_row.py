"""How long `orbitmq pipeline archive` takes from its start to its first rows in the table, as a process of its own.

    python benchmarks/spark/first_row.py [--rounds 5] [--master 'local[2]'] [--conf spark.NAME=VALUE ...] [--java OPTIONS]

One broker with 1,000 orders of 1 KB; each round archives them into a new directory. Seconds since the start of the process: until the
first file of rows begins, until the version of the table that has them is there, and until the process ended; and CPU of its family. With
`--conf` or `--java` (JDK_JAVA_OPTIONS) rounds with and without them take turns.

Rules of this file
1. The rows are counted in the table each time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from archive_tasks import order
from deltalake import DeltaTable

import rigpath

sys.path.insert(0, str(rigpath.REPOSITORY / "tests" / "system"))

from server_process import ServedProcess

import orbitmq.sync
from orbitmq.client import Message

ROWS: Final = 1_000
TARGET_S: Final = 6.0
LIMIT_S: Final = 300


class Start(NamedTuple):
    """Seconds since the start of the process."""

    file: float
    commit: float
    end: float
    cpu: float
    """Of the family, user and system."""


def cpu_of(pids: set[int]) -> float:
    """CPU-seconds of these processes and of their children that ended and were waited for."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def session_of(leader: int) -> set[int]:
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if os.getsid(int(folder.name)) == leader:
                    found.add(int(folder.name))
            except ProcessLookupError:
                pass
    return found


def run(folder: Path, name_server: str, master: str, conf: Sequence[str], java: str | None) -> Start:
    words = [
        str(Path(sys.executable).with_name("orbitmq")),
        "pipeline",
        "archive",
        "--master",
        master,
        "--topic",
        "orders",
    ]
    words += ["--to", str(folder), "--name-server", name_server, *(word for one in conf for word in ("--conf", one))]
    environment = {**os.environ, **({"JDK_JAVA_OPTIONS": java} if java else {})}
    began = time.monotonic()
    log = folder.with_suffix(".log")
    file = commit = cpu = 0.0
    with log.open("wb") as said:
        process = subprocess.Popen(words, env=environment, stdout=said, stderr=said, start_new_session=True)
        while process.poll() is None and time.monotonic() < began + LIMIT_S:
            file = file or (time.monotonic() - began if any(folder.glob("day=*/*.parquet")) else 0.0)
            commit = commit or (
                time.monotonic() - began if (folder / "_delta_log" / f"{1:020d}.json").exists() else 0.0
            )
            cpu = max(cpu, cpu_of(session_of(process.pid)))
            time.sleep(0.02)
    end = time.monotonic() - began
    if process.returncode or DeltaTable(folder).count() != ROWS:
        raise SystemExit(log.read_text()[-3000:])
    return Start(file, commit, end, cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--conf", action="append", default=[])
    parser.add_argument("--java")
    options = parser.parse_args()
    ways = {"as it is": ([], None)}
    if options.conf or options.java:
        ways["with these"] = (options.conf, options.java)
    found: dict[str, list[Start]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as place:
        server = ServedProcess(Path(place) / "server")
        try:
            name_server = f"127.0.0.1:{server.name_port}"
            server.create_topic("orders", 4)
            with orbitmq.sync.connect(name_server) as client:
                for first in range(0, ROWS, 100):
                    client.send_batch("orders", [Message(body=order(number)) for number in range(first, first + 100)])
            for number in range(options.rounds):
                for name, (conf, java) in ways.items():
                    folder = Path(place) / f"archive-{number}-{name.replace(' ', '-')}"
                    start = run(folder, name_server, options.master, conf, java)
                    found[name].append(start)
                    print(name, *(f"{field} {value:.2f} s" for field, value in start._asdict().items()), flush=True)
        finally:
            server.kill()
    for name, starts in found.items():
        middle = Start(*(statistics.median(column) for column in zip(*starts, strict=True)))
        best = min(start.commit for start in starts)
        print(
            f"{name}: first rows in the table after {middle.commit:.1f} s in the middle of {len(starts)}, {best:.1f} s at best "
            f"(to reach: {TARGET_S:.0f}); {middle.cpu:.1f} s of CPU; load {os.getloadavg()[0]:.0f}"
        )


if __name__ == "__main__":
    main()
