"""Loop turns: one end for all work of one pass of the loop, and named wake-ups."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import pytest

from orbitmq.clock import ManualClock
from orbitmq.server.process.turn import Turn, Wakeups


class Recorder:
    def __init__(self, log: list[str], name: str) -> None:
        self.log = log
        self.name = name

    def flush(self) -> None:
        self.log.append(f"flush {self.name}")


async def test_end_turns_run_before_flushes_and_once() -> None:
    log: list[str] = []
    turn = Turn(asyncio.get_running_loop())
    turn.add(lambda: log.append("store"))
    turn.schedule()
    turn.mark_dirty(Recorder(log, "a"))
    turn.mark_dirty(Recorder(log, "b"))
    turn.schedule()
    assert log == []
    await asyncio.sleep(0)
    assert log == ["store", "flush a", "flush b"]
    await asyncio.sleep(0)
    assert turn.turns == 1


async def test_what_the_end_of_a_turn_answers_leaves_in_the_same_turn() -> None:
    log: list[str] = []
    turn = Turn(asyncio.get_running_loop())
    turn.add(lambda: turn.mark_dirty(Recorder(log, "late")))
    turn.schedule()
    await asyncio.sleep(0)
    assert log == ["flush late"]
    await asyncio.sleep(0)
    assert turn.turns == 1


async def test_work_left_by_the_end_of_a_turn_gets_a_turn_of_its_own() -> None:
    turn = Turn(asyncio.get_running_loop())
    left = [1, 1]

    def sliced() -> None:
        if left:
            left.pop()
            turn.schedule()

    turn.add(sliced)
    turn.schedule()
    for _ in range(4):
        await asyncio.sleep(0)
    assert turn.turns == 3


async def test_a_failing_end_stops_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    turn = Turn(asyncio.get_running_loop())

    def broken() -> None:
        raise OSError("disk")

    class BrokenFlush:
        def flush(self) -> None:
            raise OSError("socket")

    turn.add(broken)
    turn.add(lambda: log.append("other"))
    turn.mark_dirty(BrokenFlush())
    turn.mark_dirty(Recorder(log, "a"))
    with caplog.at_level(logging.ERROR):
        await asyncio.sleep(0)
    assert log == ["other", "flush a"]
    assert turn.failures == 2
    assert len(caplog.records) == 2


async def test_two_ports_of_one_handler_share_its_end_of_turn() -> None:
    log: list[str] = []
    turn = Turn(asyncio.get_running_loop())

    def end() -> None:
        log.append("end")

    turn.add(end)
    turn.add(end)
    turn.run()
    turn.remove(end)
    turn.run()
    assert log == ["end", "end"]
    turn.remove(end)
    turn.remove(end)
    turn.run()
    assert log == ["end", "end"]


async def test_a_port_that_closes_leaves_the_order_of_the_others() -> None:
    log: list[str] = []
    turn = Turn(asyncio.get_running_loop())
    ends = [partial(log.append, name) for name in ("broker", "slaves")]
    for end in (*ends, ends[0]):
        turn.add(end)
    turn.remove(ends[0])
    turn.run()
    assert log == ["broker", "slaves"]


async def test_wakeups_are_counted_by_name_when_they_fire() -> None:
    wakeups = Wakeups(asyncio.get_running_loop())
    fired = asyncio.Event()
    wakeups.call_later(0, "flush", fired.set)
    cancelled = wakeups.call_later(0, "never", fired.set)
    cancelled.cancel()
    await fired.wait()
    wakeups.count("signal")
    assert wakeups.counts() == {"flush": 1, "signal": 1}


# --- how long the loop is held ----------------------------------------------------------------------------------------


async def test_a_turn_measures_itself_from_its_first_bytes(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    clock.advance(1)
    turn = Turn(asyncio.get_running_loop(), clock)
    turn.started_ns = clock.monotonic_ns()
    clock.advance(3)
    turn.add(lambda: clock.advance(4))
    turn.run()
    assert turn.durations_us.total == 7_000
    assert turn.stalls == 0
    turn.add(lambda: clock.advance(300))
    turn.run()
    assert turn.durations_us.count == 2
    assert turn.stalls == 1
    assert "a loop turn took 304 ms" in caplog.text


async def test_a_late_timer_tells_that_something_held_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    turn = Turn(asyncio.get_running_loop(), ManualClock())
    turn.timer_ran(2_000_000)
    turn.timer_ran(400_000_000)
    assert (turn.delays_us.count, turn.delays_us.total, turn.stalls) == (2, 402_000, 1)
    assert "the event loop was held for 400 ms" in caplog.text


async def test_an_idle_turn_has_left_nothing_behind() -> None:
    log: list[str] = []
    turn = Turn(asyncio.get_running_loop())
    assert turn.is_idle
    turn.mark_dirty(Recorder(log, "a"))
    assert not turn.is_idle
    turn.run()
    assert turn.is_idle
    turn.schedule()
    assert not turn.is_idle
    await asyncio.sleep(0)
    assert turn.is_idle


async def test_an_abandoned_turn_never_ends() -> None:
    log: list[str] = []
    turn = Turn(asyncio.get_running_loop())
    turn.add(lambda: log.append("store"))
    turn.mark_dirty(Recorder(log, "a"))
    turn.abandon()
    turn.run()
    await asyncio.sleep(0)
    assert log == []
