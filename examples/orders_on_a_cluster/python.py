"""A Python for the workers that is not the driver's: an environment of its own, made from wheels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 600


def workers_python(folder: Path, extras: str) -> Path:
    """Its path. `folder` gets the wheel of these sources and the environment. RuntimeError says what a step printed."""
    wheels = folder / "wheels"
    python = folder / "environment" / "bin" / "python"
    pip = ["-m", "pip", "--disable-pip-version-check", "-q"]
    own = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH"
    }  # what lies there would count as installed
    plain = {**own, "ORBITMQ_LEAF": "off"}  # workers run none of the leaf, and compiling it takes half a minute
    _run([sys.executable, *pip, "wheel", "--no-deps", "-w", str(wheels), str(ROOT)], plain)
    _run([sys.executable, "-m", "venv", str(python.parents[1])], own)
    (wheel,) = wheels.glob("orbitmq-*.whl")
    _run([str(python), *pip, "install", f"{wheel}[{extras}]"], own)
    return python


def _run(words: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stdout[-1_000:]}{done.stderr[-2_000:]}")
