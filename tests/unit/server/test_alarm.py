"""One timer for all deadlines: when it is set, and what happens when it fires."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import pytest

from orbitmq.clock import ManualClock
from orbitmq.deadlines import Deadlines
from orbitmq.server.process.alarm import NOTHING_DUE, Alarm
from orbitmq.server.process.fine_timer import LoopTimer
from orbitmq.server.process.turn import Turn

MS = 1_000_000


class FakeHandle:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    """Remembers timers instead of running them."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, FakeHandle]] = []
        self.soon: list[Callable[[], None]] = []

    def call_later(self, delay: float, call: Callable[[], None]) -> FakeHandle:
        handle = FakeHandle(call)
        self.timers.append((delay, handle))
        return handle

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def live(self) -> list[float]:
        return [delay for delay, handle in self.timers if not handle.cancelled]

    def fire(self) -> None:
        (handle,) = [handle for _, handle in self.timers if not handle.cancelled]
        self.timers.clear()
        handle.call()


class Rig:
    def __init__(self, ticks: tuple[Callable[[], None], ...] = ()) -> None:
        self.clock = ManualClock()
        self.clock.advance(5_000)
        self.loop = FakeLoop()
        self.ran: list[str] = []
        self.first, self.second = Deadlines(), Deadlines()
        for deadlines, names in ((self.first, ("save", "flush")), (self.second, ("pulls",))):
            for name in names:
                deadlines.define(name, lambda name=name: self.ran.append(name))  # type: ignore[misc]
        loop: asyncio.AbstractEventLoop = self.loop  # type: ignore[assignment]
        self.alarm = Alarm(
            partial(LoopTimer, loop), self.clock, Turn(loop, self.clock), [self.first, self.second], ticks
        )

    def at(self, ms: int) -> int:
        return self.clock.monotonic_ns() + ms * MS


def test_without_deadlines_there_is_no_timer() -> None:
    rig = Rig()
    rig.alarm.rearm()
    assert rig.loop.timers == []


def test_it_wakes_at_the_earliest_of_all() -> None:
    rig = Rig()
    rig.first.arm("save", rig.at(500))
    rig.second.arm("pulls", rig.at(200))
    rig.alarm.rearm()
    assert rig.loop.live() == [0.2]
    rig.clock.advance(200)
    rig.loop.fire()
    assert rig.ran == ["pulls"]
    assert rig.loop.live() == [0.3]
    assert rig.loop.soon, "what it did is finished by a turn"


def test_a_timer_is_set_earlier_but_never_later() -> None:
    rig = Rig()
    rig.first.arm("save", rig.at(500))
    rig.alarm.rearm()
    rig.first.arm("flush", rig.at(100))
    rig.alarm.rearm()
    assert rig.loop.live() == [0.1]
    rig.first.disarm("flush")
    rig.alarm.rearm()
    assert rig.loop.live() == [0.1], "cheaper than setting it anew in every turn"
    rig.clock.advance(100)
    rig.loop.fire()
    assert rig.ran == []
    assert rig.alarm.wakeups() == {NOTHING_DUE: 1}
    assert rig.loop.live() == [0.4]


def test_what_is_due_already_runs_at_once() -> None:
    rig = Rig()
    rig.first.arm("save", rig.at(-50))
    rig.alarm.rearm()
    assert rig.loop.live() == [0.0]


def test_a_failing_action_or_tick_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    ticks: list[str] = []

    def broken() -> None:
        raise OSError("disk")

    rig = Rig((broken, lambda: ticks.append("tick")))
    rig.first.define("broken", broken)
    rig.first.arm("broken", rig.at(0))
    rig.second.arm("pulls", rig.at(0))
    rig.second.define("later", lambda: None)
    rig.second.arm("later", rig.at(1_000))
    rig.alarm.rearm()
    with caplog.at_level(logging.ERROR):
        rig.loop.fire()
    assert rig.ran == ["pulls"]
    assert ticks == ["tick"]
    assert len(caplog.records) == 2
    assert rig.loop.live() == [1.0], "the alarm lives on"


def test_wakeups_of_the_same_name_are_added() -> None:
    rig = Rig()
    rig.second.define("save", lambda: None)
    for deadlines in (rig.first, rig.second):
        deadlines.arm("save", rig.at(0))
    rig.alarm.rearm()
    rig.loop.fire()
    assert rig.alarm.wakeups() == {"save": 2}


def test_after_the_stop_nothing_is_set() -> None:
    rig = Rig()
    rig.first.arm("save", rig.at(500))
    rig.alarm.rearm()
    rig.alarm.stop()
    assert rig.loop.live() == []
    rig.alarm.rearm()
    assert rig.loop.live() == []
