"""Compare transactions, POP and filters of orbitmq with those of the Java broker, in one run on one machine.

usage: messaging.py [--quick] [--rows KEY,KEY] [--only java|orbitmq|layered] [--json FILE] [--write-docs]

Each server is started on its own, warmed up, measured and stopped. Prints the table as Markdown; CPU per message is what counts. Needs
a C compiler, and a JDK and Maven for the comparison.
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
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import rigpath

# isort: split
from rig.brokers import Kind
from rig.toolchain import BROKER_VERSION, Missing, cache_folder, java_build
from rig.wire import Refused

from conversations import Unexpected
from measure import FULL, QUICK, Invalid
from messaging_measure import FULL_AMOUNTS, QUICK_AMOUNTS, Amounts, MessagingBench
from rows import Row
from table import figure, ratio, shown, target, write_into

DOCUMENT: Final = rigpath.REPOSITORY / "docs" / "messaging-benchmark.md"
JAVA, OURS, LAYERED = "java", "orbitmq", "layered"
TITLES: Final = {JAVA: f"RocketMQ {BROKER_VERSION}", OURS: "orbitmq", LAYERED: "nothing compiled"}
ROWS: Final = (
    Row("transaction", "transaction 16x1: half, commit, pulled, CPU per message", "us", ratio=0.6),
    Row("pop", "pop of 32 and an acknowledgement of each, CPU per message", "us", ratio=0.3),
    Row("pop-merge", "the same where Java merges in memory (`enablePopBufferMerge`)", "us", ratio=0.7),
    Row("filter", "pull with three SQL terms, one in ten matches, CPU per message scanned", "us", ratio=1.0),
    Row("arrival", "arrival beside 1,000 waiting consumers with 100 expressions, CPU more", "us", value=1_000, digits=0),
    Row("check-late", "first check of an undecided transaction, late by, p99", "ms", value=50),
    Row("reappear-late", "message that was not acknowledged, late by, p99", "ms", value=20),
    Row("in-flight", "messages in flight: anonymous memory of the broker", "MB", value=250, digits=0),
    Row("in-flight-restart", "kill -9 then: first SEND_OK", "s", value=2, digits=2),
)  # fmt: skip
BY_KEY: Final = {row.key: row for row in ROWS}
LAYERED_RATIOS: Final = {"transaction": 0.8, "filter": 1.5}
"""What is to be reached with nothing compiled."""


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


def comparison(benches: Mapping[str, MessagingBench], repeat: int, amounts: Amounts) -> str:
    """The table, and below it what has to stand beside figures."""
    java, ours, layered = (benches.get(name) for name in TITLES)
    lines = ["| work | " + " | ".join(TITLES[name] for name in benches) + " | ratio | to reach |"]
    lines.append("| --- |" + " ---: |" * (len(benches) + 2))
    for row in ROWS:
        if all(figure(bench, row) is None for bench in benches.values()):
            continue
        cells = " | ".join(shown(figure(bench, row), row) for bench in benches.values())
        theirs, own = figure(java, row), figure(ours, row)
        goal = target(row, own, theirs)
        if row.key in LAYERED_RATIOS:
            goal += "; nothing compiled " + target(
                row._replace(ratio=LAYERED_RATIOS[row.key]), figure(layered, row), theirs
            )
        lines.append(f"| {row.title} | {cells} | {ratio(own, theirs)} | {goal} |")
    lines += ["", "| late by p50 / p99 / max, ms (early) | " + " | ".join(TITLES[name] for name in benches) + " |"]
    lines.append("| --- |" + " ---: |" * len(benches))
    for key in ("check-late", "reappear-late"):
        cells = " | ".join(lateness(bench, key) for bench in benches.values())
        lines.append(f"| {BY_KEY[key].title.split(',')[0]} | {cells} |")
    model = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    lines += [
        "",
        f"{amounts.transactions:,} transactions, {amounts.pops:,} pops, {amounts.filtered:,} messages filtered, "
        f"{amounts.in_flight:,} in flight. "
        f"Runs per row: {repeat}, the median counts. Bodies of 1 KB, 8 queues, asynchronous flush; CPU of all server processes. "
        f"{time.strftime('%d %b %Y')}, {os.cpu_count()} cores ({model.split(':')[1].strip()}), Python {platform.python_version()}. "
        "Made by `benchmarks/messaging.py`.",
    ]
    return "\n".join(lines)


def lateness(bench: MessagingBench, key: str) -> str:
    values = [bench.median(key, name) for name in ("p50_ms", "p99_ms", "max_ms", "early")]
    found = [value for value in values if value is not None]
    return " / ".join(f"{value:,.1f}" for value in found[:3]) + f" ({found[3]:.0f})" if found else "-"


def main() -> int:
    options = arguments()
    scale, amounts = (QUICK, QUICK_AMOUNTS) if options.quick else (FULL, FULL_AMOUNTS)
    scale = scale._replace(repeat=options.repeat or scale.repeat)
    keys = set(filter(None, options.rows.split(","))) or set(BY_KEY)
    names = [options.only] if options.only else list(TITLES)
    folder = Path(tempfile.mkdtemp(prefix="messaging-", dir=options.folder or cache_folder()))
    benches: dict[str, MessagingBench] = {}
    try:
        if JAVA in names:
            java_build(BROKER_VERSION)
        for name in names:
            kind = Kind.JAVA if name == JAVA else Kind.ORBITMQ
            benches[name] = MessagingBench(
                kind,
                folder,
                scale,
                amounts,
                lambda text: print(text, file=sys.stderr, flush=True),
                layered=name == LAYERED,
            )
            try:
                benches[name].run(keys & LAYERED_RATIOS.keys() if name == LAYERED else keys)
            finally:
                benches[name].close()
    except (Missing, Invalid, Refused, Unexpected) as error:
        print(f"the benchmark stops: {error}", file=sys.stderr)
        return 1
    finally:
        if options.json:
            options.json.write_text(json.dumps({name: bench.found for name, bench in benches.items()}, indent=1))
        shutil.rmtree(folder, ignore_errors=True)
    text = comparison(benches, scale.repeat, amounts)
    print(text)
    if options.write_docs:
        write_into(DOCUMENT, text, "messaging")
    return 0


if __name__ == "__main__":
    sys.exit(main())
