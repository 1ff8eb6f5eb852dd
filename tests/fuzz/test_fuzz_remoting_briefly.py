"""A short run of the fuzzers, so that they and their corpus stay usable."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parent


@pytest.mark.parametrize(("script", "count"), [("fuzz_frames.py", 5000), ("fuzz_fastjson.py", 3000)])
def test_short_run(script: str, count: int) -> None:
    run = subprocess.run(
        [sys.executable, str(FUZZ / script), "--count", str(count), "--seed", "20"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert f"{count} inputs" in run.stdout
    assert re.search(r"read\D* [1-9]", run.stdout), "no input was understood: the corpus is useless"
