"""RocketMQ is refused from the moment the fence is up, and let in by nothing but a whole hand-over."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worlds.faults import Call, RecordingFiles

from orbitmq.store.files import OsFiles
from orbitmq.timing.rocketmq.exchange import TimerExchange
from orbitmq.timing.rocketmq.fence import is_fenced, lower_fence, raise_fence
from orbitmq.timing.rocketmq.wheel import SLOT_BYTES
from orbitmq.timing.timers.exchange import HandOver

FILES = OsFiles()
SLOTS = 4_096


def wheel_of(root: Path, size: int) -> Path:
    path = root / "timerwheel"
    with path.open("wb") as file:
        file.truncate(size)
    return path


@pytest.mark.parametrize("size", [SLOTS * SLOT_BYTES, 0, 100])
def test_the_fence_takes_the_place_of_a_wheel(tmp_path: Path, size: int) -> None:
    path = wheel_of(tmp_path, size)
    assert not is_fenced(FILES, tmp_path)
    raise_fence(FILES, tmp_path)
    raise_fence(FILES, tmp_path)
    assert is_fenced(FILES, tmp_path)
    assert path.stat().st_size == 1


def test_the_fence_stands_where_there_was_no_wheel(tmp_path: Path) -> None:
    raise_fence(FILES, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["timerwheel"]
    lower_fence(FILES, tmp_path)
    lower_fence(FILES, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_fence_of_an_earlier_version_is_one(tmp_path: Path) -> None:
    path = wheel_of(tmp_path, SLOTS * SLOT_BYTES + 1)
    raise_fence(FILES, tmp_path)
    assert path.stat().st_size == SLOTS * SLOT_BYTES + 1
    lower_fence(FILES, tmp_path)
    assert path.stat().st_size == SLOTS * SLOT_BYTES


@pytest.mark.parametrize("size", [None, SLOTS * SLOT_BYTES])
def test_the_wheel_is_never_empty_on_the_way(tmp_path: Path, size: int | None) -> None:
    """RocketMQ takes an empty file for a new wheel."""
    if size is not None:
        wheel_of(tmp_path, size)
    sizes: list[int | None] = []

    def plan(call: Call) -> None:
        path = tmp_path / "timerwheel"
        sizes.append(path.stat().st_size if path.exists() else None)

    raise_fence(RecordingFiles(FILES, tmp_path, plan=plan), tmp_path)
    assert set(sizes) <= {size, 1}


@pytest.mark.parametrize("size", [1, SLOTS * SLOT_BYTES + 1])
def test_a_fence_that_cannot_be_lowered_for_good_stays_up(tmp_path: Path, size: int) -> None:
    wheel_of(tmp_path, size)
    plan_of = {1: "remove", SLOTS * SLOT_BYTES + 1: "sync"}
    files = RecordingFiles(
        FILES, tmp_path, plan=lambda call: OSError(5, "I/O error") if call.kind == plan_of[size] else None
    )
    with pytest.raises(OSError, match="I/O error"):
        lower_fence(files, tmp_path)
    assert is_fenced(FILES, tmp_path)


def test_only_a_hand_over_lowers_the_fence(tmp_path: Path) -> None:
    exchange = TimerExchange(FILES, tmp_path, 1_000, 500, SLOTS)
    exchange.raise_fence()
    with pytest.raises(RuntimeError, match="hand_over comes before"):
        exchange.lower_fence()
    exchange.hand_over(HandOver([], {}, [], None, 0, 5_000))
    exchange.raise_fence()
    with pytest.raises(RuntimeError, match="hand_over comes before"):
        exchange.lower_fence()
    assert exchange.is_fenced
