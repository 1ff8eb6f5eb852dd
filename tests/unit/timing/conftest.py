"""A store with delay levels for each test; it can be opened again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock

Reopen = Callable[..., LittleStore]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_again(tmp_path: Path, clock: ManualClock) -> Reopen:
    """Opens the store of this test, with the same clock."""

    def open_(**options: object) -> LittleStore:
        return LittleStore(tmp_path, clock=clock, **options)  # type: ignore[arg-type]

    return open_


@pytest.fixture
def little(open_again: Reopen) -> LittleStore:
    return open_again()
