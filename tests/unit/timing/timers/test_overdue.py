"""Messages that are overdue at once: after a step of the clock they leave in order, in few turns, and nothing says otherwise."""

from __future__ import annotations

import random
from pathlib import Path

from tests.worlds.little_store import LittleStore

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
    assert turns < 60
    for offsets in left.values():
        assert offsets == sorted(offsets, key=lambda offset: (dues[offset], offset))
    little.close()
