"""The modules of this suite, and the server processes of the system tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "system"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from cluster import Cluster

_FIGURES: list[str] = []


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Servers that do not outlive the test; a copy of their logs is shown when it fails."""
    with Cluster(tmp_path) as servers:
        yield servers


@pytest.fixture
def figure() -> Callable[[str], None]:
    """Adds a line to the figures printed at the end of the run."""
    return _FIGURES.append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _FIGURES:
        terminalreporter.section("figures of the chaos tests")
        for line in _FIGURES:
            terminalreporter.write_line(line)
