"""The rows of the Spark comparison: what is measured, in which unit, and how good it has to be.

Rates are thousands of rows per CPU-second of Spark and Python together, or rows per second of the clock where a row says so. A target is
a bound on orbitmq's figure divided by Kafka's of the same run (`ratio`), or on the figure itself (`value`).
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Row(NamedTuple):
    """One line of the table."""

    key: str
    title: str
    unit: str
    digits: int = 0
    higher: bool = True
    """More is better."""
    ratio: float | None = None
    value: float | None = None
    beside: str = ""
    """The row whose figure of Kafka stands beside this one, where it is not this row's own."""


CPU: Final = "k rows/CPU-s"
ROWS: Final = (
    Row("read", "read 1 KB with properties (Kafka: headers), eight columns, into noop", CPU, ratio=1.1),
    Row("read-all", "the same with all 18 columns", CPU, beside="read"),
    Row("read-three", "read 1 KB, three columns without properties, into noop", CPU, ratio=1.25),
    Row("read-arrow", "the same three columns into mapInArrow", CPU, ratio=1.1),
    Row("parquet", "read 1 KB with properties, write Parquet (zstd)", CPU, ratio=1.0),
    Row("archive", "archive from the log to Parquet (zstd)", CPU, ratio=3.0, beside="parquet"),
    Row("write", "write 1 KB rows with keys, repeats recognised", CPU, ratio=1.0),
    Row("write-none", "the same, repeats not recognised (`dedup=none`)", CPU, ratio=1.1, beside="write"),
    Row("wheel", "schedule near timers, 200 B", "k rows/s", digits=1, value=25),
    Row("far", "schedule timers into the broker's far tier, 200 B", "k rows/s", digits=1),
    Row("idle", "idle stream at the default trigger", "% of a core", digits=1, higher=False, value=5),
    Row("floor", "row latency at trigger 0, p50, of a source that has its rows in memory", "ms", higher=False),
    Row(
        "latency", "row latency at trigger 0, p50 (ratio: to that floor)", "ms", higher=False, ratio=1.3, beside="floor"
    ),
)
BY_KEY: Final = {row.key: row for row in ROWS}
