"""A name server and a broker on the running event loop, whose calendar is moved by hand.

Moving the clock goes from one due instant to the next. At each the server delivers what is due and comes to rest before
the clock goes on, so every message is stored at exactly its due time.

Rules of this file
1. Everything here runs on the server's own loop. `EmbeddedBroker` and `SyncEmbeddedBroker` are the ways in.
2. Delivering is the server's own work, on its own path; here the clock is set and the rest is waited for, in bounded time.
3. Restarts keep the directory, the ports and the clock.
"""

from __future__ import annotations

import asyncio
import errno
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from orbitmq.client import StoredMessage
from orbitmq.clock import SystemClock
from orbitmq.errors import OrbitError
from orbitmq.limits.testing import EMBEDDED_REST_MS, EMBEDDED_REST_SPINS
from orbitmq.server.configuration.settings import Overrides, Role, ServerSettings, load_settings
from orbitmq.server.lifecycle import ServerProcess
from orbitmq.server.roles.broker_role import BrokerRole
from orbitmq.store.writability import SPACE
from orbitmq.testing.clock import VirtualClock, as_datetime, as_ms, whole_ms
from orbitmq.testing.consumed import left_to_do
from orbitmq.testing.contents import PendingMessage, visible, waiting
from orbitmq.testing.disk import EmbeddedFiles

HOST: Final = "127.0.0.1"

SETTINGS: Final[Mapping[str, str]] = {
    "grpcServerPort": "0",
    "httpEnable": "false",
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "timerFarEnable": "false",
}
"""Beside RocketMQ's defaults: no port of HTTP, files that cost a test nothing to make, and no process beside the test's for messages
that are due late; they wait with the near ones."""

PATIENCE: Final = timedelta(milliseconds=EMBEDDED_REST_MS)

_system = SystemClock()


class EmbeddedTimeoutError(OrbitError, TimeoutError):
    """What a test waits for did not come about: rest, the end of a group's work, or a condition."""


class Patience:
    """Real time in which something has to happen."""

    def __init__(self, length_ms: int) -> None:
        self.length_ms = length_ms
        self.renew()

    def renew(self) -> None:
        self._until_ns = _system.monotonic_ns() + self.length_ms * 1_000_000

    @property
    def is_over(self) -> bool:
        return _system.monotonic_ns() > self._until_ns


