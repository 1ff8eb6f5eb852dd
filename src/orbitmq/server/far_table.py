"""The far table of a broker, put together from its settings: the owner's part, promotion, and the way to the owner.

Rules of this file
1. A table without a name of its owner, or without what reads its files, does not start.
2. Requests to an owner elsewhere never hold the loop. An owner that is away, or somebody else by now, is looked up again.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import Final

from orbitmq.broker.broker import Broker
from orbitmq.broker.far_table import FarTableDesk
from orbitmq.clock import Clock
from orbitmq.errors import ConfigurationError, OrbitError, RemoteError
from orbitmq.limits.far import FAR_TABLE_ASK_MS, FAR_TABLE_GRANT_ROWS
from orbitmq.protocol.far_table import TableAnswer
from orbitmq.protocol.remoting.bodies import ClusterInfo
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import request as remoting_request
from orbitmq.server.outbound import Outbound
from orbitmq.server.settings import ServerSettings
from orbitmq.server.surroundings import Surroundings
from orbitmq.store.store import MessageStore
from orbitmq.store.worker import ThreadWorker
from orbitmq.timing.far.process import is_there
from orbitmq.timing.far.tier import FarUnreachableError
from orbitmq.timing.far_table.catalog import Rules
from orbitmq.timing.far_table.catalog_log import CatalogLog
from orbitmq.timing.far_table.owner import TableOwner
from orbitmq.timing.far_table.promoted_rows import PromotedRows
from orbitmq.timing.far_table.promoting import Owner, Promotion
from orbitmq.timing.far_table.requests import ANSWERS, CODES, AnyRequest
from orbitmq.timing.far_table.table_calls import Place, TableFiles

logger = logging.getLogger("orbitmq.server")

MASTER: Final = 0
"""Broker id of the one of its name that takes requests."""

TOLD: Final = "far-table answer"
"""Wake-up by an answer of the table's owner."""


def check_far_table(settings: ServerSettings) -> None:
    """Raises ConfigurationError."""
    own = settings.broker
    if not own.far_table_url:
        return
    if not own.far_table_owner:
        raise ConfigurationError(
            "farTableUrl is set and farTableOwner is not: nobody would own the catalog of the far table",
            remedy="name one broker of the cluster, the same at every broker",
        )
    if not is_there():
        raise ConfigurationError(
            "farTableUrl is set and pyarrow, which reads the far table's files, is not installed",
            remedy="install it: pip install 'orbitmq[lake]'",
        )


def table_owner(process: Surroundings, log: CatalogLog) -> TableOwner | None:
    """The owner's part; None at every broker but one."""
    own = process.settings.broker
    if not own.far_table_url or own.far_table_owner != own.broker_name:
        return None
    clock = process.clock
    return TableOwner(
        log,
        clock,
        TableFiles(clock, own.far_table_url),
        ThreadWorker("orbitmq-far-table-owner", process.notify),
        url=own.far_table_url,
        rules=Rules(
            horizon_ms=own.far_table_horizon_s * 1_000,
            margin_ms=own.far_table_margin_s * 1_000,
            lease_ms=own.far_table_lease_s * 1_000,
            grant_rows=FAR_TABLE_GRANT_ROWS,
        ),
        bucket_ms=own.far_table_bucket_s * 1_000,
        new_table=lambda: f"{clock.now_ms():x}-{os.urandom(6).hex()}",
    )


class FarTable:
    """What of the far table runs in this broker."""

    def __init__(
        self,
        process: Surroundings,
        rows: PromotedRows,
        owner: TableOwner | None,
        broker: Broker,
        name_servers: Sequence[str],
    ) -> None:
        settings = process.settings
        own, clock = settings.broker, process.clock
        self.owner = owner
        self.link: OwnerLink | None = None
        self.promotion: Promotion | None = None
        if not own.far_table_url:
            return
        answering: Owner
        if owner is None:
            answering = self.link = OwnerLink(own.far_table_owner, name_servers, clock, process)
        else:
            answering = owner
        place = Place(
            own.timer_precision_ms,
            broker.admission.own.encoded,
            broker.store_host,
            settings.store.max_message_size,
        )
        self.promotion = Promotion(
            rows,
            clock,
            TableFiles(clock, own.far_table_url),
            ThreadWorker("orbitmq-far-table", process.notify),
            answering,
            FarTableDesk(broker.admission, own, clock),
            place,
            broker=own.broker_name,
        )

    def attach(self, store: MessageStore) -> None:
        """Begin. Raises OSError."""
        if self.owner is not None:
            self.owner.attach(store)
        if self.promotion is not None:
            self.promotion.attach(store)

    async def close(self) -> None:
        """End what runs; it goes on with the next start."""
        for part in (self.promotion, self.owner):
            if part is not None:
                part.close()
        if self.link is not None:
            await self.link.close()


class OwnerLink:
    """Requests to the broker that owns the table, by way of the name servers that know its address."""

    def __init__(self, owner: str, name_servers: Sequence[str], clock: Clock, process: Surroundings) -> None:
        self._owner = owner
        self._clock = clock
        self._process = process
        self._name_servers = [Outbound(address, clock) for address in dict.fromkeys(name_servers)]
        self._outbound: Outbound | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, request: AnyRequest, told: Callable[[TableAnswer | Exception], None]) -> None:
        task = asyncio.get_running_loop().create_task(self._ask(request, told), name="ask the far table's owner")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, request: AnyRequest, told: Callable[[TableAnswer | Exception], None]) -> None:
        result: TableAnswer | Exception
        try:
            result = await self._answer(request)
        except OrbitError as error:
            result = FarUnreachableError(f"broker {self._owner}, the owner of the far table, gave no answer: {error}")
            await self._forget()
        self._process.wakeups.count(TOLD)
        told(result)
        self._process.turn.schedule()

    async def _answer(self, request: AnyRequest) -> TableAnswer:
        """Raises OrbitError."""
        if self._outbound is None:
            self._outbound = Outbound(await self._address(), self._clock)
        outbound = self._outbound
        kind = type(request)
        answer = await outbound.call(remoting_request(CODES[kind], {}, request.encode()), FAR_TABLE_ASK_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise RemoteError(answer.code, answer.remark or "", address=outbound.address)
        return ANSWERS[kind].decode(answer.body)

    async def _address(self) -> str:
        """Where the owner listens. Raises OrbitError."""
        problem: OrbitError = FarUnreachableError("this broker has no name server to ask where it is")
        for server in self._name_servers:
            try:
                answer = await server.call(remoting_request(RequestCode.GET_BROKER_CLUSTER_INFO, {}), FAR_TABLE_ASK_MS)
                if answer.code != ResponseCode.SUCCESS:
                    raise RemoteError(answer.code, answer.remark or "", address=server.address)
                data = ClusterInfo.decode(answer.body).broker_addr_table.get(self._owner)
            except OrbitError as error:
                problem = error
                continue
            if data is not None and MASTER in data.broker_addrs:
                return data.broker_addrs[MASTER]
            problem = FarUnreachableError(f"name server {server.address} knows no broker of that name")
        raise problem

    async def _forget(self) -> None:
        """Look the owner up again: it may be elsewhere."""
        outbound, self._outbound = self._outbound, None
        if outbound is not None:
            await outbound.close()

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._forget()
        for server in self._name_servers:
            await server.close()
