"""Slots of the timer wheel: places, numbers, what is empty, and when the file learns of a change."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worlds.faults import Call, RecordingFiles

from orbitmq.errors import StoreDamagedError
from orbitmq.limits.timers import TIMER_PRECISION_MS_MAX, TIMER_SLOTS_WAITING_MAX
from orbitmq.store.files import OsFiles
from orbitmq.timing.timer_files.wheel import EMPTY, NO_POSITION, SLOT_BYTES, SLOT_COUNT, Slot, TimerWheel

FILES = OsFiles()
T = 1_795_228_422_000
LAP_MS = SLOT_COUNT * 1000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "timerwheel"


def test_a_slot_of_rocketmq_byte_for_byte(path: Path) -> None:
    wheel = TimerWheel.create(FILES, path, 1000)
    wheel.put(T, 0, 0, 1)
    wheel.write()
    data = path.read_bytes()
    assert len(data) == 38_707_200
    assert T // 1000 % SLOT_COUNT == 182_022
    golden = bytes.fromhex("000000006b010306 0000000000000000 0000000000000000 00000001 00000000")
    assert data[5_824_704 : 5_824_704 + SLOT_BYTES] == golden
    assert data.count(0) == len(data) - sum(byte != 0 for byte in golden)


def test_a_new_wheel_is_empty_everywhere(path: Path) -> None:
    wheel = TimerWheel.create(FILES, path, 1000)
    assert wheel.get(T) == EMPTY
    assert wheel.get(0) == EMPTY
    assert list(wheel.slots()) == []
    assert EMPTY.is_empty


def test_a_slot_belongs_to_one_time_only(path: Path) -> None:
    wheel = TimerWheel.create(FILES, path, 1000)
    wheel.put(T, 52, 104, 2)
    assert wheel.get(T) == wheel.get(T + 999) == Slot(T // 1000, 52, 104, 2)
    assert wheel.get(T + 1000) == EMPTY
    assert wheel.get(T + LAP_MS) == wheel.get(T - LAP_MS) == EMPTY
    wheel.put(T + LAP_MS, 520, 520, 1)
    assert wheel.get(T) == EMPTY
    assert wheel.get(T + LAP_MS).last == 520


def test_the_unused_field_is_kept_within_a_lap(path: Path) -> None:
    wheel = TimerWheel.create(FILES, path, 1000)
    wheel.put(T, 0, 0, 1)
    wheel.heads_to_change()[T // 1000 % SLOT_COUNT][4] = 77
    wheel.write()
    wheel.put(T, 0, 52, 2)
    assert wheel.get(T) == Slot(T // 1000, 0, 52, 2, 77)
    wheel.put(T + LAP_MS, 0, 52, 2)
    assert wheel.get(T + LAP_MS).magic == 0


def test_the_file_learns_of_slots_by_write_only(path: Path) -> None:
    wheel = TimerWheel.create(FILES, path, 1000)
    wheel.put(T, 0, 0, 1)
    other = TimerWheel.open(FILES, path, 1000, writable=False)
    assert len(wheel.changes()) == 1
    assert other.get(T) == EMPTY
    wheel.write()
    assert len(wheel.changes()) == 0
    assert other.get(T) == wheel.get(T) == Slot(T // 1000, 0, 0, 1)
    assert list(other.slots(T)) == list(wheel.slots(T)) == [wheel.get(T)]
    assert list(wheel.slots(T + 1000)) == []


def test_slots_come_once_with_their_newest_value(path: Path) -> None:
    wheel = TimerWheel.create(FILES, path, 1000)
    for second in range(0, 90_000, 7):
        wheel.put(T + second * 1000, second, second, 1)
    wheel.write()
    wheel.put(T, 5, 6, 2)
    wheel.put(T + 1000, 7, 8, 1)
    found = {slot.number: slot for slot in wheel.slots(T)}
    assert len(found) == 12_859
    assert found[T // 1000].last == 6
    assert found[T // 1000 + 1].last == 8


def test_precision_changes_places_and_span(path: Path) -> None:
    wheel = TimerWheel.create(FILES, path, 100)
    wheel.put(T, 0, 0, 1)
    assert wheel.get(T + 99).number == T // 100
    assert wheel.get(T + 100) == EMPTY
    wheel.write()
    assert path.read_bytes()[T // 100 % SLOT_COUNT * SLOT_BYTES :][:8] == (T // 100).to_bytes(8)
    for precision in (0, -1, TIMER_PRECISION_MS_MAX + 1):
        with pytest.raises(ValueError, match="outside 1"):
            TimerWheel.open(FILES, path, precision)


@pytest.mark.parametrize("size", [0, 1, SLOT_COUNT * SLOT_BYTES - 1, SLOT_COUNT * SLOT_BYTES + 32])
def test_a_wheel_of_another_length_is_refused_and_can_be_made_anew(path: Path, size: int) -> None:
    path.touch()
    with path.open("wb") as file:
        file.truncate(size)
    with pytest.raises(StoreDamagedError, match="made again from the timer log"):
        TimerWheel.open(FILES, path, 1000)
    TimerWheel.create(FILES, path, 1000).close()
    assert TimerWheel.open(FILES, path, 1000).get(T) == EMPTY


def test_a_missing_wheel_is_told_from_a_damaged_one(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        TimerWheel.open(FILES, path, 1000)


def test_a_full_disk_creates_nothing_and_loses_nothing(tmp_path: Path, path: Path) -> None:
    def full(call: object) -> OSError | None:
        return OSError(28, "No space left on device") if getattr(call, "kind", "") == "allocate" else None

    files = RecordingFiles(FILES, tmp_path, plan=full)
    with pytest.raises(OSError, match="No space"):
        TimerWheel.create(files, path, 1000, 64)
    assert not path.exists()
    files.plan = None
    wheel = TimerWheel.create(files, path, 1000, 64)
    wheel.put(T, 0, 0, 1)
    files.plan = full
    with pytest.raises(OSError, match="No space"):
        wheel.write()
    assert wheel.get(T).last == 0
    files.plan = None
    wheel.write()
    assert len(wheel.changes()) == 0


def test_space_is_reserved_where_slots_are_written_and_before_they_are(tmp_path: Path, path: Path) -> None:
    """A store into a hole of a full disk would kill the process."""
    reserved: list[int] = []

    def plan(call: Call) -> None:
        if call.kind == "allocate":
            reserved.append(call.size)

    wheel = TimerWheel.create(RecordingFiles(FILES, tmp_path, plan=plan), path, 1000)
    first = 10 * 2_048 * SLOT_COUNT
    for number in (first, first + 2_047, first + 2_048, first + 5 * 2_048):
        wheel.put(number * 1000, 0, 0, 1)
    wheel.write()
    assert reserved == [65_536] * 4  # one for the new file
    wheel.put((first + 5) * 1000, 0, 0, 1)
    wheel.write()
    assert len(reserved) == 4
    assert path.stat().st_blocks * 512 <= 5 * 65_536
    assert len(list(wheel.slots())) == 5
    wheel.close()


def test_clear_empties_file_and_memory(path: Path) -> None:
    wheel = TimerWheel.create(FILES, path, 1000)
    wheel.put(T, 0, 0, 1)
    wheel.write()
    wheel.put(T + 1000, 0, 0, 1)
    wheel.clear()
    assert wheel.get(T) == wheel.get(T + 1000) == EMPTY
    wheel.put(T, 0, 0, 1)
    wheel.write()
    assert [slot.number for slot in wheel.slots()] == [T // 1000]


def test_a_crowd_of_changed_slots_asks_for_a_write(path: Path) -> None:
    wheel = TimerWheel.create(FILES, path, 1000)
    for second in range(TIMER_SLOTS_WAITING_MAX):
        assert not wheel.is_crowded
        wheel.put(T + second * 1000, 0, 0, 1)
    assert wheel.is_crowded


def test_a_slot_in_the_place_of_another_is_seen(path: Path) -> None:
    TimerWheel.create(FILES, path, 1000).close()
    with path.open("r+b") as file:
        file.seek(320)
        file.write((T // 1000).to_bytes(8))
    wheel = TimerWheel.open(FILES, path, 1000)
    assert wheel.misplaced() == [10]
    assert list(wheel.slots()) == []


def test_a_survey_sums_up_what_slots_yield(tmp_path: Path) -> None:
    wheel = TimerWheel.create(OsFiles(), tmp_path / "timerwheel", 1000, 4096)
    for number in range(300, 900):  # dense pages, and ones that are partly used
        wheel.put(number * 1000, number * 52, number * 52 + 104, 3)
    wheel.put(2_000_000, 1, 2, -1)
    wheel.put(5_000_000, 1, 2, 7)  # the next lap takes a place
    wheel.write()
    wheel.put(310_000, 9, 99_999, 5)  # waits for its write
    wheel.put(400_000, -1, -1, 0)
    wheel.put(3_000_000, 50, 60, 2)
    for since_ms in (0, 350_000, 899_000, 4_000_000):
        slots = list(wheel.slots(since_ms))
        survey = wheel.survey(since_ms)
        assert survey.heads == {slot.number: slot.last for slot in slots}
        assert survey.unit_count == sum(slot.unit_count for slot in slots)
        assert survey.highest == max(slot.last for slot in slots)
        assert survey.lowest == min(slot.first for slot in slots)
    wheel.close()


@pytest.mark.parametrize("first", [1, 900, 4_095, 4_096, 4_097, 7_000, 9_999])
def test_a_survey_of_one_lap_sums_up_what_slots_yield(tmp_path: Path, first: int) -> None:
    """Wherever the lap begins; slots of the lap before, emptied ones and ones in a wrong place among them."""
    wheel = TimerWheel.create(OsFiles(), tmp_path / "timerwheel", 1000, 4096)
    for number in range(max(first - 300, 1), first + 4_000, 3):
        wheel.put(number * 1000, number * 52, number * 52 + 104, number % 5)
    for number in range(first, first + 60, 6):
        wheel.put(number * 1000, NO_POSITION, NO_POSITION, 0)
    wheel.write()
    with open(tmp_path / "timerwheel", "r+b") as file:
        file.seek(32 * ((first + 17) % 4096))
        file.write((first + 18).to_bytes(8))
    survey, slots = wheel.survey(first * 1000), list(wheel.slots(first * 1000))
    assert len(slots) > 1_000
    assert survey.heads == {slot.number: slot.last for slot in slots}
    assert survey.unit_count == sum(slot.unit_count for slot in slots)
    assert (survey.lowest, survey.highest) == (min(slot.first for slot in slots), max(slot.last for slot in slots))
    wheel.close()
