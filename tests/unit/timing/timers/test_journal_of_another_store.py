"""A journal that came from another store, as when a backup is put together wrongly, is not believed: the log says what is pending."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

COUNT = 20


def lived(root: Path, *, begin_ms: int, first_late: int, count: int, end: Callable[[LittleStore], None]) -> LittleStore:
    """A store in which every other message was delivered. Records are as long in one such store as in another."""
    store = LittleStore(root)
    store.clock.advance(begin_ms)
    for number in range(count):
        store.send(body=b"%02d" % number, after_ms=50_000 if number % 2 == first_late else 5_000)
    for after_ms in (1_000, 6_000, 6_000):
        store.advance(after_ms)
    end(store)
    return store


@pytest.mark.parametrize("end", [LittleStore.close, LittleStore.kill])
@pytest.mark.parametrize("count", [COUNT, 2 * COUNT, COUNT // 2], ids=["as long", "shorter", "longer"])
def test_the_log_says_what_is_pending(
    tmp_path: Path, end: Callable[[LittleStore], None], count: int, caplog: pytest.LogCaptureFixture
) -> None:
    lived(tmp_path / "other", begin_ms=0, first_late=0, count=COUNT, end=end)
    clock = lived(tmp_path / "own", begin_ms=77, first_late=1, count=count, end=end).clock
    shutil.copy(tmp_path / "other" / "orbitmq.timers", tmp_path / "own" / "orbitmq.timers")
    again = LittleStore(tmp_path / "own", clock=clock)
    assert "orbitmq.timers cannot be believed" in caplog.text
    assert again.timers.pending_count == count // 2
    again.pass_time(100_000)
    assert sorted(map(int, again.bodies())) == list(range(count))
    again.close()
