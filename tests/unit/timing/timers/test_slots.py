"""Units of open slots: due order, arrival order for equal times, turns of topics, never early."""

from __future__ import annotations

import random

import pytest

from orbitmq.timing.timers.slots import DueUnit, NearSlots, OpenSlot

SLOT_MS = 1_700_000_000_000


def opened(near: NearSlots, units: list[tuple[int, int, int]], slot_ms: int = SLOT_MS) -> OpenSlot:
    """A complete slot with these (topic, ms since the slot, log position), linked in this order."""
    slot = near.open(slot_ms, len(units))
    for topic, since_ms, physical in reversed(units):  # a chain is walked newest first
        near.walked(slot, topic, slot_ms + since_ms, physical)
    slot.walk_from = -1
    while not near.order(slot, 100, 0):
        pass
    return slot


def taken(near: NearSlots, now_ms: int, limit: int = 256) -> list[int]:
    return [unit.physical_offset for unit in near.take(now_ms, limit, lambda physical: True)]


def test_units_leave_in_the_order_of_their_due_times() -> None:
    near = NearSlots()
    opened(near, [(1, 500, 10), (1, 20, 20), (1, 999, 30)])
    assert taken(near, SLOT_MS + 1_000) == [20, 10, 30]


def test_equal_times_leave_in_the_order_of_arrival() -> None:
    near = NearSlots()
    slot = opened(near, [(1, 7, physical) for physical in (10, 20, 30)])
    near.link(slot, 1, SLOT_MS + 7, 40)
    assert taken(near, SLOT_MS + 7) == [10, 20, 30, 40]


@pytest.mark.parametrize("now", [SLOT_MS - 1, SLOT_MS, SLOT_MS + 499])
def test_nothing_leaves_before_its_time(now: int) -> None:
    near = NearSlots()
    opened(near, [(1, 500, 10)])
    assert taken(near, now) == []
    assert near.next_due_ms == SLOT_MS + 500


def test_a_clock_that_steps_back_takes_the_turn_away_again() -> None:
    near = NearSlots()
    opened(near, [(1, 500, 10), (1, 510, 20), (1, 900, 30)])
    assert taken(near, SLOT_MS + 600, limit=1) == [10]
    assert taken(near, SLOT_MS) == []
    assert near.next_due_ms == SLOT_MS + 510
    assert taken(near, SLOT_MS + 510) == [20]


def test_a_linked_unit_that_is_late_already_leaves_at_once() -> None:
    near = NearSlots()
    slot = opened(near, [])
    near.link(slot, 1, SLOT_MS - 5_000, 10)
    assert taken(near, SLOT_MS) == [10]


def test_a_slot_that_is_not_complete_gives_nothing() -> None:
    near = NearSlots()
    slot = near.open(SLOT_MS, 5)
    near.walked(slot, 1, SLOT_MS + 1, 10)
    near.link(slot, 2, SLOT_MS + 1, 20)
    assert taken(near, SLOT_MS + 1) == []
    assert near.first_incomplete() is slot
    slot.walk_from = -1
    assert near.order(slot, 100, 0)
    assert taken(near, SLOT_MS + 1) == [10, 20]


def test_a_unit_linked_while_its_slot_is_put_in_order_is_not_lost() -> None:
    near = NearSlots()
    slot = near.open(SLOT_MS, 5)
    for physical in range(250, 0, -1):
        near.walked(slot, 1, SLOT_MS + 1, physical)
    slot.walk_from = -1
    assert not near.order(slot, 100, 0)
    near.link(slot, 9, SLOT_MS + 1, 1_000)
    while not near.order(slot, 100, 0):
        pass
    assert 1_000 in taken(near, SLOT_MS + 1)


def test_a_crowded_topic_shares_every_batch_with_the_others() -> None:
    near = NearSlots()
    opened(near, [(1, 5, physical) for physical in range(1_000)] + [(2, 5, 5_000), (3, 5, 6_000)])
    assert {5_000, 6_000} <= set(taken(near, SLOT_MS + 5, limit=30))


def test_a_topic_that_becomes_due_goes_before_those_that_had_their_share() -> None:
    near = NearSlots()
    opened(near, [(topic, 5, topic * 1_000 + n) for topic in range(1, 11) for n in range(50)] + [(99, 6, 99_000)])
    taken(near, SLOT_MS + 5, limit=10)
    assert 99_000 in taken(near, SLOT_MS + 6, limit=1)


def test_topics_that_wait_for_their_records_let_others_pass() -> None:
    near = NearSlots()
    opened(near, [(1, 5, 10), (1, 6, 100), (2, 7, 200)])
    warm = near.take(SLOT_MS + 10, 10, lambda physical: physical >= 100)
    assert [unit.physical_offset for unit in warm] == [200]  # 100 waits behind 10: the order within a topic stands
    assert near.first_due_ms == SLOT_MS + 5
    assert near.next_due_ms is None
    assert near.to_read(SLOT_MS, 10, 0) == ([10], [])
    near.read()
    assert taken(near, SLOT_MS + 10) == [10, 100]


