"""A look at a level's queue that fails, each of them once: what was taken is given back, nothing is early, nothing is forgotten."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.protocol.names import SCHEDULE_TOPIC
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import ConsumeQueue

LOOKS_MAX = 40
BODIES = [b"one", b"two", b"three", b"four"]


class FailingLook:
    """`kept_unit` whose given call fails."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.inner = ConsumeQueue.kept_unit

    def install(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(ConsumeQueue, "kept_unit", lambda queue, offset: self.look(queue, offset))

    def look(self, queue: ConsumeQueue, offset: int) -> tuple[int, int, int] | None:
        self.left -= 1
        if self.left == 0:
            raise OSError(errno.EMFILE, "planned")
        return self.inner(queue, offset)


def filled(little: LittleStore) -> None:
    """Two levels with two messages each, due one after the other."""
    for level in (1, 2):
        for body in BODIES[2 * level - 2 : 2 * level]:
            little.send(body=body, level=level)
            little.advance(1)


@pytest.mark.parametrize("number", range(1, LOOKS_MAX))
def test_what_is_due_is_delivered_after_a_look_that_failed(little: LittleStore, number: int) -> None:
    filled(little)
    failing = FailingLook(number)
    due_ms = {}
    with pytest.MonkeyPatch.context() as patch:
        failing.install(patch)
        for waited_ms in range(0, 8_000, 250):
            try:
                little.advance(250)
            except OSError:  # reported by the alarm
                little.advance(0)
            for body in little.bodies():
                due_ms.setdefault(body, waited_ms + 250)
    assert sorted(due_ms) == sorted(BODIES)
    assert little.bodies().count(b"one") == 1
    assert len(little.bodies()) == len(BODIES)
    assert min(due_ms[body] for body in BODIES[:2]) >= 1_000 - 2
    assert min(due_ms[body] for body in BODIES[2:]) >= 2_000 - 2
    assert not little.release.pending_count


@pytest.mark.parametrize("number", range(1, 12))
def test_what_was_to_be_moved_is_given_back_after_a_look_that_failed(little: LittleStore, number: int) -> None:
    filled(little)
    take: Callable[[], list[object]] = lambda: list(little.release.take_below(little.store.log.end, 10))  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        FailingLook(number).install(patch)
        try:
            taken = take()
        except OSError:
            taken = take()
    assert len(taken) == 2, "one level at a time"
    assert little.store.max_offset(SCHEDULE_TOPIC, 0) == 2


def test_a_delivered_message_is_found_by_its_unit_when_its_record_cannot_be_read(
    little: LittleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(little)
    sources = [unit[1] for unit in little.release.pending_units()]
    found = [little.release._find_source(source) for source in sources]
    assert None not in found

    def fails(log: CommitLog, offset: int) -> bytes:
        raise OSError(errno.EIO, "planned")

    monkeypatch.setattr(CommitLog, "record", fails)
    assert [little.release._find_source(source) for source in sources] == found


@pytest.mark.parametrize("again", ["moved", "delivered"])
def test_one_that_is_given_back_takes_no_other_with_it(little: LittleStore, again: str) -> None:
    """Its record could not be read; those behind it are on their way to the log and would be there twice."""
    for body in BODIES:
        little.send(body=body, level=1)
    little.turn()
    end = little.store.log.end
    first, *others = little.release.take_below(end, len(BODIES))
    assert len(others) == 3
    little.release.put_back([first.physical_offset])
    if again == "moved":
        assert little.release.take_below(end, len(BODIES)) == [first]
    else:
        little.advance(1_000)
        assert little.bodies() == [b"one"]
        little.release.put_back([one.physical_offset for one in others])
        little.advance(1_000)
        assert little.bodies() == BODIES
