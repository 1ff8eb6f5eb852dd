"""Compare orbitmq with the Java broker, in one run on one machine.

usage: run.py [--quick] [--rows KEY,KEY] [--only orbitmq|java] [--long] [--json FILE] [--write-readme]

Each kind of broker is started on its own, warmed up, measured and stopped; nothing else should run meanwhile. Prints the
table as Markdown. CPU per message is what counts: load generator and broker share the machine, so rates are second. Needs a C
compiler, and a JDK and Maven for the comparison.
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

import rigpath

# isort: split
from rig.brokers import Kind
from rig.toolchain import BROKER_VERSION, Missing, cache_folder, java_build

from measure import FULL, QUICK, Bench, Invalid, Scale
from rows import BY_KEY, ROWS
from table import comparison, write_into

README = rigpath.REPOSITORY / "README.md"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="less work, one run per row: for a look, not for the record"
    )
    parser.add_argument("--rows", default="", help="comma list of rows: " + ", ".join(row.key for row in ROWS))
    parser.add_argument("--only", type=Kind, choices=list(Kind), help="one kind of broker alone")
    parser.add_argument(
        "--long", action="store_true", help="also the rows with millions of messages (needs 10 GB of disk)"
    )
    parser.add_argument("--repeat", type=int, help="runs per row; the median counts (3; 1 with --quick)")
    parser.add_argument("--folder", type=Path, help="where the stores go (default: beside the build cache)")
    parser.add_argument("--json", type=Path, help="write all figures of all runs there")
    parser.add_argument("--write-readme", action="store_true", help="put the table between the markers of README.md")
    options = parser.parse_args()
    unknown = set(filter(None, options.rows.split(","))) - BY_KEY.keys()
    if unknown:
        parser.error(f"unknown rows: {', '.join(sorted(unknown))}")
    return options


def circumstances(scale: Scale, began: float, benches: Mapping[Kind, Bench]) -> str:
    """What has to stand beside figures."""
    cpu = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "?",
    )
    java = os.popen("java -version 2>&1").readline().strip()
    runs = [numbers for bench in benches.values() for found in bench.found.values() for numbers in found]
    others = max((numbers.get("other_cores", 0.0) for numbers in runs), default=0.0)
    sentences = (
        "Asynchronous flush unless said otherwise, 1 KB bodies, 8 queues, index on; connections x requests in flight.",
        f"Runs per row: {scale.repeat}, the median counts; Java warmed up with {scale.warm:,} sends; CPU of all server processes.",
        f"{time.strftime('%d %b %Y')}, {os.cpu_count()} cores ({cpu}),",
        f"Linux {platform.release()}, Python {platform.python_version()}, {java}.",
        f"Load average {began:.2f} before; other programs used at most {others:.2f} cores during a row.",
        "Made by `benchmarks/run.py`.",
    )
    return " ".join(sentences)


def report(benches: Mapping[Kind, Bench]) -> dict[str, object]:
    return {kind.value: bench.found for kind, bench in benches.items()}


def main() -> int:
    options = arguments()
    scale = QUICK if options.quick else FULL
    if options.repeat:
        scale = scale._replace(repeat=options.repeat)
    keys = set(filter(None, options.rows.split(","))) or {row.key for row in ROWS if options.long or not row.long}
    kinds = [options.only] if options.only else [Kind.JAVA, Kind.ORBITMQ]
    began = os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp(prefix="benchmark-", dir=options.folder or cache_folder()))
    benches: dict[Kind, Bench] = {}
    try:
        if Kind.JAVA in kinds:
            java_build(BROKER_VERSION)
        for kind in kinds:
            benches[kind] = Bench(kind, folder, scale, lambda text: print(text, file=sys.stderr, flush=True))
            try:
                benches[kind].run(keys)
            finally:
                benches[kind].close()
    except (Missing, Invalid) as error:
        print(f"the benchmark stops: {error}", file=sys.stderr)
        return 1
    finally:
        if options.json:
            options.json.write_text(json.dumps(report(benches), indent=1))
        shutil.rmtree(folder, ignore_errors=True)
    text = comparison(benches, circumstances(scale, began, benches))
    print(text)
    if options.write_readme:
        write_into(README, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
