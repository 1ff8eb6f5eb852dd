"""CPU time of a program and of everything it ever started, ended processes included.

What a process used is in its own counters until it ends. Then its parent's counters take it over, if the parent waits for it. PySpark's
worker daemon ignores SIGCHLD, so nobody waits for its workers and their time would vanish with them: after a minute without work, and
with every failed task. So the family is looked at ten times a second, and of a process that ended under such a parent its last figure
is kept.

Rules of this file
1. The family is the session (in the sense of setsid) of one process: those whose parent died still belong to it.
2. What a process used after the last look at it, at most `LOOK_EVERY_S`, is lost when it ends under a parent that ignores SIGCHLD.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Final, NamedTuple

LOOK_EVERY_S: Final = 0.1
_TICKS_S: Final = os.sysconf("SC_CLK_TCK")
_CHILD_BIT: Final = 1 << (signal.SIGCHLD - 1)


class Seen(NamedTuple):
    """What a process said of itself. `cpu_s` includes children that it waited for."""

    parent: int
    cpu_s: float


class FamilyMeter:
    """Watches the session that `pid` leads. Use as a context: a thread looks while it is open."""

    def __init__(self, pid: int) -> None:
        self._session = pid
        self._members: dict[tuple[int, int], Seen] = {}
        self._lost_s = 0.0
        self._forgetful: dict[int, bool] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> FamilyMeter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def cpu_s(self) -> float:
        """Seconds of CPU of the family since it began."""
        with self._lock:
            self._look()
            return self._lost_s + sum(seen.cpu_s for seen in self._members.values())

    def _watch(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            with self._lock:
                self._look()

    def _look(self) -> None:
        now: dict[tuple[int, int], Seen] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                except OSError:
                    continue  # it ended just now
                if int(fields[3]) == self._session:
                    key = int(entry.name), int(fields[19])
                    now[key] = Seen(int(fields[1]), sum(map(int, fields[11:15])) / _TICKS_S)
        for pid, _ in now.keys() - self._members.keys():
            self._forgetful.pop(pid, None)
        for (pid, began), seen in self._members.items():
            if (pid, began) not in now and self._ignores_children(seen.parent):
                self._lost_s += seen.cpu_s
        self._members = now
        for pid, _ in now:
            self._ignores_children(pid)

    def _ignores_children(self, pid: int) -> bool:
        """Whether a process ignores SIGCHLD; remembered beyond its end, when it did."""
        try:
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("SigIgn:"):
                    self._forgetful[pid] = bool(int(line.split()[1], 16) & _CHILD_BIT)
        except OSError:
            pass  # what was known of it counts
        return self._forgetful.get(pid, False)
