"""A slave asks its master over the master's main port: for a ticket, and before it takes over, whether the master lives and
whether another slave has more.

Rules of this file
1. Only the answer "not supported" says that the master is one of RocketMQ, which is followed without a ticket. One that cannot be asked is
   not followed: unnamed it would compare nothing, and two histories could become one log.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from orbitmq.clock import Clock
from orbitmq.errors import ClientError, OrbitError, ProtocolError, RemoteError
from orbitmq.limits.replication import (
    FOLLOW_TAIL_BYTES,
    HAND_OVER_CALL_MS,
    MASTER_LIVES_MS,
    MEND_CALL_MS,
    SLAVE_NAME_CHARS_MAX,
    TICKET_BYTES,
    TICKET_REQUEST_MS,
)
from orbitmq.protocol.checksum import crc32
from orbitmq.protocol.remoting.bodies import HaRuntimeInfo
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.protocol.remoting.replication_bodies import (
    FollowAnswer,
    FollowRequest,
    LogRangeRequest,
    PromoteAnswer,
    PromoteRequest,
)
from orbitmq.protocol.replication.opening import encode_opening
from orbitmq.replication.epoch_marks import encode_marks
from orbitmq.replication.ticket_office import adopt_epochs
from orbitmq.server.connections.outbound import Calling, Outbound
from orbitmq.server.replication.far_copies import FarCopies
from orbitmq.server.replication.kept_file import KeptFile
from orbitmq.server.roles.registration import BrokerIdentity
from orbitmq.store.commit_log import CommitLog

PROCESS_ID_BYTES: Final = 8
"""Another one in every life of a process: two with a copy of one directory are told apart by it."""


class MasterUnasked(OrbitError):
    """The master could not be asked for a ticket."""


class Asking:
    """Of one slave: who it is, and what it has of the log."""

    def __init__(
        self,
        identity: Callable[[], BrokerIdentity],
        log: CommitLog,
        kept: KeptFile,
        clock: Clock,
        calling: Calling,
        is_damaged: Callable[[], bool],
        far: FarCopies,
        trouble: Callable[[], str] = lambda: "",
    ) -> None:
        """`identity()`: who this broker is now. `is_damaged()`: the log lacks something in the middle. `trouble()`: why it grows no
        more, or soon; empty where all is well."""
        self._far: Final = far
        self._identity = identity
        self.process: Final = os.urandom(PROCESS_ID_BYTES).hex()
        self._is_damaged = is_damaged
        self._trouble = trouble
        self._log: Final = log
        self._kept: Final = kept
        self._clock = clock
        self._calling = calling

    async def opening(self, main: str, log_id: str) -> bytes:
        """What is sent first at the port for slaves of the master whose main port is at `main`: a ticket; nothing where it is one of
        RocketMQ. Raises OrbitError where it refuses, or cannot be asked."""
        if why_not := await self._kept.saved(self._kept.save_first):
            raise MasterUnasked(f"it cannot be told who this slave is, as a next start would not know: {why_not}")
        state = self._kept.state
        wanted = self._wanted(log_id)
        wanted.far = await self._far.claim()
        try:
            answer = await self._call(main, request(RequestCode.FOLLOW_LOG, None, wanted.encode()), TICKET_REQUEST_MS)
        except ClientError as error:
            raise MasterUnasked(
                f"its main port was to be asked for a ticket: {error}",
                remedy="where the main port is another one, let a name server say so: namesrvAddr at both brokers",
            ) from error
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return b""
        if answer.code != ResponseCode.SUCCESS:
            raise RemoteError(answer.code, answer.remark or "", address=main)
        found = _ticket(answer, main)
        await self._far.take(found)
        is_news = adopt_epochs(state, found)
        is_news = state.note_copy(main) or is_news
        if not wanted.end and found.end > state.seeding_until:
            state.seeding_until, is_news = found.end, True
        if is_news:
            self._kept.save()
        return encode_opening(bytes.fromhex(found.ticket))

    def _wanted(self, log_id: str, *, compares: bool = False, broker_id: int | None = None) -> FollowRequest:
        state, end, identity = self._kept.state, self._log.end, self._identity()
        tail_bytes = _tail_bytes(self._log, end)
        return FollowRequest(
            broker_name=identity.name,
            broker_id=identity.broker_id if broker_id is None else broker_id,
            directory=state.directory,
            log=log_id,
            end=end,
            epochs=encode_marks(state.epochs).decode("ascii") if state.epochs.marks else "",
            tail_bytes=tail_bytes,
            tail_crc=crc_of(self._log, end - tail_bytes, tail_bytes) or 0,
            address=identity.address,
            is_damaged=self._is_damaged(),
            trouble=self._trouble()[:SLAVE_NAME_CHARS_MAX],
            process=self.process,
            compares=compares,
        )

    async def compared(self, main: str, log_id: str, *, broker_id: int | None = None) -> FollowAnswer:
        """What this log is to that of the master at `main`; `broker_id` of a broker that is no slave yet.

        Raises OrbitError where it cannot be asked, or is one of RocketMQ."""
        wanted = self._wanted(log_id, compares=True, broker_id=broker_id)
        try:
            answer = await self._call(main, request(RequestCode.FOLLOW_LOG, None, wanted.encode()), TICKET_REQUEST_MS)
        except (ClientError, ValueError) as error:
            raise MasterUnasked(f"the master at {main} cannot be asked: {error}") from error
        if answer.code != ResponseCode.SUCCESS:
            raise RemoteError(answer.code, answer.remark or "", address=main)
        return FollowAnswer.decode(bytes(answer.body))

    async def log_range(self, main: str, wanted: LogRangeRequest) -> bytes:
        """As the function of that name."""
        return await log_range(main, wanted, self._clock, self._calling)

    async def leads(self, main: str) -> tuple[bool, bool]:
        """Whether a broker answers there, and whether it says that it is a master."""
        answers, found = await self._status(main)
        return answers, found is not None and found.master

    async def standing(self, main: str, *, is_named: bool) -> tuple[bool, bool]:
        """Whether a broker there is a master, and whether it says that it becomes something else just now. With `is_named` it is one unless
        it says that it is none: RocketMQ 4 says nothing."""
        answers, found = await self._status(main)
        return (answers and is_named, False) if found is None else (found.master, found.changes_role)

    async def promote(self, main: str, *, synchronous: bool) -> PromoteAnswer:
        """Make the slave there the master, which followed this broker until now. RemoteError where it refuses; another ClientError where
        no answer came, and it may have become one."""
        wanted = PromoteRequest(synchronous=synchronous, although_master_lives=True, former=self._identity().address)
        answer = await self._call(main, request(RequestCode.PROMOTE_SLAVE, None, wanted.encode()), HAND_OVER_CALL_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise RemoteError(answer.code, answer.remark or "", address=main)
        return PromoteAnswer.decode(bytes(answer.body))

    async def log_end_of_slave(self, main: str) -> int:
        """Up to where the slave there has the log; 0 where none answers that is one."""
        _, found = await self._status(main)
        return 0 if found is None or found.master else found.ha_client_runtime_info.max_offset

    async def _status(self, main: str) -> tuple[bool, HaRuntimeInfo | None]:
        """Whether a broker answers there, and what it says of its copies where it does."""
        try:
            answer = await self._call(main, request(RequestCode.GET_BROKER_HA_STATUS), MASTER_LIVES_MS)
            return True, HaRuntimeInfo.decode(bytes(answer.body)) if answer.code == ResponseCode.SUCCESS else None
        except (ClientError, ValueError):
            return False, None
        except ProtocolError:
            return True, None

    async def _call(self, main: str, command: Command, timeout_ms: int) -> Command:
        return await call_once(main, command, timeout_ms, self._clock, self._calling)


async def call_once(address: str, command: Command, timeout_ms: int, clock: Clock, calling: Calling) -> Command:
    """Over a connection of its own. Raises as `Outbound.call`; ValueError where the address is none."""
    outbound = Outbound(address, clock, calling=calling)
    try:
        return await outbound.call(command, timeout_ms)
    finally:
        await outbound.close()


async def log_range(main: str, wanted: LogRangeRequest, clock: Clock, calling: Calling) -> bytes:
    """Bytes of the log that another copy has, whatever they are. Raises OrbitError where it gives none."""
    answer = await call_once(main, request(RequestCode.READ_LOG, None, wanted.encode()), MEND_CALL_MS, clock, calling)
    if answer.code != ResponseCode.SUCCESS:
        raise RemoteError(answer.code, answer.remark or "", address=main)
    return bytes(answer.body)


def _ticket(answer: Command, main: str) -> FollowAnswer:
    found = FollowAnswer.decode(bytes(answer.body))
    try:
        size = len(bytes.fromhex(found.ticket))
    except ValueError:
        size = 0
    if size != TICKET_BYTES:
        raise ProtocolError(f"the master at {main} gave a ticket of {size} bytes")
    return found


def _tail_bytes(log: CommitLog, end: int) -> int:
    """How much of the end of the log its master compares: it lies in one file."""
    segment = log.sequence.find(end - 1)
    return 0 if segment is None else min(end - segment.base, FOLLOW_TAIL_BYTES)


def crc_of(log: CommitLog, position: int, size: int) -> int | None:
    """CRC-32 of bytes of the log; None where they are not there any more. May wait for the disk, once for a connection."""
    data = log.read_written(position, size)
    return None if data is None else crc32(data)
