"""Waking idle workers one after the other, without losing a wake-up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from orbitmq.client._async.runtime import Idlers, stacks_of_tasks

Run = Callable[[Callable[[], Awaitable[None]]], None]


class Crew:
    """Workers that take from a list; `woken` counts how often one of them came to look."""

    def __init__(self, count: int, *, waits: bool) -> None:
        self.idlers = Idlers()
        self.work: list[int] = []
        self.done: list[int] = []
        self.woken = 0
        self.busy = 0
        self.busiest = 0
        self._waits = waits
        self.tasks = [asyncio.ensure_future(self._run()) for _ in range(count)]

    async def _run(self) -> None:
        while True:
            while self.work:
                item = self.work.pop(0)
                if self.work:
                    self.idlers.wake()
                self.busy += 1
                self.busiest = max(self.busiest, self.busy)
                if self._waits:
                    await asyncio.sleep(1)
                self.busy -= 1
                self.done.append(item)
            await self.idlers.wait()
            self.woken += 1

    def bring(self, count: int) -> None:
        self.work += range(count)
        self.idlers.wake()

    def end(self) -> None:
        for task in self.tasks:
            task.cancel()


def test_work_that_never_waits_is_done_by_one(run: Run) -> None:
    async def test() -> None:
        crew = Crew(20, waits=False)
        await asyncio.sleep(1)
        for _ in range(10):
            crew.bring(100)
            await asyncio.sleep(1)
        assert len(crew.done) == 1000
        assert crew.woken <= 10 * 2  # the one who works, and the next, who finds nothing
        crew.end()

    run(test)


def test_work_that_waits_is_done_by_all(run: Run) -> None:
    async def test() -> None:
        crew = Crew(20, waits=True)
        await asyncio.sleep(1)
        crew.bring(100)
        await asyncio.sleep(6)
        assert (len(crew.done), crew.busiest) == (100, 20)
        crew.end()

    run(test)


def test_a_wake_up_of_a_cancelled_worker_goes_to_another(run: Run) -> None:
    async def test() -> None:
        for moment in ("before", "after"):
            crew = Crew(2, waits=False)
            await asyncio.sleep(1)
            if moment == "before":
                crew.tasks[0].cancel()
                crew.bring(1)
            else:
                crew.bring(1)
                crew.tasks[0].cancel()
            await asyncio.sleep(1)
            assert crew.done == [0], moment
            crew.end()

    run(test)


def test_all_are_woken_at_the_end(run: Run) -> None:
    async def test() -> None:
        idlers = Idlers()
        waiting = [asyncio.ensure_future(idlers.wait()) for _ in range(5)]
        await asyncio.sleep(1)
        waiting[0].cancel()
        idlers.wake_all()
        await asyncio.sleep(1)
        assert all(each.done() for each in waiting)

    run(test)


def test_stacks_name_every_task_and_are_bounded(run: Run) -> None:
    async def test() -> None:
        crew = Crew(3, waits=True)
        await asyncio.sleep(1)
        text = stacks_of_tasks(100_000)
        assert text.count("await self.idlers.wait()") == 3
        inner = [line for line in text.splitlines() if line.endswith("in wait") and "threading" not in line]
        assert len(inner) == 3  # and what it waits for in there
        assert len(stacks_of_tasks(50)) == 50
        crew.end()

    run(test)
