"""A broker inside a test, whose calendar the test moves: time-outs of hours and days are tested in milliseconds.

    async with EmbeddedBroker() as broker:
        async with broker.connect() as mq:
            await mq.send("orders", b"unpaid", delay_level=16)  # 30 minutes
        await broker.advance(timedelta(minutes=30))
        [message] = await broker.messages("orders")

What is virtual and what is real
1. *The calendar is virtual.* Due times, delays of retries, store timestamps, and the age of anything stored go by `broker.now`, which
   stands still except in `advance`, `advance_to` and `run_until`. A message is never delivered before the clock shows its due
   time, and it is delivered at exactly that time: its store timestamp says so.
2. *The stopwatch is real.* Connections, heartbeats, held pulls, request time-outs, a consumer's settle time-out and the expiry of silent
   clients are agreements with programs that have stopwatches of their own. Three virtual days make no client expire. A client
   that closes, or whose process ends, is noticed at once; one that hangs, after 120 real seconds.
3. *Moving is stepping.* The clock stops at every due instant on the way, in order, and goes on when the server is at rest: what is
   due is stored and dispatched, pulls that waited are answered. With `groups=[...]` it also waits until these
   consumer groups have dealt with what they got, so that a retry, or a message a handler sends, starts at the right virtual time.
4. *Clients go by their own clock* in what they write into messages. `broker.connect()` gives a client that shares the
   broker's; others (`orbitmq.connect(broker.address)`, Java, another process) work as with any broker.

Rules of this file
1. One class for code on an event loop; `SyncEmbeddedBroker` is the same for plain tests. The work is done by `EmbeddedServer`.
2. Instants are datetimes with a time zone, lengths are timedeltas; milliseconds count, what is finer is cut off.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from orbitmq.client import Client, ClientOptions, ProducerOptions, StoredMessage
from orbitmq.protocol.names import dlq_topic
from orbitmq.testing.clock import NO_TIME, YEAR, as_ms, whole_ms
from orbitmq.testing.contents import PendingMessage
from orbitmq.testing.server import PATIENCE, InProcess
from orbitmq.testing.thread import ServerThread, called

if TYPE_CHECKING:
    from orbitmq.testing.blocking import SyncEmbeddedBroker

R = TypeVar("R")


class EmbeddedBroker(InProcess):
    """Name server and broker in this process, used with `async with`.

    now: what the virtual clock shows first; the machine's time when it is not given.
    data: directory of the store, kept at the end; otherwise a temporary one, removed at the end.
    settings: broker and name server keys and values, as in a configuration file. Files are small; otherwise RocketMQ's defaults.
    patience: real time for the broker to come to rest, a group to finish, or a condition to hold, once nothing else moves;
        10 s when it is not given.

    It shares the loop it is entered on, asyncio's or uvloop's. Costs about 10 ms of CPU to start and stop. Several may run in
    one process.
    """

    _thread: ServerThread | None = None
    """Where it serves on a loop of its own."""

    @staticmethod
    def sync(
        *,
        now: datetime | None = None,
        data: Path | None = None,
        settings: Mapping[str, str] | None = None,
        patience: timedelta = PATIENCE,
    ) -> SyncEmbeddedBroker:
        """The same for plain tests, used with `with`; it runs on a thread of its own."""
        from orbitmq.testing.blocking import SyncEmbeddedBroker

        return SyncEmbeddedBroker(now=now, data=data, settings=settings, patience=patience)

    @staticmethod
    @contextmanager
    def on_thread(
        *,
        now: datetime | None = None,
        data: Path | None = None,
        settings: Mapping[str, str] | None = None,
        patience: timedelta = PATIENCE,
    ) -> Iterator[EmbeddedBroker]:
        """An `EmbeddedBroker` on a thread and loop of its own, used with plain `with` and awaited from any loop: it serves on
        while a test's loop is blocked, and outlives loops. Conditions of `run_until` are asked on the caller's loop."""
        broker = EmbeddedBroker(now=now, data=data, settings=settings, patience=patience)
        thread = ServerThread()
        try:
            thread.call(broker.start())
            broker._thread = thread
            try:
                yield broker
            finally:
                broker._thread = None
                thread.call(broker.close())
        finally:
            thread.stop()

    async def __aenter__(self) -> EmbeddedBroker:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Start serving; what `async with` does first. Raises ConfigurationError for settings that no broker takes."""
        await self._run(self._server.open())

    async def close(self) -> None:
        """Stop in order. Close clients first: what they still wait for is answered, then their connections end."""
        await self._run(self._server.close())

    async def _run(self, work: Coroutine[Any, Any, R]) -> R:
        return await (work if self._thread is None else self._thread.awaited(work))

    # --- who and when -----------------------------------------------------------------------------------------------

    def connect(
        self, *, options: ClientOptions | None = None, producer_options: ProducerOptions | None = None
    ) -> Client:
        """A client of this broker that goes by its clock; used as what `orbitmq.connect` gives."""
        return Client(self.address, options=options, producer_options=producer_options, clock=self._clock)

    # --- time -------------------------------------------------------------------------------------------------------

    async def advance(self, by: timedelta, *, groups: Collection[str] = ()) -> None:
        """Move the clock forward through every due instant up to and including `now + by`.

        groups: consumer groups that have to deal with everything visible at each instant before the clock goes on. They
        must be connected push consumers with handlers that end.
        Raises EmbeddedTimeoutError, which says what is left, when that takes longer than `patience` at one instant. A
        millisecond of CPU or less per instant, however long the time between two.
        """
        await self._run(self._server.advance_to(self._clock.now_ms() + whole_ms(by), groups))

    async def advance_to(self, at: datetime, *, groups: Collection[str] = ()) -> None:
        """As `advance`, to an instant. ValueError when it lies behind the clock."""
        await self._run(self._server.advance_to(as_ms(at), groups))

    async def run_until(
        self,
        condition: Callable[[], bool | Awaitable[bool]],
        *,
        within: timedelta = YEAR,
        groups: Collection[str] = (),
    ) -> None:
        """Move the clock from due instant to due instant until the condition holds; it is asked at each, on this loop.

        The clock stays at the first instant at which it held. Name the groups whose handlers bring it about: without
        them the clock may be ahead of a handler. When nothing is due any more the condition gets `patience`.
        Raises EmbeddedTimeoutError when it does not hold by then.
        """
        end_ms = self._clock.now_ms() + whole_ms(within)
        patience = self._server.patience()
        await self._run(self._server.settle(groups))
        while not await _holds(condition):
            await self._run(self._server.look_on(end_ms, groups, patience))

    async def consumed(self, *groups: str) -> None:
        """Wait, in real time, until these groups have dealt with everything visible; the clock stands still.

        Raises EmbeddedTimeoutError, which says what is left, after `patience`.
        """
        await self._run(self._server.settle(groups))

    # --- contents ---------------------------------------------------------------------------------------------------

    async def messages(self, topic: str) -> list[StoredMessage]:
        """Everything visible in a topic, in the order of storing, consumed or not. Empty for a topic that does not exist."""
        return await self._run(called(lambda: self._server.messages(topic)))

    async def dead_letters(self, group: str) -> list[StoredMessage]:
        """What the group has given up, in order."""
        return await self.messages(dlq_topic(group))

    async def pending(self, topic: str | None = None) -> list[PendingMessage]:
        """What waits for its time, by due time; of one topic, or of all. Retries wait for topic `%RETRY%` + group."""
        return await self._run(called(lambda: self._server.pending(topic)))

    # --- faults -----------------------------------------------------------------------------------------------------

    async def restart(self, *, down: timedelta = NO_TIME) -> None:
        """Stop in order and start again, `down` later by the virtual clock, with the same address and directory.

        What fell due meanwhile is delivered at the start. Clients lose their connections and come back by themselves.
        """
        await self._run(self._server.restart(whole_ms(down)))

    async def crash(self, *, down: timedelta = NO_TIME) -> None:
        """As `restart`, after an end like that of `kill -9`: nothing is answered, saved or told.

        What was acknowledged is there afterwards; what waited in memory, such as committed offsets of the last seconds, is not.
        """
        await self._run(self._server.crash(whole_ms(down)))


async def _holds(condition: Callable[[], bool | Awaitable[bool]]) -> bool:
    answer = condition()
    return bool(await answer) if inspect.isawaitable(answer) else bool(answer)
