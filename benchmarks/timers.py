"""Compare timed messages: orbitmq, RocketMQ's Java broker, NATS and RabbitMQ, in one run on one machine.

usage: timers.py [--quick] [--rows KEY,KEY] [--only NAME,NAME] [--long] [--layered] [--json FILE] [--write-docs]

Each server is started on its own, measured and stopped; nothing else should run meanwhile. Prints the table as Markdown. A server
that cannot be had on this machine is named below the table with the reason. Needs a C compiler; a JDK and Maven for the Java
broker, a package registry for NATS, Debian for RabbitMQ.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import rigpath

# isort: split
from rig.brokers import Kind
from rig.toolchain import BROKER_VERSION, Missing, cache_folder, java_build
from rig.wire import Refused

from comparators import NATS_VERSION, NatsServer, RabbitServer, available, rabbitmq_version
from measure import FULL, QUICK, Bench, Invalid
from rows import Row
from table import ratio, shown, target, write_into
from timed_link import NatsLink, RabbitLink
from timer_measure import ForeignBench, TimerBench, Work
from timer_rows import BY_KEY, LAYERED_RATIO, ROWS

DOCUMENT: Final = rigpath.REPOSITORY / "docs" / "timers-benchmark.md"
JAVA, NATS, RABBITMQ, OURS, LAYERED = "java", "nats", "rabbitmq", "orbitmq", "layered"
TITLES: Final = {
    JAVA: f"RocketMQ {BROKER_VERSION}",
    NATS: f"NATS {NATS_VERSION}",
    RABBITMQ: "RabbitMQ",
    OURS: "orbitmq",
    LAYERED: "orbitmq, nothing compiled",
}
SPREADS: Final = {
    "spread": "1,000 due over 4 s",
    "spread-bg": "1,000 due over 4 s, beside 2,000 sends/s",
    "burst-5000": "5,000 due in one instant",
    "burst-100000": "100,000 due in one instant",
}
LAYERED_ROWS: Final = frozenset(
    {"spread", "spread-p50", "burst-5000", "burst-100000", "burst-sends", "cpu-128", "cpu-1k", "intake", "intake-pace"}
)
"""What compiling changes."""

Benches = Mapping[str, Bench | ForeignBench]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="less work, one run per row: for a look, not for the record")
    add("--rows", default="", help="comma list of rows: " + ", ".join(row.key for row in ROWS))
    add("--only", default="", help="comma list of servers: " + ", ".join(TITLES))
    add("--long", action="store_true", help="also the rows with 10 million pending messages (needs 10 GB of disk)")
    add("--layered", action="store_true", help="also orbitmq without its compiled leaf")
    add("--repeat", type=int, help="runs per row; the median counts (3; 1 with --quick)")
    add("--folder", type=Path, help="where the stores go (default: beside the build cache)")
    add("--json", type=Path, help="write all figures of all runs there")
    add("--write-docs", action="store_true", help=f"put the table between the markers of docs/{DOCUMENT.name}")
    options = parser.parse_args()
    for text, known, what in ((options.rows, BY_KEY.keys(), "rows"), (options.only, TITLES.keys(), "servers")):
        unknown = set(filter(None, text.split(","))) - set(known)
        if unknown:
            parser.error(f"unknown {what}: {', '.join(sorted(unknown))}")
    return options


def wanted_servers(options: argparse.Namespace) -> list[str]:
    named = list(filter(None, options.only.split(",")))
    return named or [name for name in TITLES if name != LAYERED or options.layered]


def makers(folder: Path, work: Work, say: Callable[[str], None]) -> dict[str, Callable[[], Bench | ForeignBench]]:
    return {
        JAVA: lambda: TimerBench(Kind.JAVA, folder, work, say),
        NATS: lambda: ForeignBench(NatsServer, NatsLink, folder, work, say),
        RABBITMQ: lambda: ForeignBench(RabbitServer, RabbitLink, folder, work, say),
        OURS: lambda: TimerBench(Kind.ORBITMQ, folder, work, say),
        LAYERED: lambda: TimerBench(Kind.ORBITMQ, folder, work, say, layered=True),
    }


def absent(names: Sequence[str]) -> dict[str, str]:
    """Server -> why it cannot be measured on this machine."""
    reasons: dict[str, str] = {}
    if NATS in names or RABBITMQ in names:
        found = available()
        reasons |= {name: found[kind] for name, kind in ((NATS, NatsServer), (RABBITMQ, RabbitServer)) if found[kind]}
    if JAVA in names:
        try:
            java_build(BROKER_VERSION)
        except Missing as error:
            reasons[JAVA] = " ".join(str(error).split())[:200]
    return {name: reason for name, reason in reasons.items() if name in names}


def comparison(benches: Benches, notes: Sequence[str]) -> str:
    """The two tables with the notes below. Ratio and target are orbitmq's as it is installed, against the Java broker."""
    names = [name for name in TITLES if name in benches]
    java, ours = benches.get(JAVA), benches.get(OURS)
    lines = ["| work | " + " | ".join(TITLES[name] for name in names) + " | ratio | to reach |"]
    lines.append("| --- |" + " ---: |" * (len(names) + 2))
    for row in ROWS:
        figures = [benches[name].median(row.key) for name in names]
        if all(figure is None for figure in figures):
            continue
        theirs = java.median(row.key) if java is not None else None
        own = ours.median(row.key) if ours is not None else None
        cells = " | ".join(shown(figure, row) for figure in figures)
        lines.append(
            f"| {row.title} | {cells} | {ratio(own, theirs)} | {target(row, own, theirs)}{layered(row, benches)} |"
        )
    kept = [key for key in SPREADS if any(benches[name].median(key, "p50_ms") is not None for name in names)]
    if kept:
        lines += ["", "| lateness p50 / p99 / p99.9, ms | " + " | ".join(TITLES[name] for name in names) + " |"]
        lines.append("| --- |" + " ---: |" * len(names))
    lines += [
        f"| {SPREADS[key]} | " + " | ".join(quantiles(benches[name], key) for name in names) + " |" for key in kept
    ]
    return "\n".join([*lines, "", *notes])


