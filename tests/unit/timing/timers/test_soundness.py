"""What a start doubts of wheel and timer log, and what it believes."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import StoreDamagedError
from orbitmq.store.files import OsFiles
from orbitmq.timing.timer_files.link import Link, link
from orbitmq.timing.timer_files.log import TimerLog
from orbitmq.timing.timer_files.unit import DEFAULT, UNIT_BYTES
from orbitmq.timing.timer_files.wheel import NO_POSITION, Survey, TimerWheel
from orbitmq.timing.timers.lap import Lap
from orbitmq.timing.timers.soundness import doubt_of_wheel, has_other_precision, load_whole, on_grid

FILES = OsFiles()
SLOTS = 100
W = 1_795_228_412_000
S = W + 10_000


@pytest.fixture
def wheel(tmp_path: Path) -> TimerWheel:
    return TimerWheel.create(FILES, tmp_path / "timerwheel", 1000, SLOTS)


@pytest.fixture
def log(tmp_path: Path) -> TimerLog:
    log = TimerLog(FILES, tmp_path / "timerlog", 5 * UNIT_BYTES + 16)
    log.load()
    return log


def linked(wheel: TimerWheel, log: TimerLog, *slots_ms: int) -> None:
    link(wheel, log, W, [Link(slot_ms, DEFAULT, 206 * at, 206, 84, 0) for at, slot_ms in enumerate(slots_ms)])


def doubt(found: Survey, log: TimerLog, expected_sum: int) -> str:
    return doubt_of_wheel(found, log, Lap(SLOTS, 1000), W, expected_sum)


def test_a_wheel_that_fits_its_log_is_believed(wheel: TimerWheel, log: TimerLog) -> None:
    assert doubt(wheel.survey(W), log, 0) == ""
    linked(wheel, log, S, S, S + 1000)
    assert doubt(wheel.survey(W), log, 3) == ""


def test_what_contradicts_the_log_or_the_journal_is_said(wheel: TimerWheel, log: TimerLog) -> None:
    linked(wheel, log, S, S, S + 1000)
    found = wheel.survey(W)
    assert doubt(found, log, 4) == "its slots hold 3 messages, there were 4"
    assert doubt(found._replace(highest=log.end), log, 3) == f"a slot ends at {log.end}, the timer log at {log.end}"
    far = {**found.heads, W // 1000 + SLOTS: 0}
    assert doubt(found._replace(heads=far), log, 3) == "it has slots that are more than a lap apart"


def test_a_log_without_units_that_a_slot_names_is_damage(wheel: TimerWheel, log: TimerLog) -> None:
    linked(wheel, log, S)
    with pytest.raises(StoreDamagedError, match="begins at 0, a slot that is to come at -5"):
        doubt(wheel.survey(W)._replace(lowest=-5), log, 1)


def test_a_log_that_is_shorter_than_it_was_is_damage(wheel: TimerWheel, log: TimerLog) -> None:
    linked(wheel, log, S, S)
    log.write()
    log.close()
    again = TimerLog(FILES, log.directory, log.file_bytes)
    load_whole(again, 2 * UNIT_BYTES)
    assert again.end == 2 * UNIT_BYTES
    again.close()
    with pytest.raises(StoreDamagedError, match=f"can be read up to {2 * UNIT_BYTES}, it reached {3 * UNIT_BYTES}"):
        load_whole(TimerLog(FILES, log.directory, log.file_bytes), 3 * UNIT_BYTES)


def test_units_between_slots_are_damage(wheel: TimerWheel, log: TimerLog) -> None:
    linked(wheel, log, S, S + 1000)
    log.write()
    assert [unit.slot_ms for unit in on_grid(log.scan(0), 1000)] == [S, S + 1000]
    with pytest.raises(StoreDamagedError, match=f"the unit of the timer log at {UNIT_BYTES} belongs to no slot"):
        list(on_grid(log.scan(0), 2000))


def test_another_precision_shows_in_the_first_unit(wheel: TimerWheel, log: TimerLog) -> None:
    assert not has_other_precision(wheel, log, W, 500)
    wheel.put(S - 1000, NO_POSITION, 50 * UNIT_BYTES, 1)  # leads nowhere, and says nothing
    assert not has_other_precision(wheel, log, W, 500)
    linked(wheel, log, S)
    assert not has_other_precision(wheel, log, W, 1000)
    assert has_other_precision(wheel, log, W, 500)
