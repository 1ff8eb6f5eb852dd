"""An orderly stop that ends at any of its steps: RocketMQ is refused, or sees exactly what is pending."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.crash.harness import quiet, scratch
from tests.worlds.faults import Call, Killed, RecordingFiles
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.protocol.properties import Property
from orbitmq.store.files import OsFiles
from orbitmq.timing.timer_files.fence import is_fenced, lower_fence
from orbitmq.timing.timer_files.inspection import StoredTimers
from orbitmq.timing.timers.files import TimerFiles

DELIVERED, PENDING = 6, 9


def life(files: RecordingFiles, root: Path, clock: ManualClock) -> LittleStore:
    """Some timers of an earlier life and some of this one, the first of each delivered."""
    for base in (0, 100):
        little = LittleStore(root, files=files, clock=clock)
        for number in range(DELIVERED):
            little.send(UNIQ_KEY=f"gone{base + number}", after_ms=2_000 + 300 * number)
        for number in range(PENDING):
            little.send(UNIQ_KEY=f"waits{base + number}", after_ms=60_000 + 700 * number)
        for _ in range(50):
            clock.advance(100)
            little.turn()
        if base == 0:
            little.close()
    return little


def seen_by_rocketmq(root: Path) -> list[str]:
    """Unique keys of what RocketMQ would deliver: by its own files alone."""
    timers = StoredTimers(OsFiles(), root)
    try:
        found = [timers.properties(waiting) or {} for waiting in timers.waiting() if not waiting.is_delete]
        return sorted(properties.get(Property.UNIQ_KEY, "?") for properties in found)
    finally:
        timers.close()


EXPECTED = sorted(f"waits{base + number}" for base in (0, 100) for number in range(PENDING))


def stop_killed_at(step: int, *, power: bool) -> tuple[bool, str]:
    """Whether the stop came to its end before its call number `step`, and what is wrong with what it left."""
    with scratch() as base, quiet():
        root, left = base / "store", base / "after"
        root.mkdir()
        files, clock = RecordingFiles(OsFiles(), root), ManualClock()
        little = life(files, root, clock)
        begun = len(files.calls)

        def plan(call: Call) -> Killed | None:
            return Killed("end") if call.number == begun + step else None

        files.plan = plan
        is_whole = False
        try:
            little.close()
            is_whole = True
        except Killed:
            pass
        if power:
            files.power_cut(left, random.Random(step))
        place = left if power else root
        if is_fenced(OsFiles(), place):
            return is_whole, "it is whole and refused" if is_whole and not power else ""
        found = seen_by_rocketmq(place)
        return is_whole, "" if found == EXPECTED else f"RocketMQ would see {found}"


def first_problem(*, power: bool) -> str:
    for step in range(1, 10_000):
        is_whole, problem = stop_killed_at(step, power=power)
        if problem:
            return f"killed at call {step} of the stop: {problem}"
        if is_whole:
            assert step > 10, "the stop was never interrupted"
            return ""
    raise AssertionError("the stop has no end")


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
def test_a_stop_is_exact_for_rocketmq_or_refused(power: bool) -> None:
    assert first_problem(power=power) == ""


def lowered_first(hand_over: Callable[..., None]) -> Callable[..., None]:
    def planted(self: TimerFiles, *arguments: object) -> None:
        lower_fence(self._files, self._root)
        hand_over(self, *arguments)

    return planted


def test_a_fence_that_goes_before_the_hand_over_is_whole_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimerFiles, "hand_over", lowered_first(TimerFiles.hand_over))
    assert "RocketMQ would see" in first_problem(power=True)


def never_raised(self: TimerFiles) -> None:
    """The planted bug: nothing keeps RocketMQ out."""


def test_a_fence_that_is_never_raised_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimerFiles, "raise_fence", never_raised)
    assert "RocketMQ would see" in first_problem(power=False)
