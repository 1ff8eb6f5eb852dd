"""The thread on which a synchronous client lives, and the calls of other threads into it.

One event loop on one thread per client runs the asyncio client. A blocking call hands a coroutine to the loop and waits for its end;
results and errors come back as they are, so an error keeps its type and shows both the caller's lines and the client's own.

Rules of this file
1. No lock is held while user code runs or a thread waits: a signal handler or a finalizer may call in at any moment.
2. A call that is interrupted (KeyboardInterrupt, or whatever a signal handler raises) is cancelled, and its end is waited for. A second
   interruption does not wait.
3. A call that waits when the client is closed ends with `ClientError`; none waits for ever.
4. The thread never keeps a client alive. A client that is dropped while open gives a `ResourceWarning` and its thread ends.
5. A thread does not survive a fork. The child process finds the client unusable and leaves the parent's sockets alone.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import warnings
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Final, Generic, ParamSpec, TypeVar

from orbitmq.client._async.consuming.delivery import ReceivedMessage
from orbitmq.client._async.runtime import Tasks, log
from orbitmq.errors import ClientError
from orbitmq.limits.client import SYNC_ACK_DELAY_MS, SYNC_EXIT_WAIT_MS

P = ParamSpec("P")
R = TypeVar("R")


class LoopThread:
    """What the objects of one synchronous client share: the way into its loop.

    Cost of a blocking call: two thread switches, about 50 us of CPU, beside the work itself.
    """

    def __init__(self, name: str, new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop) -> None:
        """new_loop: another make of loop, for who sends much: uvloop writes without copying."""
        self._name = name
        self._new_loop = new_loop
        self._engine: Engine | None = None
        self._starting = threading.Lock()
        self._closer = threading.Lock()

    # --- life

    def open(self, work: Coroutine[Any, Any, R]) -> R:
        """Start the thread, then run `work`, the client's start. When that fails the thread ends."""
        if _in_a_loop():
            work.close()
            raise _inside_a_loop()
        with self._starting:
            fresh = None
            if self._engine is None:
                fresh = self._engine = Engine(self._name, self._new_loop)
                weakref.finalize(self, _dropped, fresh).atexit = False
                fresh.start()
        try:
            return self.run(work)  # the second time it says that a client starts once
        except BaseException:
            if fresh is not None:
                fresh.stop()
                fresh.thread.join()
            raise

    def close(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`, the client's closing, and end the thread. Closing again waits for the first closing, and does no more."""
        engine = self._engine
        if engine is None or engine.forked or engine.ended:
            work.close()
            return
        if _in_a_loop():
            work.close()
            raise _inside_a_loop()
        if self._closer.acquire(blocking=False):
            try:
                self.run(work)
            finally:
                engine.stop()
        else:
            work.close()
        engine.thread.join()

    # --- calls

    def run(
        self,
        work: Coroutine[Any, Any, R],
        *,
        on_interrupt: Callable[[], object] | None = None,
        rescue: Callable[[R], object] | None = None,
    ) -> R:
        """Run a coroutine on the loop; its result or its error.

        on_interrupt: called on the loop at the first interruption instead of cancelling; has to bring the work to an end.
        rescue: gets the result when the work is done but the caller was interrupted and does not have it; maybe on the loop.
        """
        call = Call(work, rescue)
        try:
            engine = self._usable()
        except BaseException:
            call.drop()
            raise
        try:
            engine.hand_in(call)
            call.finished.acquire()
        except BaseException:
            call.given_up = True  # before looking: a result that comes from now on is rescued by the loop
            if call.ended:
                call.save()
            engine.interrupt(call, on_interrupt)
            raise
        if call.error is None:  # nothing is called from here to the return: an interruption could come in between
            return call.result
        error = call.error
        try:
            raise error
        finally:
            del call, error  # the traceback holds this frame, and this frame would hold the error

    def do(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a plain function on the loop's thread."""
        return self.run(_called(function, args, kwargs))

    def end(self, work: Coroutine[Any, Any, None]) -> None:
        """As `run`, for what ends a part of the client: when the client is closed already, there is nothing to do."""
        if self._engine is not None and (self._engine.ended or self._engine.forked):
            work.close()
        else:
            self.run(work)

    def end_plain(self, function: Callable[P, None], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """As `do`, for what ends a part of the client."""
        self.end(_called(function, args, kwargs))

    def iterate(self, source: AsyncIterator[R]) -> Iterator[R]:
        """The items of an asynchronous iterator, which is closed at the end."""
        try:
            while True:
                try:
                    item = self.run(_next_of(source))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            closing = getattr(source, "aclose", None)
            if closing is not None:
                self.end(closing())

    def acknowledge(self, message: ReceivedMessage) -> None:
        """Acknowledge without waiting: with the next call, or after `SYNC_ACK_DELAY_MS`. Costs about 1 us."""
        self._usable().acknowledge(message)

    def acknowledge_now(self) -> None:
        """On the loop: what was acknowledged up to now comes before whatever the loop begins next."""
        if self._engine is not None:
            self._engine.acknowledge_now()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """For what completes futures of the loop from other threads."""
        return self._usable().loop

    # --- inside

    def _usable(self) -> Engine:
        engine = self._engine
        if engine is None:
            raise ClientError("the client is not started", remedy="use it inside the with block of connect(...)")
        if engine.forked:
            raise ClientError(
                "this client was made before the process forked; its thread and connections belong to the parent",
                remedy="connect after the fork, in the process that uses the client",
            )
        if engine.ended:
            raise ClientError("the client is closed", remedy="use it inside the with block of connect(...)")
        if _in_a_loop():
            raise _inside_a_loop()
        return engine


class Call(Generic[R]):
    """One coroutine on its way into the loop and back. `finished` is released once, when `result` or `error` is set."""

    __slots__ = ("_rescues", "_task", "_work", "ended", "error", "finished", "forget", "given_up", "result")

    result: R
    error: BaseException | None

    def __init__(self, work: Coroutine[Any, Any, R], rescue: Callable[[R], object] | None) -> None:
        self._work = work
        self._rescues = [rescue] if rescue is not None else []
        self._task: asyncio.Task[R] | None = None
        self.forget: Callable[[Call[Any]], None] | None = None
        self.ended = False
        self.given_up = False
        self.error = None
        self.finished = threading.Lock()
        self.finished.acquire()

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self.ended:
            self._task = loop.create_task(self._work)
            self._task.add_done_callback(self._done)

    def cancel(self, instead: Callable[[], object] | None = None) -> None:
        """End the work early, in the way of `instead` if there is one and the work has begun."""
        if self._task is None:
            self.refuse(ClientError("the call was interrupted before it began"))
        elif instead is not None:
            instead()
        else:
            self._task.cancel()

    def drop(self) -> None:
        """Give up work that never began, so that nobody misses its end."""
        if self._task is None:
            self._work.close()

    def refuse(self, error: ClientError) -> None:
        self.drop()
        self._fail(error)

    def save(self) -> None:
        """Rescue a result that its caller does not get. Caller and loop may both come here; one of them does it."""
        if self.error is None:
            try:
                rescue = self._rescues.pop()
            except IndexError:
                return
            rescue(self.result)

    def _fail(self, error: BaseException) -> None:
        if not self.ended:
            self.error = error
            self._end()

    def _end(self) -> None:
        self.ended = True
        if self.given_up:
            self.save()
        if self.forget is not None:
            self.forget(self)
        self.finished.release()

    def _done(self, task: asyncio.Task[R]) -> None:
        if task.cancelled():
            self._fail(
                ClientError("the call was given up: it was interrupted, or the client was closed while it waited")
            )
            return
        error = task.exception()
        if error is not None:
            self._fail(error)
        elif not self.ended:
            self.result = task.result()
            self._end()


class Engine:
    """The thread and its loop. It knows who waits, and nothing of the objects in whose name they wait."""

    def __init__(self, name: str, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.name = name
        self.loop = new_loop()
        self.thread = threading.Thread(target=self._live, name=f"orbitmq {name}", daemon=True)
        self.ended = False
        self._ending = False
        self._forks_count = _forks_count
        self._waiting: set[Call[Any]] = set()
        self._tasks = Tasks(name)
        self._acks: deque[ReceivedMessage] = deque()
        self._acks_due = False

    @property
    def forked(self) -> bool:
        return self._forks_count != _forks_count

    def start(self) -> None:
        _running.add(self)
        self.thread.start()

    def stop(self) -> None:
        """Ask the loop to end; whoever still waits gets an error. Asking again is harmless."""
        self._soon(self.loop.stop)

    def hand_in(self, call: Call[Any]) -> None:
        # Known as waiting before the loop is asked: an engine that ends meanwhile finds it there.
        call.forget = self._waiting.discard
        self._waiting.add(call)
        if self.ended or not self._soon(self._begin, call):
            self._refuse(call)

    def interrupt(self, call: Call[Any], instead: Callable[[], object] | None) -> None:
        """Bring a call to an end and wait for it."""
        try:
            if not call.ended and self._soon(call.cancel, instead):
                call.finished.acquire()
        except BaseException:
            self._soon(call.cancel)
            raise

    def acknowledge(self, message: ReceivedMessage) -> None:
        self._acks.append(message)
        if not self._acks_due:
            self._acks_due = True
            self._soon(self._acknowledge_later)

    # --- on the thread

    def _begin(self, call: Call[Any]) -> None:
        if self._ending:
            call.refuse(_closed_meanwhile())
            return
        self.acknowledge_now()
        call.begin(self.loop)

    def _acknowledge_later(self) -> None:
        self.loop.call_later(SYNC_ACK_DELAY_MS / 1000, self._acknowledge_due)

    def _acknowledge_due(self) -> None:
        self._acks_due = False  # before looking: who acknowledges from now on asks again
        self.acknowledge_now()

    def acknowledge_now(self) -> None:
        if self._acks:
            self._tasks.spawn(_acknowledge_all(self._acks), "acknowledgements")

    def _live(self) -> None:
        try:
            self.loop.run_forever()
            self._ending = True
            self.loop.run_until_complete(_end_all())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.ended = True
            self.loop.close()
            _running.discard(self)
            for call in tuple(self._waiting):
                self._refuse(call)

    def _refuse(self, call: Call[Any]) -> None:
        """For a call that the loop will not end. Its caller and the thread may both come here; who takes it out refuses it."""
        try:
            self._waiting.remove(call)
        except KeyError:
            return
        call.refuse(_closed_meanwhile())

    def _soon(self, function: Callable[..., object], *args: Any) -> bool:
        """Have the loop call a function; False when it has ended."""
        try:
            self.loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            if self.loop.is_closed():
                return False
            raise
        return True


async def _called(function: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
    return function(*args, **kwargs)


async def _next_of(source: AsyncIterator[R]) -> R:
    return await anext(source)


async def _acknowledge_all(messages: deque[ReceivedMessage]) -> None:
    """Acknowledge what was handed in; who handed it in has gone on, so failures are logged."""
    while messages:
        message = messages.popleft()
        try:
            await message.ack()
        except ClientError as error:
            log.error("%r is not acknowledged: %s", message, error)


async def _end_all() -> None:
    """Cancel every task until none is left."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        await asyncio.wait(others)


def _closed_meanwhile() -> ClientError:
    return ClientError("the client was closed meanwhile", remedy="use it inside the with block of connect(...)")


def _in_a_loop() -> bool:
    return asyncio._get_running_loop() is not None


def _inside_a_loop() -> ClientError:
    return ClientError(
        "an event loop runs in this thread, and a blocking call would stop it",
        remedy="use the asyncio client here (orbitmq.connect), or call this one through asyncio.to_thread",
    )


# --- the end of clients that nobody closed ------------------------------------------------------------------------------

_running: Final[set[Engine]] = set()
_forks_count = 0


def _dropped(engine: Engine) -> None:
    if not engine.ended and not engine.forked:
        warnings.warn(f"{engine.name} was dropped without being closed", ResourceWarning, stacklevel=2, source=engine)
        engine.stop()


def _at_exit() -> None:
    """End the threads of open clients before the interpreter goes; acknowledgements of the last seconds are lost."""
    for engine in tuple(_running):
        _dropped(engine)
    for engine in tuple(_running):
        if not engine.forked:
            engine.thread.join(SYNC_EXIT_WAIT_MS / 1000)


def _after_fork() -> None:
    global _forks_count
    _forks_count += 1
    _running.clear()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
