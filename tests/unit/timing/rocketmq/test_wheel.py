"""Slots of the timer wheel as they are read: places, numbers, what is empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import StoreDamagedError
from orbitmq.limits.timers import TIMER_PRECISION_MS_MAX
from orbitmq.store.files import OsFiles
from orbitmq.timing.rocketmq.exchange import TimerExchange
from orbitmq.timing.rocketmq.wheel import EMPTY, SLOT, SLOT_BYTES, SLOT_COUNT, Slot, TimerWheel
from orbitmq.timing.timers.exchange import DueUnits, HandOver

FILES = OsFiles()
T = 1_795_228_422_000
LAP_MS = SLOT_COUNT * 1000


def wheel_with(root: Path, *slots: tuple[int, ...], precision_ms: int = 1000) -> TimerWheel:
    path = root / "timerwheel"
    with path.open("wb") as file:
        file.truncate(SLOT_COUNT * SLOT_BYTES)
        for number, *others in slots:
            file.seek(number % SLOT_COUNT * SLOT_BYTES)
            file.write(SLOT.pack(number, *others))
    return TimerWheel.open(FILES, path, precision_ms)


def test_a_slot_of_rocketmq_byte_for_byte(tmp_path: Path) -> None:
    """The one that a hand-over writes for one message."""
    exchange = TimerExchange(FILES, tmp_path, 1000, 172_800)
    exchange.hand_over(HandOver([DueUnits.of([(T + 1, 0, 206, 84)])], {}, [], (0, 206), 1, T - 10_000))
    exchange.lower_fence()
    data = (tmp_path / "timerwheel").read_bytes()
    assert len(data) == 38_707_200
    assert T // 1000 % SLOT_COUNT == 182_022
    golden = bytes.fromhex("000000006b010306 0000000000000000 0000000000000000 00000001 00000000")
    assert data[5_824_704 : 5_824_704 + SLOT_BYTES] == golden


def test_a_handed_over_wheel_is_sparse(tmp_path: Path) -> None:
    exchange = TimerExchange(FILES, tmp_path, 1000, 172_800)
    units = DueUnits.of([(T + 1, 0, 206, 84), (T + 86_400_000, 300, 206, 84)])
    exchange.hand_over(HandOver([units], {}, [], (300, 206), 2, T))
    assert (tmp_path / "timerwheel").stat().st_blocks * 512 <= 65_536
    assert (tmp_path / "timerlog" / f"{0:020d}").stat().st_blocks * 512 <= 65_536


def test_a_slot_belongs_to_one_time_only(tmp_path: Path) -> None:
    wheel = wheel_with(tmp_path, (T // 1000, 52, 104, 2, 0))
    assert wheel.get(T) == wheel.get(T + 999) == Slot(T // 1000, 52, 104, 2)
    assert wheel.get(T + 1000) == EMPTY
    assert wheel.get(T + LAP_MS) == wheel.get(T - LAP_MS) == EMPTY
    assert wheel.get(0) == EMPTY
    assert list(wheel.slots(T)) == [wheel.get(T)]
    assert list(wheel.slots(T + 1000)) == []


def test_slots_come_once_in_the_order_of_their_places(tmp_path: Path) -> None:
    numbers = range(T // 1000, T // 1000 + 90_000, 7)
    wheel = wheel_with(tmp_path, *((number, number, number, 1, 0) for number in numbers))
    assert sorted(slot.number for slot in wheel.slots()) == list(numbers)
    assert len(list(wheel.slots(T + 7_000))) == len(numbers) - 1


def test_precision_changes_places_and_span(tmp_path: Path) -> None:
    wheel = wheel_with(tmp_path, (T // 100, 0, 0, 1, 0), precision_ms=100)
    assert wheel.get(T + 99).number == T // 100
    assert wheel.get(T + 100) == EMPTY
    assert TIMER_PRECISION_MS_MAX * SLOT_COUNT < 1 << 31


@pytest.mark.parametrize("size", [0, 1, SLOT_COUNT * SLOT_BYTES - 1, SLOT_COUNT * SLOT_BYTES + 1])
def test_a_wheel_of_another_length_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "timerwheel"
    with path.open("wb") as file:
        file.truncate(size)
    with pytest.raises(StoreDamagedError, match="made again from the timer log"):
        TimerWheel.open(FILES, path, 1000)


def test_a_missing_wheel_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        TimerWheel.open(FILES, tmp_path / "timerwheel", 1000)


def test_a_slot_in_the_place_of_another_is_seen(tmp_path: Path) -> None:
    wheel_with(tmp_path).close()
    with (tmp_path / "timerwheel").open("r+b") as file:
        file.seek(320)
        file.write((T // 1000).to_bytes(8))
    wheel = TimerWheel.open(FILES, tmp_path / "timerwheel", 1000)
    assert wheel.misplaced() == [10]
    assert list(wheel.slots()) == []
