"""What a replicated group of three costs beside a single broker, and how soon it goes on when its leader fails, beside RocketMQ's DLedger.

usage: groups.py [--quick] [--rows KEY,KEY] [--rounds N] [--seconds 200] [--fresh] [--json FILE] [--write-docs]

Every round of every row is kept in a file, and the table is made from it. A row whose rounds are not all there goes on, for some minutes
at most; one that is complete is not measured again, unless `--fresh` is given. `--rows ""` makes the table alone. Every broker has a
machine of its own, which is a network namespace: Linux that lets its users make some. Needs an etcd and a C compiler; a JDK and Maven for
RocketMQ.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
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

from copies_measure import LOADS
from groups_measure import FULL, QUICK, SENDERS, Amounts, CostBench, FailoverBench, Fault, Figures, percentile
from machines import in_own_network
from measure import Invalid
from results import Results
from table import Line, machine, verdict, works, write_into

DOCUMENT: Final = rigpath.REPOSITORY / "docs" / "groups-benchmark.md"
JAVA: Final = f"RocketMQ {BROKER_VERSION}, DLedger"
KILLED_S_MAX, KILLED_RATIO_MAX = {50: 1.5, 99: 3.0}, 0.3
AWAY_S_MAX: Final = {Fault.FROZEN: 8.0, Fault.CUT: 8.0, Fault.SWITCHED: 0.5}
LATE_MS_MAX: Final = 1_000.0
MEMBER_MORE_MB_MAX, MEMBER_CPU_PERCENT_MAX = 20.0, 1.0


class Ack(NamedTuple):
    """How members of a group acknowledge, and what is to be reached with it."""

    setting: str
    title: str
    single: str
    cpu_ratio: float
    p99_ratio: float
    behind_ms: float


ACKS: Final = {
    "flushed": Ack("disk", "flushed", "single broker, synchronous flush", 1.4, 2.5, 15.0),
    "memory": Ack("memory", "`memory`", "single broker, asynchronous flush", 1.3, 2.0, 5.0),
}
FAULTS: Final = {"killed": Fault.KILLED, "frozen": Fault.FROZEN, "cut": Fault.CUT, "switched": Fault.SWITCHED}
ROWS: Final = {
    "flushed": 5, "memory": 5, "flushed-behind": 3, "memory-behind": 3, "beyond": 1,
    "killed": 50, "frozen": 10, "cut": 10, "switched": 20,
    "java-killed": 10, "java-frozen": 5, "java-cut": 5, "java-switched": 5,
}  # fmt: skip
"""Rounds of each."""


# --- the table ------------------------------------------------------------------------------------------------------------


def cost_lines(results: Results, key: str) -> list[Line]:
    """The ratio is the median of the rounds', and the least one beside it."""
    ack, lines = ACKS[key], []
    for load in LOADS:
        for what, name, other, unit, most in (
            ("the leader, CPU", f"group_{load}_us", f"single_{load}_us", "us", ack.cpu_ratio),
            ("a follower, CPU", f"follower_{load}_us", f"single_{load}_us", "us", None),
            ("a send, p99", f"group_{load}_p99_ms", f"single_{load}_p99_ms", "ms", ack.p99_ratio),
        ):
            ours, theirs = results.values(key, name), results.values(key, other)
            if not ours:
                continue
            ratios = [one / two for one, two in zip(ours, theirs, strict=True)]
            median = statistics.median(ratios)
            lines.append(
                Line(
                    f"group of 3, {ack.title}, {load}: {what}", ack.single, f"{statistics.median(ours):.1f} {unit}",
                    f"{statistics.median(theirs):.1f} {unit}", f"{median:.2f}, best {min(ratios):.2f}",
                    "-" if most is None else f"{most:g}x{verdict(median <= most)}", results.load([key]),
                )
            )  # fmt: skip
    return lines


def behind_lines(results: Results, key: str) -> list[Line]:
    ack, row = ACKS[key], f"{key}-behind"
    behind = results.median(row, "behind_p99_ms")
    if behind is None:
        return []
    rate, load = results.median(row, "rate"), results.load([row])
    ours, single = results.median(row, "group_p99_ms"), results.median(row, "single_p99_ms")
    return [
        Line(
            f"group of 3, {ack.title}, half load ({rate:,.0f}/s): confirmed behind written, p99", "-", f"{behind:.1f} ms", "-",
            f"best {min(results.values(row, 'behind_p99_ms')):.1f} ms", f"{ack.behind_ms:g} ms{verdict(behind <= ack.behind_ms)}", load,
        ),
        Line(f"group of 3, {ack.title}, half load: a send, p99", ack.single, f"{ours:.1f} ms", f"{single:.1f} ms", "-", "-", load),
    ]  # fmt: skip


