"""A standalone cluster of Spark on this machine: a master and workers, each a Java of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from orbitmq.spark.java import find_java

START_LIMIT_S: Final = 90
MASTER: Final = re.compile(rb"Starting Spark master at (spark://\S+)")
REGISTERED: Final = re.compile(rb"Successfully registered with master")
SPARK_HOME: Final = Path(find_spec("pyspark").origin).parent  # type: ignore[union-attr, arg-type]


class StandaloneCluster:
    """`address` is what a job names. Workers have one core each, and know no Python but the one that a job names."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self._count = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.address = ""
        java = find_java(os.environ)
        kept = {name: os.environ[name] for name in ("HOME", "JDK_JAVA_OPTIONS") if name in os.environ}
        self.environment: Mapping[str, str] = {
            **kept,
            "PATH": "/usr/bin:/bin",
            "SPARK_HOME": str(SPARK_HOME),
            "JAVA_HOME": str(java),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            words = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
            self.address = self._started("master", words, MASTER)[1].decode()
            for number in range(self._count):
                place = self.folder / f"worker-{number}"
                words = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
                words += ["--work-dir", str(place), self.address]
                self._started(place.name, ["org.apache.spark.deploy.worker.Worker", *words], REGISTERED)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            family = below(process.pid)
            process.kill()
            process.wait()
            end_all(family)

    def _started(self, name: str, words: Sequence[str], says: re.Pattern[bytes]) -> re.Match[bytes]:
        path = self.folder / f"{name}.log"
        with path.open("wb") as log:
            program = str(SPARK_HOME / "bin" / "spark-class")
            process = subprocess.Popen(
                [program, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment
            )
        self._processes.append(process)
        return said_in(path, says, process)


def below(pid: int) -> list[int]:
    """Processes that descend from this one, the nearest first."""
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents.setdefault(int(place.read_text().rpartition(")")[2].split()[1]), []).append(int(place.parent.name))
    found = list(parents.get(pid, ()))
    for one in found:
        found += parents.get(one, ())
    return found


def executors_of(driver: str) -> list[int]:
    """Javas of this machine that are executors of the driver at this address, `host:port`."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = place.read_bytes()
            if b"ExecutorBackend" in words and f"@{driver}".encode() in words:
                found.append(int(place.parent.name))
    return found


def end_all(pids: Sequence[int]) -> None:
    """kill -9."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def said_in(path: Path, says: re.Pattern[bytes], process: subprocess.Popen[bytes]) -> re.Match[bytes]:
    """The place in a log, once it is there. RuntimeError with the end of the log where the process ends before, or says nothing."""
    end = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end:
        text = path.read_bytes()
        if found := says.search(text):
            return found
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError(f"{path.name} does not say {says.pattern!r}: {path.read_text(errors='replace')[-2000:]}")
