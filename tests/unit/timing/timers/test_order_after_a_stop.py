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
