"""Writing units of many queues: in parts, in the order in which they wait, with an end that is told."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.deadlines import Deadlines
from orbitmq.limits.store import WRITTEN_QUEUES_MAX, WRITTEN_QUEUES_PAUSE_MS
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import OsFiles
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.unit_writing import UnitWriting

COUNT = WRITTEN_QUEUES_MAX * 2 + 1
"""Queues whose units are written in three parts."""


class Rig:
    def __init__(self, root: Path) -> None:
        self.queues = ConsumeQueues(OsFiles(), root / "consumequeue", 800)
        self.clock = ManualClock()
        self.deadlines = Deadlines()
        self.writing = UnitWriting(self.queues, self.clock, self.deadlines)
        self.on_done: list[OSError | None] = []
        self.end = 0

    def take(self, count: int) -> None:
        """A record for each of so many queues."""
        for queue_id in range(count):
            queue = self.queues.for_append("T", queue_id)
            self.queues.apply([Dispatched(self.end, 100, "T", queue_id, queue.max_offset, 0, 0, None, None, 0, 0, b"")])
            self.end += 100

    def go_on(self) -> None:
        self.clock.advance(WRITTEN_QUEUES_PAUSE_MS)
        self.deadlines.run_due(self.clock.monotonic_ns())

    @property
    def waiting(self) -> int:
        return sum(queue.tail_bytes > 0 for queue in self.queues)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_units_of_few_queues_are_written_at_once(rig: Rig) -> None:
    rig.take(WRITTEN_QUEUES_MAX)
    rig.writing.below(rig.end, rig.on_done.append)
    assert rig.on_done == [None]
    assert rig.waiting == 0
    assert rig.deadlines.next_ns is None


def test_units_of_many_are_written_in_parts_with_pauses(rig: Rig) -> None:
    rig.take(COUNT)
    rig.writing.below(rig.end, rig.on_done.append)
    assert rig.waiting == COUNT - WRITTEN_QUEUES_MAX
    rig.deadlines.run_due(rig.clock.monotonic_ns())
    assert rig.waiting == COUNT - WRITTEN_QUEUES_MAX, "messages come first"
    rig.go_on()
    assert rig.on_done == []
    rig.go_on()
    assert rig.on_done == [None]
    assert rig.waiting == 0
    assert rig.deadlines.next_ns is None


def test_what_comes_meanwhile_delays_nothing(rig: Rig) -> None:
    rig.take(COUNT)
    rig.writing.below(rig.end, rig.on_done.append)
    for _ in range(2):
        rig.take(COUNT)  # queues that were written have units again
        rig.go_on()
    assert rig.on_done == [None]
    assert rig.waiting > 0


def test_who_asks_later_is_told_when_the_units_until_then_are_written(rig: Rig) -> None:
    later: list[OSError | None] = []
    rig.take(COUNT)
    rig.writing.below(rig.end, rig.on_done.append)
    rig.take(COUNT)
    rig.writing.below(rig.end, later.append)
    while not rig.on_done:
        rig.go_on()
    assert later == []
    for _ in range(4):
        rig.go_on()
    assert later == [None]
    assert rig.waiting == 0


def test_a_write_that_fails_is_told_and_its_units_stay(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: ConsumeQueue) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    rig.take(COUNT)
    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueue, "write_tail", full)
        rig.writing.below(rig.end, rig.on_done.append)
    assert [type(error) for error in rig.on_done] == [OSError]
    assert rig.waiting == COUNT
    rig.on_done.clear()
    rig.writing.below(rig.end, rig.on_done.append)
    rig.go_on()
    rig.go_on()
    assert rig.on_done == [None]


def test_everything_at_once_tells_those_who_wait(rig: Rig) -> None:
    rig.take(COUNT)
    rig.writing.below(rig.end, rig.on_done.append)
    rig.writing.all_now()
    assert rig.on_done == [None]
    assert rig.waiting == 0
    rig.go_on()
    assert rig.on_done == [None]
