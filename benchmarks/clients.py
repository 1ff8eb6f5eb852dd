"""Compare our client with RocketMQ's own Java client, in one run on one machine, against the Java broker and against orbitmq.

usage: clients.py [--repeat 3] [--messages 200000] [--json FILE] [--write-docs]

For each broker: Java and our client send 1 KB messages with 16 sends in flight, then each consumes a topic that was filled
before. Every figure is a median over runs; the Java client's first runs warm its JVM and do not count. What counts is the CPU
time of the client's process per message: client and broker share the machine. Prints Markdown; `--write-docs` puts it between
the markers of docs/client.md. Needs a C compiler, a JDK and Maven; nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import rigpath

# isort: split
from rig.brokers import BrokerUnderTest, JvmProfile, Kind
from rig.toolchain import BROKER_VERSION, Missing, cache_folder, java_build, load_generator

from table import write_into

DOCUMENT: Final = rigpath.REPOSITORY / "docs" / "client.md"
HERE: Final = Path(__file__).resolve().parent
RUN_LIMIT_S: Final = 600
IN_FLIGHT: Final = 16
BODY_BYTES: Final = 1024
BROKER_WARM_UP: Final = 300_000
JAVA_WARM_UP_RUNS: Final = 2
CLIENT_FLAGS: Final = ("-Xms512m", "-Xmx512m", "-Drocketmq.client.logUseSlf4j=false")

Numbers = dict[str, float]


class Row(NamedTuple):
    """One line of the table. `higher`: more is better."""

    title: str
    work: str
    figure: str
    unit: str
    digits: int
    higher: bool
    target: float | None = None
    """Ratio to the Java client that ours should keep to."""


ROWS: Final = (
    Row("send, 16 in flight: CPU of the client", "send", "cpu_us", "us", 1, False, 1.0),
    Row("send, 16 in flight: rate", "send", "rate", "/s", 0, True, 1.0),
    Row("send, 16 in flight: p99", "send", "p99_ms", "ms", 2, False),
    Row("consume: CPU of the client", "consume", "cpu_us", "us", 1, False),
    Row("consume: rate", "consume", "rate", "/s", 0, True),
    Row("consume: resident memory", "consume", "rss_mb", "MB", 0, False),
)


class Comparison:
    """Measures both clients on one broker after the other. `found[broker kind, client, work]` has a `Numbers` per run."""

    def __init__(self, folder: Path, repeat: int, messages: int) -> None:
        self.found: dict[tuple[Kind, str, str], list[Numbers]] = {}
        self._folder, self._repeat, self._messages = folder, repeat, messages
        self._build = java_build(BROKER_VERSION)

    def run(self, kind: Kind) -> None:
        broker = BrokerUnderTest(kind, self._folder / kind.value, profile=JvmProfile.MEASURE)
        broker.start()
        try:
            self._load(broker, "WARM", BROKER_WARM_UP, 128)
            self._load(broker, "FULL", self._messages, BODY_BYTES)
            with broker.wire() as wire:
                wire.create_topic("SENDS", 8)
            runs = self._repeat + JAVA_WARM_UP_RUNS
            sends = ["send", broker.name_server, "SENDS", self._messages // 4, IN_FLIGHT, BODY_BYTES, runs]
            self._note(kind, "java", "send", self._java(sends)[JAVA_WARM_UP_RUNS:])
            own_sends = [
                "--topic",
                "SENDS",
                "--in-flight",
                IN_FLIGHT,
                "--body-bytes",
                BODY_BYTES,
                "--seconds",
                8,
                "--uvloop",
            ]
            self._note(kind, "orbitmq", "send", self._ours("client_send.py", broker, own_sends))
            consumes = ["consume", broker.name_server, "FULL", self._messages, runs]
            self._note(kind, "java", "consume", self._java(consumes)[JAVA_WARM_UP_RUNS:])
            own_consumes = ["--topic", "FULL", "--count", self._messages, "--no-fill", "--uvloop"]
            self._note(kind, "orbitmq", "consume", self._ours("client_consume.py", broker, own_consumes))
        finally:
            broker.kill()

    def median(self, kind: Kind, client: str, row: Row) -> float | None:
        values = [run[row.figure] for run in self.found.get((kind, client, row.work), []) if row.figure in run]
        return statistics.median(values) if values else None

    def _note(self, kind: Kind, client: str, work: str, runs: list[Numbers]) -> None:
        self.found[kind, client, work] = runs
        for run in runs:
            print(f"{kind.value} broker, {client} client, {work}: {run}", file=sys.stderr, flush=True)

    def _load(self, broker: BrokerUnderTest, topic: str, count: int, size: int) -> None:
        words = [load_generator(), "--port", broker.broker_port, "--topic", topic, "--count", count, "--size", size]
        _output([*words, "--conns", 4, "--window", 32])

    def _java(self, arguments: Sequence[object]) -> list[Numbers]:
        words = [self._build.java, *CLIENT_FLAGS, f"-Duser.home={self._folder}", "-cp", self._build.classpath]
        return _json_lines(_output([*words, "interop.ClientBench", *arguments]))

    def _ours(self, script: str, broker: BrokerUnderTest, arguments: Sequence[object]) -> list[Numbers]:
        words = [sys.executable, HERE / script, "--name-server", broker.name_server, *arguments]
        return [_json_lines(_output(words))[-1] for _ in range(self._repeat)]


def _output(words: Sequence[object]) -> str:
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False
    )
    if done.returncode:
        raise Missing(f"{words[0]} ended with {done.returncode}: {done.stderr[-1500:]}")
    return done.stdout


def _json_lines(text: str) -> list[Numbers]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def as_markdown(comparison: Comparison, began: float) -> str:
    lines: list[str] = []
    for kind in sorted({kind for kind, _, _ in comparison.found}, key=lambda kind: kind.value):
        broker = "RocketMQ 5.3.3" if kind is Kind.JAVA else "orbitmq"
        lines += ["", f"| against {broker} | Java client | this client | ratio | to reach |"]
        lines += ["| --- | ---: | ---: | ---: | ---: |"]
        for row in ROWS:
            theirs, ours = comparison.median(kind, "java", row), comparison.median(kind, "orbitmq", row)
            if theirs is None or ours is None:
                continue
            kept = row.target is not None and (
                ours >= row.target * theirs if row.higher else ours <= row.target * theirs
            )
            bound = (
                "" if row.target is None else f"{'>=' if row.higher else '<='} {row.target:g}x {'✓' if kept else '✗'}"
            )
            lines.append(
                f"| {row.title} | {theirs:,.{row.digits}f} {row.unit} | {ours:,.{row.digits}f} {row.unit} "
                f"| {ours / theirs:.2f} | {bound} |"
            )
    lines += [
        "",
        f"1 KB bodies, asynchronous flush; this client on uvloop. {time.strftime('%d %b %Y')}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}; load average {began:.2f} before. Made by `benchmarks/clients.py`.",
    ]
    return "\n".join(lines).strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="runs that count, per client and work")
    parser.add_argument("--messages", type=int, default=200_000, help="messages of the topic that is consumed")
    parser.add_argument("--only", type=Kind, choices=list(Kind), help="one kind of broker alone")
    parser.add_argument("--json", type=Path, help="write all figures of all runs there")
    parser.add_argument("--write-docs", action="store_true", help="put the table between the markers of docs/client.md")
    options = parser.parse_args()
    began = os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp(prefix="clients-", dir=cache_folder()))
    try:
        comparison = Comparison(folder, options.repeat, options.messages)
        for kind in [options.only] if options.only else list(Kind):
            comparison.run(kind)
    except Missing as error:
        print(f"the benchmark stops: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        found = {"/".join((kind.value, client, work)): runs for (kind, client, work), runs in comparison.found.items()}
        options.json.write_text(json.dumps(found, indent=1))
    text = as_markdown(comparison, began)
    print(text)
    if options.write_docs:
        write_into(DOCUMENT, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
