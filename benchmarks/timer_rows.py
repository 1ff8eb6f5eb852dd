"""The rows of the timer comparison: what is measured, in which unit, and how good it has to be.

A target is a bound on orbitmq's figure divided by the Java broker's of the same run (`ratio`), or on the figure itself
(`value`). The workloads are those of `timer_measure.py`; lower is better in every row. Long rows need 10 million messages.
"""

from __future__ import annotations

from typing import Final

from rows import Row

ROWS: Final = (
    Row("spread-p50", "lateness, 1,000 due over 4 s at any millisecond, p50", "ms", value=1.0),
    Row("spread", "the same, p99", "ms", value=5.0),
    Row("spread-bg", "the same beside 2,000 sends/s, p99", "ms", value=10.0),
    Row("burst-5000", "5,000 due in one instant: last received after it", "ms", value=60.0),
    Row("burst-100000", "100,000 due in one instant: last received after it", "ms", value=1200.0, digits=0),
    Row("burst-sends", "latency p99 of 2,000 other sends/s while 100,000 leave", "ms", value=20.0),
    Row("cpu-128", "timed message of 128 B, send to received, CPU", "us", ratio=0.8),
    Row("cpu-1k", "timed message of 1 KB, send to received, CPU", "us", ratio=0.8),
    Row("intake", "intake of timed messages 4x32, 128 B, CPU per message", "us", ratio=0.9),
    Row("intake-pace", "the same, time per message", "us", ratio=1.0),
    Row("anon-1m", "1 M pending: anonymous memory", "MB", value=150.0, digits=0),
    Row("disk-1m", "1 M pending: disk", "MB", ratio=1.0, digits=0),
    Row("idle-1m", "1 M pending: idle CPU", "% of a core", value=0.5, digits=2),
    Row("restart-1m", "kill -9 with 1 M pending: first send accepted", "s", value=1.0, digits=2),
    Row("restart-1m-late", "the same: lateness of a message sent then and due 2 s later", "ms", value=10.0),
    Row("anon-10m", "10 M pending: anonymous memory", "MB", value=300.0, long=True, digits=0),
    Row("restart-10m", "kill -9 with 10 M pending: first delivery", "s", value=5.0, long=True, digits=2),
    Row("page-range", "10 M pending, page of 50 by due range", "ms", value=5.0, long=True, digits=2),
    Row("page-key", "10 M pending, page by exact key", "ms", value=5.0, long=True, digits=2),
    Row("page-prefix", "10 M pending, page of 50 by key prefix", "ms", value=50.0, long=True, digits=2),
    Row("recall", "10 M pending, recall by key, CPU", "us", value=40.0, long=True),
    Row("reschedule", "10 M pending, reschedule by key, CPU", "us", value=40.0, long=True),
)
BY_KEY: Final = {row.key: row for row in ROWS}

LAYERED_RATIO: Final = 1.2
"""What the CPU of a timed message may be beside the Java broker's where nothing is compiled."""