def killed_lines(results: Results) -> list[Line]:
    away, java = results.values("killed", "away_s"), results.values("java-killed", "away_s")
    lines: list[Line] = []
    for of_hundred, most_s in KILLED_S_MAX.items() if away else ():
        ours, theirs = percentile(away, of_hundred), percentile(java, of_hundred) if java else None
        ratio = ours / theirs if theirs else None
        is_reached = ours <= most_s and (ratio is None or ratio <= KILLED_RATIO_MAX)
        lines.append(
            Line(
                f"{Fault.KILLED.value}, {len(away)} times: first SEND_OK of our client, p{of_hundred}", f"{JAVA}, {len(java)} times",
                seconds(ours), seconds(theirs), "-" if ratio is None else f"{ratio:.2f}",
                f"{most_s:g} s, {KILLED_RATIO_MAX:g}x{verdict(is_reached)}", results.load(["killed", "java-killed"]),
            )
        )  # fmt: skip
    return lines


def away_lines(results: Results) -> list[Line]:
    """The worst round is judged."""
    lines: list[Line] = []
    for key, fault in FAULTS.items():
        away, java = results.values(key, "away_s"), results.values(f"java-{key}", "away_s")
        if fault not in AWAY_S_MAX or not away:
            continue
        most_s, ours = AWAY_S_MAX[fault], statistics.median(away)
        theirs = statistics.median(java) if java else None
        lines.append(
            Line(
                f"{fault.value}, {len(away)} times: first SEND_OK of our client, median and worst", f"{JAVA}, {len(java)} times",
                f"{seconds(ours)}, {seconds(max(away))}", f"{seconds(theirs)}, {seconds(max(java))}" if java else "-",
                f"{ours / theirs:.2f}" if theirs else "-", f"{most_s:g} s{verdict(max(away) <= most_s)}",
                results.load([key, f"java-{key}"]),
            )
        )  # fmt: skip
    return lines


def late_lines(results: Results) -> list[Line]:
    late = results.values("killed", "late_ms")
    if not late:
        return []
    ours = percentile(late, 99)
    work = f"timer due while nobody led ({len(late):,} of them): lateness beyond that time, p99"
    return [
        Line(
            work, "-", f"{ours:,.0f} ms", "-", f"median {percentile(late, 50):,.0f} ms",
            f"{LATE_MS_MAX / 1_000:g} s{verdict(ours <= LATE_MS_MAX)}", results.load(["killed"]),
        )
    ]  # fmt: skip


def beyond_lines(results: Results) -> list[Line]:
    lines: list[Line] = []
    for what, unit, name, most, goal in (
        ("anonymous memory after the same messages", "MB", "mb", MEMBER_MORE_MB_MAX, "MB"),
        ("CPU when idle", "%", "cpu", MEMBER_CPU_PERCENT_MAX, "% of a core"),
    ):
        ours, single = results.median("beyond", f"member_{name}"), results.median("beyond", f"single_{name}")
        if ours is None or single is None:
            continue
        lines.append(
            Line(
                f"member of a group of 3, the worst one: {what}", ACKS["flushed"].single, f"{ours:.2f} {unit}",
                f"{single:.2f} {unit}", f"{ours - single:+.2f} {unit}", f"+{most:g} {goal}{verdict(ours - single <= most)}",
                results.load(["beyond"]),
            )
        )  # fmt: skip
    return lines


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def table(results: Results) -> str:
    lines = [line for key in ACKS for line in (*cost_lines(results, key), *behind_lines(results, key))]
    lines += killed_lines(results) + away_lines(results) + late_lines(results) + beyond_lines(results)
    return works(lines, circumstances(results))


def circumstances(results: Results) -> str:
    lost = " and ".join(
        f"{sum(results.values(f'{key}-lost', 'lost')):.0f} {whose}"
        for key, whose in (("orbitmq", "of ours"), ("java", "of RocketMQ"))
        if results.count(f"{key}-lost")
    )
    return (
        f"Bodies of 1 KB; {FULL.sends:,} messages for each round of 4x32 and a third of that for 16x1; {SENDERS} senders with our client "
        f"where leaders fail. Answered SEND_OK there and lost: {lost or 'not counted'}. {results.days()}, {machine()}. "
        "Load: the least and the largest average of the machine before a round. Made by `benchmarks/groups.py`."
    )


