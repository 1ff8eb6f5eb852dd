"""A far tier whose files are written in the test's own process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the far tier's files are written with pyarrow")

from tests.worlds.little_far import LittleFar

from orbitmq.timing.far.arrow_tier import ArrowTier

OpenFar = Callable[..., LittleFar]


@pytest.fixture
def open_far(tmp_path: Path) -> OpenFar:
    """Opens the store in the test's directory, with its tier beside it."""

    def opened(**changes: object) -> LittleFar:
        changes.setdefault("tier", ArrowTier(str(tmp_path / "far")))
        return LittleFar(tmp_path / "store", **changes)  # type: ignore[arg-type]

    return opened
