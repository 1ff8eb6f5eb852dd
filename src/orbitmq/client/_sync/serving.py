"""A worker of plain functions: handlers that run on threads until the process is told to stop.

    @orbitmq.sync.handler("orders", group="billing", retry_delays=(1, 2, 4))
    def charge(message: orbitmq.sync.ReceivedMessage) -> None: ...

    orbitmq.sync.serve(charge)

Rules of this file
1. As of the asyncio worker. A function that runs cannot be stopped: after the time of a stop its thread is left behind, and ends with the
   process.
"""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from types import FrameType
from typing import Any, Self

from orbitmq.client._async.runtime import log
from orbitmq.client._sync.client import connect
from orbitmq.client._sync.consuming.consumer import Consumer
from orbitmq.client.options import ClientOptions
from orbitmq.client.topic_handler import TopicHandler, check_handlers
from orbitmq.limits.client import WORKER_LOOK_MS, WORKER_STOP_MS


def serve(
    *handlers: TopicHandler,
    name_servers: str | Iterable[str] = "localhost:9876",
    options: ClientOptions | None = None,
    on_ready: Callable[[], object] | None = None,
    stop_within_ms: int = WORKER_STOP_MS,
    stop: threading.Event | None = None,
) -> bool:
    """Run handlers, each call on a thread, until SIGTERM or SIGINT, or until `stop` is set. True when all that ran came to its end.

    on_ready: called when every consumer has joined its group. stop_within_ms: for how long a stop waits for handlers that run; a second
    signal waits for none. Signals are taken where this runs in the main thread. Raises what a consumer broke by, and ClientError.
    """
    chosen = check_handlers(handlers, asynchronous=False)
    wanted, at_once = stop or threading.Event(), threading.Event()
    late: list[_Running] = []
    with (
        suppress(_StopAskedError),
        _Signals(wanted, at_once) as signals,
        connect(name_servers, options=options) as client,
        ExitStack() as stack,
    ):
        running = [
            _Running(
                stack.enter_context(client.consumer(each.group, each.topic, tags=each.tags, options=each.options)),
                each,
                wanted,
            )
            for each in chosen
        ]
        signals.joining = False
        log.info("the worker is ready: %s", ", ".join(map(repr, chosen)))
        if on_ready is not None:
            on_ready()
        for each in running:
            each.thread.start()
        wanted.wait()
        for each in running:
            each.consumer.stop()
        log.info("the worker stops: handlers that run have %d ms to come to their end", stop_within_ms)
        for _ in range(math.ceil(stop_within_ms / WORKER_LOOK_MS)):
            if not any(each.thread.is_alive() for each in running) or at_once.wait(WORKER_LOOK_MS / 1000):
                break
        late = [each for each in running if each.thread.is_alive()]
        for each in running:
            if each.error is not None:
                raise each.error
    if late:
        log.warning("the worker gave up handlers that still ran; their messages are delivered again")
    else:
        log.info("the worker has stopped in order")
    return not late


class _Running:
    """One consumer with its handler, on a thread that waits for it."""

    def __init__(self, consumer: Consumer, handler: TopicHandler, stop: threading.Event) -> None:
        self.consumer = consumer
        self.error: BaseException | None = None
        self._handler = handler
        self._stop = stop
        self.thread = threading.Thread(target=self._run, name=f"worker of {handler.group}", daemon=True)

    def _run(self) -> None:
        try:
            self.consumer.run(self._handler.function, concurrency=self._handler.concurrency)
        except BaseException as error:
            if not self._stop.is_set():  # else its client was closed under handlers that were given up
                self.error = error
        finally:
            self._stop.set()


class _StopAskedError(BaseException):
    """A signal came before the worker was ready."""


class _Signals:
    """Heeds SIGTERM and SIGINT where it is entered in the main thread."""

    def __init__(self, stop: threading.Event, at_once: threading.Event) -> None:
        self.joining = True
        """Consumers join their groups, which a signal ends: it may take as long as a name server that does not answer."""
        self._events = stop, at_once
        self._heard: SimpleQueue[bool] = SimpleQueue()
        """A signal is heard between two instructions of the main thread, which may hold the lock of the event that it waits for."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            threading.Thread(target=self._pass_on, name="signals of a worker", daemon=True).start()
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._heard.put(False)

    def _hear(self, _: int, __: FrameType | None) -> None:
        self._heard.put(True)
        if self.joining:
            raise _StopAskedError

    def _pass_on(self) -> None:
        stop, at_once = self._events
        while self._heard.get():
            (at_once if stop.is_set() else stop).set()
