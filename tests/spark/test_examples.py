"""The examples for Spark run as a newcomer runs them, and print what they are meant to show."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from server_process import ServedProcess

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "spark"

FIRST_STEPS = (
    r"\+-+\+-+\+-+\+\n\|\s*tags\|orders\|amount\|\n\+-+\+-+\+-+\+\n"
    r"\|express\|\s*250\|\s*13\d{3}\|\n\|\s*normal\|\s*750\|\s*40\d{3}\|\n\+-+\+-+\+-+\+\n\n"
    r"100 orders timed out, 0 of them early\n"
)


@pytest.mark.parametrize("place", ["here", "connect"])
def test_first_steps(
    serve: Callable[..., ServedProcess], request: pytest.FixtureRequest, tmp_path: Path, place: str
) -> None:
    address = [] if place == "here" else [request.getfixturevalue("connect_server")]
    server = serve()
    done = subprocess.run(
        [sys.executable, EXAMPLES / "first_steps.py", f"127.0.0.1:{server.name_port}", *address],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.fullmatch(FIRST_STEPS, done.stdout), done.stdout


def test_every_example_is_run() -> None:
    assert [path.name for path in EXAMPLES.glob("*.py")] == ["first_steps.py"]