class EmbeddedServer:
    """The server of one embedded broker, over its restarts."""

    def __init__(
        self, clock: VirtualClock, data: Path | None, settings: Mapping[str, str], patience: timedelta = PATIENCE
    ) -> None:
        self.clock = clock
        self._patience_ms = whole_ms(patience)
        self._given = data
        self._given_settings = {**SETTINGS, **settings}
        self._ports = (0, 0)
        self._grpc: tuple[str, int] | None = None
        self.files = EmbeddedFiles(clock)
        self._data: Path | None = None
        self._process: ServerProcess | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_moving = False

    # --- life -------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Make the directory, if none was given, and start. Raises OrbitError, OSError."""
        self._loop = asyncio.get_running_loop()
        self._data = self._given or Path(tempfile.mkdtemp(prefix="orbitmq-"))
        try:
            await self._start()
        except BaseException:
            self._remove_data()
            raise

    async def close(self) -> None:
        """Stop in order and remove the directory, unless it was given."""
        self.files.failing = None
        process, self._process = self._process, None
        try:
            if process is not None:
                await process.stop()
        finally:
            self._remove_data()

    def _remove_data(self) -> None:
        if self._given is None and self._data is not None:
            shutil.rmtree(self._data)
            self._data = None

    async def _start(self) -> None:
        process = ServerProcess(self._settings(), self.clock, self.files, second_port=False)
        await process.start()
        assert process.nameserver is not None
        assert process.broker is not None
        self._ports = (process.nameserver.listener.address[1], process.broker.port)
        self._grpc = process.broker.grpc.address
        self._process = process
        try:
            await self.come_to_rest()
        except BaseException:
            self._process = None
            await process.stop()
            raise

    def _settings(self) -> ServerSettings:
        name_port, broker_port = self._ports
        settings = self._given_settings
        if self._grpc is not None:
            settings = {**settings, "grpcServerPort": str(self._grpc[1])}
        return load_settings(
            roles=[Role.NAMESERVER, Role.BROKER],
            flags=[f"{key}={value}" for key, value in settings.items()],
            overrides=Overrides(data=self._data, host=HOST, nameserver_port=name_port, broker_port=broker_port),
        )

    async def restart(self, down_ms: int) -> None:
        """Stop in order, let the clock go on by `down_ms`, start again: what fell due meanwhile is delivered then. A disk that
        fails is sound from here on."""
        with self._moving():
            process, self._process = self._running(), None
            self.files.failing = None
            await process.stop()
            await self._start_after(down_ms)

    async def crash(self, down_ms: int) -> None:
        """As `restart` after the end that `kill -9` gives a process."""
        with self._moving():
            process, self._process = self._running(), None
            await process.kill()
            self.files.failing = None
            await self._start_after(down_ms)

    @contextmanager
    def _moving(self) -> Iterator[None]:
        """Only one at a time moves the clock or ends the server."""
        if self._is_moving:
            raise OrbitError(
                "the embedded broker's clock is being moved already",
                remedy="await one move after the other; a handler that is waited for cannot move it",
            )
        self._is_moving = True
        try:
            yield
        finally:
            self._is_moving = False

    async def _start_after(self, down_ms: int) -> None:
        self.clock.move_to(self.clock.now_ms() + down_ms)
        await self._start()

    def _running(self) -> ServerProcess:
        if self._process is None:
            raise OrbitError("the embedded broker is not running", remedy="use it inside its with block")
        return self._process

    @property
    def _broker(self) -> BrokerRole:
        role = self._running().broker
        assert role is not None
        return role

    @property
    def directory(self) -> Path:
        """Where the store is."""
        self._running()
        assert self._data is not None
        return self._data

    @property
    def address(self) -> str:
        """The name server, as clients want it."""
        self._running()
        return f"{HOST}:{self._ports[0]}"

    @property
    def grpc_address(self) -> str:
        """The port for clients of RocketMQ 5. OrbitError where the settings open none."""
        self._running()
        if self._grpc is None:
            raise OrbitError("the embedded broker serves no gRPC", remedy="start it without grpcEnable=false")
        host, port = self._grpc
        return f"{host}:{port}"

    # --- time -------------------------------------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        """When the next pending message is due; None when none is pending."""
        return min(
            (due for work in self._broker.derived.due_work() if (due := work.next_due_ms) is not None), default=None
        )

    def patience(self) -> Patience:
        """Real time for one thing to happen."""
        return Patience(self._patience_ms)

    async def settle(self, groups: Collection[str]) -> None:
        """Until the server is at rest and the groups have consumed what is visible, all at the clock's present time."""
        await self.come_to_rest()
        if groups:
            await self.consumed(groups)
            await self.come_to_rest()

    async def advance_to(self, target_ms: int, groups: Collection[str]) -> None:
        """Through every due instant up to and including `target_ms`, which the clock shows at the end."""
        self._running()
        if target_ms < self.clock.now_ms():
            raise ValueError(f"the virtual clock shows {as_datetime(self.clock.now_ms())} and is not set back")
        with self._moving():
            await self.settle(groups)
            while await self._move(target_ms, groups):
                pass

    async def step(self, target_ms: int, groups: Collection[str]) -> bool:
        """To the next due instant; False, and nothing has moved, when none comes up to `target_ms`."""
        with self._moving():
            await self.settle(groups)
            due_ms = self.next_due_ms
            if due_ms is None or not self.clock.now_ms() < due_ms <= target_ms:
                return False
            await self._move(due_ms, groups)
            return True

    async def look_on(self, end_ms: int, groups: Collection[str], patience: Patience) -> None:
        """One step of the search for a condition that does not hold yet: to the next due instant up to `end_ms`; when there
        is none, a millisecond of real time, and EmbeddedTimeoutError when that was too often."""
        if await self.step(end_ms, groups):
            patience.renew()
        elif patience.is_over:
            raise EmbeddedTimeoutError(
                f"the condition does not hold at {as_datetime(self.clock.now_ms())}, and nothing is due up to "
                f"{as_datetime(end_ms)}",
                remedy="look at broker.pending(), or allow more time with within=",
            )
        else:
            await asyncio.sleep(0.001)

    async def _move(self, target_ms: int, groups: Collection[str]) -> bool:
        """From rest to the next due instant, or to `target_ms` when none comes before it: then the answer is False."""
        due_ms = self.next_due_ms
        # What is due already and stays so waits for a disk that fails: time goes on without it.
        at_ms = target_ms if due_ms is None or due_ms <= self.clock.now_ms() else min(due_ms, target_ms)
        self.clock.move_to(at_ms)
        await self.settle(groups)
        return at_ms < target_ms

    async def come_to_rest(self) -> None:
        """Until what is due is stored and dispatched and every answer has left. Raises EmbeddedTimeoutError."""
        process = self._running()
        process.clock_moved()
        await self._until(self._is_at_rest, "the embedded broker has not come to rest")

    def _is_at_rest(self) -> bool:
        role, process = self._broker, self._running()
        store = role.store
        if not process.turn.is_idle or store.log.has_gathered:
            return False
        if role.listener.traffic.unanswered > len(role.broker.rooms.pulls.held):
            return False
        if not store.writes_accepted:
            return self.files.failing is not None or store.is_over  # else it heals within a second
        if store.confirm_offset < store.log.written_end:
            return False
        due_ms, now_ms = self.next_due_ms, self.clock.now_ms()
        return (due_ms is None or due_ms > now_ms) and not any(work.is_releasing for work in role.derived.due_work())

    async def _until(self, reached: Callable[[], bool], problem: str) -> None:
        """Let the loop turn until `reached()`; a loop that has nothing to do is not kept busy for long."""
        patience = self.patience()
        spins = 0
        while not reached():
            spins += 1
            await asyncio.sleep(0 if spins <= EMBEDDED_REST_SPINS else 0.001)
            if patience.is_over:
                raise EmbeddedTimeoutError(
                    f"{problem} within {patience.length_ms} ms",
                    remedy="look at its log; a clock that was moved this far may be waiting for a slow disk",
                )

    async def consumed(self, groups: Collection[str]) -> None:
        """Until every one of these groups has consumed all that is visible. Raises EmbeddedTimeoutError, which says what is left."""
        patience = self.patience()
        pause_s = 0.0
        while (left := await self._left(groups)) is not None:
            if patience.is_over:
                raise EmbeddedTimeoutError(
                    f"after {patience.length_ms} ms of real time {left}",
                    remedy="let its handlers finish, or do not wait for the group",
                )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2 or 0.001, 0.016)

    async def _left(self, groups: Collection[str]) -> str | None:
        """What one of the groups has not dealt with; groups may feed each other, so a round counts if the log did not grow."""
        end = self._broker.store.log.end
        for group in groups:
            left = await left_to_do(self._broker.broker, group)
            if left is not None:
                return left
        if groups and self._broker.store.log.end != end:
            return "messages arrived while the groups were asked"
        return None

    # --- contents ---------------------------------------------------------------------------------------------------

    def messages(self, topic: str) -> list[StoredMessage]:
        role = self._broker
        return visible(role.store, topic, role.identity.name)

    def pending(self, topic: str | None) -> list[PendingMessage]:
        role = self._broker
        every = waiting(role.store, role.derived.due_work())
        return every if topic is None else [message for message in every if message.topic == topic]

    # --- faults -----------------------------------------------------------------------------------------------------

    @contextmanager
    def fail_disk(self, number: int = errno.ENOSPC) -> Iterator[None]:
        """While it lasts everything that would write fails with this error number."""
        self.files.failing = number
        try:
            yield
        finally:
            self.files.failing = None
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._heal)  # the block may be on another thread

    def _heal(self) -> None:
        """Look at the disk now instead of within a second."""
        if self._process is not None and not self._broker.store.writes_accepted:
            store, now_ns = self._broker.store, self.clock.monotonic_ns()
            store.deadlines.arm(SPACE, now_ns)
            store.run_due(now_ns)
            self._process.turn.schedule()


