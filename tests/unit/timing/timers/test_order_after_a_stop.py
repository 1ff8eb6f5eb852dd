"""What fell due while nobody delivered leaves in the order of its due times, and meets no cancellation of another slot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.timing.due_time import slot_time
from orbitmq.timing.timer_files.unit import DEFAULT, DELETE, UNIT_BYTES, VOID, TimerUnit
from orbitmq.timing.timers.handing_over import kept_slots, unfinished_copy

LATER_FIRST = (9_000, 4_001, 8_999, 4_000, 60_500, 4_500)
Open = Callable[..., LittleStore]


def stopped(little: LittleStore) -> None:
    little.close()


def killed(little: LittleStore) -> None:
    little.kill()


@pytest.mark.parametrize("end", [stopped, killed])
@pytest.mark.parametrize("down_ms", [0, 70_000, 3_000_000])
def test_what_is_overdue_leaves_in_due_order(
    open_again: Open, end: Callable[[LittleStore], None], down_ms: int
) -> None:
    little = open_again()
    little.timers.paused = True
    for after_ms in LATER_FIRST:
        little.append(body=b"%d" % after_ms, after_ms=after_ms)
    little.store.commit()
    if end is stopped:
        little.advance(61_000)  # all are overdue at the stop
    end(little)
    little.clock.advance(down_ms if end is stopped else down_ms + 61_000)
    again = open_again()
    again.advance(500)
    assert again.bodies() == [b"%d" % after_ms for after_ms in sorted(LATER_FIRST)]
    again.close()


@pytest.mark.parametrize("lost_units", range(5))
def test_a_stop_that_is_cut_short_delays_nobody(open_again: Open, tmp_path: Path, lost_units: int) -> None:
    """The slots that are over were linked anew, and the last units of that never reached the disk."""
    little = open_again()
    little.timers.paused = True
    for after_ms in (4_500, 4_001, 4_500, 4_999):
        little.append(body=b"%d" % after_ms, after_ms=after_ms)
    little.store.commit()
    little.clock.advance(4_999)
    little.timers.write()
    before = little.timers._ledger.files.at().log_end
    little.timers.hand_over()
    files = little.timers._ledger.files
    files.write()
    end = files.at().log_end
    little.kill()
    assert end - before == 5 * UNIT_BYTES
    with open(tmp_path / "timerlog" / f"{0:020d}", "r+b") as file:
        file.seek(end - lost_units * UNIT_BYTES)
        file.write(bytes(lost_units * UNIT_BYTES))
    again = open_again()
    again.advance(500)
    assert again.bodies() == [b"4001", b"4500", b"4500", b"4999"]
    again.close()


@pytest.mark.parametrize("noted", [False, True])
def test_a_stop_that_is_killed_costs_no_look_through_the_commit_log(
    open_again: Open, caplog: pytest.LogCaptureFixture, noted: bool
) -> None:
    """Slots of delivered messages were emptied, which the timer log does not tell, and the sum of the others was noted or not."""
    little = open_again()
    for number in range(12):
        little.append(body=b"%d" % number, after_ms=1_500 + number * 700)
    little.store.commit()
    little.advance(6_200)  # some are delivered, within the minute in which their slots stay
    assert 0 < len(little.bodies()) < 12
    little.timers.hand_over()
    if noted:
        little.timers.write()
    little.kill()
    caplog.clear()
    again = open_again()
    assert "linked again from the commit log" not in caplog.text
    again.advance(10_000)
    assert sorted(map(int, again.bodies())) == list(range(12))
    again.close()


def test_a_cancellation_stays_in_its_slot(tmp_path: Path, clock: ManualClock) -> None:
    """A client of RocketMQ cancels what was in one slot; meanwhile the message is due in another one, under the same key."""
    little = LittleStore(tmp_path, clock=clock)
    little.timers.paused = True
    due_ms = clock.now_ms() + 4_500
    cancel = {Property.UNIQ_KEY: "A", Property.TIMER_DEL_UNIQKEY: "Topic+A"}
    little.append(after_ms=4_500, body=b"cancel", **cancel)
    little.append(after_ms=8_500, body=b"wanted", UNIQ_KEY="A")
    little.store.commit()
    little.advance(9_000)
    little.close()
    again = LittleStore(tmp_path, clock=clock)
    again.advance(500)
    assert again.bodies() == [b"wanted"]
    cancels = [decode_properties(record.properties) for record in again.records(TIMER_TOPIC)]
    assert cancels[0][Property.TIMER_OUT_MS] == str(slot_time(due_ms, 1_000))
    again.close()


def unit(position: int, slot_ms: int) -> TimerUnit:
    return TimerUnit(position, -1, DEFAULT, slot_ms, 0, position * 10, 100, 7, slot_ms + 1)


def test_slots_out_of_reach_move_into_the_one_in_progress_in_their_order() -> None:
    chains = [(1_000, [unit(5, 1_000)]), (50_000, [unit(2, 50_000), unit(3, 50_000)]), (90_000, [unit(1, 90_000)])]
    kept = kept_slots(chains, lambda one: one.position != 3, 90_000, 20_000)
    assert {slot_ms: [one[2] for one in units] for slot_ms, units in kept.items()} == {50_000: [20], 90_000: [10, 50]}


def test_a_slot_of_which_nothing_is_pending_is_not_kept() -> None:
    assert kept_slots([(1_000, [unit(5, 1_000)])], lambda one: False, 90_000, 0) == {}


def test_a_copy_is_finished_where_a_unit_that_stands_for_nothing_follows() -> None:
    end = TimerUnit(900, -1, DEFAULT | DELETE | VOID, 1_000, 0, 90, 100, 0, 0)
    new, first, second = unit(10, 1_000), unit(3, 1_000), unit(4, 1_000)
    assert unfinished_copy([], 100) is None
    assert unfinished_copy([new], 100) is None
    assert unfinished_copy([new, first, second], 100) == 3
    assert unfinished_copy([new, first, second, end], 100) == 3, "the mark of the stop is missing"
    assert unfinished_copy([new, end], 100) == end.position
    assert unfinished_copy([first, new], 100) is None, "what was linked since is not dropped"
    assert unfinished_copy([new, new._replace(position=11)], 100) == 11
