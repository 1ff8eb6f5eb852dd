"""The comparison as Markdown, and its place in a document.

Rules of this file
1. Every figure is a median of the runs; ratio = orbitmq divided by the Java broker of the same run.
2. The text between the two markers of a document is replaced whole; a document without markers is refused.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import rigpath  # noqa: F401

# isort: split
from rig.brokers import Kind

from measure import Bench
from rows import BY_KEY, ROWS, Row

LATENCY_KEYS: Final = (
    "send-1x1",
    "send-16x1",
    "send-4x32",
    "steady-2000",
    "sync-16x1",
    "lateness",
    "lateness-bg",
    "burst-5000",
)


class Line(NamedTuple):
    """Of a table of works, each beside something else. load: what the machine had to do meanwhile; empty where no line has it."""

    work: str
    compared_with: str
    ours: str
    other: str
    ratio: str
    to_reach: str
    load: str = ""


def works(lines: Sequence[Line], circumstances: str) -> str:
    """The table, and the circumstances below."""
    has_load = any(line.load for line in lines)
    rows = [f"| work | compared with | orbitmq | that | ratio or difference | to reach |{' load |' * has_load}"]
    rows.append(f"| --- | --- | ---: | ---: | ---: | ---: |{' ---: |' * has_load}")
    rows += [f"| {' | '.join(line if has_load else line[:-1])} |" for line in lines]
    return "\n".join([*rows, "", circumstances])


def machine() -> str:
    """Such as "2 cores (Xeon), Linux 6.1, Python 3.11.7"."""
    model = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    return (
        f"{os.cpu_count()} cores ({model.split(':')[1].strip()}), Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def comparison(benches: Mapping[Kind, Bench], circumstances: str) -> str:
    """Both tables with the circumstances below."""
    java, ours = benches.get(Kind.JAVA), benches.get(Kind.ORBITMQ)
    lines = ["| work | RocketMQ 5.3.3 | orbitmq | ratio | to reach |", "| --- | ---: | ---: | ---: | ---: |"]
    for row in ROWS:
        theirs, own = figure(java, row), figure(ours, row)
        if theirs is None and own is None:
            continue
        lines.append(
            f"| {row.title} | {shown(theirs, row)} | {shown(own, row)} | {ratio(own, theirs)} | {target(row, own, theirs)} |"
        )
    measured = [bench for bench in (java, ours) if bench is not None]
    latencies = [key for key in LATENCY_KEYS if any(bench.found.get(key) for bench in measured)]
    if latencies:
        lines += ["", "| latency, ms (messages/s) | RocketMQ p50 / p99 / p99.9 | orbitmq p50 / p99 / p99.9 |"]
        lines += ["| --- | ---: | ---: |"]
    for key in latencies:
        title = BY_KEY[key].title.split(", CPU")[0].split(", p99")[0].split(": last")[0]
        lines.append(f"| {title} | {percentiles(java, key)} | {percentiles(ours, key)} |")
    return "\n".join([*lines, "", circumstances])


def figure(bench: Bench | None, row: Row) -> float | None:
    return bench.median(row.key) if bench is not None else None


def shown(value: float | None, row: Row) -> str:
    return "-" if value is None else f"{value:,.{row.digits}f} {row.unit}"


def ratio(own: float | None, theirs: float | None) -> str:
    return "-" if own is None or not theirs else f"{own / theirs:.2f}"


def target(row: Row, own: float | None, theirs: float | None) -> str:
    """The bound, and whether it is kept."""
    if row.ratio is not None:
        kept = None if own is None or not theirs else own / theirs <= row.ratio
        return f"{row.ratio:.2g}x{verdict(kept)}"
    kept = None if own is None or row.value is None else own <= row.value
    return f"{row.value:g} {row.unit}{verdict(kept)}"


def verdict(kept: bool | None) -> str:
    return "" if kept is None else " ✓" if kept else " ✗"


def percentiles(bench: Bench | None, key: str) -> str:
    if bench is None or not bench.found.get(key):
        return "-"
    values = [bench.median(key, name) for name in ("p50_ms", "p99_ms", "p999_ms")]
    rate = bench.median(key, "rate")
    text = " / ".join("-" if value is None else f"{value:.2f}" for value in values)
    return f"{text} ({rate:,.0f})" if rate else text


def write_into(document: Path, text: str, place: str = "benchmark") -> None:
    """Replace what stands between the markers of a place. Raises ValueError when the document lacks them."""
    begin, end = f"<!-- {place}:begin -->", f"<!-- {place}:end -->"
    old = document.read_text()
    if begin not in old or end not in old:
        raise ValueError(f"{document} has no place for the table: put the lines {begin} and {end} where it belongs")
    head, rest = old.split(begin, 1)
    document.write_text(f"{head}{begin}\n{text}\n{end}{rest.split(end, 1)[1]}")
