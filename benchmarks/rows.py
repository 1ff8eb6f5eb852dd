"""The rows of the comparison: what is measured, in which unit, and how good it has to be.

A target is a bound on orbitmq's figure divided by the Java broker's of the same run (`ratio`), or a bound on the figure
itself (`value`). The workloads are those of `measure.py`; lower is better in every row.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Row(NamedTuple):
    """One line of the table."""

    key: str
    title: str
    unit: str
    ratio: float | None = None
    value: float | None = None
    long: bool = False
    digits: int = 1


ROWS: Final = (
    Row("send-1x1", "send 1x1, CPU per message", "us", ratio=0.6),
    Row("send-16x1", "send 16x1, CPU per message", "us", ratio=1.0),
    Row("send-4x32", "send 4x32, CPU per message", "us", ratio=1.2),
    Row("send-16x1-p99", "send 16x1, latency p99", "ms", ratio=1.0, digits=2),
    Row("steady-2000", "send at a steady 2,000/s, CPU per message", "us", ratio=0.4),
    Row("batch-32", "batch of 32, CPU per message", "us", ratio=1.5),
    Row("pull-32", "pull of 32, CPU per message", "us", ratio=0.6, digits=2),
    Row("sync-16x1", "send 16x1 with synchronous flush, CPU per message", "us", ratio=0.5),
    Row("delay-cpu", "delayed message (level 1), send to received, CPU", "us", ratio=1.2),
    Row("lateness", "lateness of level 1, 1,000 over 4 s, p99", "ms", value=5.0),
    Row("lateness-bg", "the same beside 2,000 sends/s, p99", "ms", value=10.0),
    Row("burst-5000", "5,000 level-1 messages at once: last received after its due time", "ms", value=100.0),
    Row("startup", "start on an empty store to first SEND_OK", "s", value=0.5, digits=2),
    Row("idle-rss", "idle, name server + broker: RSS", "MB", value=60.0, digits=0),
    Row("idle-cpu", "idle, name server + broker: CPU", "% of a core", value=0.5, digits=2),
    Row("stop", "orderly stop after the load", "s", value=1.0, digits=2),
    Row("recovery", "kill -9 after 4 M messages: first SEND_OK", "s", value=1.0, long=True, digits=2),
    Row("stop-4m", "orderly stop after 4 M messages", "s", value=1.0, long=True, digits=2),
    Row("rebuild", "rebuild of all derived files, per GiB of commit log (1 KB bodies)", "s", value=20.0, long=True),
)
BY_KEY: Final = {row.key: row for row in ROWS}
