"""Processes below another one, and their end.

Rules of this file
1. Nothing is killed that does not descend from a process which the caller started.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path


def end_process(pid: int) -> bool:
    """kill -9. Whether there was such a process."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    ask = [pid]
    while ask:
        children = parents.get(ask.pop(), [])
        found += children
        ask += children
    return found


def python_workers(pid: int) -> list[int]:
    """Forked children of worker daemons below a driver; the daemons themselves are left alone, Spark starts others only when they are
    needed."""
    return [found for found in descendants(pid) if is_worker(found)]


def is_worker(pid: int) -> bool:
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return all(b"pyspark.daemon" in Path(f"/proc/{one}/cmdline").read_bytes() for one in (pid, parent))
    except OSError:
        return False
