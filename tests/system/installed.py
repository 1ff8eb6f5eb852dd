"""orbitmq as it is installed: the wheel that `make wheels` makes for this Python, and a folder with it and what it needs to run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from scripts import wheels
from tests.interop.rig.toolchain import Missing, built, run


class Installed(NamedTuple):
    """`site` is for PYTHONPATH."""

    wheel: Path
    site: Path


def installed() -> Installed:
    """Cost: a minute of CPU once per content of the sources. Raises Missing."""
    sources = [wheels.ROOT / name for name in wheels.SOURCES if (wheels.ROOT / name).is_file()]
    sources += sorted((wheels.ROOT / "src").rglob("*.p[yx]*"))

    def build(target: Path) -> None:
        try:
            (wheel,) = wheels.build([sys.executable], target / "dist")
        except (subprocess.CalledProcessError, SystemExit) as error:
            raise Missing(f"no wheel can be built here: {error}") from error
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, "--only-binary", ":all:", "--no-compile", "--target", target / "site", wheel])

    folder = built("installed", [one for one in sources if "__pycache__" not in one.parts], build)
    (wheel,) = (folder / "dist").glob("*.whl")
    return Installed(wheel, folder / "site")
