"""The timer log: its units, its files, its end, and what a walk along a damaged chain gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worlds.faults import RecordingFiles

from orbitmq.errors import StoreDamagedError
from orbitmq.limits.timers import TIMER_TAIL_BYTES_MAX
from orbitmq.store.files import OsFiles
from orbitmq.timing.timer_files.link import Link, link, settle
from orbitmq.timing.timer_files.log import FILE_BYTES, ChainEnd, TimerLog
from orbitmq.timing.timer_files.unit import DEFAULT, DELETE, ROLL, UNIT_BYTES, TimerUnit, UnitFlag
from orbitmq.timing.timer_files.wheel import NO_POSITION, TimerWheel

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


def of_slot(slot_ms: int, physical: int, magic: int = DEFAULT, deliver_ms: int = 0) -> Link:
    return Link(slot_ms, magic, physical, 206, ord("T"), deliver_ms)


def overwrite(log: TimerLog, position: int, data: bytes) -> None:
    path = log.directory / f"{position // log.file_bytes * log.file_bytes:020d}"
    with path.open("r+b") as file:
        file.seek(position % log.file_bytes)
        file.write(data)


# --- units ------------------------------------------------------------------------------------------------------------


def test_a_unit_of_rocketmq_byte_for_byte(wheel: TimerWheel, log: TimerLog) -> None:
    link(wheel, log, W, [of_slot(S, 0)])
    log.write()
    data = (log.directory / f"{0:020d}").read_bytes()
    assert data[:UNIT_BYTES] == bytes.fromhex(
        "00000034 ffffffffffffffff 00000001 000001a1fbf3a860 00002710 0000000000000000 000000ce 00000054 0000000000000000"
    )
    unit = log.unit(0)
    assert unit == TimerUnit(0, NO_POSITION, 1, W, 10_000, 0, 206, 84, 0)
    assert unit.encode() == data[:UNIT_BYTES]
    assert unit.slot_ms == S


def test_flags_of_a_unit() -> None:
    unit = TimerUnit(0, NO_POSITION, DEFAULT | ROLL | DELETE, W, 0, 0, 1, 0, 0)
    assert unit.flags == UnitFlag.DEFAULT | UnitFlag.ROLL | UnitFlag.DELETE
    assert unit.is_roll
    assert unit.is_delete
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


def test_a_full_file_ends_in_a_filler_as_rocketmq_writes_it(tmp_path: Path, wheel: TimerWheel) -> None:
    log = TimerLog(FILES, tmp_path / "other", SMALL + 3)
    log.load()
    link(wheel, log, W, [of_slot(S, number) for number in range(12)])
    log.write()
    data = (log.directory / f"{0:020d}").read_bytes()
    assert data[5 * UNIT_BYTES :] == bytes.fromhex("00000013 0000000000000000 cbd43194") + bytes(3)
    assert [unit.position for unit in log.scan()] == [
        *range(0, 260, 52),
        *range(279, 279 + 260, 52),
        *range(558, 558 + 104, 52),
    ]
    assert log.end == 2 * (SMALL + 3) + 104


def test_a_file_of_the_default_size_takes_2016492_units() -> None:
    log = TimerLog(FILES, Path("timerlog"), FILE_BYTES)
    assert log.last_inside == 104_857_532
    assert log.may_begin(104_857_532)
    assert not log.may_begin(104_857_584)
    assert log.may_begin(FILE_BYTES)


def test_a_file_too_small_for_a_unit_is_refused() -> None:
    TimerLog(FILES, Path("timerlog"), 68)
    with pytest.raises(ValueError, match="too small"):
        TimerLog(FILES, Path("timerlog"), 67)


def test_units_are_read_before_and_after_they_are_written(wheel: TimerWheel, log: TimerLog) -> None:
    link(wheel, log, W, [of_slot(S, number) for number in range(7)])
    before = log.walk(wheel.get(S).last, S)
    assert list(log.scan()) == []
    log.write()
    assert log.walk(wheel.get(S).last, S) == before
    assert [unit.physical_offset for unit in before.units] == [6, 5, 4, 3, 2, 1, 0]
    assert list(log.scan()) == before.units[::-1]
    assert log.last_unit() == before.units[0]


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 10])
def test_the_end_is_found_again(wheel: TimerWheel, log: TimerLog, count: int) -> None:
    link(wheel, log, W, [of_slot(S, number) for number in range(count)])
    settle(wheel, log)
    last = log.last_unit()
    for since in (0, 3, log.end - UNIT_BYTES, log.end, 10**9):
        again = TimerLog(FILES, log.directory, SMALL)
        assert again.load(since) == log.end
        assert again.last_unit() == last
    link(wheel, again, W, [of_slot(S, 99)])
    assert again.walk(wheel.get(S).last, S).end is ChainEnd.COMPLETE
    assert len(again.walk(wheel.get(S).last, S).units) == count + 1


def test_a_crash_between_the_last_unit_and_the_filler(wheel: TimerWheel, log: TimerLog) -> None:
    link(wheel, log, W, [of_slot(S, number) for number in range(6)])
    log.write()
    overwrite(log, 260, bytes(16))
    again = TimerLog(FILES, log.directory, SMALL)
    assert again.load() == 260
    again.cut()
    assert link(wheel, again, W, [of_slot(S + 1000, 7)]) == SMALL
    again.write()
    assert [unit.physical_offset for unit in again.scan()] == [0, 1, 2, 3, 4, 7]
    assert again.end == SMALL + UNIT_BYTES


def test_cut_leaves_zeros_behind_the_end(wheel: TimerWheel, log: TimerLog) -> None:
    link(wheel, log, W, [of_slot(S, number) for number in range(12)])
    log.write()
    overwrite(log, 52, bytes(4))
    again = TimerLog(FILES, log.directory, SMALL)
    assert again.load() == 52
    again.cut()
    assert sorted(path.name for path in log.directory.iterdir()) == [f"{0:020d}"]
    assert (log.directory / f"{0:020d}").read_bytes()[52:] == bytes(SMALL - 52)
    assert TimerLog(FILES, log.directory, SMALL).load() == 52


def test_another_file_size_is_refused(wheel: TimerWheel, log: TimerLog) -> None:
    link(wheel, log, W, [of_slot(S, 0)])
    log.write()
    with pytest.raises(StoreDamagedError, match="the configured file size is 5200"):
        TimerLog(FILES, log.directory, 5200).load()


def test_much_in_memory_is_written_before_more_is_linked(tmp_path: Path, wheel: TimerWheel) -> None:
    log = TimerLog(FILES, tmp_path / "timerlog")
    log.load()
    batch = [of_slot(S, number) for number in range(TIMER_TAIL_BYTES_MAX // UNIT_BYTES + 1)]
    link(wheel, log, W, batch)
    assert log.written == 0
    link(wheel, log, W, batch[:1])
    assert log.written == len(batch) * UNIT_BYTES


def test_a_failed_write_loses_nothing(tmp_path: Path, wheel: TimerWheel) -> None:
    files = RecordingFiles(FILES, tmp_path)
    log = TimerLog(files, tmp_path / "timerlog", SMALL)
    log.load()
    link(wheel, log, W, [of_slot(S, number) for number in range(12)])
    failing = 0

    def full(call: object) -> OSError | None:
        nonlocal failing
        failing += getattr(call, "kind", "") == "write"
        return OSError(28, "No space left on device") if failing > 1 else None

    files.plan = full
    with pytest.raises(OSError, match="No space"):
        log.write()
    assert log.written == SMALL
    link(wheel, log, W, [of_slot(S, 12)])
    assert len(log.walk(wheel.get(S).last, S).units) == 13
    files.plan = None
    log.write()
    assert [unit.physical_offset for unit in log.scan()] == list(range(13))


def test_files_go_when_their_records_are_gone(wheel: TimerWheel, log: TimerLog) -> None:
    link(wheel, log, W, [of_slot(S, number * 100) for number in range(15)])
    log.write()
    assert log.expired_segments(400) == []
    assert [segment.base for segment in log.expired_segments(401)] == [0]
    walk = log.walk(wheel.get(S).last, S)
    assert walk.end is ChainEnd.CLEANED
    assert [unit.physical_offset for unit in walk.units] == list(range(1400, 400, -100))
    assert next(log.scan(0)).physical_offset == 500
    assert [segment.base for segment in log.expired_segments(10**9)] == [SMALL]  # never the last one


def test_cleaning_stops_at_a_file_whose_last_unit_is_no_unit(wheel: TimerWheel, log: TimerLog) -> None:
    link(wheel, log, W, [of_slot(S, number) for number in range(12)])
    log.write()
    overwrite(log, 208, bytes(52))
    assert log.expired_segments(10**9) == []


# --- chains -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def chained(wheel: TimerWheel, log: TimerLog) -> TimerLog:
    """Slot S: units 0, 104, 208; slot S + 1000: units 52, 156; written."""
    link(wheel, log, W, [of_slot(S + number % 2 * 1000, number) for number in range(5)])
    log.write()
    return log


def test_a_walk_gives_the_slot_newest_first(chained: TimerLog) -> None:
    walk = chained.walk(208, S)
    assert [unit.position for unit in walk.units] == [208, 104, 0]
    assert walk.end is ChainEnd.COMPLETE
    assert chained.walk(NO_POSITION, S).units == []


def test_a_walk_in_steps_gives_the_same(chained: TimerLog) -> None:
    walk = chained.walk(208, S, limit=2)
    assert (walk.end, walk.next, len(walk.units)) == (ChainEnd.MORE, 0, 2)
    rest = chained.walk(walk.next, S, limit=2)
    assert [unit.position for unit in rest.units] == [0]
    assert rest.end is ChainEnd.COMPLETE


@pytest.mark.parametrize(
    ("last", "problem"),
    [
        (260, "at or behind the end"),
        (10**12, "at or behind the end"),
        (1, "no unit begins at 1"),
        (-2, "no unit begins at -2"),
        (156, "belongs to the slot of 1795228423000, not of 1795228422000"),
    ],
)
def test_a_slot_that_points_elsewhere_yields_nothing(chained: TimerLog, last: int, problem: str) -> None:
    """The wheel reached the disk and the units did not, or another slot's unit has taken the place."""
    walk = chained.walk(last, S)
    assert walk.units == []
    assert walk.end is ChainEnd.BROKEN
    assert problem in walk.problem


