"""One connection at a master's port for slaves: what its link decides, with the socket.

Rules of this file
1. What it may do is decided by `MasterLink`; what follows for sends by the gate of the port.
2. One pass of the loop sends so much at most; what is not in memory a thread reads, one piece at a time.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, cast

from orbitmq.errors import ReplicationFrameError, words_of
from orbitmq.limits.replication import COPIES_MAX, SLAVE_BATCHES_PER_PASS, SLAVE_LET_GO_MS
from orbitmq.protocol.replication.opening import read_opening
from orbitmq.replication.classic.closing import LinkEnd
from orbitmq.replication.classic.log_extent import LogExtent, LogRead
from orbitmq.replication.classic.master_link import MasterLink, MasterLinkState
from orbitmq.replication.copies import Copy
from orbitmq.replication.tickets import TicketRefusal
from orbitmq.replication.transfer_rate import TransferRate
from orbitmq.server.connections.addresses import endpoint, peer_address
from orbitmq.server.replication.slave_port import SlavePort

logger = logging.getLogger("orbitmq.replication")


class SlaveConnection(asyncio.Protocol):
    """`copy` is what it counts as, None before the slave has said where its log ends."""

    def __init__(self, port: SlavePort) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._opening: bytes | None = b""
        """What has come before it was known how the slave begins; None since."""
        self._is_paused = False
        self._goes_on = False
        """The next pass of the loop sends more."""
        self._told = -1
        self.address = ""
        self.slave = ""
        """Its id in the group where it gave a ticket, else its address."""
        self.main_address = ""
        """Where it serves clients, as it said for its ticket; empty for one without."""
        self._is_damaged = False
        self.copy: Copy | None = None
        self.sent: Final = TransferRate(port.clock)
        self.link = MasterLink(port.settings, port.extent(), port.clock.monotonic_ns())

    # --- asyncio --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        host, port = peer_address(transport)
        self.address = endpoint(host, port)
        self.slave, self._host = self.address, host
        opened = cast(asyncio.Transport, transport)
        if not self._port.admits():
            self._port.ends[LinkEnd.REFUSED] += 1
            opened.abort()
            return
        self._use(opened)
        self._port.opened(self)

    def speak_over(self, transport: asyncio.BaseTransport, client: tuple[str, int] | None) -> None:
        """Use this transport from now on; the slave is at `client`, where that is not what the transport says."""
        self._use(cast(asyncio.Transport, transport))
        if client is not None:
            self.slave = self.address = endpoint(*client)
            self._host = client[0]

    def _use(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(self._port.settings.body_bytes_max)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:  # it is let go
            return
        self._port.received_bytes += len(data)
        if self._opening is not None:
            try:
                opening = read_opening(self._opening + data)
            except ReplicationFrameError as error:
                self.end(LinkEnd.BAD_FRAME, str(error))
                return
            if opening is None:
                self._opening += data
                return
            self._opening, data = None, opening.rest
            if not self._may_follow(opening.secret):
                return
        self.link.receive_data(data, self._port.clock.monotonic_ns())
        self.go_on()
        self._port.happened()

    def _may_follow(self, secret: bytes | None) -> bool:
        port = self._port
        if secret is None:
            if why_not := port.asks.why_not(None):
                self.end(LinkEnd.REFUSED, why_not)
                return False
            if port.asks.may_be_unnamed(self._host):
                return True
            self.end(LinkEnd.REFUSED, "it has no ticket, and haPeerAddresses does not name its address")
            return False
        now_ns = port.clock.monotonic_ns()
        bearer = port.asks.redeem(secret, now_ns)
        if isinstance(bearer, TicketRefusal):
            self.end(LinkEnd.REFUSED, bearer.value)
            return False
        if why_not := port.asks.why_not(bearer.slave_id):
            self.end(LinkEnd.REFUSED, why_not)
            return False
        self.slave, self.main_address, self._is_damaged = str(bearer.slave_id), bearer.address, bearer.is_damaged
        port.replace(self)
        self.link = MasterLink(port.settings, port.extent(), now_ns, from_oldest=True)
        return True

    @property
    def _has_ticket(self) -> bool:
        return self.slave != self.address

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.go_on()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.end(LinkEnd.LOST, "" if error is None else words_of(error))

    # --- the link -------------------------------------------------------------------------------------------------

    def log_is(self, extent: LogExtent) -> None:
        self.link.log_is(extent)
        self.go_on()

    def go_on(self) -> None:
        """Do what the link wants done now."""
        link, port = self.link, self._port
        if link.state is MasterLinkState.CHECKING and link.asked is not None:
            try:
                is_record = port.begins_record(link.asked)
            except OSError as error:
                link.close(LinkEnd.LOG_UNREADABLE, str(error))
            else:
                if not is_record and self._has_ticket:  # its log was compared with ours: what is bad there is ours
                    self._not_read(link.asked, f"the record at {link.asked} fails its check")
                link.start_checked(is_record, port.clock.monotonic_ns())
        self._tell_gate()
        if not self._goes_on:
            self._read_transfers()
        self._write()
        if link.closed is not None:
            self._close()

    def _read_transfers(self) -> None:
        """What one pass of the loop may send. Where more waits, the next pass goes on, whatever else is heard of before."""
        link, port = self.link, self._port
        for _ in range(SLAVE_BATCHES_PER_PASS):
            if self._is_paused or (read := link.next_read(port.clock.monotonic_ns())) is None:
                return
            data = port.read_now(read)
            if data is None:
                port.read_cold(read, self)
                return
            self._send(read, data)
        self._goes_on = True
        asyncio.get_running_loop().call_soon(self._next_pass)

    def _next_pass(self) -> None:
        self._goes_on = False
        self.go_on()

    def was_read(self, read: LogRead, data: bytes | BaseException | None) -> None:
        """A thread has read it, or could not."""
        if isinstance(data, bytes) and len(data) == read.size:
            self._send(read, data)
        else:
            why = str(data) if isinstance(data, BaseException) else "it is gone"
            self._not_read(read.position, f"the log at {read.position}: {why}")
        if self._transport is not None:
            self.go_on()

    def _send(self, read: LogRead, data: bytes) -> None:
        """What is sound of it, up to a record that is damaged."""
        damaged_at = self._port.damaged_at(read, data) if self.link.begins_with_record else None
        if damaged_at == read.position:
            self._not_read(damaged_at, f"the record at {damaged_at} fails its check")
        else:
            sound = data if damaged_at is None else data[: damaged_at - read.position]
            self.link.read_done(sound, self._port.clock.monotonic_ns())

    def _not_read(self, position: int, why: str) -> None:
        """What comes before that leaves first."""
        self._write()
        self.link.read_failed(why)
        self._port.asks.suspect(position)

    def _tell_gate(self) -> None:
        acknowledged = self.link.acknowledged
        if acknowledged is None or acknowledged == self._told:
            return
        self._told = acknowledged
        if self.copy is not None:
            self._port.gate.reported(self.copy, acknowledged)
            return
        self._port.gate.turn_ended()
        counts_as = self._host if self.slave == self.address else None
        self.copy = self._port.gate.connected(
            self.slave, max(acknowledged, 0), counts_as=counts_as, damaged=self._is_damaged
        )
        if self.copy is None:
            self.link.close(LinkEnd.REFUSED, f"{COPIES_MAX} slaves follow already")
        else:
            logger.info("slave %s at %s follows from position %d on", self.slave, self.address, self.link.sent_end)
            self._port.asks.follows()

    def _write(self) -> None:
        output = self.link.take_output()
        if output and self._transport is not None:
            size = sum(len(part) for part in output)
            self.sent.add(size)
            self._port.sent_bytes += size
            self._transport.writelines(output)

    def end(self, why: LinkEnd, what: str = "") -> None:
        self.link.close(why, what)
        self._close()

    def _close(self) -> None:
        transport, self._transport = self._transport, None
        closed = self.link.closed
        if transport is None or closed is None:
            return
        if closed.why is LinkEnd.LOG_UNREADABLE:  # it gets what was read before, and may be a copy up to there
            # A socket that is closed whole resets the connection at the slave's next report, and what is on its way is gone.
            transport.write_eof() if transport.can_write_eof() else transport.close()
            asyncio.get_running_loop().call_later(SLAVE_LET_GO_MS / 1_000, transport.abort)
        else:
            transport.abort()
        level = logging.INFO if closed.why in (LinkEnd.LOST, LinkEnd.STOPPED) else logging.WARNING
        logger.log(level, "the slave at %s is let go: %s", self.address, closed)
        self._port.ended(self, closed.why)
