"""Asking a master of RocketMQ for its tables, every few seconds while its log is followed.

Rules of this file
1. What an answer changes is decided by `CopiedTables`. Here are the calls, their times, and what is told of failures.
2. A master of ours is not asked: its tables are in its log. Which of both it is says its runtime information.
3. One table that fails stops no other. A failure is reported once, until that table has come again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from orbitmq.broker.copied_tables import CONTENT, PROGRESS, CopiedTables, MastersTable, is_ours, log_end_of
from orbitmq.clock import Clock
from orbitmq.errors import OrbitError, RemoteError
from orbitmq.limits.replication import TABLE_CALL_MS, TABLES_FIRST_MS, TABLES_LOG_LOOK_MS, TABLES_PERIOD_MS
from orbitmq.protocol.remoting.bodies import KVTable
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import request
from orbitmq.server.connections.outbound import Calling, Outbound

logger = logging.getLogger("orbitmq.replication")

_ADDRESS: Final = "address"
_RUNTIME: Final = "runtime information"
_PROGRESS: Final = "progress"


class MasterTables:
    """Of one broker that follows. `changed()` is called after tables may have changed, `delivered()` after messages that were pending
    turned out to be delivered: both save that."""

    def __init__(
        self,
        copied: CopiedTables,
        clock: Clock,
        calling: Calling,
        *,
        master: Callable[[], str],
        follows: Callable[[], bool],
        log_end: Callable[[], int],
        changed: Callable[[], None],
        delivered: Callable[[], None],
    ) -> None:
        """`master()` is `host:port` where the master serves clients, empty while that is not known; `follows()` whether its log is being
        followed, and has no tables in it; `log_end()` up to where this log is applied."""
        self._copied = copied
        self._clock = clock
        self._calling = calling
        self._master = master
        self._follows = follows
        self._log_end = log_end
        self._changed = changed
        self._delivered = delivered
        self._outbound: Outbound | None = None
        self._task: asyncio.Task[None] | None = None
        self._failing: dict[str, str] = {}
        """What failed and was told: table -> why."""
        self.passes = 0
        """How many times all tables of a master of RocketMQ were asked for."""

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="tables of the master")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._disconnect()

    async def _run(self) -> None:
        due_ns = 0
        while True:
            if not self._follows():
                self._copied.forget_progress()
                due_ns = self._clock.monotonic_ns() + TABLES_FIRST_MS * 1_000_000
            elif self._clock.monotonic_ns() >= due_ns:
                due_ns = self._clock.monotonic_ns() + TABLES_PERIOD_MS * 1_000_000
                await self.ask()
            self.bring_in()
            await asyncio.sleep((TABLES_LOG_LOOK_MS if self._copied.waits_for_log else TABLES_FIRST_MS) / 1_000)

    def bring_in(self) -> None:
        """Where the log has come far enough by now, let what the master said of its progress count."""
        if not self._copied.waits_for_log:
            return
        try:
            if self._copied.log_is_at(self._log_end()):
                self._delivered()
        except OSError as error:
            self._failed(_PROGRESS, str(error))
        else:
            self._failing.pop(_PROGRESS, None)
        self._changed()

    async def ask(self) -> None:
        """Ask once for everything. What fails is told, and raises nothing."""
        outbound = await self._connection()
        if outbound is None:
            return
        try:
            if await self._is_ours(outbound):
                return
            if not self._copied.waits_for_log:
                for table in PROGRESS:
                    await self._ask(outbound, table)
                self._copied.progress_said_at(log_end_of(await self._runtime(outbound)))
            self._failing.pop(_RUNTIME, None)
        except OrbitError as error:
            self._copied.forget_progress()
            self._failed(_RUNTIME, str(error))
            return
        for table in CONTENT:
            await self._ask(outbound, table)
        self.passes += 1
        self._changed()

    async def _connection(self) -> Outbound | None:
        address = self._master()
        if self._outbound is None or self._outbound.address != address:
            await self._disconnect()
            self._copied.forget_progress()
            try:
                self._outbound = Outbound(address, self._clock, calling=self._calling) if address else None
            except ValueError as error:
                self._failed(_ADDRESS, str(error))
                return None
        if self._outbound is None:
            self._failed(_ADDRESS, "no name server says where the master of this group serves clients: set namesrvAddr")
        else:
            self._failing.pop(_ADDRESS, None)
        return self._outbound

    async def _disconnect(self) -> None:
        outbound, self._outbound = self._outbound, None
        if outbound is not None:
            await outbound.close()

    async def _is_ours(self, outbound: Outbound) -> bool:
        return is_ours(await self._runtime(outbound))

    async def _runtime(self, outbound: Outbound) -> dict[str, str]:
        """Raises OrbitError."""
        answer = await outbound.call(request(RequestCode.GET_BROKER_RUNTIME_INFO), TABLE_CALL_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise RemoteError(answer.code, answer.remark or "", address=outbound.address)
        return KVTable.decode(bytes(answer.body)).table

    async def _ask(self, outbound: Outbound, table: MastersTable) -> None:
        name = table.name.lower().replace("_", " ")
        try:
            answer = await outbound.call(request(table.value), TABLE_CALL_MS)
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return  # of a later release than the master's
            if answer.code != ResponseCode.SUCCESS:
                raise RemoteError(answer.code, answer.remark or "", address=outbound.address)
            self._copied.take(table, answer.body)
        except (OrbitError, OSError) as error:
            self._failed(name, str(error))
        else:
            if self._failing.pop(name, None) is not None:
                logger.info("the %s of the master are copied again", name)

    def _failed(self, what: str, why: str) -> None:
        if what not in self._failing:
            logger.warning("the %s of the master are not copied, trying again: %s", what, why)
        self._failing[what] = why