class InProcess:
    """A server in this process that goes by a virtual clock: what both embedded brokers are."""

    def __init__(
        self,
        *,
        now: datetime | None = None,
        data: Path | None = None,
        settings: Mapping[str, str] | None = None,
        patience: timedelta = PATIENCE,
    ) -> None:
        self._clock = VirtualClock(None if now is None else as_ms(now))
        self._server = EmbeddedServer(self._clock, data, settings or {}, patience)

    @property
    def address(self) -> str:
        """`host:port` of the name server, for clients in this process or any other. Restarts keep it."""
        return self._server.address

    @property
    def grpc_address(self) -> str:
        """`host:port` for the gRPC clients of RocketMQ 5, whose messages go by this broker's clock as well. Restarts keep it."""
        return self._server.grpc_address

    @property
    def data(self) -> Path:
        """Directory of the store."""
        return self._server.directory

    @property
    def now(self) -> datetime:
        """What the virtual clock shows, in UTC."""
        return as_datetime(self._clock.now_ms())

    def fail_disk(self, error: int = errno.ENOSPC) -> AbstractContextManager[None]:
        """`with broker.fail_disk():` nothing can be written meanwhile. Sends are refused; what falls due is late.

        A full disk (ENOSPC) heals at the end of the block; after any other error, such as EIO, the broker takes nothing until
        `restart` or `crash`.
        """
        return self._server.fail_disk(error)
