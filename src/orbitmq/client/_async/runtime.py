"""What the client needs of the event loop, in one small place.

Rules of this file
1. Times are milliseconds of the monotonic clock.
2. A background task that ends with an unexpected error is logged with its traceback and told to its owner; it never just
   disappears.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar

from orbitmq.limits import CLIENT_OFFLOAD_BYTES

log = logging.getLogger("orbitmq.client")

Event = asyncio.Event
Lock = asyncio.Lock
Mailbox = asyncio.Queue
Cancelled: Final = asyncio.CancelledError

P = ParamSpec("P")
R = TypeVar("R")


def monotonic_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


async def sleep_ms(ms: int) -> None:
    await asyncio.sleep(ms / 1000)


async def wait_event(event: Event, timeout_ms: int | None = None) -> bool:
    """True when the event was set within the time, which None leaves open."""
    if event.is_set():
        return True
    if timeout_ms is None:
        await event.wait()
        return True
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def offload(size: int, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run CPU work on `size` bytes: small work right here, large work on a thread."""
    if size < CLIENT_OFFLOAD_BYTES:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)


class Tasks:
    """Background tasks with one owner.

    on_crash: called with the error of a task that failed unexpectedly, after it was logged.
    """

    def __init__(self, owner: str, on_crash: Callable[[BaseException], None] | None = None) -> None:
        self._owner = owner
        self._on_crash = on_crash
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> Task:
        task = asyncio.get_running_loop().create_task(work, name=f"{self._owner}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return Task(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("%s failed; this is a defect of the client, please report it", task.get_name(), exc_info=error)
            if self._on_crash is not None:
                self._on_crash(error)

    def __len__(self) -> int:
        return len(self._tasks)

    async def close(self) -> None:
        """Cancel all tasks and wait for their end. Errors they end with are logged as ever."""
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class Task:
    """One background task, to be ended or waited for before its owner ends."""

    __slots__ = ("_task",)

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task

    def cancel(self) -> None:
        self._task.cancel()

    async def wait(self) -> None:
        """Until the task has ended, in whatever way."""
        await asyncio.wait([self._task])
