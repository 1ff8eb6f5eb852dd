"""What a second copy costs: pairs of orbitmq beside a single broker, beside RocketMQ's pairs, and this tree beside an older one.

usage: copies.py [--quick] [--rows KEY,KEY] [--before DIR] [--catch-up-mib 2048] [--json FILE] [--write-docs]

Prints the table as Markdown. Needs a C compiler; a JDK and Maven for RocketMQ's pairs; for the row "unused" a work tree of the commit to
compare with (`git worktree add DIR COMMIT`, with its inner loops compiled where those here are).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import rigpath

# isort: split
from rig.brokers import Kind
from rig.toolchain import BROKER_VERSION, Missing, cache_folder, java_build

from alternating import WORKS, Alternating, difference
from copies_measure import FULL, LOADS, QUICK, Amounts, CopiesBench
from measure import Invalid, Numbers
from table import Line, machine, verdict, works, write_into

DOCUMENT: Final = rigpath.REPOSITORY / "docs" / "copies-benchmark.md"
PAIRS, PAIR_SENDS = 15, 60_000
UNUSED_PERCENT_MAX: Final = 2.0
P99_MORE_MS_MAX: Final = 3.0
CATCH_UP_RATIO_MIN: Final = 1.0
MASTER_MEANWHILE_MIN: Final = 0.7
SLAVE_MORE_MB_MAX, SLAVE_CPU_PERCENT_MAX = 20.0, 1.0
JAVA: Final = f"RocketMQ {BROKER_VERSION}"
ROWS: Final = {
    "unused": "send, pull and start where no copy is configured, beside an older tree",
    "cost": "CPU for each message of pairs, beside a single broker and RocketMQ's pairs; sends at half load; what a slave takes",
    "catch-up": "a slave that was away",
}


class Bound(NamedTuple):
    """Two figures of CPU for each message, and how much larger the first may be."""

    work: str
    ours: str
    name: str
    compared_with: str
    other: str
    other_name: str
    ratio: float


def bounds() -> list[Bound]:
    """Keys are those of `CopiesBench.found`."""
    made: list[Bound] = []
    for load in LOADS:
        of = f"orbitmq sync {load}", "both_us"
        work = f"synchronous double write {load}, both processes"
        made.append(Bound(work, *of, "asynchronous pair", f"orbitmq async {load}", "both_us", 1.1))
        made.append(Bound(work, *of, f"{JAVA}, SYNC_MASTER", f"java sync {load}", "both_us", 0.6))
    for load in LOADS:
        pair, single, java = f"orbitmq async {load}", f"orbitmq single {load}", f"java async {load}"
        for who, most in (("master", 1.15), ("slave", 0.8)):
            work = f"asynchronous pair {load}, the {who}"
            made.append(Bound(work, pair, f"{who}_us", "single broker", single, "master_us", most))
            made.append(Bound(work, pair, f"{who}_us", f"{JAVA}, its {who}", java, f"{who}_us", 0.6))
    return made


def cost_lines(bench: CopiesBench) -> list[Line]:
    lines: list[Line] = []
    for bound in bounds():
        ours, other = bench.median(bound.ours, bound.name), bench.median(bound.other, bound.other_name)
        if ours is None:
            continue
        ratio = None if not other else ratio_of(bench, bound)
        kept = None if ratio is None else ratio <= bound.ratio
        shown = "-" if ratio is None else f"{ratio:.2f}"
        goal = f"{bound.ratio:g}x{verdict(kept)}"
        lines.append(Line(bound.work, bound.compared_with, us(ours), us(other), shown, goal))
    if bench.found.get("orbitmq sync half load"):
        lines.append(half_load_line(bench))
    for numbers in bench.found.get("idle", []):
        lines += slave_lines(numbers)
    return lines


def ratio_of(bench: CopiesBench, bound: Bound) -> float:
    """Median of the ratios of the rounds."""
    rounds = zip(bench.found[bound.ours], bench.found[bound.other], strict=True)
    return statistics.median(one[bound.name] / two[bound.other_name] for one, two in rounds)


def half_load_line(bench: CopiesBench) -> Line:
    single, pair = (bench.found[f"orbitmq {name} half load"] for name in ("single", "sync"))
    more = statistics.median(two["p99_ms"] - one["p99_ms"] for one, two in zip(single, pair, strict=True))
    rate = statistics.median(numbers["rate"] for numbers in pair)
    return Line(
        f"synchronous double write at half load ({rate:,.0f}/s), a send, p99", "single broker",
        f"{statistics.median(numbers['p99_ms'] for numbers in pair):.2f} ms",
        f"{statistics.median(numbers['p99_ms'] for numbers in single):.2f} ms",
        f"{more:+.2f} ms", f"+{P99_MORE_MS_MAX:g} ms{verdict(more <= P99_MORE_MS_MAX)}",
    )  # fmt: skip


def slave_lines(numbers: Numbers) -> list[Line]:
    memory, cpu = (numbers[f"slave_{what}"] - numbers[f"single_{what}"] for what in ("mb", "cpu"))
    return [
        Line(
            "slave, anonymous memory after the same messages", "single broker", f"{numbers['slave_mb']:.1f} MB",
            f"{numbers['single_mb']:.1f} MB", f"{memory:+.1f} MB",
            f"+{SLAVE_MORE_MB_MAX:g} MB{verdict(memory <= SLAVE_MORE_MB_MAX)}",
        ),
        Line(
            "slave, idle", "single broker", f"{numbers['slave_cpu']:.2f} %", f"{numbers['single_cpu']:.2f} %",
            f"{cpu:+.2f} %", f"+{SLAVE_CPU_PERCENT_MAX:g} % of a core{verdict(cpu <= SLAVE_CPU_PERCENT_MAX)}",
        ),
    ]  # fmt: skip


def catch_up_lines(bench: CopiesBench) -> list[Line]:
    lines: list[Line] = []
    speed, theirs = (bench.median(f"{kind.value} catch-up", "mib_s") for kind in (Kind.ORBITMQ, Kind.JAVA))
    size = bench.median("orbitmq catch-up", "mib")
    if speed is not None:
        kept = None if theirs is None else speed >= CATCH_UP_RATIO_MIN * theirs
        lines.append(
            Line(
                f"catch-up of {size:,.0f} MiB, speed", f"{JAVA}, its slave", f"{speed:,.0f} MiB/s",
                "-" if theirs is None else f"{theirs:,.0f} MiB/s", "-" if theirs is None else f"{speed / theirs:.2f}",
                f"at least {CATCH_UP_RATIO_MIN:g}x{verdict(kept)}",
            )
        )  # fmt: skip
    for numbers in bench.found.get("orbitmq beside catch-up", []):
        share = numbers["meanwhile"] / numbers["alone"]
        lines.append(
            Line(
                "sends 4x32 at the master meanwhile", "no slave", f"{numbers['meanwhile']:,.0f}/s",
                f"{numbers['alone']:,.0f}/s", f"{share:.2f}",
                f"at least {MASTER_MEANWHILE_MIN:g}x{verdict(share >= MASTER_MEANWHILE_MIN)}",
            )
        )  # fmt: skip
    return lines


def unused_lines(ratios: dict[str, list[float]]) -> list[Line]:
    lines: list[Line] = []
    for work in WORKS:
        if not ratios[work]:
            continue
        found = difference(ratios[work])
        lines.append(
            Line(
                f"{work}, no copy configured, CPU", f"the tree before, {found.pairs} pairs", f"{found.median:+.1f} %", "-",
                f"95 % interval {found.low:+.1f} to {found.high:+.1f} %",
                f"to {UNUSED_PERCENT_MAX:g} % at most{verdict(found.high <= UNUSED_PERCENT_MAX)}",
            )
        )  # fmt: skip
    return lines


def us(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} us"


def circumstances(amounts: Amounts, bench: CopiesBench, began: float) -> str:
    loads = [numbers["load1"] for runs in bench.found.values() for numbers in runs if "load1" in numbers]
    return (
        f"Bodies of 1 KB, 8 queues, asynchronous flush; {amounts.sends:,} messages for each run of 4x32 and a third of that for 16x1, "
        f"{amounts.rounds} rounds, the median counts. {time.strftime('%d %b %Y')}, {machine()}. Load average {began:.2f} before, up to "
        f"{max(loads, default=began):.2f} meanwhile. Made by `benchmarks/copies.py`."
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="less work, two rounds: for a look, not for the record")
    add(
        "--rows",
        default=",".join(ROWS),
        help="comma list: " + "; ".join(f"{key}: {what}" for key, what in ROWS.items()),
    )
    add("--only", type=Kind, choices=list(Kind), help="one kind of broker alone")
    add("--before", type=Path, help="a work tree to compare with; without it the row `unused` is left out")
    add("--pairs", type=int, default=PAIRS, help=f"pairs of the row `unused` ({PAIRS})")
    add("--rounds", type=int, help="rounds of the other rows")
    add("--catch-up-mib", type=int, help="how far behind the slave is (2048)")
    add("--folder", type=Path, help="where the stores go, up to 12 GB (default: beside the build cache)")
    add("--json", type=Path, help="write all figures of all runs there")
    add("--write-docs", action="store_true", help=f"put the table between the markers of docs/{DOCUMENT.name}")
    options = parser.parse_args()
    if unknown := set(options.rows.split(",")) - ROWS.keys():
        parser.error(f"unknown rows: {', '.join(sorted(unknown))}")
    return options


def measure(options: argparse.Namespace, bench: CopiesBench, folder: Path, say: Callable[[str], None]) -> list[Line]:
    rows = options.rows.split(",")
    kinds = [options.only] if options.only else list(Kind)
    lines: list[Line] = []
    if "unused" in rows and options.before is not None:
        trees = Alternating(options.before.resolve(), folder, say)
        trees.run(options.pairs, PAIR_SENDS)
        lines += unused_lines(trees.ratios)
    if "cost" in rows:
        bench.cost(kinds)
    if "catch-up" in rows:
        for kind in kinds:
            bench.catch_up(kind)
    return lines + cost_lines(bench) + catch_up_lines(bench)


def main() -> int:
    options = arguments()
    amounts = QUICK if options.quick else FULL
    if options.rounds:
        amounts = amounts._replace(rounds=options.rounds)
    if options.catch_up_mib:
        amounts = amounts._replace(catch_up_bytes=options.catch_up_mib << 20)
    began = os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp(prefix="copies-", dir=options.folder or cache_folder()))
    bench: CopiesBench | None = None

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        if options.only is not Kind.ORBITMQ:
            java_build(BROKER_VERSION)
        bench = CopiesBench(folder, amounts, say)
        lines = measure(options, bench, folder, say)
    except (Missing, Invalid, AssertionError) as error:
        print(f"the benchmark stops: {error}", file=sys.stderr)
        return 1
    finally:
        if bench is not None:
            bench.close()
            if options.json:
                options.json.write_text(json.dumps(bench.found, indent=1))
        shutil.rmtree(folder, ignore_errors=True)
    text = works(lines, circumstances(amounts, bench, began))
    print(text)
    if options.write_docs:
        write_into(DOCUMENT, text, "copies")
    return 0


if __name__ == "__main__":
    sys.exit(main())
