"""RocketMQ is let into a store exactly while its timer files are exact."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.worlds.little_store import SMALL_TIMERS, LittleStore

from orbitmq.store.files import OsFiles
from orbitmq.timing.timer_files.fence import is_fenced, lower_fence, raise_fence
from orbitmq.timing.timer_files.wheel import SLOT_BYTES, TimerWheel

FILES = OsFiles()


def test_a_fenced_wheel_is_one_byte_longer_than_rocketmq_takes_and_ours_to_open(tmp_path: Path) -> None:
    TimerWheel.create(FILES, tmp_path / "timerwheel", 1000, 4096).close()
    assert not is_fenced(FILES, tmp_path)
    raise_fence(FILES, tmp_path)
    assert is_fenced(FILES, tmp_path)
    raise_fence(FILES, tmp_path)
    assert (tmp_path / "timerwheel").stat().st_size == 4096 * SLOT_BYTES + 1
    TimerWheel.open(FILES, tmp_path / "timerwheel", 1000, 4096).close()
    lower_fence(FILES, tmp_path)
    lower_fence(FILES, tmp_path)
    assert (tmp_path / "timerwheel").stat().st_size == 4096 * SLOT_BYTES


def test_a_store_without_timers_has_no_fence(tmp_path: Path) -> None:
    raise_fence(FILES, tmp_path)
    lower_fence(FILES, tmp_path)
    assert not is_fenced(FILES, tmp_path)
    assert not list(tmp_path.iterdir())
    little = LittleStore(tmp_path)
    little.close()
    assert not (tmp_path / "timerwheel").exists()


def test_the_first_timer_raises_the_fence_and_an_orderly_stop_lowers_it(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    little.send(body=b"later", after_ms=60_000)
    assert is_fenced(FILES, tmp_path)
    little.close()
    assert not is_fenced(FILES, tmp_path)


def test_a_store_of_rocketmq_without_timer_messages_stays_open_to_it(tmp_path: Path) -> None:
    """RocketMQ makes a wheel whether there are timers or not."""
    TimerWheel.create(FILES, tmp_path / "timerwheel", 1000, SMALL_TIMERS.slot_count).close()
    (tmp_path / "timerlog").mkdir()
    little = LittleStore(tmp_path)
    little.send(body=b"plain")
    assert not is_fenced(FILES, tmp_path)
    little.kill()
    assert not is_fenced(FILES, tmp_path)
    little = LittleStore(tmp_path)
    little.close()
    assert not is_fenced(FILES, tmp_path)
    little = LittleStore(tmp_path)
    little.send(body=b"later", after_ms=60_000)
    assert is_fenced(FILES, tmp_path)
    little.close()
    assert not is_fenced(FILES, tmp_path)


def test_a_start_raises_the_fence_before_anything_is_sent(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    little.send(body=b"later", after_ms=60_000)
    little.close()
    again = LittleStore(tmp_path)
    assert is_fenced(FILES, tmp_path)
    again.close()
    assert not is_fenced(FILES, tmp_path)


def test_a_kill_leaves_the_fence_up(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    little.send(body=b"later", after_ms=60_000)
    little.kill()
    assert is_fenced(FILES, tmp_path)
    LittleStore(tmp_path).close()
    assert not is_fenced(FILES, tmp_path)


def test_what_waits_elsewhere_keeps_the_fence_up(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    little.send(body=b"later", after_ms=60_000)
    little.timers.hand_over(is_all=False)
    little.store.close()
    assert is_fenced(FILES, tmp_path)


def test_a_stop_while_timers_are_linked_again_keeps_the_fence_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = LittleStore(tmp_path)
    for number in range(20):
        little.send(body=b"%d" % number, after_ms=60_000)
    little.kill()
    (tmp_path / "orbitmq.timers").unlink(missing_ok=True)
    shutil.rmtree(tmp_path / "timerlog", ignore_errors=True)
    monkeypatch.setattr("orbitmq.timing.timers.recovery.LINK_AT_ONCE_MAX", 5)
    again = LittleStore(tmp_path)
    assert is_fenced(FILES, tmp_path)
    again.close()
    assert is_fenced(FILES, tmp_path)
    last = LittleStore(tmp_path)
    last.timers.link_all()
    last.close()
    assert not is_fenced(FILES, tmp_path)


def test_a_stop_that_cannot_be_saved_keeps_the_fence_up(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    little.send(body=b"later", after_ms=60_000)
    little.timers.hand_over()
    little.kill()
    assert is_fenced(FILES, tmp_path)