# --- the run --------------------------------------------------------------------------------------------------------------


class Run:
    """Measures rows until they have their rounds, or their time is over."""

    def __init__(
        self, results: Results, amounts: Amounts, folder: Path, rounds: Callable[[str], int], most_s: float
    ) -> None:
        self._results, self._amounts, self._folder = results, amounts, folder
        self._rounds, self._most_s = rounds, most_s

    def row(self, key: str) -> None:
        """Raises `Invalid` where it has no figures."""
        if self._is_complete(key):
            print(f"{key}: complete", file=sys.stderr, flush=True)
            return
        place = self._folder / key
        place.mkdir()
        ends = time.monotonic() + self._most_s

        def wanted() -> bool:
            return not self._is_complete(key) and time.monotonic() < ends

        try:
            if (base := key.removeprefix("java-")) in FAULTS:
                self._failover(key, FAULTS[base], place, wanted)
            else:
                self._cost(key, place, wanted)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _is_complete(self, key: str) -> bool:
        return self._results.count(key) >= self._rounds(key)

    def _failover(self, key: str, fault: Fault, place: Path, wanted: Callable[[], bool]) -> None:
        kind = Kind.JAVA if key.startswith("java-") else Kind.ORBITMQ
        if kind is Kind.JAVA:
            java_build(BROKER_VERSION)
        bench = FailoverBench(place, kind)
        lost = bench.run(fault, wanted, lambda figures: self._note(key, figures))
        self._results.add(f"{kind.value}-lost", {"lost": lost}, os.getloadavg()[0])

    def _cost(self, key: str, place: Path, wanted: Callable[[], bool]) -> None:
        ack, _, what = key.partition("-")
        bench = CostBench(place, self._amounts, ACKS[ack if ack in ACKS else "flushed"].setting)
        with bench.brokers(noted=what == "behind") as (single, group):
            half = bench.most(group) / 2 if what == "behind" else 0.0
            while wanted():
                load = os.getloadavg()[0]
                if key == "beyond":
                    figures = bench.beyond(single, group)
                elif what:
                    figures = bench.behind(single, group, half)
                else:
                    figures = bench.cost(single, group, self._results.count(key))
                self._note(key, {**figures, "load1": load})

    def _note(self, key: str, figures: Figures) -> None:
        shown = " ".join(f"{name}={value:.4g}" for name, value in figures.items() if not isinstance(value, list))
        print(f"{key} {self._results.count(key) + 1}: {shown}", file=sys.stderr, flush=True)
        load = figures["load1"]
        assert not isinstance(load, list)
        self._results.add(key, figures, load)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="less work, two rounds: for a look, not for the record")
    add("--rows", default=",".join(ROWS), help="comma list: " + ", ".join(ROWS))
    add("--rounds", type=int, help="of each row, instead of its own number")
    add("--seconds", type=float, default=200, help="after so many a row begins no further round (200)")
    add("--fresh", action="store_true", help="forget what the file has of these rows")
    add("--folder", type=Path, help="where the stores go (default: beside the build cache)")
    add("--json", type=Path, help="where the figures are kept (default: groups.json beside the build cache)")
    add("--write-docs", action="store_true", help=f"put the table between the markers of docs/{DOCUMENT.name}")
    options = parser.parse_args()
    options.rows = [key for key in options.rows.split(",") if key]
    if unknown := set(options.rows) - ROWS.keys():
        parser.error(f"unknown rows: {', '.join(sorted(unknown))}")
    return options


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the processes that were started end with this one
    results = Results(options.json or cache_folder() / "groups.json")
    if options.fresh:
        results.forget(options.rows)
    folder = Path(tempfile.mkdtemp(prefix="groups-", dir=options.folder or cache_folder()))

    def rounds(key: str) -> int:
        return options.rounds or (2 if options.quick else ROWS[key])

    run = Run(results, QUICK if options.quick else FULL, folder, rounds, options.seconds)
    failed = False
    try:
        for key in options.rows:
            try:
                run.row(key)
            except (Invalid, AssertionError) as error:
                failed = True
                print(f"{key}: {error}", file=sys.stderr, flush=True)
    except Missing as error:
        print(f"the benchmark stops: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = table(results)
    print(text)
    if options.write_docs:
        write_into(DOCUMENT, text, "groups")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        in_own_network()
    except Missing as error:
        sys.exit(f"the benchmark cannot run here: {error}")
    sys.exit(main())
