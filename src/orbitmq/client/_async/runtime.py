"""What the client needs of the event loop, in one small place.

Rules of this file
1. Times are milliseconds of the monotonic clock.
2. A background task that ends with an unexpected error is logged with its traceback and told to its owner; it never just
   disappears. One that must go on whatever happens does each round through `Tasks.survive`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from types import FrameType
from typing import Any, Final, ParamSpec, TypeVar

from orbitmq.errors import ClientError
from orbitmq.limits.client import CLIENT_LOG_SELDOM_MS, CLIENT_OFFLOAD_BYTES

log = logging.getLogger("orbitmq.client")


Event = asyncio.Event
Lock = asyncio.Lock
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


class HomeLoop:
    """The event loop that something lives on: the first one that it is used on."""

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self) -> None:
        """`ClientError` on any other loop, as in another thread, in a later `asyncio.run` or in a process that was forked."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None:
                raise ClientError(
                    "this client belongs to another event loop; its connections answer there",
                    remedy="connect where you use it: each asyncio.run, thread and forked process needs a client of its own. "
                    "Threads may share one of orbitmq.sync",
                )
            self._loop = loop


class Seldom:
    """Lets one of many equal log lines through in `CLIENT_LOG_SELDOM_MS` and counts the others."""

    def __init__(self) -> None:
        self._last_ms: int | None = None
        self._left_out_count = 0

    def due(self) -> int | None:
        """How many were left out before this one, which may be logged; None when it is to be left out as well."""
        now_ms = monotonic_ms()
        if self._last_ms is not None and now_ms - self._last_ms < CLIENT_LOG_SELDOM_MS:
            self._left_out_count += 1
            return None
        left_out_count, self._left_out_count = self._left_out_count, 0
        self._last_ms = now_ms
        return left_out_count


async def all_of(works: Sequence[Coroutine[Any, Any, R]]) -> list[R]:
    """Results of works that run at the same time, in their order; the first error ends the others and is raised as it is."""
    if len(works) == 1:
        return [await works[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def let_others_run() -> None:
    """End this turn of the loop and go on in the next."""
    await asyncio.sleep(0)


class Idlers:
    """Tasks that wait for work. They are woken one after the other: the one that finds more than it takes wakes the next, so that
    work which never waits for anything is done by one task without waking the rest.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._waking = False

    async def wait(self) -> None:
        """Until woken; there may be nothing to do after all."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except BaseException:
            if future.cancelled():
                if future in self._waiting:
                    self._waiting.remove(future)
            else:  # woken and cancelled at once: what it was woken for is left to another
                self._waking = False
                self.wake()
            raise
        self._waking = False

    def wake(self) -> None:
        """There is work: wake one, unless one is waking up already."""
        while not self._waking and self._waiting:
            future = self._waiting.popleft()
            if not future.done():  # else its task was cancelled and has not run since
                self._waking = True
                future.set_result(None)

    def wake_all(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)


def stacks_of_tasks(chars_max: int) -> str:
    """Where every task of the loop stands, for people; the longest texts are cut."""
    parts: list[str] = []
    for task in asyncio.all_tasks():
        frames = [traceback.extract_stack(frame, limit=1)[0] for frame in _frames_of(task.get_coro())]
        parts.append("".join([f"{task.get_name()}\n", *traceback.format_list(frames)]))
    parts += [f"thread {number}\n{''.join(traceback.format_stack(frame))}" for number, frame in _other_threads()]
    return "\n".join(parts)[:chars_max]


def _frames_of(awaitable: Any) -> Iterator[FrameType]:
    """Where a coroutine stands, then what it awaits, as far down as these are coroutines."""
    while (frame := getattr(awaitable, "cr_frame", None)) is not None:
        yield frame
        awaitable = awaitable.cr_await


def _other_threads() -> list[tuple[int, FrameType]]:
    return [(number, frame) for number, frame in sys._current_frames().items() if number != threading.get_ident()]


class Tasks:
    """Background tasks with one owner.

    on_crash: called with the error of a task that failed unexpectedly, after it was logged. survived_count: rounds that failed
    unexpectedly and were followed by others.
    """

    def __init__(self, owner: str, on_crash: Callable[[BaseException], None] | None = None) -> None:
        self._owner = owner
        self._on_crash = on_crash
        self._tasks: set[asyncio.Task[Any]] = set()
        self.survived_count = 0

    async def survive(self, round_of_work: Coroutine[Any, Any, None], name: str) -> None:
        """One round of a task that goes on for ever: an unexpected error is logged and counted, and ends this round only."""
        try:
            await round_of_work
        except Exception as error:
            self.survived_count += 1
            log.error(
                "%s: %s failed and is tried again at its next turn (failure %d of this kind); this is a defect of the client, "
                "please report it",
                self._owner,
                name,
                self.survived_count,
                exc_info=error,
            )

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
