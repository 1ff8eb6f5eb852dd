"""Compare Spark with orbitmq and Spark with Kafka, through Spark's own source and sink, in one run on one machine.

usage: compare.py [--quick] [--rows KEY,KEY] [--only kafka|orbitmq] [--count N] [--repeat N] [--bodies KIND] [--json FILE] [--write-docs]

Both brokers and both Spark sessions run at the same time and take turns, work by work, so that what the machine does meanwhile
meets both. Prints the table as Markdown. A side that cannot be had here (Kafka needs Maven) is named below the table with the reason.
Nothing else should run meanwhile. About ten minutes; --quick takes three.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kafka_cluster import CONNECTOR_VERSION, KAFKA_VERSION, KafkaBroker, connector_jars
from spark_hand import Figures, Invalid, SparkHand
from spark_rows import BY_KEY, ROWS, Row

import rigpath

# isort: split
from rig.brokers import BrokerUnderTest, Kind
from rig.toolchain import Missing, cache_folder
from rig.wire import Refused, Wire

from table import verdict, write_into

DOCUMENT: Final = rigpath.REPOSITORY / "docs" / "spark-benchmark.md"
KAFKA, OURS = "kafka", "orbitmq"
TITLES: Final = {KAFKA: "Kafka", OURS: "orbitmq"}
TOPIC: Final = "benchmark"
BROKER: Final = "broker-a"
QUEUES: Final = 4
TASKS: Final = 2
SENDS_PER_S: Final = 100
SETTLE_S: Final = 8
LATENCY_RUNS: Final = 2
SETTINGS: Final = {"spark.driver.memory": "2g", "spark.ui.showConsoleProgress": "false", "spark.log.level": "WARN"}

CPU_LOADS: Final = {
    "read": "read",
    "read-all": "read_all",
    "read-three": "read_three",
    "read-arrow": "read_arrow",
    "parquet": "parquet",
    "archive": "archive",
    "write": "write",
    "write-none": "write_none",
}
"""Rows that are rows per CPU-second, and the names of their loads."""
WALL_LOADS: Final = {"wheel": "wheel", "far": "far"}
BODIES_SAID: Final = {
    "json": "orders of 1 KB as JSON",
    "protobuf": "orders of 1 KB as Protobuf",
    "random": "bodies of 1 KB that no compression makes smaller,",
}
READS: Final = frozenset({"read", "read-all", "read-three", "read-arrow", "parquet", "archive"})


class Scale(NamedTuple):
    """How much work a run does."""

    count: int
    written: int
    timers: int
    warm: int
    repeat: int
    idle_s: int
    latency_s: int


FULL: Final = Scale(count=500_000, written=300_000, timers=1_000_000, warm=3, repeat=3, idle_s=20, latency_s=10)
QUICK: Final = Scale(count=100_000, written=50_000, timers=50_000, warm=1, repeat=1, idle_s=6, latency_s=8)


class Comparison:
    """Both sides, and what was found. `found[side, row]` has the figures of each run that counts."""

    def __init__(
        self, folder: Path, scale: Scale, sides: list[str], say: Callable[[str], None], bodies: str = "json"
    ) -> None:
        self.found: dict[tuple[str, str], list[Figures]] = {}
        self.missing: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.hands: dict[str, SparkHand] = {}
        self._folder, self._scale, self._sides, self._say = folder, scale, sides, say
        self._broker_port = 0
        self._bodies = bodies

    def run(self, keys: set[str]) -> None:
        with ExitStack() as stack:
            for side in self._sides:
                try:
                    self.hands[side] = self._started(side, stack)
                except (Missing, Invalid, OSError) as error:
                    self.missing[side] = " ".join(str(error).split())[:300]
            if keys & READS:
                for side, hand in self.hands.items():
                    self._say(f"{side}: filling")
                    found = hand.work("fill", self._scale.count)
                    self._check(found, self._scale.count, f"{side} fill")
            for row in ROWS:
                if row.key in keys:
                    self._row(row)

    def median(self, side: str, key: str, name: str = "value") -> float | None:
        """Median over the runs, None when the row was not measured."""
        values = [figures[name] for figures in self.found.get((side, key), []) if name in figures]
        return statistics.median(values) if values else None

    # --- brokers and sessions

    def _started(self, side: str, stack: ExitStack) -> SparkHand:
        folder = self._folder / side
        work = folder / "work"
        work.mkdir(parents=True)
        place: dict[str, object] = {"topic": TOPIC, "folder": str(work), "partitions": TASKS, "bodies": self._bodies}
        settings: dict[str, object] = dict(SETTINGS)
        if side == KAFKA:
            settings["spark.jars"] = connector_jars()
            kafka = KafkaBroker(folder / "broker", QUEUES)
            stack.callback(kafka.kill)
            kafka.start()
            place["address"] = kafka.address
        else:
            broker = BrokerUnderTest(Kind.ORBITMQ, folder / "broker", settings={"brokerName": BROKER})
            stack.callback(broker.kill)
            broker.start()
            self._broker_port = broker.broker_port
            with broker.wire() as wire:
                for suffix in ("", "-stream", "-written", "-timers"):
                    wire.create_topic(f"{TOPIC}{suffix}", QUEUES)
            place |= {"address": broker.name_server, "store": str(broker.data)}
        hand = SparkHand(side, place, settings, folder / "spark.log")
        stack.callback(hand.close)
        return hand

    # --- rows

    def _row(self, row: Row) -> None:
        sides = [
            side for side in self.hands if side == OURS or not (row.beside or row.key in ("wheel", "far", "floor"))
        ]
        try:
            if row.key in CPU_LOADS:
                self._alternated(row, sides)
            elif row.key in WALL_LOADS:
                self._timers(row)
            elif row.key == "idle":
                for side in sides:
                    self._note(side, row.key, self._idle(self.hands[side]))
            elif row.key == "latency" and OURS in self.hands:
                self._latencies()
        except (Invalid, Refused, OSError) as error:
            self.failed[row.key] = " ".join(str(error).split())[:300]
            self._say(f"{row.key} fails: {error}")

    def _alternated(self, row: Row, sides: list[str]) -> None:
        """Warm-ups and runs, side by side."""
        count = self._scale.count if row.key in READS else self._scale.written
        for run in range(self._scale.warm + self._scale.repeat):
            for side in sides:
                found = self.hands[side].work(CPU_LOADS[row.key], count)
                self._check(found, count, f"{side} {row.key}")
                found["value"] = count / found["cpu_s"] / 1000
                if run >= self._scale.warm:
                    self._note(side, row.key, found)

    def _timers(self, row: Row) -> None:
        hand = self.hands.get(OURS)
        if hand is None:
            return
        hand.work(WALL_LOADS[row.key], self._scale.timers // 20)
        found = hand.work(WALL_LOADS[row.key], self._scale.timers)
        self._check(found, self._scale.timers, row.key)
        found["value"] = self._scale.timers / found["wall_s"] / 1000
        self._note(OURS, row.key, found)

    def _idle(self, hand: SparkHand) -> Figures:
        hand.work("stream_begin", SETTLE_S)
        before, begin = hand.cpu_s(), time.monotonic()
        time.sleep(self._scale.idle_s)
        spent = hand.cpu_s() - before
        percent = 100 * spent / (time.monotonic() - begin)
        hand.work("stream_end", 0)
        return {"value": percent}

    def _latencies(self) -> None:
        """Floor and stream take turns as well; the first run of each warms up."""
        for run in range(1 + LATENCY_RUNS):
            for load in ("floor", "latency"):
                found = self._latency(load)
                if run:
                    self._note(OURS, load, found)

    def _latency(self, load: str) -> Figures:
        """Row latency while somebody sends."""
        over = threading.Event()
        sender = threading.Thread(target=send_steadily, args=(self._broker_port, over))
        if load == "latency":
            sender.start()
        try:
            found = self.hands[OURS].work(load, self._scale.latency_s)
        finally:
            over.set()
            if load == "latency":
                sender.join()
        return {**found, "value": found["p50_ms"]}

    def _check(self, found: Figures, count: int, what: str) -> None:
        if found["rows"] != count:
            raise Invalid(f"{what}: {found['rows']:.0f} rows instead of {count}")

    def _note(self, side: str, key: str, figures: Figures) -> None:
        figures["load1"] = os.getloadavg()[0]
        self.found.setdefault((side, key), []).append(figures)
        self._say(f"{side}: {key} " + " ".join(f"{name}={value:.4g}" for name, value in figures.items()))


def send_steadily(port: int, over: threading.Event) -> None:
    """`SENDS_PER_S` messages a second to the stream's topic; each holds the moment at which it left, in milliseconds, as text."""
    with Wire(port) as wire:
        due, number = time.monotonic(), 0
        while not over.wait(max(0.0, due - time.monotonic())):
            wire.send(f"{TOPIC}-stream", number % QUEUES, b"%.1f" % (time.time() * 1000))
            number += 1
            due += 1 / SENDS_PER_S


