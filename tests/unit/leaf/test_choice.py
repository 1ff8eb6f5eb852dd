"""Which of the two runs: the switch, and what is said about it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from orbitmq import leaf

SAY = "import orbitmq.leaf as leaf; print(leaf.IS_COMPILED, leaf.DESCRIPTION)"


def run(switch: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {leaf.SWITCH: switch}
    return subprocess.run([sys.executable, "-c", SAY], env=environment, capture_output=True, text=True, check=False)


def test_off_leaves_the_extension_unused() -> None:
    ran = run("off")
    assert ran.stdout.strip() == "False plain Python (switched off by ORBITMQ_LEAF)", ran.stderr


def test_required_runs_compiled_or_not_at_all() -> None:
    module, reason = leaf.load_extension()
    ran = run("required")
    if module is None:
        assert ran.returncode != 0
        assert reason in ran.stderr
    else:
        assert ran.stdout.strip() == "True compiled"


def test_an_unknown_value_is_an_error() -> None:
    ran = run("fast")
    assert ran.returncode != 0
    assert "auto, off or required" in ran.stderr


@pytest.mark.parametrize("place", range(len(leaf.SOURCES)))
def test_an_extension_of_another_source_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path, place: int) -> None:
    other = tmp_path / "other.py"
    other.write_text("something else")
    sources = list(leaf.SOURCES)
    sources[place] = str(other)
    monkeypatch.setattr(leaf, "SOURCES", sources)
    module, reason = leaf.load_extension()
    assert module is None
    assert reason in ("not built", "built from another source")
