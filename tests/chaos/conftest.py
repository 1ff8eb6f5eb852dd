"""The modules of this suite, and the server processes of the system tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "system"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from cluster import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Servers that do not outlive the test; a copy of their logs is shown when it fails."""
    with Cluster(tmp_path) as servers:
        yield servers
