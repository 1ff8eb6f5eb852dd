"""Plain functions as handlers and listeners: threads beside the loop.

The loop hands out one message at a time to each of `count` places and waits for its end, exactly as with an asynchronous handler; what
becomes of the message is decided there. Threads only run the function.

Rules of this file
1. At most `count` handlers run and at most `count` messages wait for a thread. Threads are started when they are first needed.
2. Answers of handlers that end at about the same time wake the loop once.
3. A listener, which hears of a change now and then, gets a thread for each call; the loop does not call it again meanwhile.
4. A handler sees the context variables that its message was handed out with.
5. A handler that runs cannot be stopped. When its run was given up, its error is logged and its result is dropped.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar

from orbitmq.client._async.runtime import log
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.client.consuming.outcomes import as_ordinary, check_handler
from orbitmq.errors import ConfigurationError

P = ParamSpec("P")
M = TypeVar("M")
R = TypeVar("R")


class HandlerThreads(Generic[M, R]):
    """An asynchronous handler made of a plain one. Its `with` block ends the threads.

    present: makes of an item what the handler is called with; runs on the handler's thread.
    """

    def __init__(
        self, loop_thread: LoopThread, handler: Callable[[M], R], present: Callable[[Any], M], count: int
    ) -> None:
        check_handler(handler)
        if inspect.iscoroutinefunction(handler):
            raise ConfigurationError(
                f"{handler!r} is asynchronous; the synchronous client calls plain functions on threads",
                remedy="write it with def, or use the asyncio client: orbitmq.connect",
            )
        self._handler = handler
        self._present = present
        self._count = count
        self._loop_thread = loop_thread
        self._loop = loop_thread.loop
        self._jobs: SimpleQueue[tuple[asyncio.Future[R], Any, Context] | None] = SimpleQueue()
        self._ended: deque[tuple[asyncio.Future[R], Any, Exception | None]] = deque()
        self._waking = False
        self._threads: list[threading.Thread] = []
        self._busy_count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        if error is None:  # every handler has ended; else one may hang, and nobody waits for it
            for thread in self._threads:
                thread.join()

    async def __call__(self, item: Any) -> R:
        """On the loop: have a thread call the handler; its result or its error."""
        future: asyncio.Future[R] = self._loop.create_future()
        self._busy_count += 1
        if self._busy_count > len(self._threads) < self._count:
            thread = threading.Thread(target=self._work, name=f"orbitmq handler {len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put((future, item, contextvars.copy_context()))
        return await future

    # --- on the threads

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, item, context = job
            try:
                result = context.run(self._handler, self._present(item))
                if result is not None and inspect.isawaitable(result):
                    raise TypeError(f"handler {self._handler!r} is asynchronous: it returned {type(result).__name__}")
            except BaseException as error:
                self._tell((future, None, as_ordinary(error)))
            else:
                self._tell((future, result, None))
                del result
            del job, future, item, context  # a thread that waits holds no message

    def _tell(self, end: tuple[asyncio.Future[R], Any, Exception | None]) -> None:
        self._ended.append(end)
        if not self._waking:
            self._waking = True
            _soon(self._loop, self._handler, self._settle)

    # --- on the loop

    def _settle(self) -> None:
        self._waking = False  # before looking: who ends from now on wakes the loop again
        self._loop_thread.acknowledge_now()  # what a handler settled itself counts before its end does
        while self._ended:
            self._busy_count -= 1
            _resolve(self._handler, *self._ended.popleft())


def listening(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """An asynchronous listener made of a plain function."""

    async def listener(*args: P.args, **kwargs: P.kwargs) -> R:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()

        def listen() -> None:
            end: tuple[asyncio.Future[R], Any, Exception | None]
            try:
                end = (future, function(*args, **kwargs), None)
            except BaseException as error:
                end = (future, None, as_ordinary(error))
            _soon(loop, function, _resolve, function, *end)

        threading.Thread(target=listen, name="orbitmq listener", daemon=True).start()
        return await future

    return listener


def _soon(loop: asyncio.AbstractEventLoop, function: object, call: Callable[..., object], *args: object) -> None:
    """Tell the loop that `function` has ended; a loop that has ended itself waits for nobody."""
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise
        log.error("%r ended after its client was closed; nothing becomes of its result", function)


def _resolve(function: object, future: asyncio.Future[R], result: R, failure: Exception | None) -> None:
    if future.done():
        if failure is not None:
            log.error("%r failed after its run was given up", function, exc_info=failure)
    elif failure is not None:
        future.set_exception(failure)
    else:
        future.set_result(result)
