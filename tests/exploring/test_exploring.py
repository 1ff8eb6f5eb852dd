"""The search with fresh seeds finds what is there, says how to repeat it, and keeps it; what was kept is run."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.exploring import explore as exploring
from tests.exploring.explorers import EXPLORERS, Explorer

SOUND = Explorer("sound", ("-c", "pass", "{seed}"))
FINDS = Explorer("finds", ("-c", "import sys; print('lost message of', sys.argv[1]); sys.exit(1)", "{seed}"))
TERMINATED = Explorer("terminated", ("-c", "import os; os.kill(os.getpid(), 15)"))
INTERRUPTS = """
import os, sys, time
print(os.getpid(), file=open(sys.argv[1], "w"), flush=True)
os.kill(os.getppid(), 2)
time.sleep(600)
"""
ENDS_THE_SEARCH = Explorer("ends the search", ("-c", INTERRUPTS, "{seed}"))
HANGS = Explorer("hangs", ("-c", "import time\ndef asleep(): time.sleep(600)\nasleep()"), limit_s=2)


def test_what_was_found_once_is_found_no_more() -> None:
    by_name = {explorer.name: explorer for explorer in EXPLORERS}
    for name, seed in exploring.kept_cases(exploring.KEPT.read_text().splitlines()):
        assert exploring.run(by_name[name], seed).problem == "", (name, seed)


def test_a_finding_is_told_with_its_seed_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exploring, "KEPT", tmp_path / "kept")
    found = exploring.explore([SOUND, FINDS], seed=7, seconds=0.5, keep=True)
    assert {outcome.explorer.name for outcome in found} == {"finds"}
    printed = capsys.readouterr().out
    seed = found[0].seed
    assert f"FOUND by finds, seed {seed}: exit code 1\nlost message of {seed}" in printed
    assert exploring.kept_cases((tmp_path / "kept").read_text().splitlines())[0] == ("finds", seed)
    again = exploring.explore([SOUND, FINDS], seed=7, seconds=0.5)
    assert again[0].seed == seed, "one seed decides all"


def test_a_piece_that_hangs_is_shown_and_ended(capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    [outcome] = exploring.explore([HANGS], seed=7, seconds=0.1)
    assert "hung: not over after 2 s" in outcome.problem
    assert "asleep" in outcome.problem, "its stack"
    assert time.monotonic() - began < 60


def test_a_piece_that_somebody_ends_has_found_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert exploring.explore([TERMINATED], seed=7, seconds=0.1) == []
    assert "ended from outside by SIGTERM: python -c" in capsys.readouterr().out


def test_a_piece_is_ended_with_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploring, "ROOT", tmp_path)
    with pytest.raises(KeyboardInterrupt):
        exploring.run(ENDS_THE_SEARCH, 7)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "7").read_text()), 0)


def test_the_command_answers_with_its_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exploring, "EXPLORERS", (SOUND, FINDS))
    assert exploring.main(["--seconds", "0.1", "--only", "sound"]) == 0
    assert exploring.main(["--seconds", "0.1", "--only", "finds", "--seed", "3"]) == 1
    assert "seed 3: " in capsys.readouterr().out


def test_every_explorer_of_the_minute_in_ci_is_quick() -> None:
    assert {one.name for one in EXPLORERS if one.quick} >= {"crashes-kill-async", "timers", "fuzz-frames"}
    assert len({one.name for one in EXPLORERS}) == len(EXPLORERS)
