"""Damage in units and slots that no checksum shows: every message still comes once, and not before its time.

Every bit of a unit and of a slot is flipped in turn, in a store that was closed and in one that runs.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
from tests.worlds.little_store import SMALL_TIMERS, LittleStore

from orbitmq.clock import ManualClock
from orbitmq.errors import TimerIndexIncompleteError
from orbitmq.timing.index.parts import IndexShape
from orbitmq.timing.timer_files.unit import UNIT_BYTES
from orbitmq.timing.timer_files.wheel import SLOT_BYTES
from orbitmq.timing.timers.audit import AUDIT_MS, GRACE_MS, Audit

COUNT = 6
DAMAGED = 3
FIRST_MS = 12_000
SAVED_MS = 6_000
"""Within this long everything is saved once."""
STEP_MS = 700
LATE_MS_MAX = AUDIT_MS + GRACE_MS + 2_000
"""Two seconds are the step of these tests and the slot."""


def settle(little: LittleStore) -> None:
    for _ in range(500):
        little.turn()
        little.worker.close()
        next_ns = little.store.deadlines.next_ns
        if next_ns is None or next_ns > little.clock.monotonic_ns():
            return


def filled(root: Path) -> LittleStore:
    """Messages 700 ms apart, two of which share a slot; saved durably."""
    little = LittleStore(root, index=IndexShape())
    for number in range(COUNT):
        little.send(body=b"%d" % number, after_ms=FIRST_MS + number * STEP_MS)
    little.clock.advance(SAVED_MS)
    settle(little)
    little.timers.begin_sync()  # from now on slots are read from the file
    little.timers.datasync()
    return little


def play(little: LittleStore) -> None:
    """Let the time pass in which everything has to come, and judge what came."""
    for _ in range((FIRST_MS + COUNT * STEP_MS + LATE_MS_MAX) // 1_000):
        little.clock.advance(1_000)
        settle(little)
    assert sorted(little.bodies()) == [b"%d" % number for number in range(COUNT)]
    assert little.timers.pending_count == 0
    for record, properties in zip(little.records(), little.properties(), strict=True):
        late_ms = record.store_timestamp - int(properties["TIMER_DELIVER_MS"])
        assert 0 <= late_ms <= LATE_MS_MAX


def flipped(data: bytes, at: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[at + bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def slot_place(little: LittleStore, number: int) -> int:
    """Where in the wheel the slot of a message stands."""
    due_ms = little.clock.now_ms() - SAVED_MS + FIRST_MS + number * STEP_MS
    return (due_ms - 1) // 1_000 % SMALL_TIMERS.slot_count * SLOT_BYTES


@pytest.mark.parametrize("byte", range(UNIT_BYTES))
def test_no_bit_of_a_unit_costs_a_message(tmp_path: Path, byte: int) -> None:
    root = tmp_path / "store"
    little = filled(root)
    little.close()
    whole = (root / "timerlog" / f"{0:020d}").read_bytes()
    for bit in range(8):
        other = tmp_path / str(bit)
        shutil.copytree(root, other)
        (other / "timerlog" / f"{0:020d}").write_bytes(flipped(whole, DAMAGED * UNIT_BYTES + byte, bit))
        play(LittleStore(other, clock=ManualClock(little.clock.now_ms()), index=IndexShape()))
        shutil.rmtree(other)


@pytest.mark.parametrize("byte", range(UNIT_BYTES))
def test_no_bit_of_a_unit_costs_a_message_of_a_running_store(tmp_path: Path, byte: int) -> None:
    for bit in range(8):
        little = filled(tmp_path / str(bit))
        path = tmp_path / str(bit) / "timerlog" / f"{0:020d}"
        write_in_place(path, flipped(path.read_bytes(), DAMAGED * UNIT_BYTES + byte, bit))
        play(little)


@pytest.mark.parametrize("byte", range(SLOT_BYTES))
def test_no_bit_of_a_slot_costs_a_message(tmp_path: Path, byte: int) -> None:
    root = tmp_path / "store"
    little = filled(root)
    little.close()
    whole = (root / "timerwheel").read_bytes()
    at = slot_place(little, DAMAGED)
    assert any(whole[at : at + SLOT_BYTES])
    for bit in range(8):
        other = tmp_path / str(bit)
        shutil.copytree(root, other)
        (other / "timerwheel").write_bytes(flipped(whole, at + byte, bit))
        play(LittleStore(other, clock=ManualClock(little.clock.now_ms()), index=IndexShape()))
        shutil.rmtree(other)


@pytest.mark.parametrize("byte", range(SLOT_BYTES))
def test_no_bit_of_a_slot_costs_a_message_of_a_running_store(tmp_path: Path, byte: int) -> None:
    for bit in range(8):
        little = filled(tmp_path / str(bit))
        path = tmp_path / str(bit) / "timerwheel"
        write_in_place(path, flipped(path.read_bytes(), slot_place(little, DAMAGED) + byte, bit))
        play(little)


def write_in_place(path: Path, data: bytes) -> None:
    """Into the file that is open, so that whoever has mapped it sees it."""
    with path.open("r+b") as file:
        file.write(data)


def test_what_was_lost_is_linked_again_and_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    little = filled(tmp_path)
    path = tmp_path / "timerwheel"
    write_in_place(path, bytes(path.stat().st_size))
    with caplog.at_level(logging.ERROR):
        play(little)
    assert "were overdue and in no slot" in caplog.text
    assert little.timers.audit.found_count == COUNT


def test_what_is_only_late_is_left_alone(tmp_path: Path) -> None:
    little = filled(tmp_path)
    little.timers.paused = True
    for _ in range(60):
        little.clock.advance(1_000)
        settle(little)
    little.timers.paused = False
    little.clock.advance(1_000)
    settle(little)
    assert len(little.bodies()) == COUNT
    assert little.timers.audit.found_count == 0


def test_a_message_that_was_linked_again_survives_a_kill(tmp_path: Path) -> None:
    little = filled(tmp_path)
    path = tmp_path / "timerwheel"
    write_in_place(path, bytes(path.stat().st_size))
    little.timers._delivery.leave = lambda *_: 0  # type: ignore[method-assign]
    for _ in range(40):
        little.clock.advance(1_000)
        settle(little)
    assert little.timers.audit.found_count == COUNT
    assert little.bodies() == []
    little.kill()
    again = LittleStore(tmp_path, clock=little.clock)
    for _ in range(5):
        again.clock.advance(1_000)
        settle(again)
    assert sorted(again.bodies()) == [b"%d" % number for number in range(COUNT)]


def test_what_was_linked_when_it_was_overdue_is_not_missed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    little = LittleStore(tmp_path, index=IndexShape())
    little.send(body=b"far", after_ms=600_000)
    settle(little)
    little.clock.advance(20_000)
    for number in range(2_500):  # more than a turn opens
        little.append(body=b"%d" % number, after_ms=-12_000)
    little.store.commit()
    with caplog.at_level(logging.ERROR):
        settle(little)
    assert len(little.bodies()) == 2_500
    assert little.timers.audit.found_count == 0
    assert caplog.text == ""


def test_many_that_were_lost_are_reported_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    little = LittleStore(tmp_path, index=IndexShape())
    for number in range(520):
        little.append(body=b"%d" % number, after_ms=FIRST_MS)
    settle(little)
    little.clock.advance(SAVED_MS)
    settle(little)
    little.timers.begin_sync()
    little.timers.datasync()
    path = tmp_path / "timerwheel"
    write_in_place(path, bytes(path.stat().st_size))
    with caplog.at_level(logging.ERROR):
        for _ in range(40):
            little.clock.advance(1_000)
            settle(little)
    assert len(little.bodies()) == 520
    lines = [record.getMessage() for record in caplog.records if "in no slot" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith("520 timer messages")


# --- the audit by itself ----------------------------------------------------------------------------------------------


class Index:
    """Answers with what a test says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, str | None]] = []
        self.answers: list[tuple[list[int], str | None]] = []
        self.is_complete = True

    def overdue(self, from_ms: int, until_ms: int, cursor: str | None) -> tuple[list[int], str | None]:
        if not self.is_complete:
            raise TimerIndexIncompleteError("not yet", remedy="ask again")
        self.asked.append((from_ms, until_ms, cursor))
        return self.answers.pop(0) if self.answers else ([], None)


