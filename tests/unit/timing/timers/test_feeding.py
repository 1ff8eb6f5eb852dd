"""Taking what is due soon into memory: in order, in slices, each message once, whatever the clock does."""

from __future__ import annotations

import random
from bisect import bisect_right, insort
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.timing.index import search
from orbitmq.timing.index.gathering import Due, Found
from orbitmq.timing.index.parts import IndexShape
from orbitmq.timing.index.search import DueSlice
from orbitmq.timing.timers import feeding
from orbitmq.timing.timers.feeding import CROWDED_MS, LEAD_MS, LOOK_MS, Feeding
from orbitmq.timing.timers.soon import SoonTimers

NOW_MS = 1_700_000_000_000
FAR = 1 << 40
"""Behind every record: all have to be read ahead."""


class Waiting:
    """What is pending as a sorted list, a feeding that reads it, and what it has taken into memory."""

    def __init__(self, slice_timers: int = 1_000) -> None:
        self.entries: list[Due] = []
        self.gone: set[int] = set()
        """Queue offsets that are pending no longer."""
        self.reads: list[DueSlice] = []
        self.soon = SoonTimers()
        self.feeding = Feeding(self.soon, self._due, self._places)
        self._slice_timers = slice_timers
        self._next_offset = 0

    def _due(self, after: Found, until_ms: int, limit: int) -> DueSlice:
        limit = min(limit, self._slice_timers)
        first = bisect_right(self.entries, after, key=lambda entry: entry[:2])
        end = bisect_right(self.entries, (until_ms - 1, 1 << 62), key=lambda entry: entry[:2])
        if end - first > limit:
            found = self.entries[first : first + limit]
            self.reads.append(DueSlice(found, found[-1][:2], found[-1][0]))
        else:
            next_ms = self.entries[end][0] if end < len(self.entries) else None
            self.reads.append(DueSlice(self.entries[first:end], (until_ms, -1), next_ms))
        return self.reads[-1]

    def _places(self, queue_offsets: Sequence[int]) -> list[int | None]:
        assert list(queue_offsets) == sorted(queue_offsets)
        return [None if offset in self.gone else offset * 100 for offset in queue_offsets]

    def known(self, *dues_ms: int, topic: str = "a") -> None:
        """Messages that the runs hold at a start."""
        for due_ms in dues_ms:
            insort(self.entries, (due_ms, self._next_offset, topic))
            self._next_offset += 1
        self.feeding.arrived(0)

    def send(self, due_ms: int, topic: str = "a") -> None:
        """One comes in, as the timers place it."""
        if due_ms < self.feeding.horizon_ms:
            self.soon.add(due_ms, self._next_offset * 100, topic)
        else:
            self.feeding.arrived(due_ms)
        insort(self.entries, (due_ms, self._next_offset, topic))
        self._next_offset += 1

    def open_all(self, now_ms: int) -> int:
        """Everything there is to do at a moment; the number of slices."""
        steps = 0
        while self.feeding.step(now_ms, FAR):
            steps += 1
            assert steps < 10_000, "a horizon that does not move"
        return steps

    def take(self, now_ms: int) -> list[int]:
        """Queue offsets of what leaves."""
        left = []
        while batch := self.soon.take(now_ms, 7, lambda at: True):
            left += [timer.physical_offset // 100 for timer in batch]
        return left


def test_nothing_is_looked_for_while_nothing_waits() -> None:
    waiting = Waiting()
    assert waiting.feeding.next_look_ms(NOW_MS) is None
    assert not waiting.feeding.step(NOW_MS, FAR)
    assert waiting.reads == []


def test_what_is_due_within_the_lead_comes_into_memory_and_no_more() -> None:
    waiting = Waiting()
    waiting.known(NOW_MS - 5, NOW_MS + LEAD_MS, NOW_MS + LEAD_MS + LOOK_MS, NOW_MS + 10 * LEAD_MS)
    assert waiting.open_all(NOW_MS) == 1
    assert waiting.soon.count == 2
    assert waiting.feeding.next_due_ms == NOW_MS + LEAD_MS + LOOK_MS
    assert waiting.feeding.next_look_ms(NOW_MS) == NOW_MS + LOOK_MS
    assert not waiting.feeding.step(NOW_MS + LOOK_MS - 1, FAR)
    assert waiting.open_all(NOW_MS + LOOK_MS) == 1
    assert waiting.soon.count == 3


def test_hours_without_messages_are_one_look() -> None:
    waiting = Waiting()
    waiting.known(NOW_MS + 3_600_000)
    assert waiting.open_all(NOW_MS) == 1
    assert waiting.feeding.next_look_ms(NOW_MS) == NOW_MS + 3_600_000 - LEAD_MS
    assert waiting.open_all(NOW_MS + 3_600_000 - LEAD_MS) == 1
    assert waiting.soon.count == 1


def test_what_is_overdue_is_read_in_order_slice_by_slice() -> None:
    waiting = Waiting(slice_timers=10)
    waiting.known(*(NOW_MS - 1_000 + n * 7_919 % 1_000 for n in range(95)))
    left = []
    while waiting.feeding.step(NOW_MS, FAR):
        assert len(waiting.reads[-1].entries) <= 10
        left += waiting.take(NOW_MS)
    assert left == [offset for _, offset, _ in waiting.entries]


def test_messages_of_one_time_are_cut_by_a_slice_and_told_once() -> None:
    waiting = Waiting(slice_timers=10)
    waiting.known(*[NOW_MS] * 35)
    assert waiting.open_all(NOW_MS) == 4
    assert waiting.take(NOW_MS) == list(range(35))


def test_what_comes_between_two_slices_is_told_once_wherever_it_belongs() -> None:
    """One before the place that was reached, one at its time, one behind it."""
    waiting = Waiting(slice_timers=10)
    waiting.known(*[NOW_MS] * 15)
    assert waiting.feeding.step(NOW_MS, FAR)
    for due_ms in (NOW_MS - 1, NOW_MS, NOW_MS + 1):
        waiting.send(due_ms)
    waiting.open_all(NOW_MS)
    left = waiting.take(NOW_MS + 1)
    assert sorted(left) == list(range(18))
    assert left.index(16) == 16, "equal times leave in the order of arrival"
    assert left[-1] == 17


def test_what_arrives_before_the_horizon_is_in_memory_at_once_and_behind_it_in_time() -> None:
    waiting = Waiting()
    waiting.known(NOW_MS)
    waiting.open_all(NOW_MS)
    waiting.send(NOW_MS + LEAD_MS)
    assert waiting.soon.count == 2
    waiting.send(NOW_MS + LEAD_MS + LOOK_MS)
    assert waiting.soon.count == 2
    assert waiting.feeding.next_due_ms == NOW_MS + LEAD_MS + LOOK_MS
    waiting.open_all(NOW_MS + LOOK_MS)
    assert waiting.soon.count == 3


def test_whether_one_that_is_found_again_has_to_be_in_memory_is_known_exactly() -> None:
    """The place that was reached decides, not its time alone."""
    waiting = Waiting(slice_timers=10)
    waiting.known(*[NOW_MS] * 15)
    assert waiting.feeding.step(NOW_MS, FAR)
    assert [waiting.feeding.holds(NOW_MS, offset) for offset in (9, 10)] == [True, False]
    assert waiting.feeding.holds(NOW_MS - 1, 99)
    assert not waiting.feeding.holds(NOW_MS + 1, 0)


def test_what_is_pending_no_longer_does_not_come_into_memory() -> None:
    waiting = Waiting()
    waiting.known(NOW_MS, NOW_MS + 1, NOW_MS + 2)
    waiting.gone = {1}
    waiting.open_all(NOW_MS)
    assert waiting.take(NOW_MS + 2) == [0, 2]


def test_a_read_that_fails_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting()
    waiting.known(NOW_MS)

    def fails(queue_offsets: Sequence[int]) -> list[int | None]:
        raise OSError(5, "the disk does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(waiting.feeding, "_places", fails)
        with pytest.raises(OSError, match="does not answer"):
            waiting.feeding.step(NOW_MS, FAR)
    waiting.open_all(NOW_MS)
    assert waiting.take(NOW_MS) == [0]


# --- many -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """No more than this may be in memory."""
    monkeypatch.setattr(feeding, "TIMERS_SOON_MAX", 20)
    return 20


def test_a_crowd_comes_into_memory_as_it_leaves(few: int) -> None:
    waiting = Waiting(slice_timers=10)
    waiting.known(*(NOW_MS + n // 4 for n in range(200)))
    now_ms, left, most = NOW_MS - 1_000, list[int](), 0
    while len(left) < 200:
        look_ms = waiting.feeding.next_look_ms(now_ms)
        now_ms += 1 if look_ms is None else max(min(look_ms - now_ms, 50), 1)
        waiting.open_all(now_ms)
        most = max(most, waiting.soon.count)
        left += waiting.take(now_ms)
        assert now_ms < NOW_MS + 5_000
    assert left == list(range(200))
    assert most < few + 10


def test_of_a_crowd_no_look_is_made_more_often_than_needed(few: int) -> None:
    waiting = Waiting(slice_timers=10)
    waiting.known(*(NOW_MS + 5_000 + n for n in range(50)))
    waiting.open_all(NOW_MS)
    assert waiting.soon.count == few
    assert waiting.feeding.next_look_ms(NOW_MS) == NOW_MS + CROWDED_MS
    assert not waiting.feeding.step(NOW_MS + CROWDED_MS - 1, FAR)


def test_what_is_overdue_is_read_though_many_are_in_memory_and_not_due(few: int) -> None:
    """Everything in memory waits for its record; nobody waits for what is behind it."""
    waiting = Waiting(slice_timers=10)
    waiting.known(*[NOW_MS] * 50)
    waiting.open_all(NOW_MS)
    assert waiting.soon.take(NOW_MS, 10, lambda at: False) == []
    assert waiting.soon.next_due_ms is None
    assert waiting.feeding.step(NOW_MS + CROWDED_MS, FAR)


# --- the clock --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("back_ms", [1, LEAD_MS, 40 * LEAD_MS])
def test_a_clock_that_is_set_back_tells_nothing_twice(back_ms: int) -> None:
    waiting = Waiting()
    waiting.known(*(NOW_MS + 10_000 + n * 10_000 for n in range(20)))
    waiting.open_all(NOW_MS)
    before_ms = NOW_MS - back_ms
    horizon_ms, soon = waiting.feeding.horizon_ms, waiting.soon.count
    waiting.open_all(before_ms)
    assert (waiting.feeding.horizon_ms, waiting.soon.count) == (horizon_ms, soon)
    waiting.send(before_ms + 5)
    assert waiting.take(before_ms + 4) == []
    assert waiting.take(before_ms + 5) == [20]
    left = []
    for now_ms in range(before_ms, NOW_MS + 210_000, 5_000):
        waiting.open_all(now_ms)
        left += waiting.take(now_ms)
    assert left == list(range(20))


def test_a_look_that_was_put_off_does_not_outlast_a_clock_that_is_set_back(few: int) -> None:
    waiting = Waiting(slice_timers=10)
    waiting.known(*(NOW_MS + n for n in range(50)))
    waiting.open_all(NOW_MS - 10)
    waiting.take(NOW_MS + 100)
    look_ms = waiting.feeding.next_look_ms(NOW_MS - 20_000)
    assert look_ms is not None
    assert look_ms <= NOW_MS - 20_000
    waiting.open_all(NOW_MS - 20_000)
    assert waiting.soon.count == few


def test_a_clock_that_is_set_forward_leaves_the_order_as_it_is() -> None:
    waiting = Waiting(slice_timers=10)
    waiting.known(*(NOW_MS + 600_000 - n * 1_000 for n in range(100)))
    waiting.open_all(NOW_MS)
    waiting.send(NOW_MS + 5)
    later_ms = NOW_MS + 10_000_000
    left = []
    while waiting.feeding.step(later_ms, FAR):
        left += waiting.take(later_ms)
    assert left + waiting.take(later_ms) == [100, *range(99, -1, -1)]


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_each_message_comes_into_memory_once_and_before_its_time(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(feeding, "TIMERS_SOON_MAX", draw.choice((30, 4_000_000)))
    waiting = Waiting(slice_timers=draw.choice((1, 7, 1_000)))
    waiting.known(*(NOW_MS + draw.randrange(-60_000, 200_000) // 50 * 50 for _ in range(100)))
    now_ms, left = NOW_MS, list[int]()
    for _ in range(200):
        match draw.randrange(6):
            case 0:
                waiting.send(now_ms + draw.choice((-40_000, 0, 50, 31_000, 90_000)) // 50 * 50)
            case 1:
                now_ms += draw.choice((-100_000, -1_000, 40_000))
            case 2:
                now_ms += draw.randrange(2_000)
            case 3:
                waiting.feeding.step(now_ms, FAR)
            case 4:
                waiting.open_all(now_ms)
            case 5:
                first_ms = min((due_ms for due_ms, offset, _ in waiting.entries if offset not in left), default=None)
                told = [time for time in (waiting.soon.first_due_ms, waiting.feeding.next_due_ms) if time is not None]
                assert first_ms is None or min(told) <= first_ms
                left += waiting.take(now_ms)
    now_ms += 10_000_000
    for _ in range(1_000):
        waiting.open_all(now_ms)
        left += waiting.take(now_ms)
        now_ms += CROWDED_MS
    assert sorted(left) == list(range(len(waiting.entries)))


# --- over the real index ----------------------------------------------------------------------------------------------


def test_runs_that_are_put_together_between_two_slices_tell_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = LittleStore(tmp_path, index=IndexShape(capacity=16, carried=0, small=16))
    later = [number for number in range(160) if number % 16 > 12]
    for number in range(160):
        after_ms = 60_000 + number * 7_919 % 20 if number in later else 1_000
        little.append(body=b"%d" % number, after_ms=after_ms)
    little.store.commit()
    little.timers.index.work_off()
    assert len(little.timers.index.parts.runs) == 10
    for _ in range(10):
        little.advance(200)
    assert little.timers.pending_count == len(later)
    monkeypatch.setattr(feeding, "SLICE_TIMERS", 5)
    monkeypatch.setattr(search, "SHARE_MIN", 1)
    little.clock.advance(28_000 + LOOK_MS)
    little.timers.run()
    little.timers.run()
    assert 0 < little.timers._soon.count < len(later)
    little.timers.index.begin_sync()
    little.timers.index.work_off()
    assert len(little.timers.index.parts.runs) < 10, "what is left of them stands together"
    for _ in range(160):
        little.advance(200)
    in_order = sorted(later, key=lambda number: (number * 7_919 % 20, number))
    assert little.bodies()[130:] == [b"%d" % number for number in in_order]
    assert little.timers.pending_count == 0
    little.close()
