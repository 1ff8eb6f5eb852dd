"""Handing the messages of one consumer to its program: one by one, or to handlers that run at the same time.

Rules of this file
1. Errors of handlers never stop a consumer; errors of the consumer itself are raised to the program that iterates or runs it.
2. A handler that never waits for anything lets the rest of the program run every `CONSUMER_SLICE_MS`.
3. A message that cannot be read never gets to the program: it goes to the dead letters.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from orbitmq.client._async.consuming.delivery import ReceivedMessage, Settlement
from orbitmq.client._async.parts import BatchHandler, ClientContext, Handler
from orbitmq.client._async.runtime import Event, Idlers, Seldom, Tasks, let_others_run, log, monotonic_ms
from orbitmq.client.arguments import check_whole
from orbitmq.client.consuming.outcomes import Reject, Retry, as_ordinary, check_handler
from orbitmq.errors import ClientError, ConfigurationError
from orbitmq.limits.client import CONSUMER_CONCURRENCY_MAX, CONSUMER_SLICE_MS


class Supply(Protocol):
    """Where the messages come from."""

    idlers: Idlers

    def take(self, count: int, now_ms: int) -> list[ReceivedMessage]: ...


class HandingOut:
    """Hands out what a consumer has got, until it stops.

    handler: that of a `run` under way. stopped: set when nothing more is handed out.
    """

    def __init__(self, group: str, supply: Supply, tasks: Tasks, client: ClientContext) -> None:
        self.group = group
        self.handler: Handler | None = None
        self.stopped = Event()
        self._supply = supply
        self._tasks = tasks
        self._tracer = client.tracer
        self._hooks = client.hooks
        self._pausing = False
        self._slice_ms = 0
        self._failure: BaseException | None = None
        self._handler_failures = Seldom()
        self._rejections = Seldom()

    def stop(self) -> None:
        """Hand out nothing more; messages in hand can still be settled."""
        if not self.stopped.is_set():
            self.stopped.set()
            self._supply.idlers.wake_all()

    def crashed(self, error: BaseException) -> None:
        """Stop because of a defect, which the program hears of."""
        self._failure = error
        self.stop()

    async def next(self, count: int) -> list[ReceivedMessage]:
        """The next messages to begin, all of one queue; none when there will be none."""
        while not self.stopped.is_set():
            if not self._pausing:
                now_ms = monotonic_ms()
                if now_ms - self._slice_ms >= CONSUMER_SLICE_MS:
                    await self._pause()
                    continue
                messages = self._take(count, now_ms)
                if messages:
                    if self._tracer is not None:
                        for message in messages:
                            self._tracer.begun(self.group, message)
                    return messages
            await self._supply.idlers.wait()
        return []

    async def one(self) -> ReceivedMessage:
        """The next message for a program that iterates. StopAsyncIteration when there will be none."""
        messages = await self.next(1)
        if not messages:
            self._raise_failure()
            raise StopAsyncIteration
        return messages[0]

    async def run(self, handler: Handler, concurrency: int) -> None:
        """Call `handler` for every message, up to `concurrency` of them at a time, until `stop`."""
        check_handler(handler)
        await self._run(handler, lambda messages: handler(messages[0]), 1, concurrency)

    async def run_batches(self, handler: BatchHandler, batch_max: int, concurrency: int) -> None:
        """As `run`, with up to `batch_max` messages in each call."""
        check_handler(handler)

        async def handle_one(message: ReceivedMessage) -> None:
            await handler([message])

        await self._run(handle_one, handler, batch_max, concurrency)

    async def _run(self, one: Handler, handle: BatchHandler, count: int, concurrency: int) -> None:
        check_whole("concurrency", concurrency, 1, CONSUMER_CONCURRENCY_MAX)
        if self.handler is not None:
            raise ClientError(f"consumer {self.group!r} has a handler already", remedy="call run() once")
        self.handler = one
        workers = Tasks(f"handlers of {self.group}", self.crashed)
        try:
            running = [workers.spawn(self._work(handle, count), str(number)) for number in range(concurrency)]
            for worker in running:
                await worker.wait()
        finally:
            self.handler = None
            await workers.close()
        self._raise_failure()

    async def _work(self, handle: BatchHandler, count: int) -> None:
        while messages := await self.next(count):
            try:
                work = handle(messages)
                if not hasattr(work, "__await__"):
                    self.crashed(_plain_handler(work))
                    return
                if self._hooks is None:
                    await work
                else:
                    await self._hooks.around(self.group, messages, work)
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
                    raise  # else something that the handler waited for was cancelled, and not this consumer
                await self._failed(as_ordinary(error), messages)
            else:
                for message in messages:
                    if message.settlement is Settlement.PENDING:
                        message.settlement = Settlement.ACKED
                        message.settler.ack(message)

    async def _failed(self, error: Exception, messages: list[ReceivedMessage]) -> None:
        """What becomes of the messages that a handler has not settled when it raised."""
        after = error.after if isinstance(error, Retry) else None
        if isinstance(error, Reject):
            self._log_rejection(error, messages)
        elif not isinstance(error, Retry):
            self._log_failure(error, messages)
        for message in messages:
            if message.settlement is Settlement.PENDING:
                await (message.dead_letter() if isinstance(error, Reject) else message.retry(after=after))

    def _take(self, count: int, now_ms: int) -> list[ReceivedMessage]:
        """The next messages for the program."""
        while messages := self._supply.take(count, now_ms):
            for message in messages:
                if message.problem is not None:
                    break
            else:
                return messages
            for message in messages:
                if message.problem is not None:
                    log.error("%r goes to the dead letters of %s: %s", message, self.group, message.problem)
                    self._tasks.spawn(_dead_letter(message), f"dead letter {message.message_id}")
            if readable := [message for message in messages if message.problem is None]:
                return readable
        return []

    async def _pause(self) -> None:
        """End a slice. Whoever else comes for messages meanwhile waits, so that all of them together keep to one slice a turn."""
        self._pausing = True
        try:
            await let_others_run()
        finally:
            self._pausing = False
            self._slice_ms = monotonic_ms()
            self._supply.idlers.wake()

    def _log_rejection(self, error: Reject, messages: list[ReceivedMessage]) -> None:
        unlogged = self._rejections.due()
        if unlogged is None:
            return
        more = f"; {unlogged} before it were not logged" if unlogged else ""
        log.warning("group %s rejects %r as a dead letter: %s%s", self.group, messages[0], error, more)

    def _log_failure(self, error: Exception, messages: list[ReceivedMessage]) -> None:
        unlogged = self._handler_failures.due()
        if unlogged is None:
            return
        log.error(
            "handler of group %s failed on %r%s%s",
            self.group,
            messages[0],
            f" and {len(messages) - 1} more" if len(messages) > 1 else "",
            f"; {unlogged} failures before it were not logged" if unlogged else "",
            exc_info=error,
        )

    def _raise_failure(self) -> None:
        if isinstance(self._failure, ConfigurationError):
            raise self._failure
        if self._failure is not None:
            raise ClientError(
                f"consumer {self.group!r} stopped because of a defect: {self._failure!r}",
                remedy="please report it with the traceback from the log",
            ) from self._failure


def _plain_handler(returned: object) -> ConfigurationError:
    return ConfigurationError(
        f"the handler returned {returned!r} instead of something to wait for",
        remedy="write it with async def; orbitmq.sync takes plain functions",
    )


async def _dead_letter(message: ReceivedMessage) -> None:
    await message.dead_letter()
