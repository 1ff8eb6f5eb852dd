"""The timer of the alarm: a descriptor is never early; forgotten when it is set again, and the loop's own where there is no finer one."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import time
from collections.abc import Callable

import pytest

from orbitmq.server.process import fine_timer as module
from orbitmq.server.process.fine_timer import DescriptorTimer, FineTimer, LoopTimer, fine_timer, whole_ms

MS = 1_000_000
LIMIT_S = 10

needs_descriptors = pytest.mark.skipif(sys.platform != "linux", reason="timer descriptors are of Linux")

Maker = Callable[[asyncio.AbstractEventLoop, Callable[[], None]], FineTimer]
MAKERS = [pytest.param(LoopTimer, id="loop"), pytest.param(DescriptorTimer, id="descriptor", marks=needs_descriptors)]


class Fired:
    """When the timer called back, by the monotonic clock."""

    def __init__(self, maker: Maker) -> None:
        self.at_ns: list[int] = []
        self._event = asyncio.Event()
        self.timer = maker(asyncio.get_running_loop(), self._fired)

    def _fired(self) -> None:
        self.at_ns.append(time.monotonic_ns())
        self._event.set()

    async def next(self) -> int:
        await asyncio.wait_for(self._event.wait(), LIMIT_S)
        self._event.clear()
        return self.at_ns[-1]


@pytest.mark.parametrize("maker", MAKERS)
async def test_it_calls_back_once_and_a_descriptor_not_early(maker: Maker) -> None:
    fired = Fired(maker)
    begin = time.monotonic_ns()
    fired.timer.set(2 * MS)
    at_ns = await fired.next()
    assert maker is LoopTimer or at_ns >= begin + 2 * MS
    fired.timer.set(1)
    await fired.next()
    assert len(fired.at_ns) == 2
    fired.timer.close()


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("delay_ns", [0, -5 * MS])
async def test_what_is_over_calls_back_at_once(maker: Maker, delay_ns: int) -> None:
    fired = Fired(maker)
    fired.timer.set(delay_ns)
    await fired.next()
    fired.timer.close()


@pytest.mark.parametrize("maker", MAKERS)
async def test_set_again_it_forgets_the_time_before(maker: Maker) -> None:
    fired = Fired(maker)
    fired.timer.set(1)
    fired.timer.set(3_600_000 * MS)
    fired.timer.set(MS)
    await fired.next()
    assert len(fired.at_ns) == 1
    fired.timer.close()


@pytest.mark.parametrize("maker", MAKERS)
async def test_a_closed_timer_is_silent(maker: Maker) -> None:
    fired = Fired(maker)
    fired.timer.set(1)
    fired.timer.close()
    fired.timer.close()
    other = Fired(maker)
    other.timer.set(MS)
    await other.next()
    assert fired.at_ns == []
    other.timer.close()


@needs_descriptors
async def test_readiness_of_a_time_that_was_forgotten_is_no_call() -> None:
    fired = Fired(DescriptorTimer)
    assert isinstance(fired.timer, DescriptorTimer)
    fired.timer._ready()
    assert fired.at_ns == []
    fired.timer.close()


@needs_descriptors
async def test_a_closed_timer_gives_its_descriptor_back() -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    before = count()
    timer = fine_timer(asyncio.get_running_loop(), lambda: None)
    assert isinstance(timer, DescriptorTimer)
    assert count() == before + 1
    timer.close()
    timer.set(1)
    assert count() == before


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "too many"), NotImplementedError(), AttributeError("no call")])
async def test_what_the_system_refuses_leaves_the_timer_of_the_loop(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuses(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(module, "DescriptorTimer", refuses)
    assert isinstance(fine_timer(asyncio.get_running_loop(), lambda: None), LoopTimer)


@needs_descriptors
async def test_a_loop_that_waits_for_no_descriptor_costs_none() -> None:
    class Deaf:
        def add_reader(self, *arguments: object) -> None:
            raise NotImplementedError

    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    loop: asyncio.AbstractEventLoop = Deaf()  # type: ignore[assignment]
    assert isinstance(fine_timer(loop, lambda: None), LoopTimer)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@pytest.mark.parametrize(
    ("delay_ns", "expected_ms"), [(0, 0), (1, 1), (MS, 1), (MS + 1, 2), (-1, 0), (-4 * MS, 0), (MS - 1, 1)]
)
def test_delays_for_a_loop_are_rounded_up(delay_ns: int, expected_ms: int) -> None:
    assert whole_ms(delay_ns) == expected_ms
