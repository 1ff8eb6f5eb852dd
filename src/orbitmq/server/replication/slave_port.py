"""A master's port for slaves: each connection is sent the log, and says how far it has it.

    bytes of the slave -> MasterLink -> CopiesGate -> the store confirms, senders hear
    the log is written -> MasterLink -> bytes to the slave

Rules of this file
1. What a connection may do is decided by `MasterLink`, what follows for sends by `CopiesGate`. Here are sockets, reads and times.
2. The loop never waits for the disk: what is not in memory is read by a thread, for each slave one piece at a time.
3. A stranger costs a connection that is closed when it says nothing, and one line of the log.
   TLS is as at every port; where it is demanded, a slave of RocketMQ, which knows none here, comes in if `haPeerAddresses` names it.
4. Without slaves, and where nobody waits for any, the end of a turn costs one comparison.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from orbitmq.limits.replication import SLAVE_CONNECTIONS_MAX
from orbitmq.protocol.records import BLANK_BYTES_MIN, CheckStatus, check_record
from orbitmq.replication.away_slaves import AwaySlaves
from orbitmq.replication.classic.closing import LinkEnd
from orbitmq.replication.classic.log_extent import LogExtent, LogRead
from orbitmq.replication.classic.whole_records import unsound_at
from orbitmq.replication.gates import CopiesGate
from orbitmq.replication.slave_callers import is_peer, may_follow_unnamed
from orbitmq.server.connections.first_bytes import protocols
from orbitmq.server.connections.listening import bound_address, opened
from orbitmq.server.process.surroundings import Surroundings
from orbitmq.store.store import MessageStore
from orbitmq.store.worker import Worker

if TYPE_CHECKING:
    from orbitmq.replication.tickets import TicketBearer, TicketRefusal
    from orbitmq.server.replication.slave_connection import SlaveConnection

NAME: Final = "port for slaves"
WAKEUP: Final = "slaves"


class _Asks(NamedTuple):
    """Whom a connection asks and tells beside the link and the gate."""

    why_not: Callable[[int | None], str]
    follows: Callable[[], None]
    redeem: Callable[[bytes, int], TicketBearer | TicketRefusal]
    suspect: Callable[[int], bool]
    may_be_unnamed: Callable[[str], bool]
    """Whether a slave from that address may follow without a ticket."""


class SlavePort:
    """Of one open store that takes messages."""

    def __init__(
        self,
        process: Surroundings,
        store: MessageStore,
        gate: CopiesGate,
        worker: Worker,
        away: AwaySlaves,
        *,
        why_not: Callable[[int | None], str],
        follows: Callable[[], None],
        redeem: Callable[[bytes, int], TicketBearer | TicketRefusal],
        suspect: Callable[[int], bool],
    ) -> None:
        """`away` hears who goes. `why_not(id)` says why the slave with that id, or one without a ticket (None), may not follow now,
        `redeem` whose ticket a secret is; `follows()` is called when a slave begins to follow, before it is sent anything more;
        `suspect(position)` when what was to be sent is no sound record."""
        access = process.settings.access
        self.gate: Final = gate
        self.away: Final = away
        self.settings: Final = process.settings.replication.link()
        self.clock: Final = process.clock
        peers = process.settings.replication.peers
        unnamed = partial(may_follow_unnamed, peers=peers, authenticates=access.authenticates or access.plain)
        self.asks: Final = _Asks(why_not, self._began, redeem, suspect, unnamed)
        self._follows = follows
        self.connections: dict[SlaveConnection, None] = {}
        self._store = store
        self._turn = process.turn
        self._room = process.room
        self._rules = process.rules
        self._worker = worker
        self._peers = peers
        self._server: asyncio.Server | None = None
        self._extent = self._extent_now()
        self._is_armed = False
        """Whether WAKEUP comes not later than anything of a link is due."""
        self.ends: dict[LinkEnd, int] = dict.fromkeys(LinkEnd, 0)
        """How connections of slaves ended, since the start; those that were not taken are among the refused ones."""
        self.sent_bytes = 0
        self.received_bytes = 0
        self.moved: Callable[[], None] | None = None
        """Told when something came from a slave, or one came or went."""
        store.deadlines.define(WAKEUP, self._look)

    # --- life -----------------------------------------------------------------------------------------------------

    async def start(self, host: str, port: int) -> None:
        """Listen. PortTakenError or ConfigurationError when the address cannot be had."""
        made = protocols(self._rules, NAME, self._connection, plain_from=lambda host: is_peer(host, self._peers))
        server = asyncio.get_running_loop().create_server(made, host, port, reuse_address=True)
        remedy = "choose another one with haListenPort, or set haEnable=false"
        self._server = await opened(server, "the port for slaves", (host, port), remedy)
        self._turn.add(self.turn_ended)

    def _connection(self) -> SlaveConnection:
        from orbitmq.server.replication.slave_connection import SlaveConnection  # most masters never have a slave

        return SlaveConnection(self)

    def serve_nobody(self) -> None:
        """Go on without a port: copies are asked for all the same."""
        self._turn.add(self.turn_ended)

    @property
    def address(self) -> tuple[str, int] | None:
        """Where it listens; None when it does not."""
        return bound_address(self._server)

    def close(self) -> None:
        """Listen no more and let every slave go. Who waits for copies is told UNKNOWN."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._turn.remove(self.turn_ended)
        for connection in list(self.connections):
            connection.end(LinkEnd.STOPPED)
        self._store.deadlines.disarm(WAKEUP)
        self.gate.close()

    # --- the log --------------------------------------------------------------------------------------------------

    def turn_ended(self) -> None:
        """The log of this turn is written."""
        if not self.connections and not self.gate.copies.rule.needed:
            return
        self.gate.turn_ended()
        log, known = self._store.log, self._extent
        if log.written_end != known.end or log.start != known.start:
            extent = self._extent = self._extent_now()
            for connection in list(self.connections):
                connection.log_is(extent)
            self._arm()

    def extent(self) -> LogExtent:
        """What of the log may be sent now. Those who follow already hear of it at the end of the turn."""
        return self._extent_now()

    def _extent_now(self) -> LogExtent:
        log = self._store.log
        return LogExtent(log.start, log.written_end, log.sequence.segment_size)

    def begins_record(self, position: int) -> bool:
        """Whether a sound record of ours begins there, or the filler of a file. Once for each connection; two reads that may wait for the
        disk. Raises OSError."""
        log = self._store.log
        head = log.read_written(position, BLANK_BYTES_MIN)
        if head is None:
            return False
        data = log.read_written(position, int.from_bytes(head[:4], "big"))
        if data is None:
            return False
        found = check_record(memoryview(data), 0, len(data), expect_physical_offset=position).status
        return found in (CheckStatus.VALID, CheckStatus.BLANK)

    def read_now(self, read: LogRead) -> bytes | None:
        data = self._store.log.read_written_now(read.position, read.size)
        return None if data is None else bytes(data)

    def damaged_at(self, read: LogRead, data: bytes) -> int | None:
        """What was not written by this process lately is checked before it is sent: where a record of it is damaged."""
        return unsound_at(data, read.position) if read.position < self._store.warm_from else None

    def read_cold(self, read: LogRead, connection: SlaveConnection) -> None:
        log = self._store.log

        def done(data: bytes | BaseException | None) -> None:
            connection.was_read(read, data)
            self._arm()

        self._worker.submit(lambda: log.read_written(read.position, read.size), done)

    # --- slaves ---------------------------------------------------------------------------------------------------

    def admits(self) -> bool:
        """Whether there is room for another connection, which is counted then. A stranger that has said nothing yet makes room for it."""
        if len(self.connections) >= SLAVE_CONNECTIONS_MAX:
            strangers = (one for one in self.connections if one.copy is None)
            oldest = next(strangers, None)
            if oldest is None:
                return False
            oldest.end(LinkEnd.REFUSED, "others came, and it had said nothing")
        return self._room.take()

    def replace(self, connection: SlaveConnection) -> None:
        """The same slave has connected anew: its earlier connection ends."""
        for other in list(self.connections):
            if other is not connection and other.slave == connection.slave:
                other.end(LinkEnd.REPLACED)

    def opened(self, connection: SlaveConnection) -> None:
        self.connections[connection] = None
        self._is_armed = False
        self.happened()

    def _began(self) -> None:
        """A slave begins to follow."""
        self._is_armed = False
        self._follows()

    def ended(self, connection: SlaveConnection, why: LinkEnd) -> None:
        if connection in self.connections:
            del self.connections[connection]
            self._room.give_back()
            self.ends[why] += 1
            if connection.copy is not None:
                self.gate.gone(connection.copy)
            if connection.slave != connection.address:
                position = None if connection.copy is None else connection.copy.position
                closed, now_ns = str(connection.link.closed), self.clock.monotonic_ns()
                self.away.gone(connection.slave, connection.main_address, position, closed, now_ns)
            self.happened()

    def happened(self) -> None:
        """Something came from a slave: what waited for it is answered at the end of this turn, which sets the alarm too."""
        self._turn.schedule()
        self._arm()
        if self.moved is not None:
            self.moved()

    # --- time -----------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """What is due later than it was is looked at at the time before. Earlier than it was is due what one begins, and a rate."""
        if self._is_armed and not self.settings.limits_rate:
            return
        for connection in self.connections:
            due_ns = connection.link.due_ns
            if due_ns is not None:
                self._is_armed = True
                self._store.deadlines.arm(WAKEUP, due_ns)

    def _look(self) -> None:
        now_ns, self._is_armed = self.clock.monotonic_ns(), False
        for connection in list(self.connections):
            connection.link.tick(now_ns)
            connection.go_on()
        self._arm()


def followed_from(port: SlavePort, slave_id: int) -> str:
    """Where the slave with that id follows from; empty where none does."""
    return next((one.address for one in port.connections if one.slave == str(slave_id) and one.copy), "")
