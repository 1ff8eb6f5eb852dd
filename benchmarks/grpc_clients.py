"""Compare the front end of orbitmq for clients of RocketMQ 5 with RocketMQ's proxy inside its broker, in one run on one machine.

usage: grpc_clients.py [--quick] [--rows KEY,KEY] [--only java|orbitmq] [--repeat N] [--json FILE] [--write-docs]; `make bench-grpc`

Each server is started on its own, warmed up with 200,000 sends, measured and stopped. Prints the table as Markdown; CPU per message is what
counts. Needs a JDK and Maven for the comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import rigpath

# isort: split
from rig.brokers import JvmProfile, Kind
from rig.grpc_clients import GrpcBroker
from rig.toolchain import BROKER_VERSION, Missing, cache_folder, java_build

from grpc_load import Broken
from grpc_measure import FULL, QUICK, Amounts, GrpcServer, GrpcWorkloads
from measure import Invalid, Numbers
from rows import Row
from table import ratio, shown, target, write_into

DOCUMENT: Final = rigpath.REPOSITORY / "docs" / "grpc-benchmark.md"
JAVA, OURS = "java", "orbitmq"
TITLES: Final = {JAVA: f"RocketMQ {BROKER_VERSION}, proxy in its broker", OURS: "orbitmq"}
NEVER_BUSY: Final = {"waitTimeMillsInSendQueue": "60000", "channelExpiredTimeout": "600000"}
"""Nobody is refused or forgotten because the machine is busy."""
ROWS: Final = (
    Row("send-64", "SendMessage, 64 in flight, CPU", "us", ratio=0.5),
    Row("send-16", "SendMessage, 16 in flight, CPU", "us", ratio=0.5),
    Row("send-1", "SendMessage, 1 in flight, CPU", "us", ratio=0.6),
    Row("send-tls", "SendMessage over TLS, 64 in flight, CPU", "us"),
    Row("send-timed", "SendMessage with a delivery time, 16 in flight, CPU", "us", ratio=0.4),
    Row("receive", "ReceiveMessage(32) and AckMessage(32), CPU per message", "us", ratio=0.4),
    Row("ack", "AckMessage one by one, 64 in flight, CPU", "us", ratio=0.4),
    Row("heartbeat", "Heartbeat, 16 in flight, CPU", "us", ratio=0.45),
    Row("send-p99", "SendMessage, 64 in flight, latency p99", "ms", ratio=0.5, digits=2),
    Row("lateness", "timed messages beside 2,000 sends/s, late by, p99", "ms", value=10),
    Row("waiting", "a client with telemetry and a receive that waits, memory", "KB", value=25),
    Row("waiting-cpu", "1,000 of them, CPU", "% of a core", value=2, digits=2),
    Row("waiting-tls", "a client that waits over TLS, memory", "KB", value=40),
)  # fmt: skip
BY_KEY: Final = {row.key: row for row in ROWS}
TLS_RATIO: Final = 1.3
"""What TLS may cost above plain sends, of our own."""


class GrpcBench:
    """The rows of one kind of server. `found[key]` has one `Numbers` per run."""

    def __init__(self, kind: Kind, folder: Path, amounts: Amounts, repeat: int) -> None:
        self._kind, self._folder, self._amounts, self._repeat = kind, folder / kind.value, amounts, repeat
        self.found: dict[str, list[Numbers]] = {}

    def run(self, keys: set[str]) -> None:
        self._folder.mkdir()
        broker = GrpcBroker(self._kind, self._folder, NEVER_BUSY, profile=JvmProfile.MEASURE)
        try:
            broker.start()
            work = GrpcWorkloads(GrpcServer(broker.grpc_port, broker.broker_port, broker.pids), self._amounts)
            work.warm()
            for key, measure in _measures(work).items():
                for _ in range(self._repeat if key in keys else 0):
                    self._note(key, measure())
            broker.stop()
        finally:
            broker.kill()

    def _note(self, key: str, numbers: Numbers) -> None:
        print(f"{self._kind.value} {key}: {numbers}", file=sys.stderr, flush=True)
        self.found.setdefault(key, []).append(numbers)
        if key == "send-64":
            self.found.setdefault("send-p99", []).append({"value": numbers["p99"]})
        elif key == "waiting":
            self.found.setdefault("waiting-cpu", []).append({"value": numbers["cpu_percent"]})

    def median(self, key: str) -> float | None:
        values = [numbers["value"] for numbers in self.found.get(key, [])]
        return statistics.median(values) if values else None


def _measures(work: GrpcWorkloads) -> Mapping[str, Callable[[], Numbers]]:
    return {
        "send-64": lambda: work.send(64),
        "send-16": lambda: work.send(16),
        "send-1": lambda: work.send(1),
        "send-tls": lambda: work.send(64, tls=True),
        "send-timed": lambda: work.send(16, delay_s=3_600),
        "receive": lambda: work.receive_and_acknowledge(16),
        "ack": lambda: work.acknowledge_one_by_one(64),
        "heartbeat": lambda: work.heartbeats(16),
        "lateness": lambda: work.lateness_beside_sends(2_000),
        "waiting": work.waiting_clients,
        "waiting-tls": lambda: work.waiting_clients(tls=True),
    }


def comparison(benches: Mapping[str, GrpcBench], repeat: int, amounts: Amounts) -> str:
    """The table, and below it what has to stand beside figures."""
    java, ours = benches.get(JAVA), benches.get(OURS)
    lines = ["| work | " + " | ".join(TITLES[name] for name in benches) + " | ratio | to reach |"]
    lines.append("| --- |" + " ---: |" * (len(benches) + 2))
    for row in ROWS:
        theirs, own = (None if bench is None else bench.median(row.key) for bench in (java, ours))
        if theirs is None and own is None:
            continue
        cells = " | ".join(shown(bench.median(row.key), row) for bench in benches.values())
        lines.append(f"| {row.title} | {cells} | {ratio(own, theirs)} | {_goal(row, own, theirs, ours)} |")
    model = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    lines += [
        "",
        f"{amounts.warm:,} sends first, then {amounts.calls:,} calls per run ({amounts.single_calls:,} with one in flight), "
        f"{amounts.received:,} messages received, {amounts.clients:,} clients that wait. Runs per row: {repeat}, the median counts. "
        "Signed calls as the Java client makes them, bodies of 1 KB, 8 queues, asynchronous flush; CPU of all server processes. "
        f"{time.strftime('%d %b %Y')}, {os.cpu_count()} cores ({model.split(':')[1].strip()}), load {os.getloadavg()[0]:.1f} at the "
        f"end, Python {platform.python_version()}. Made by `benchmarks/grpc_clients.py`.",
    ]
    return "\n".join(lines)


def _goal(row: Row, own: float | None, theirs: float | None, ours: GrpcBench | None) -> str:
    if row.key != "send-tls":
        return target(row, own, theirs)
    plain = None if ours is None else ours.median("send-64")
    return target(row._replace(ratio=TLS_RATIO), own, plain) + " of our plain sends"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="less work, one run per row: for a look, not for the record")
    add("--rows", default="", help="comma list of rows: " + ", ".join(BY_KEY))
    add("--only", choices=list(TITLES), help="one server alone")
    add("--repeat", type=int, help="runs per row; the median counts (3; 1 with --quick)")
    add("--folder", type=Path, help="where the stores go (default: beside the build cache)")
    add("--json", type=Path, help="write all figures of all runs there")
    add("--write-docs", action="store_true", help=f"put the table between the markers of docs/{DOCUMENT.name}")
    options = parser.parse_args()
    unknown = set(filter(None, options.rows.split(","))) - BY_KEY.keys()
    if unknown:
        parser.error(f"unknown rows: {', '.join(sorted(unknown))}")
    return options


def main() -> int:
    options = arguments()
    amounts, repeat = (QUICK, 1) if options.quick else (FULL, 3)
    repeat = options.repeat or repeat
    keys = set(filter(None, options.rows.split(","))) or set(BY_KEY)
    keys |= {"send-64"} if keys & {"send-p99", "send-tls"} else set()
    keys |= {"waiting"} if "waiting-cpu" in keys else set()
    names = [options.only] if options.only else list(TITLES)
    folder = Path(tempfile.mkdtemp(prefix="grpc-", dir=options.folder or cache_folder()))
    benches: dict[str, GrpcBench] = {}
    try:
        if JAVA in names:
            java_build(BROKER_VERSION)
        for name in names:
            kind = Kind.JAVA if name == JAVA else Kind.ORBITMQ
            benches[name] = GrpcBench(kind, folder, amounts, repeat)
            benches[name].run(keys)
    except (Missing, Invalid, Broken) as error:
        print(f"the benchmark stops: {error}", file=sys.stderr)
        return 1
    finally:
        if options.json:
            options.json.write_text(json.dumps({name: bench.found for name, bench in benches.items()}, indent=1))
        shutil.rmtree(folder, ignore_errors=True)
    text = comparison(benches, repeat, amounts)
    print(text)
    if options.write_docs:
        write_into(DOCUMENT, text, "grpc")
    return 0


if __name__ == "__main__":
    sys.exit(main())
