"""Messages that are overdue at once: after a step of the clock they leave in order, in few turns, and nothing says otherwise."""

from __future__ import annotations

import random
from pathlib import Path
from unittest import mock

from tests.worlds.little_store import LittleStore

from orbitmq.timing.timers import opening
from orbitmq.timing.timers.changes import recall

TOPICS = ("a", "b", "c")


def filled(root: Path, count: int, span_ms: int) -> tuple[LittleStore, dict[int, int]]:
    """A store with timers, and when each is due."""
    little, rng, dues = LittleStore(root), random.Random(1), {}
    for number in range(count):
        after_ms = rng.randrange(4_000, span_ms)
        placed = little.append(TOPICS[number % 3], after_ms=after_ms)
        dues[placed.queue_offset] = little.clock.now_ms() + after_ms
        little.turn()
    little.worker.close()
    return little, dues


def test_after_a_step_of_the_clock_what_is_overdue_leaves_in_order_and_in_few_turns(tmp_path: Path) -> None:
    little, dues = filled(tmp_path, 300, 900_000)
    left: dict[str, list[int]] = {topic: [] for topic in TOPICS}
    little.timers.finished.append(lambda batch: [left[one.topic].append(one.queue_offset) for one in batch])
    little.clock.advance(1_000_000)
    turns = 0
    while little.timers.pending_count:
        next_due_ms = little.timers.next_due_ms
        assert next_due_ms is not None
        assert next_due_ms <= min(dues[offset] for offset in little.timers.pending.offsets())
        little.turn()
        little.worker.close()
        turns += 1
    assert turns < 60, "a turn opens many slots that have few units"
    for offsets in left.values():
        assert offsets == sorted(offsets, key=lambda offset: (dues[offset], offset))
    little.close()


def test_slots_before_a_crowded_one_are_opened_before_it(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    with mock.patch.object(opening, "LEAD_US_PER_UNIT", 2_000_000):
        for _ in range(15):
            little.append("a", after_ms=25_500)  # opened 33 seconds before it begins
        early = little.append("a", after_ms=20_000)
        little.turn()
        little.clock.advance(1)
        little.turn()
        late = little.append("a", after_ms=18_000)  # comes when the crowded slot is open
        little.turn()
        left: list[int] = []
        little.timers.finished.append(lambda batch: left.extend(one.queue_offset for one in batch))
        little.advance(30_000)
    assert left == [late.queue_offset, early.queue_offset, *range(15)]
    little.close()


def test_a_slot_names_what_is_pending_in_it(tmp_path: Path) -> None:
    little = LittleStore(tmp_path)
    slot_ms = (little.clock.now_ms() // 1_000 + 20) * 1_000
    after_ms = slot_ms + 500 - little.clock.now_ms()
    assert little.timers.in_slot(slot_ms, "a") == []
    for topic in ("a", "b", "a", "a"):
        little.append(topic, after_ms=after_ms)
    little.append("a", after_ms=after_ms + 1_000)
    little.turn()
    gone = little.timers.read(2)
    assert gone is not None
    little.timers.change(gone, recall(gone.record, little.clock.now_ms()), wait=False, on_done=lambda status: None)
    little.turn()
    assert little.timers.in_slot(slot_ms, "a") == [3, 0]
    little.advance(after_ms - 2_000)  # the slot is open now
    assert little.timers.in_slot(slot_ms, "a") == [3, 0]
    little.advance(2_000)
    assert little.timers.in_slot(slot_ms, "a") == []
    little.close()
