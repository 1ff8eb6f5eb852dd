"""Linking units into slots, and making the wheel again from the units."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from orbitmq.store.files import OsFiles
from orbitmq.timing.timer_files.link import Link, doubt, link, recover, relink, settle
from orbitmq.timing.timer_files.log import TimerLog
from orbitmq.timing.timer_files.unit import DEFAULT, DELETE, UNIT_BYTES
from orbitmq.timing.timer_files.wheel import EMPTY, SLOT_COUNT, Slot, TimerWheel

FILES = OsFiles()
W = 1_795_228_412_000
S = W + 10_000
SMALL = 5 * UNIT_BYTES + 16


@pytest.fixture
def wheel(tmp_path: Path) -> TimerWheel:
    return TimerWheel.create(FILES, tmp_path / "timerwheel", 1000)


@pytest.fixture
def log(tmp_path: Path) -> TimerLog:
    log = TimerLog(FILES, tmp_path / "timerlog", SMALL)
    log.load()
    return log


def of_slot(slot_ms: int, physical: int, magic: int = DEFAULT) -> Link:
    return Link(slot_ms, magic, physical, 206, 84, 0)


def test_linking_chains_the_units_of_a_slot(wheel: TimerWheel, log: TimerLog) -> None:
    assert link(wheel, log, W, [of_slot(S, 1), of_slot(S + 1000, 2), of_slot(S, 3), of_slot(S, 4, DELETE | 1)]) == 0
    assert wheel.get(S) == Slot(S // 1000, 0, 156, 1)
    assert wheel.get(S + 1000) == Slot(S // 1000 + 1, 52, 52, 1)
    assert [unit.previous for unit in log.walk(156, S).units] == [104, 0, -1]
    assert link(wheel, log, W, []) == log.end == 208


def test_what_is_linked_during_a_sync_waits_for_the_next(wheel: TimerWheel, log: TimerLog, tmp_path: Path) -> None:
    """The slots that reach the file name units of the log that was synced, never later ones."""
    link(wheel, log, W, [of_slot(S, 1), of_slot(S + 1000, 2)])
    log.write()
    changes = wheel.changes()
    link(wheel, log, W, [of_slot(S, 3), of_slot(S + 2000, 4)])
    log.datasync()
    wheel.write(changes)
    on_disk = TimerWheel.open(FILES, tmp_path / "timerwheel", 1000, writable=False)
    assert {slot.number - S // 1000: slot.last for slot in on_disk.slots()} == {0: 0, 1: 52}
    assert {slot.number - S // 1000: slot.last for slot in wheel.slots()} == {0: 104, 1: 52, 2: 156}
    assert len(wheel.changes()) == 2
    settle(wheel, log)
    assert len(wheel.changes()) == 0
    assert sorted(on_disk.slots()) == sorted(wheel.slots())
    assert wheel.get(S) == Slot(S // 1000, 0, 104, 2)


def test_a_slot_of_an_earlier_lap_is_overtaken(wheel: TimerWheel, log: TimerLog) -> None:
    wheel.put(S - SLOT_COUNT * 1000, 52, 520, 9)
    wheel.write()
    link(wheel, log, W, [of_slot(S, 1)])
    assert wheel.get(S) == Slot(S // 1000, 0, 0, 1)


@pytest.mark.parametrize("slot_ms", [W - 1000, W + 604_801_000])
def test_a_time_the_wheel_cannot_hold_links_nothing(wheel: TimerWheel, log: TimerLog, slot_ms: int) -> None:
    with pytest.raises(ValueError, match="cannot be linked"):
        link(wheel, log, W, [of_slot(S, 1), of_slot(slot_ms, 2)])
    assert log.end == 0
    assert wheel.get(S) == EMPTY
    link(wheel, log, W, [of_slot(W, 1), of_slot(W + 604_800_000, 2)])


def test_a_value_that_fits_no_field_leaves_a_sound_log(wheel: TimerWheel, log: TimerLog) -> None:
    with pytest.raises(struct.error):
        link(wheel, log, W, [of_slot(S, 1), of_slot(S, 1 << 63), of_slot(S, 3)])
    link(wheel, log, W, [of_slot(S, 4)])
    assert [unit.physical_offset for unit in log.walk(wheel.get(S).last, S).units] == [4, 1]


def many(wheel: TimerWheel, log: TimerLog, count: int = 60) -> dict[int, Slot]:
    for number in range(count):
        link(wheel, log, W, [of_slot(S + number % 7 * 1000, number, DELETE | 1 if number % 11 == 10 else DEFAULT)])
    settle(wheel, log)
    return {slot.number: slot for slot in wheel.slots()}


def test_the_wheel_is_made_again_from_the_log(wheel: TimerWheel, log: TimerLog) -> None:
    slots = many(wheel, log)
    wheel.clear()
    assert relink(wheel, log.scan()) == 60
    assert {slot.number: slot for slot in wheel.slots()} == slots
    assert relink(wheel, log.scan()) == 0
    assert {slot.number: slot for slot in wheel.slots()} == slots


def test_recovery_adds_what_the_wheel_does_not_know(wheel: TimerWheel, log: TimerLog, tmp_path: Path) -> None:
    many(wheel, log, 30)
    since = log.end
    for number in range(30, 60):
        link(wheel, log, W, [of_slot(S + number % 7 * 1000, number, DELETE | 1 if number % 11 == 10 else DEFAULT)])
    log.write()
    slots = {slot.number: slot for slot in wheel.slots()}
    wheel.close()
    killed = TimerWheel.open(FILES, tmp_path / "timerwheel", 1000)
    again = TimerLog(FILES, log.directory, SMALL)
    again.load(since)
    assert recover(killed, again, since, forget=unexpected) == (30, "")
    assert {slot.number: slot for slot in killed.slots()} == slots


@pytest.mark.parametrize("last", [60 // 5 * (SMALL), 10**12])
def test_a_wheel_that_ran_ahead_of_the_log_is_made_again(wheel: TimerWheel, log: TimerLog, last: int) -> None:
    slots = many(wheel, log)
    wheel.put(S, 0, last, 5)
    result = recover(wheel, log, log.end, forget=list)
    assert "ends at" in result.made_again
    assert result.unit_count == 60
    assert {slot.number: slot for slot in wheel.slots()} == slots


def test_the_checkpoint_is_forgotten_before_the_wheel_is_emptied(
    wheel: TimerWheel, log: TimerLog, tmp_path: Path
) -> None:
    slots = many(wheel, log)
    log.write()
    wheel.write()
    since = [log.end]
    wheel.put(S, 0, 10**12, 5)

    def forget() -> None:
        assert len(list(wheel.slots())) == len(slots)
        since[0] = 0

    recover(wheel, log, since[0], forget=forget)
    wheel.close()  # killed before the wheel was written
    again = TimerWheel.open(FILES, tmp_path / "timerwheel", 1000)
    assert recover(again, log, since[0], forget=unexpected).unit_count == 60
    assert {slot.number: slot for slot in again.slots()} == slots


def unexpected() -> None:
    raise AssertionError("this wheel can be believed")


def test_a_wheel_that_names_another_slots_unit_is_made_again(wheel: TimerWheel, log: TimerLog) -> None:
    slots = many(wheel, log)
    wheel.put(S, 0, 52, 5)
    assert "where no unit of it stands" in recover(wheel, log, log.end, forget=list).made_again
    assert {slot.number: slot for slot in wheel.slots()} == slots


def test_what_lies_before_the_read_clock_is_not_doubted(wheel: TimerWheel, log: TimerLog) -> None:
    many(wheel, log)
    wheel.put(S, 0, 52, 5)
    assert doubt(wheel, log, S + 1000) == ""
    assert doubt(wheel, log, S) != ""


def test_a_later_lap_is_not_taken_back_by_old_units(wheel: TimerWheel, log: TimerLog) -> None:
    many(wheel, log)
    later = S + SLOT_COUNT * 1000
    link(wheel, log, later - 5000, [of_slot(later, 99)])
    log.write()
    last = wheel.get(later)
    assert relink(wheel, log.scan()) == 0
    assert wheel.get(later) == last