# --- the table


def comparison(bench: Comparison, notes: list[str]) -> str:
    lines = [
        "| work | Spark with Kafka | Spark with orbitmq | ratio | to reach |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for row in ROWS:
        own = bench.median(OURS, row.key)
        base = bench.median(OURS if row.beside == "floor" else KAFKA, row.beside or row.key)
        kafka = bench.median(KAFKA, row.beside or row.key)
        if own is None and (kafka is None or row.beside):
            continue
        ratio = None if own is None or not base else own / base
        cells = [shown(kafka, row), shown(own, row), "-" if ratio is None else f"{ratio:.2f}", target(row, own, ratio)]
        lines.append(f"| {row.title} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *notes])


def shown(value: float | None, row: Row) -> str:
    return "-" if value is None else f"{value:,.{row.digits}f} {row.unit}"


def target(row: Row, own: float | None, ratio: float | None) -> str:
    """The bounds, and whether they are kept."""
    texts = []
    for bound, figure, text in ((row.ratio, ratio, f"{row.ratio}x"), (row.value, own, f"{row.value} {row.unit}")):
        if bound is not None:
            kept = None if figure is None else figure >= bound if row.higher else figure <= bound
            texts.append(f"{'>=' if row.higher else '<='} {text}{verdict(kept)}")
    return ", ".join(texts) or "-"


def circumstances(bench: Comparison, scale: Scale, began: float, bodies: str) -> list[str]:
    """What has to stand beside figures."""
    import pyspark

    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        "?",
    )
    loads = [figures["load1"] for runs in bench.found.values() for figures in runs]
    latency = [
        f"{title}: p99 {late:.0f} ms."
        for key, title in (("floor", "Floor"), ("latency", "Row latency"))
        if (late := bench.median(OURS, key, "p99_ms")) is not None
    ]
    return [
        f"CPU of Spark and Python (driver, Java, workers, ended ones too), the broker not counted; {scale.count:,} {BODIES_SAID[bodies]} "
        f"in one topic of {QUEUES} queues, {TASKS} tasks.",
        f"{scale.warm} runs of each work to warm up, then {scale.repeat} that count, the sides taking turns; the median is shown.",
        f"Writing: {scale.written:,} such rows; timers: {scale.timers:,} of 200 B, due within a day or beyond a month (far), one run.",
        *latency,
        f"PySpark {pyspark.__version__}, its source and sink for Kafka {CONNECTOR_VERSION}, Kafka {KAFKA_VERSION}.",
        *(f"{TITLES[side]} was not measured: {reason}" for side, reason in bench.missing.items()),
        *(f"The row {BY_KEY[key].title!r} failed: {reason}" for key, reason in bench.failed.items()),
        f"{time.strftime('%d %b %Y')}, {os.cpu_count()} cores ({model}), Linux {platform.release()}, "
        f"Python {platform.python_version()}.",
        f"Load average {began:.2f} before" + (f", at most {max(loads):.2f} after a row." if loads else "."),
        "Made by `benchmarks/spark/compare.py`.",
    ]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="less work, one run per row: for a look, not for the record")
    add("--rows", default="", help="comma list of rows: " + ", ".join(row.key for row in ROWS))
    add("--only", default="", choices=["", KAFKA, OURS], help="one side alone")
    add("--count", type=int, help="rows that are read")
    add("--repeat", type=int, help="runs of each work that count")
    add("--warm", type=int, help="runs of each work before")
    add("--bodies", default="json", choices=sorted(BODIES_SAID), help="what is in a message; timers are JSON")
    add("--folder", type=Path, help="where the stores go (default: beside the build cache)")
    add("--json", type=Path, help="write all figures of all runs there")
    add("--write-docs", action="store_true", help=f"put the table between the markers of docs/{DOCUMENT.name}")
    options = parser.parse_args()
    unknown = set(filter(None, options.rows.split(","))) - BY_KEY.keys()
    if unknown:
        parser.error(f"unknown rows: {', '.join(sorted(unknown))}")
    return options