@pytest.mark.parametrize("previous", [208, 10**9, 260, -2])
def test_a_unit_that_names_itself_or_a_later_one_ends_the_walk(chained: TimerLog, previous: int) -> None:
    overwrite(chained, 208 + 4, previous.to_bytes(8, signed=True))
    walk = chained.walk(208, S)
    assert [unit.position for unit in walk.units] == [208]
    assert walk.end is ChainEnd.BROKEN
    assert f"names unit {previous}" in walk.problem


def test_a_unit_that_is_damaged_ends_the_walk_before_it(chained: TimerLog) -> None:
    for at, data in ((0, bytes(4)), (12, bytes(4)), (12, b"\0\0\0\x08"), (36, bytes(4)), (28, b"\xff")):
        sound = chained.unit(104)
        assert sound is not None
        overwrite(chained, 104 + at, data)
        walk = chained.walk(208, S)
        assert [unit.position for unit in walk.units] == [208]
        assert "no sound unit at 104" in walk.problem
        assert chained.unit(104) is None
        overwrite(chained, 104, sound.encode())


def test_a_filler_is_no_unit(wheel: TimerWheel, tmp_path: Path) -> None:
    log = TimerLog(FILES, tmp_path / "other", 5 * UNIT_BYTES + UNIT_BYTES)
    log.load()
    link(wheel, log, W, [of_slot(S, number) for number in range(6)])
    log.write()
    assert log.unit(260) is None  # a filler of 52 bytes says size 52
    assert log.end == 312 + 52
    assert log.walk(260, S).end is ChainEnd.BROKEN
    assert TimerLog(FILES, log.directory, log.file_bytes).load() == 312 + 52


@pytest.mark.parametrize("count", [5, 10])
def test_a_position_in_or_at_a_filler_is_a_place_to_go_on_from(wheel: TimerWheel, log: TimerLog, count: int) -> None:
    link(wheel, log, W, [of_slot(S, number) for number in range(count)])
    position = settle(wheel, log)
    link(wheel, log, W, [of_slot(S, 99)])
    log.write()
    again = TimerLog(FILES, log.directory, SMALL)
    assert again.load(position) == log.end
    assert [unit.physical_offset for unit in again.scan(position)] == [count - 1, 99]
    assert [unit.physical_offset for unit in again.scan(log.end - UNIT_BYTES)] == [99]
    assert list(again.scan(log.end)) == []


def test_a_position_behind_lost_units_is_not_believed(wheel: TimerWheel, log: TimerLog) -> None:
    link(wheel, log, W, [of_slot(S, number) for number in range(8)])
    log.write()
    position = log.end
    overwrite(log, SMALL + 52, bytes(104))
    assert TimerLog(FILES, log.directory, SMALL).load(position) == SMALL + 52