@pytest.fixture
def index() -> Index:
    return Index()


@pytest.fixture
def audit(index: Index) -> Audit:
    audit = Audit()
    audit.find = index.overdue
    return audit


def test_without_an_index_there_is_no_look() -> None:
    assert not Audit().is_due(1_000_000)


def test_a_clean_look_is_the_beginning_of_the_next(audit: Audit, index: Index) -> None:
    assert audit.look(100_000, None) == []
    assert not audit.is_due(100_000 + AUDIT_MS - 1)
    assert audit.is_due(100_000 + AUDIT_MS)
    audit.look(110_000, 115_000)
    assert index.asked == [(0, 100_000 - GRACE_MS, None), (100_000 - GRACE_MS, 110_000 - GRACE_MS, None)]


def test_what_was_found_is_looked_at_again(audit: Audit, index: Index) -> None:
    index.answers = [([7], None)]
    assert audit.look(100_000, None) == [7]
    assert audit.look(110_000, None) == []
    assert [asked[0] for asked in index.asked] == [0, 0]


def test_a_look_goes_on_at_its_cursor(audit: Audit, index: Index) -> None:
    index.answers = [([7], "more"), ([], None)]
    audit.look(100_000, None)
    assert audit.is_due(100_001)
    audit.look(100_001, None)
    assert index.asked[1] == (0, 100_000 - GRACE_MS, "more")
    assert not audit.is_due(100_002)


def test_while_what_is_held_is_late_nothing_is_missed(audit: Audit, index: Index) -> None:
    assert audit.look(100_000, 100_000 - GRACE_MS - 1) == []
    assert audit.look(110_000, 110_000 - GRACE_MS) == []
    assert index.asked == []


def test_a_look_that_waits_for_what_is_due_goes_on_where_it_was(audit: Audit, index: Index) -> None:
    index.answers = [([7], "more"), ([8], None)]
    assert audit.look(100_000, None) == [7]
    assert audit.look(100_001, 100_001) == []
    assert audit.is_due(100_002)
    assert audit.look(100_002, 100_900) == [8]
    assert index.asked[1] == (0, 100_000 - GRACE_MS, "more")


def test_an_index_that_is_being_made_is_asked_later(audit: Audit, index: Index) -> None:
    index.is_complete = False
    assert audit.look(100_000, None) == []
    index.is_complete = True
    assert audit.is_due(110_000)
    audit.look(110_000, None)
    assert index.asked == [(0, 100_000, None)]


def test_a_clock_that_was_set_back_begins_anew(audit: Audit, index: Index) -> None:
    audit.look(100_000, None)
    assert audit.is_due(50_000)
    audit.look(50_000, None)
    assert index.asked[-1] == (0, 50_000 - GRACE_MS, None)
