"""Starts a Spark session in a process of its own, gives it work, and says what the work cost.

Rules of this file
1. CPU is that of the whole family of that process: driver, Java, Python workers, ended ones included (`family_meter`). Brokers and the
   one who measures are none of it.
2. Work that fails is `Invalid`: it is not averaged.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from family_meter import FamilyMeter

import rigpath

# isort: split
from rig.process import process_tree

HERE: Final = Path(__file__).resolve().parent
START_LIMIT_S: Final = 180
STOP_LIMIT_S: Final = 30

Figures = dict[str, float]


class Invalid(Exception):
    """A load failed, or did something else than it should; the text has its findings."""


class SparkHand:
    """One session. `place` and `settings` as `spark_job.py` takes them."""

    def __init__(self, kind: str, place: Mapping[str, object], settings: Mapping[str, object], log: Path) -> None:
        self.kind = kind
        self._log = log
        path = os.pathsep.join([str(HERE), str(rigpath.REPOSITORY / "benchmarks"), os.environ.get("PYTHONPATH", "")])
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "spark_job.py"), kind, json.dumps(place), json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
                cwd=log.parent,
            )
        self._meter = FamilyMeter(self._process.pid)
        self._meter.__enter__()
        self._answer(START_LIMIT_S)

    def work(self, load: str, count: int, limit_s: float = 600) -> Figures:
        """Do one piece of work. The figures it gives, with `cpu_s` and `wall_s`."""
        before = self._meter.cpu_s()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"load": load, "count": count}).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._answer(limit_s)
        spent = self._meter.cpu_s() - before
        if "error" in answer:
            raise Invalid(f"{self.kind} {load}: {answer['error']}")
        return {**answer["figures"], "cpu_s": spent}

    def cpu_s(self) -> float:
        return self._meter.cpu_s()

    def close(self) -> None:
        """End the session and all its processes."""
        family = process_tree(self._process.pid)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        end = time.monotonic() + STOP_LIMIT_S
        while any(Path(f"/proc/{pid}").exists() for pid in family) and time.monotonic() < end:
            time.sleep(0.1)
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(pid) == self._process.pid:
                    os.kill(pid, 9)
        self._meter.__exit__()

    def _answer(self, limit_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], limit_s)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            tail = self._log.read_text(errors="replace")[-2000:]
            raise Invalid(f"{self.kind}: no answer within {limit_s} s:\n{tail}")
        found: dict[str, Any] = json.loads(line)
        return found
