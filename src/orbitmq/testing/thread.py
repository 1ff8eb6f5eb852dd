"""A thread with an event loop for an embedded broker, and the ways into it from outside.

Rules of this file
1. One loop, one thread, for the life of one embedded broker. The thread is a daemon: a test that hangs does not keep the
   interpreter.
2. A call that is interrupted is cancelled on the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from orbitmq.errors import OrbitError

R = TypeVar("R")


class ServerThread:
    """Started when made; `stop` ends it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._live, name="orbitmq embedded broker", daemon=True)
        self._thread.start()

    def _live(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def call(self, work: Coroutine[Any, Any, R]) -> R:
        """Run `work` on the loop and block until it ends; its result or its error. OrbitError on the thread itself, which would
        wait for ever."""
        if threading.current_thread() is self._thread:
            work.close()
            raise OrbitError(
                "a blocking call on the embedded broker's own thread would wait for itself",
                remedy="call it from the test's thread",
            )
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()  # an interruption of this thread; otherwise it has ended
            raise

    def do(self, function: Callable[[], R]) -> R:
        """Call a plain function on the thread."""
        return self.call(called(function))

    async def awaited(self, work: Coroutine[Any, Any, R]) -> R:
        """As `call`, for code on a loop of its own."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


async def called(function: Callable[[], R]) -> R:
    """A plain function as work for a loop."""
    return function()
