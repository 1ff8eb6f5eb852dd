"""Spark's processes below a driver.

Rules of this file
1. Nothing is killed that does not descend from a process which the caller started.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from processes import command_line, descendants, end_process

__all__ = ["command_line", "descendants", "end_process", "python_workers", "source_processes"]


DAEMONS = (b"pyspark.daemon", b"orbitmq.spark.python_daemon")
"""Spark's own, and the one that it runs where workers have this Python."""


def python_workers(pid: int) -> tuple[list[int], list[int]]:
    """Forked children of worker daemons below a driver: those that run tasks, and those that plan for Spark's driver.

    The daemons themselves are left alone: Spark starts others only when they are needed.
    """
    workers = [found for found in descendants(pid) if is_worker(found)]
    tasks = [found for found in workers if b"pyspark.sql.worker" not in command_line(found)]
    return tasks, [found for found in workers if found not in tasks]


def source_processes(pid: int) -> list[int]:
    """The processes that look for new offsets, one for each stream from a source in Python."""
    return [found for found in descendants(pid) if b"python_streaming_source_runner" in command_line(found)]


def is_worker(pid: int) -> bool:
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return False
    return all(any(name in command_line(one) for name in DAEMONS) for one in (pid, parent))
