"""The packages in which Spark looks for formats, and which of them stops it.

Spark imports every module whose name begins with `pyspark_`, and when one import fails it gives up on all: each format written in
Python is then "not found". Spark's error does not say which one it was; `python -m pyspark_orbitmq` does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pkgutil import iter_modules
from typing import Final, NamedTuple

PREFIX: Final = "pyspark_"
OURS: Final = frozenset({"pyspark_orbitmq", "pyspark_orbitmq_log"})

_LOOK: Final = """
import importlib, json, sys
from pyspark.sql.datasource import DataSource
module = importlib.import_module(sys.argv[1])
source = getattr(module, "DefaultSource", None)
found = source.name() if isinstance(source, type) and issubclass(source, DataSource) else None
print(json.dumps({"orbitmq finds": found}))
"""


class Found(NamedTuple):
    """What Spark finds in a package: the name of a format, nothing, or a `problem` that stops it."""

    package: str
    format: str | None
    problem: str | None


def packages() -> list[str]:
    """What Spark would import, seen from this process. Nothing is imported here."""
    return sorted({module.name for module in iter_modules() if module.name.startswith(PREFIX)})


def look_into(package: str, *, python: Sequence[str] = (sys.executable,), limit_s: float = 60) -> Found:
    """Import a package as Spark does, in a process of its own: some are programs that happen to have such a name."""
    try:
        done = subprocess.run(
            [*python, "-c", _LOOK, package],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Found(package, None, f"its import did not end within {limit_s:g} s")
    lines = [line for line in (done.stdout if done.returncode == 0 else done.stderr).splitlines() if line.strip()]
    last = lines[-1] if lines else f"exit code {done.returncode}"
    if done.returncode != 0:
        return Found(package, None, last)
    try:
        return Found(package, json.loads(last)["orbitmq finds"], None)
    except (ValueError, TypeError, KeyError):
        return Found(package, None, f"its import ends the process; it printed {last!r}")
