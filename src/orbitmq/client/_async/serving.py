"""A worker: handlers that run until the process is told to stop.

    @orbitmq.handler("orders", group="billing", retry_delays=(1, 2, 4))
    async def charge(message: orbitmq.ReceivedMessage) -> None: ...

    asyncio.run(orbitmq.serve(charge))

Rules of this file
1. A stop takes nothing new, lets the handlers that run come to their end for a bounded time, and writes what was done. What is given up
   then is delivered again, to whoever comes.
2. A consumer that breaks ends the worker: a supervisor starts it again, and half a worker helps nobody.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Any

from orbitmq.client._async.client import connect
from orbitmq.client._async.consuming.consumer import Consumer
from orbitmq.client._async.runtime import log
from orbitmq.client.options import ClientOptions
from orbitmq.client.topic_handler import TopicHandler, check_handlers
from orbitmq.limits.client import WORKER_STOP_MS


async def serve(
    *handlers: TopicHandler,
    name_servers: str | Iterable[str] = "localhost:9876",
    options: ClientOptions | None = None,
    on_ready: Callable[[], object] | None = None,
    stop_within_ms: int = WORKER_STOP_MS,
    stop: asyncio.Event | None = None,
) -> bool:
    """Run handlers until SIGTERM or SIGINT, or until `stop` is set. True when all that ran came to its end.

    on_ready: called when every consumer has joined its group. stop_within_ms: for how long a stop waits for handlers that run; a second
    signal waits for none. Signals are taken where this runs in the main thread. Raises what a consumer broke by, and ClientError.
    """
    chosen = check_handlers(handlers, asynchronous=True)
    stop = stop or asyncio.Event()
    at_once = asyncio.Event()
    with _heeded_signals(stop, at_once):
        async with connect(name_servers, options=options) as client, AsyncExitStack() as stack:

            async def join() -> list[Consumer]:
                return [
                    await stack.enter_async_context(
                        client.consumer(each.group, each.topic, tags=each.tags, options=each.options)
                    )
                    for each in chosen
                ]

            joining = asyncio.create_task(join())
            await _until(stop, [joining], asyncio.FIRST_COMPLETED)
            if not joining.done():
                joining.cancel()
                await asyncio.wait([joining])
                return True
            consumers = joining.result()
            log.info("the worker is ready: %s", ", ".join(map(repr, chosen)))
            if on_ready is not None:
                on_ready()
            running = [
                asyncio.create_task(consumer.run(each.function, concurrency=each.concurrency))
                for consumer, each in zip(consumers, chosen, strict=True)
            ]
            await _until(stop, running, asyncio.FIRST_COMPLETED)
            for consumer in consumers:
                consumer.stop()
            return await _ended(running, at_once, stop_within_ms)


async def _ended(running: Sequence[asyncio.Task[None]], at_once: asyncio.Event, stop_within_ms: int) -> bool:
    """Wait for the handlers that run. Raises what a consumer broke by."""
    log.info("the worker stops: handlers that run have %d ms to come to their end", stop_within_ms)
    with suppress(TimeoutError):
        async with asyncio.timeout(stop_within_ms / 1000):
            await _until(at_once, running, asyncio.ALL_COMPLETED)
    late = [each for each in running if not each.done()]
    for each in late:
        each.cancel()
    await asyncio.wait(running)
    for each in running:
        if each not in late:
            each.result()
    if late:
        log.warning("the worker gave up handlers that still ran; their messages are delivered again")
    else:
        log.info("the worker has stopped in order")
    return not late


async def _until(event: asyncio.Event, work: Iterable[asyncio.Task[Any]], wanted: str) -> None:
    """Until the event is set, or one of `work` has ended, or all of it."""
    ended = asyncio.ensure_future(asyncio.wait(work, return_when=wanted))
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([ended, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended.cancel()
        waiting.cancel()


@contextmanager
def _heeded_signals(stop: asyncio.Event, at_once: asyncio.Event) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()

    def heed() -> None:
        (at_once if stop.is_set() else stop).set()

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        loop.add_signal_handler(number, heed)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
