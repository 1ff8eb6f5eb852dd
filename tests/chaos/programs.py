"""The programs of a soak as processes: started, asked, measured, ended or killed.

Rules of this file
1. Only processes started here are signalled.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from server_process import clean_environment

HERE = Path(__file__).resolve().parent


class Program:
    """One role of `soak_client.py`."""

    def __init__(self, role: str, address: str, *options: object) -> None:
        self.role = role
        self._popen = subprocess.Popen(
            [sys.executable, str(HERE / "soak_client.py"), role, address, *map(str, options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=clean_environment(),
            text=True,
        )

    def ask(self, line: str) -> dict[str, Any]:
        assert self._popen.stdin is not None
        self._popen.stdin.write(line + "\n")
        self._popen.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        assert line, f"{self.role} ended with {self._popen.wait(10)}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def rss_mb(self) -> float:
        return anonymous_mb(self._popen.pid)

    def end(self) -> None:
        """Let it end in order."""
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        assert self._popen.wait(60) == 0

    def send_signal(self, number: int) -> None:
        self._popen.send_signal(number)

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()


def anonymous_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return 0.0  # it ends