def scale_of(options: argparse.Namespace) -> Scale:
    scale = QUICK if options.quick else FULL
    given: Mapping[str, int | None] = {"count": options.count, "repeat": options.repeat, "warm": options.warm}
    return scale._replace(**{name: value for name, value in given.items() if value is not None})


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # brokers and sessions end with this
    scale = scale_of(options)
    keys = set(filter(None, options.rows.split(","))) or set(BY_KEY)
    keys |= {"latency"} if "floor" in keys else set()
    began = os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp(prefix="spark-", dir=options.folder or cache_folder()))
    sides = [options.only] if options.only else [KAFKA, OURS]
    bench = Comparison(folder, scale, sides, lambda text: print(text, file=sys.stderr, flush=True), options.bodies)
    try:
        bench.run(keys)
    finally:
        if options.json:
            found = {f"{side} {key}": runs for (side, key), runs in bench.found.items()}
            options.json.write_text(json.dumps(found, indent=1))
        shutil.rmtree(folder, ignore_errors=True)
    text = comparison(bench, circumstances(bench, scale, began, options.bodies))
    print(text)
    if bench.missing or bench.failed:
        return 1
    if options.write_docs:
        write_into(DOCUMENT, text, "spark" if options.bodies == "json" else f"spark-{options.bodies}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
