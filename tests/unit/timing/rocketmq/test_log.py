"""The timer log as it is read: its units, its files, its end, and what a walk along a damaged chain gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worlds.rocketmq_timers import MESSAGE, NOTHING, write_as_rocketmq

from orbitmq.errors import StoreDamagedError
from orbitmq.store.files import OsFiles
from orbitmq.timing.rocketmq.log import (
    DEFAULT,
    DELETE,
    FILE_BYTES,
    ROLL,
    UNIT,
    UNIT_BYTES,
    TimerLog,
    TimerUnit,
    last_inside,
)
from orbitmq.timing.rocketmq.wheel import NO_POSITION

FILES = OsFiles()
W = 1_795_228_412_000
S = W + 10_000
SMALL = 5 * UNIT_BYTES + 16


def log_of(root: Path, slots: list[int], file_bytes: int = SMALL) -> TimerLog:
    """Units of these slots, whose records lie at 0, 1, 2 ..."""
    units = [(slot_ms, MESSAGE, number, 206) for number, slot_ms in enumerate(slots)]
    write_as_rocketmq(root, units, file_bytes, read_ms=W, linked=0)
    return TimerLog.open(FILES, root / "timerlog")


def overwrite(log: TimerLog, position: int, data: bytes) -> TimerLog:
    path = log.directory / f"{position // log.file_bytes * log.file_bytes:020d}"
    with path.open("r+b") as file:
        file.seek(position % log.file_bytes)
        file.write(data)
    return TimerLog.open(FILES, log.directory)


# --- units ------------------------------------------------------------------------------------------------------------


def test_a_unit_of_rocketmq_byte_for_byte() -> None:
    data = UNIT.pack(UNIT_BYTES, NO_POSITION, DEFAULT, W, 10_000, 0, 206, 84, 0)
    assert data == bytes.fromhex(
        "00000034 ffffffffffffffff 00000001 000001a1fbf3a860 00002710 0000000000000000 000000ce 00000054 0000000000000000"
    )


def test_flags_of_a_unit() -> None:
    unit = TimerUnit(0, NO_POSITION, DEFAULT | ROLL | DELETE, W, 0, 0, 1, 0, 0)
    assert unit.is_roll
    assert unit.is_delete
    assert not unit.is_void
    assert not unit._replace(magic=DEFAULT).is_roll


@pytest.mark.parametrize(
    ("magic", "deliver_ms", "due_ms"),
    [
        (DEFAULT, 0, None),
        (DEFAULT, S, None),
        (DEFAULT, S + 1, S + 1),
        (DEFAULT, S + 1000, S + 1000),
        (DEFAULT, S + 1001, None),
        (DEFAULT | ROLL, S + 1001, S + 1001),
        (DEFAULT | ROLL, S - 1, None),
        (DEFAULT, (S + 777) >> 32 << 32, None),  # the second half of the number lost with its page
    ],
)
def test_the_due_time_is_believed_if_the_slot_agrees(magic: int, deliver_ms: int, due_ms: int | None) -> None:
    assert TimerUnit(0, NO_POSITION, magic, W, S - W, 0, 206, 0, deliver_ms).due_ms(1000) == due_ms


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 3, 51])
def test_fillers_are_passed_over(tmp_path: Path, room: int) -> None:
    log = log_of(tmp_path, [S] * 12, SMALL + room)
    assert [unit.position for unit in log.scan()] == [
        file * (SMALL + room) + at for file in range(3) for at in range(0, 260, 52)
    ][:12]
    assert log.end == 2 * (SMALL + room) + 104


def test_a_file_of_the_default_size_takes_2016492_units() -> None:
    assert last_inside(FILE_BYTES) == 104_857_532 == 2_016_491 * UNIT_BYTES


def test_a_file_too_small_for_a_unit_is_refused() -> None:
    assert last_inside(68) == 0
    with pytest.raises(ValueError, match="too small"):
        last_inside(67)


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 10])
def test_the_end_is_found(tmp_path: Path, count: int) -> None:
    log = log_of(tmp_path, [S] * count)
    assert log.end == max(count - 1, 0) // 5 * SMALL + (count - max(count - 1, 0) // 5 * 5) * UNIT_BYTES
    last = log.last_unit()
    assert (last and last.physical_offset) == (count - 1 if count else None)


def test_a_crash_between_the_last_unit_and_the_filler(tmp_path: Path) -> None:
    log = overwrite(log_of(tmp_path, [S] * 6), 260, bytes(16))
    assert log.end == 260
    assert [unit.physical_offset for unit in log.scan()] == [0, 1, 2, 3, 4]


def test_files_of_several_sizes_are_refused(tmp_path: Path) -> None:
    log = log_of(tmp_path, [S] * 7)
    (log.directory / f"{SMALL:020d}").write_bytes(bytes(SMALL + 1))
    with pytest.raises(StoreDamagedError, match="the configured file size is"):
        TimerLog.open(FILES, log.directory)


def test_files_that_went_are_missed_by_nobody(tmp_path: Path) -> None:
    log = log_of(tmp_path, [S] * 12)
    (log.directory / f"{0:020d}").unlink()
    log = TimerLog.open(FILES, log.directory)
    assert log.first_position == SMALL
    assert [unit.physical_offset for unit in log.scan()] == list(range(5, 12))
    assert [unit.physical_offset for unit in log.walk(2 * SMALL + 52, S)] == list(range(11, 4, -1))
    assert log.unit(0) is None


def test_it_is_known_where_a_hand_over_ended(tmp_path: Path) -> None:
    units = [(S, MESSAGE, 5, 206), (S, MESSAGE, 3, 206), (S, NOTHING, 5, 206), (S, MESSAGE, 6, 206)]
    write_as_rocketmq(tmp_path, units, SMALL, read_ms=W, linked=0)
    assert TimerLog.open(FILES, tmp_path / "timerlog").handed_over_end == 3 * UNIT_BYTES


# --- chains -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def chained(tmp_path: Path) -> TimerLog:
    """Slot S: units 0, 104, 208; slot S + 1000: units 52, 156."""
    return log_of(tmp_path, [S + number % 2 * 1000 for number in range(5)])


def walked(log: TimerLog, last: int) -> tuple[list[int], str]:
    """Positions of the units that a walk along slot S gives, and what ended it."""
    found: list[int] = []
    try:
        for unit in log.walk(last, S):
            found.append(unit.position)
    except StoreDamagedError as error:
        return found, str(error)
    return found, ""


def test_a_walk_gives_the_slot_newest_first(chained: TimerLog) -> None:
    assert walked(chained, 208) == ([208, 104, 0], "")
    assert walked(chained, NO_POSITION) == ([], "")


@pytest.mark.parametrize(
    ("last", "problem"),
    [
        (260, "at or behind the end"),
        (10**12, "at or behind the end"),
        (1, "no sound unit begins at 1"),
        (-2, "no sound unit begins at -2"),
        (156, "belongs to the slot of 1795228423000, not of 1795228422000"),
    ],
)
def test_a_slot_that_points_elsewhere_yields_nothing(chained: TimerLog, last: int, problem: str) -> None:
    """The wheel reached the disk and the units did not, or another slot's unit has taken the place."""
    found, why = walked(chained, last)
    assert found == []
    assert problem in why


@pytest.mark.parametrize("previous", [208, 10**9, 260, -2])
def test_a_unit_that_names_itself_or_a_later_one_is_none(chained: TimerLog, previous: int) -> None:
    log = overwrite(chained, 208 + 4, previous.to_bytes(8, signed=True))
    assert (log.end, walked(log, 208)[0]) == (208, [])


@pytest.mark.parametrize(
    ("at", "data"), [(0, bytes(4)), (12, bytes(4)), (12, b"\0\0\0\x08"), (36, bytes(4)), (28, b"\xff"), (16, bytes(8))]
)
def test_the_log_ends_before_a_unit_that_is_damaged(chained: TimerLog, at: int, data: bytes) -> None:
    log = overwrite(chained, 104 + at, data)
    assert log.end == 104
    assert [unit.position for unit in log.scan()] == [0, 52]
    assert log.unit(104) is None


def test_a_filler_is_no_unit(tmp_path: Path) -> None:
    log = log_of(tmp_path, [S] * 6, 5 * UNIT_BYTES + UNIT_BYTES)
    assert log.unit(260) is None, "a filler of 52 bytes says size 52"
    assert log.end == 312 + 52
    assert walked(log, 260)[0] == []
