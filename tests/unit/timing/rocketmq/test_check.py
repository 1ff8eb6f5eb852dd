"""Every kind of damage to timer files is found and named; the planted ones below are what the check must catch."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitmq.store.check import CheckReport, check_store
from orbitmq.store.files import OsFiles
from orbitmq.timing.rocketmq.check import check_timers
from orbitmq.timing.rocketmq.inspection import StoredTimers
from orbitmq.timing.rocketmq.log import UNIT_BYTES, TimerUnit
from orbitmq.timing.rocketmq.wheel import SLOT_BYTES, SLOT_COUNT

FILES = OsFiles()
READ_MS = 1_795_266_194_000
FIRST_SLOT = 1_795_266_203_000
"""The first slot of the store that is not read, with the chain 156, 208, 780, ..., 6136."""


@pytest.fixture
def store(golden_store: Callable[[str], Any]) -> Path:
    root: Path = golden_store("timer-far").root
    return root


def check(root: Path) -> CheckReport:
    return check_store(root, FILES, timers=check_timers)


def findings(root: Path) -> list[str]:
    return [str(finding) for finding in check(root).findings]


def write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def write_unit(root: Path, position: int, data: bytes, at: int = 0) -> None:
    write(root / "timerlog" / f"{position // 5200 * 5200:020d}", position % 5200 + at, data)


def write_slot(root: Path, slot_ms: int, at: int, data: bytes) -> None:
    write(root / "timerwheel", slot_ms // 1000 % SLOT_COUNT * SLOT_BYTES + at, data)


def unit_at(root: Path, position: int) -> TimerUnit:
    timers = StoredTimers(FILES, root)
    unit = timers.log.unit(position)
    timers.close()
    assert unit is not None
    return unit


@pytest.mark.parametrize("position", [8268, 10**12])
def test_a_slot_that_ends_behind_the_log(store: Path, position: int) -> None:
    write_slot(store, FIRST_SLOT, 16, struct.pack(">q", position))
    found = findings(store)
    assert found[0].startswith(f"timerwheel: slot of {FIRST_SLOT}: unit {position} lies at or behind the end")


def test_a_slot_that_ends_in_another_slots_unit(store: Path) -> None:
    write_slot(store, FIRST_SLOT, 16, struct.pack(">q", 260))
    assert "belongs to the slot of" in findings(store)[0]


def test_a_unit_that_names_itself(store: Path) -> None:
    write_unit(store, 6136, struct.pack(">q", 6136), 4)
    assert any("unit 6136 lies at or behind the end of the timer log at 6136" in text for text in findings(store))


def test_a_chain_that_leaves_units_out(store: Path) -> None:
    write_unit(store, 6136, struct.pack(">q", -1), 4)
    assert findings(store) == ["timerwheel: 11 units that wait are in no chain"]


def test_a_damaged_unit_cuts_the_log_short(store: Path) -> None:
    write_unit(store, 1924, bytes(4))
    report = check(store)
    found = [str(finding) for finding in report.findings]
    assert "config/timercheck: the timer log was durable up to 8268, it can be read up to 1924" in found
    assert any("at or behind the end of the timer log at 1924" in text for text in found)
    assert any("the timer log ends at 1924" in str(note) for note in report.notes)


def test_a_slot_in_the_place_of_another(store: Path) -> None:
    write(store / "timerwheel", 0, struct.pack(">q", 5))
    assert findings(store) == ["timerwheel: 1 slots, the first at place 0, carry another's number"]


@pytest.mark.parametrize(
    ("at", "data", "problem"),
    [
        (28, struct.pack(">q", 6566), "points to 6566: no timer record of 410 bytes is there"),
        (36, struct.pack(">i", 411), "no timer record of 411 bytes is there"),
        (40, struct.pack(">i", 7), "its topic hash is not that of VecT"),
        (44, struct.pack(">q", FIRST_SLOT), f"says it is due at {FIRST_SLOT}, its slot is that of {FIRST_SLOT}"),
        (12, struct.pack(">i", 3), f"its slot is that of {FIRST_SLOT}, its record asks for {FIRST_SLOT}"),
        (12, struct.pack(">i", 5), "disagree whether it is a cancellation"),
        (16, struct.pack(">q", 1_795_266_179_000), "its record asks for"),
        (16, struct.pack(">q", 1_795_266_178_001), "belongs to no slot"),
    ],
)
def test_a_unit_that_contradicts_its_record(store: Path, at: int, data: bytes, problem: str) -> None:
    assert unit_at(store, 156).physical_offset == 6565
    write_unit(store, 156, data, at)
    found = findings(store)
    assert any("unit 156" in text and problem in text for text in found), found


def test_a_due_time_within_the_slot_is_no_damage(store: Path) -> None:
    write_unit(store, 156, struct.pack(">q", FIRST_SLOT + 311), 44)
    assert findings(store) == []


def test_many_findings_of_a_kind_are_counted(store: Path) -> None:
    timers = StoredTimers(FILES, store)
    positions = [unit.position for unit in timers.pending_units()]
    timers.close()
    for position in positions:
        write_unit(store, position, struct.pack(">i", 7), 40)
    found = findings(store)
    assert len(found) == 4
    assert found[-1] == f"timerlog: {len(positions) - 3} more: units that contradict their records"


def test_a_wheel_of_another_length(store: Path) -> None:
    with (store / "timerwheel").open("r+b") as file:
        file.truncate(100)
    found = findings(store)
    assert len(found) == 1
    assert "has 100 bytes, a timer wheel has 38707200" in found[0]
    assert "made again from the timer log" in found[0]


def test_a_missing_wheel_is_a_note(store: Path) -> None:
    (store / "timerwheel").unlink()
    report = check(store)
    assert report.findings == []
    assert "timerwheel: is missing; recovery makes it again from the timer log" in [str(note) for note in report.notes]


@pytest.mark.parametrize(
    ("at", "value", "problem"),
    [
        (0, READ_MS + 1, "no multiple of 1000 ms"),
        (8, 8269, "durable up to 8269, it can be read up to 8268"),
        (16, 159, "has been linked up to 159, its queue ends at 158"),
        (16, -1, "has been linked up to -1"),
    ],
)
def test_a_checkpoint_that_runs_ahead(store: Path, at: int, value: int, problem: str) -> None:
    write(store / "config" / "timercheck", at, struct.pack(">q", value))
    assert any(text.startswith("config/timercheck: ") and problem in text for text in findings(store))


def test_a_short_or_missing_checkpoint_is_a_note(store: Path) -> None:
    path = store / "config" / "timercheck"
    path.write_bytes(path.read_bytes()[:56])
    report = check(store)
    assert report.findings == []
    assert "config/timercheck: has 56 bytes instead of 4096" in [str(note) for note in report.notes]
    path.unlink()
    assert any("every record of the timer topic would be linked again" in str(note) for note in check(store).notes)


def test_units_that_are_not_in_the_wheel_are_a_note(store: Path) -> None:
    last = unit_at(store, 8268 - UNIT_BYTES)
    write_slot(store, last.slot_ms, 16, struct.pack(">q", last.previous))
    report = check(store)
    assert report.findings == []


def test_records_that_retention_took_are_found(store: Path) -> None:
    """The file of the log is said to begin later than it does."""
    log = store / "commitlog"
    (log / f"{0:020d}").rename(log / f"{262_144:020d}")
    found = [text for text in findings(store) if text.startswith("timerlog")]
    assert "is gone from the commit log" in found[0]
    assert found[-1].endswith("more: records of units that wait are gone")


def test_the_precision_is_told_from_the_files(store: Path) -> None:
    timers = StoredTimers(FILES, store)
    assert timers.precision_ms == 1000
    timers.close()
    (store / "timerwheel").unlink()
    timers = StoredTimers(FILES, store)
    assert timers.precision_ms == 1000
    timers.close()


def test_without_the_timer_check_the_files_are_noted(store: Path) -> None:
    notes = [str(note) for note in check_store(store, FILES).notes]
    assert "timerwheel: not checked" in notes
    assert "timerlog: not checked" in notes