def test_cold_units_are_told_once_and_before_their_time() -> None:
    near = NearSlots()
    slot = near.open(SLOT_MS, 3)
    for physical, since_ms in ((300, 900), (20, 600), (10, 500)):
        near.walked(slot, 1, SLOT_MS + since_ms, physical)
    slot.walk_from = -1
    assert near.order(slot, 100, 100)
    assert near.to_read(SLOT_MS + 500, 10, 100) == ([], [10])
    assert near.to_read(SLOT_MS + 600, 10, 100) == ([], [20])
    assert near.to_read(SLOT_MS + 2_000, 10, 100) == ([], [])


def test_a_unit_given_back_keeps_its_place() -> None:
    near = NearSlots()
    opened(near, [(1, 5, 10), (1, 6, 20)])
    (unit,) = near.take(SLOT_MS + 5, 10, lambda physical: True)
    near.give_back(unit)
    assert taken(near, SLOT_MS + 6) == [10, 20]


def test_a_unit_whose_time_is_known_better_comes_at_that_time() -> None:
    near = NearSlots()
    opened(near, [(1, 1, 10)])
    (unit,) = near.take(SLOT_MS + 1, 10, lambda physical: True)
    near.give_back(unit, SLOT_MS + 700)
    assert near.next_due_ms == SLOT_MS + 700
    assert taken(near, SLOT_MS + 699) == []
    assert taken(near, SLOT_MS + 700) == [10]


def test_a_slot_is_forgotten_when_all_its_units_are_finished() -> None:
    near = NearSlots()
    opened(near, [(1, 1, 10), (1, 2, 20)])
    assert len(taken(near, SLOT_MS + 5)) == 2
    near.finish(SLOT_MS)
    near.close_spent(SLOT_MS + 10_000)
    assert near.first_unfinished_ms() == SLOT_MS
    near.finish(SLOT_MS)
    assert near.first_unfinished_ms() is None
    near.close_spent(SLOT_MS + 10_000)
    assert near.get(SLOT_MS) is None


def test_putting_a_crowded_slot_in_order_is_done_in_slices() -> None:
    near = NearSlots()
    slot = near.open(SLOT_MS, 1)
    for physical in range(10_000, 0, -1):
        near.walked(slot, 1, SLOT_MS + 1 + physical * 7_919 % 1_000, physical)
    slot.walk_from = -1
    steps = 1
    while not near.order(slot, 500, 0):
        steps += 1
    assert steps >= 20
    units: list[DueUnit] = []
    while batch := near.take(SLOT_MS + 2_000, 256, lambda physical: True):
        units += batch
    assert [(unit.due_ms, unit.physical_offset) for unit in units] == sorted(
        (SLOT_MS + 1 + physical * 7_919 % 1_000, physical) for physical in range(1, 10_001)
    )


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_every_unit_leaves_once_and_in_its_time(seed: int) -> None:
    draw = random.Random(seed)
    near, physical, now = NearSlots(), 0, SLOT_MS - 3_000
    due: dict[int, tuple[int, int]] = {}
    left: list[int] = []
    slots = []
    for _ in range(200):
        what = draw.random()
        if what < 0.1 and len(slots) < 5:
            units = []
            slot_ms = SLOT_MS + len(slots) * 1_000
            for _ in range(draw.randrange(60)):
                physical += 100
                units.append((draw.randrange(4), draw.randrange(1, 1_001), physical))
                due[physical] = (units[-1][0], slot_ms + units[-1][1])
            slots.append(opened(near, units, slot_ms))
        elif what < 0.4 and slots:
            slot = draw.choice(slots)
            physical += 100
            topic, since_ms = draw.randrange(4), draw.randrange(1, 1_001)
            due[physical] = (topic, slot.slot_ms + since_ms)
            if due[physical][1] > now:
                near.link(slot, topic, due[physical][1], physical)
            else:
                del due[physical]
        elif what < 0.5:
            now -= draw.randrange(300)
        else:
            now += draw.randrange(100)
            for unit in near.take(now, draw.randrange(1, 20), lambda at: True):
                assert unit.due_ms <= now
                assert due[unit.physical_offset][1] == unit.due_ms
                if draw.random() < 0.1:
                    near.give_back(unit)
                    continue
                left.append(unit.physical_offset)
    while batch := near.take(SLOT_MS + 100_000, 7, lambda at: True):
        left += [unit.physical_offset for unit in batch]
    assert sorted(left) == sorted(due)
    assert near.unit_count == 0
