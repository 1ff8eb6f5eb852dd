"""A far table whose files are read in the test's own process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the far table's files are written with pyarrow")

from orbitmq.clock import ManualClock
from orbitmq.testing.little_table import LittleTable

Reopen = Callable[..., LittleTable]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_table(tmp_path: Path, clock: ManualClock) -> Reopen:
    """Opens the store of this test, with its table."""
    return lambda **settings: LittleTable(tmp_path, clock, **settings)


@pytest.fixture
def little(open_table: Reopen) -> LittleTable:
    made = open_table()
    made.advance(2_000)
    return made