def layered(row: Row, benches: Benches) -> str:
    """The target of a row where nothing is compiled, where it has one of its own."""
    theirs, plain = (benches[name].median(row.key) if name in benches else None for name in (JAVA, LAYERED))
    if row.key not in ("cpu-128", "cpu-1k"):
        return ""
    kept = "" if plain is None or not theirs else " ✓" if plain / theirs <= LAYERED_RATIO else " ✗"
    return f"; {LAYERED_RATIO:.2g}x with nothing compiled{kept}"


def quantiles(bench: Bench | ForeignBench, key: str) -> str:
    values = [bench.median(key, name) for name in ("p50_ms", "p99_ms", "p999_ms")]
    return "-" if values[0] is None else " / ".join("-" if value is None else f"{value:,.1f}" for value in values)


def notes(work: Work, began: float, benches: Benches, missing: Mapping[str, str]) -> list[str]:
    """What has to stand beside figures."""
    model = (
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    )
    runs = [numbers for bench in benches.values() for found in bench.found.values() for numbers in found]
    loads = [numbers["load1"] for numbers in runs if "load1" in numbers]
    others = [numbers["other_cores"] for numbers in runs if "other_cores" in numbers]
    sentences = [
        "Bodies of 128 B unless said otherwise, asynchronous flush, 8 queues, index on.",
        "Bursts of the RocketMQ family are due on a whole second, the best case of slots of a second.",
        f"Runs per row: {work.scale.repeat}, the median counts; CPU of all server processes.",
        f"The RocketMQ family is warmed up with {work.scale.warm:,} sends.",
    ]
    if work.quick:
        sentences.append(
            f"A quick look: {work.burst:,} instead of 100,000, {work.pending:,} instead of 1 M, {work.long_pending:,} instead of 10 M."
        )
    if NATS in benches:
        sentences.append("NATS: scheduled messages of a stream on disk, read by a push consumer.")
    if RABBITMQ in benches:
        sentences.append(
            f"RabbitMQ {rabbitmq_version()}: confirmed persistent messages with an expiration in one queue that dead-letters into "
            "another, published in the order of their due times, its best case: only the head of a queue expires."
        )
    sentences += [f"{TITLES[name]} was not measured: {reason}" for name, reason in missing.items()]
    sentences += [
        f"{time.strftime('%d %b %Y')}, {os.cpu_count()} cores ({next(model, '?')}), Linux {platform.release()}, "
        f"Python {platform.python_version()}.",
        f"Load average {began:.2f} before" + (f", at most {max(loads):.2f} after a row." if loads else "."),
        *([f"Other programs used at most {max(others):.2f} cores during a row."] if others else []),
        "Made by `benchmarks/timers.py`.",
    ]
    return sentences


def main() -> int:
    options = arguments()
    scale = QUICK if options.quick else FULL
    if options.repeat:
        scale = scale._replace(repeat=options.repeat)
    keys = set(filter(None, options.rows.split(","))) or {row.key for row in ROWS if options.long or not row.long}
    names = wanted_servers(options)
    work = Work(scale, quick=options.quick)
    began = os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp(prefix="timers-", dir=options.folder or cache_folder()))
    benches: dict[str, Bench | ForeignBench] = {}
    missing = absent(names)
    failed = False
    making = makers(folder, work, lambda text: print(text, file=sys.stderr, flush=True))
    try:
        for name in names:
            if name in missing:
                continue
            benches[name] = making[name]()
            try:
                benches[name].run(keys & LAYERED_ROWS if name == LAYERED else keys)
            except (Missing, Invalid, Refused, OSError, AssertionError) as error:
                print(f"{TITLES[name]} stops: {error}", file=sys.stderr)
                missing[name] = f"stopped after {len(benches[name].found)} rows: {' '.join(str(error).split())[:300]}"
                failed = True
            finally:
                benches[name].close()
    finally:
        if options.json:
            options.json.write_text(json.dumps({name: bench.found for name, bench in benches.items()}, indent=1))
        shutil.rmtree(folder, ignore_errors=True)
    text = comparison(benches, notes(work, began, benches, missing))
    print(text)
    if failed:
        return 1
    if options.write_docs:
        write_into(DOCUMENT, text, "timers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
