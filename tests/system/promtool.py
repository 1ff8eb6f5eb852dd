"""Prometheus' own checker: of the PATH, or Debian's."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from tests.interop.rig.toolchain import Missing, debian_promtool


def promtool(*arguments: object, given: bytes = b"") -> str:
    """What it complains about, empty for nothing; skips where there is none, and says why."""
    try:
        program = shutil.which("promtool") or debian_promtool()
    except Missing as missing:
        pytest.skip(str(missing))
    ran = subprocess.run(
        [str(program), *map(str, arguments)], input=given, capture_output=True, timeout=120, check=False
    )
    said = (ran.stdout + ran.stderr).decode()
    return said if ran.returncode else ""
