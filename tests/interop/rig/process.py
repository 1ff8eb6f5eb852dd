"""A server process of the rig, and what /proc says about a process tree.

Rules of this file
1. A process is started in a session of its own and its output goes to a file: nothing blocks on a full pipe.
2. Only processes started here are signalled, by their id.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

STOP_LIMIT_S: Final = 180
"""The Java broker needs up to 25 s for an orderly stop after millions of messages."""
PORTS: Final = range(21000, 32000)
"""Below the range from which Linux takes ports for outgoing connections."""


class ServerProcess:
    """One started program with its log file."""

    def __init__(self, command: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        # Variables of that prefix are settings of the server; those of the test run are not meant for it. Neither is a ban on
        # byte code: no installed server compiles itself at every start, which is a third of it.
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("ORBITMQ_") and name != "PYTHONDONTWRITEBYTECODE"
        }
        self.started_at = time.time()
        with open(log, "ab") as out:
            self._popen = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**inherited, **(env or {})},
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def tail(self, size: int = 3000) -> str:
        """The end of the log, for error messages."""
        return self.log.read_text(errors="replace")[-size:]

    def stop(self) -> int:
        """SIGTERM, wait, exit status. Raises TimeoutError (after SIGKILL) when it does not end."""
        self._popen.send_signal(signal.SIGTERM)
        try:
            return self._popen.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(f"did not end within {STOP_LIMIT_S} s of SIGTERM:\n{self.tail()}") from None

    def kill(self) -> None:
        """SIGKILL to the process and its descendants; returns when they are gone."""
        for pid in process_tree(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._popen.wait(STOP_LIMIT_S)


def free_ports() -> tuple[int, int]:
    """(name server port, broker port): free, with broker - 2 (fast port) and broker + 1 (replication) free as well."""
    chooser = random.Random()
    for _ in range(200):
        start = chooser.randrange(PORTS.start, PORTS.stop - 8)
        if all(bindable(port) for port in range(start, start + 6)):
            return start, start + 3
    raise OSError("found no six free ports in a row")


def bindable(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def process_tree(pid: int) -> list[int]:
    """pid and its live descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
    tree = [pid]
    for member in tree:
        tree += [child for child, parent in parents.items() if parent == member]
    return tree


def cpu_us(pid: int) -> int:
    """CPU time in microseconds of pid, its descendants and their reaped children (in steps of 10 ms)."""
    ticks = 0
    for member in process_tree(pid):
        with contextlib.suppress(OSError):
            ticks += sum(int(x) for x in _stat(member)[11:15])
    return ticks * 1_000_000 // os.sysconf("SC_CLK_TCK")


def rss_kb(pid: int) -> int:
    """Resident memory of pid and its descendants in KiB, mapped files included."""
    total = 0
    for member in process_tree(pid):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{member}/status").read_text().splitlines()
            total += next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)
    return total


def anonymous_kb(pid: int) -> int:
    """Resident memory of pid and its descendants in KiB that is no mapping of a file."""
    total = 0
    for member in process_tree(pid):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{member}/status").read_text().splitlines()
            total += next((int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)
    return total


def _stat(pid: int) -> list[bytes]:
    """Fields of /proc/PID/stat after the name, which may contain anything."""
    return Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()
