"""A few thousand inputs of the record and property fuzzers in every test run; `make fuzz` runs a million."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("fuzzer", ["fuzz_records.py", "fuzz_properties.py"])
def test_fuzzer(fuzzer: str) -> None:
    command = [sys.executable, str(Path(__file__).with_name(fuzzer)), "--count", "4000", "--seed", "20240229"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert "4000 inputs" in done.stdout
