"""An event loop of one simulated process: virtual time, a simulated network, and no thread.

Parts of the server that live on sockets run upon it as they are: tasks, timers and connections are the loop's. Whoever owns the process
says when it runs; between two runs nothing happens.

Rules of this file
1. What a callback raises goes to whoever runs the loop: no failure is hidden. What ends a task goes to whoever awaits it.
2. A loop that is not run any more is a process that was killed: its callbacks never happen.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from orbitmq.clock import ManualClock
from orbitmq.units import NS_PER_S

if TYPE_CHECKING:
    from tests.worlds.simulated_network import SimulatedNetwork

T = TypeVar("T")

CALLBACKS_MAX = 50_000
"""Callbacks of one run, after which something goes in circles."""

EARLY_S = 1e-6
"""Seconds as floats are not exact."""


class Handle:
    """A callback that will be called, unless cancelled."""

    __slots__ = ("_at_s", "_call", "_context", "is_cancelled")

    def __init__(self, call: Callable[[], object], context: contextvars.Context | None, at_s: float = 0.0) -> None:
        self._call = call
        self._context = context or contextvars.copy_context()
        self._at_s = at_s
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self._at_s

    def run(self) -> None:
        if not self.is_cancelled:
            self._context.run(self._call)


class SimulatedLoop(asyncio.AbstractEventLoop):
    """`host` is where the process runs. `problems` are failures that nobody waited for."""

    def __init__(self, clock: ManualClock, network: SimulatedNetwork, host: str) -> None:
        self.clock = clock
        self.network = network
        self.host = host
        self.is_paused = False
        """The system gives the process no time."""
        self.is_over = False
        self.problems: list[dict[str, Any]] = []
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._numbers = count()

    # --- running ------------------------------------------------------------------------------------------------------

    def run(self, call: Callable[[], T] | None = None) -> T | None:
        """Whatever is due now, after `call`, until nothing is left to do at this moment."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            result = call() if call is not None else None
            now_s = self.time() + EARLY_S
            while self._timers and self._timers[0][0] <= now_s:
                self._ready.append(heapq.heappop(self._timers)[2])
            for _ in range(CALLBACKS_MAX):
                if not self._ready:
                    return result
                self._ready.popleft().run()
            raise AssertionError("the callbacks of a process never end")
        finally:
            asyncio._set_running_loop(before)

    def finish(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that waits for nothing but this loop's next moment."""
        task = self.run(lambda: self.create_task(coroutine))
        assert task is not None
        if not task.done():
            task.cancel()
            raise AssertionError("the coroutine waits for something")
        return task.result()

    @property
    def is_idle(self) -> bool:
        return not self._ready

    @property
    def has_work(self) -> bool:
        """There is something to do at this moment."""
        due_ns = self.due_ns
        return not self.is_idle or (due_ns is not None and due_ns <= self.clock.monotonic_ns())

    @property
    def due_ns(self) -> int | None:
        """When a timer will be due next."""
        while self._timers and self._timers[0][2].is_cancelled:
            heapq.heappop(self._timers)
        return round(self._timers[0][0] * NS_PER_S) if self._timers else None

    def end(self) -> None:
        """The process is gone."""
        self.is_over = True
        self._ready.clear()
        self._timers.clear()

    # --- asyncio --------------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.clock.monotonic_ns() / NS_PER_S

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        handle = Handle(lambda: callback(*args), context)
        if not self.is_over:
            self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        handle = Handle(lambda: callback(*args), context, when)
        if not self.is_over:
            heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Task[Any]:  # type: ignore[override]
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_over

    def is_closed(self) -> bool:
        return self.is_over

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_over:
            self.problems.append(context)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **named: Any) -> Any:
        return await self.network.connect(self, protocol_factory, host, port)

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **named: Any) -> Any:
        return self.network.listen(self, protocol_factory, port)
