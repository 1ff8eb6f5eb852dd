"""The examples for Spark show what they are meant to show.

Rules of this file
1. An example runs in the session that is there and against the shared server; what it printed and the names it left are looked at.
2. Who needs a process of its own, a client of Spark Connect, gets one.
"""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "spark"

Example = Callable[..., tuple[str, dict[str, Any]]]


@pytest.fixture
def example(
    spark: object, name_server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Example:
    """`example(name, *arguments)`: runs it as a program, without arguments with the shared server; what it printed, and its names."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def run(name: str, *arguments: str) -> tuple[str, dict[str, Any]]:
        monkeypatch.setattr(sys, "argv", [name, *(arguments or [name_server])])
        names = runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out, names

    return run


FIRST_STEPS = (
    r"\+-+\+-+\+-+\+\n\|\s*tags\|orders\|amount\|\n\+-+\+-+\+-+\+\n"
    r"\|express\|\s*250\|\s*13\d{3}\|\n\|\s*normal\|\s*750\|\s*40\d{3}\|\n\+-+\+-+\+-+\+\n\n"
    r"100 orders timed out, 0 of them early\n"
)


def test_first_steps(example: Example) -> None:
    printed, _ = example("first_steps.py")
    assert re.fullmatch(FIRST_STEPS, printed), printed


def test_event_time_windows(example: Example) -> None:
    printed, names = example("event_time_windows.py")
    assert "[100, 100] due in the windows that are closed\n" in printed
    assert names["counts"] == [100, 100, 100]
    assert names["dropped"] > 0
    assert printed.endswith("10 reminders came more than five minutes late\n")


def test_archive_and_query(example: Example) -> None:
    printed, names = example("archive_and_query.py")
    assert (names["first"].rows_written, names["second"].rows_written) == (1_000, 200)
    assert [(row[1], row[2]) for row in names["sales"].fetchall()] == [("express", 300), ("normal", 900)]
    assert sum(row[3] for row in names["sales"].fetchall()) == sum(number % 90 + 10 for number in range(1_200))
    assert "1200 orders, 1200 different" in printed


def test_replay_with_shifted_times(example: Example) -> None:
    printed, _ = example("replay_with_shifted_times.py")
    assert printed == "50 archived\n50 replayed\nall moved by the same time, 0 early\n"


def test_redrive_dead_letters(example: Example) -> None:
    printed, _ = example("redrive_dead_letters.py")
    assert printed.splitlines() == [
        "30 dead letters",
        "{'would go to CardPayments': 20}",
        "20 sent again, 10 passed over",
        "0 sent again the second time",
    ]


def test_schedule_a_table(example: Example) -> None:
    printed, names = example("schedule_a_table.py")
    assert printed.startswith("1000 scheduled\n1000 scheduled, 980 wait\n20 were due: {")
    assert len(names["found"]) == len(set(names["found"])) == 20


def test_lateness_report(example: Example) -> None:
    printed, names = example("lateness_report.py")
    assert "500 messages, 0 early" in printed
    whole = names["lateness"].query("topic == '' and slot.isnull()").iloc[0]
    assert (whole.timed + whole.overdue, whole.early) == (500, 0)  # overdue: by the time a slow machine sent them
    assert "<svg" in (names["folder"] / "report.html").read_text()


MEANS = (
    r"\s*sensor\s+readings\s+mean\n"
    r"\s+s0\s+50\s+17.0\n\s+s1\s+50\s+17.5\n\s+s2\s+50\s+17.0\n\s+s3\s+50\s+17.5\n"
    r"200 readings went through the stream\n"
)


def test_connect_client(name_server: str, connect_server: str, tmp_path: Path) -> None:
    name = "connect_client.py"
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, connect_server, name_server],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.fullmatch(MEANS, done.stdout), done.stdout


def test_every_example_has_a_test() -> None:
    tests = Path(__file__).read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f'"{path.name}"' in tests, f"{path.name} is run by no test"
