"""CPU (percent of one core) and resident memory of processes with their descendants over some seconds; one JSON line.

usage: cpuread.py SECONDS PID [PID ...]
"""

from __future__ import annotations

import json
import sys
import time
from typing import NamedTuple

import rigpath  # noqa: F401

# isort: split
from rig.process import cpu_us, rss_kb


class Usage(NamedTuple):
    """Percent of one core, and MiB of resident memory (mapped files included) at the end; of all processes together."""

    cpu_percent: float
    rss_mb: float


def usage(pids: list[int], seconds: float) -> Usage:
    """Watch for that long."""
    before, begin = sum(cpu_us(pid) for pid in pids), time.monotonic()
    time.sleep(seconds)
    spent = sum(cpu_us(pid) for pid in pids) - before
    return Usage(spent / (time.monotonic() - begin) / 10_000, sum(rss_kb(pid) for pid in pids) / 1024)


if __name__ == "__main__":
    found = usage([int(word) for word in sys.argv[2:]], float(sys.argv[1]))
    print(json.dumps({"cpu_percent": round(found.cpu_percent, 2), "rss_mb": round(found.rss_mb, 1)}))
