"""A slave's connection to its master: the log comes in and is appended, what was appended is reported.

Rules of this file
1. What is to be done when is decided by `SlaveLink`. Here are the socket, the store and the address of the master.
2. Bytes are appended as they come. Where that fails the connection ends, and is made anew after a pause: the log ends with a whole record.
3. Where the master is comes from the settings and a name server, which is asked again at every attempt (`group_places`).
4. A master of orbitmq gave a ticket before (`asking`), which is the first that is sent, over TLS where calls to other servers use it; one
   of RocketMQ knows neither.
5. What is on the disk is reported where sends of this group wait for the disk, else what is written.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, cast

from orbitmq.clock import Clock
from orbitmq.errors import OrbitError, RecordError, RemoteError, StoreUnwritableError, words_of
from orbitmq.limits.server import OUTBOUND_CONNECT_MS
from orbitmq.replication.classic.closing import LinkClosed, LinkEnd
from orbitmq.replication.classic.link_settings import LinkSettings
from orbitmq.replication.classic.slave_link import ReportedEnd, SlaveLink, SlaveLinkState
from orbitmq.replication.transfer_rate import TransferRate
from orbitmq.server.process.turn import Turn
from orbitmq.store.settings import FlushDiskType
from orbitmq.store.store import MessageStore

logger = logging.getLogger("orbitmq.replication")

WAKEUP: Final = "master"


class Following:
    """Of one open store that copies the log of a master."""

    def __init__(
        self,
        store: MessageStore,
        link_settings: LinkSettings,
        clock: Clock,
        turn: Turn,
        master: Callable[[], str],
        opening: Callable[[str], Awaitable[bytes]],
        tls: Callable[[], ssl.SSLContext | None],
        ended: Callable[[str, bool, bool], None] = lambda *_: None,
    ) -> None:
        """`master()` is `host:port` of the master's port for slaves, empty while that is not known. `opening(address)` asks the master for
        what is sent there first; raises OrbitError where it refuses. `tls()`: what a master that gave a ticket is spoken to by.
        `ended(address, lasted, was_taken)` is told of a connection that could not be made, or has ended."""
        self._syncs = store.settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
        reports = ReportedEnd.SYNCED if self._syncs else ReportedEnd.WRITTEN
        self.link: Final = SlaveLink(link_settings, reports, clock.monotonic_ns())
        self.master_address = ""
        """Where the last connection went."""
        self.rate: Final = TransferRate(clock)
        self.last_read_ns = 0
        """When something last came from the master; 0 for never."""
        self.last_write_ns = 0
        self.since_ns = clock.monotonic_ns()
        """Since when it is as it is: connected, or not."""
        self.sent_bytes = 0
        self.received_bytes = 0
        self.ends: dict[LinkEnd, int] = dict.fromkeys(LinkEnd, 0)
        """How connections to a master ended, since the start. Attempts that made none do not count."""
        self._store = store
        self._clock = clock
        self._turn = turn
        self._master = master
        self._opening = opening
        self._tls = tls
        self._ended = ended
        self._first_bytes = b""
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._is_paused = False
        self._armed_in: SlaveLinkState | None = None
        """The state of the link for which WAKEUP is armed, if that is so."""
        self._looked_at = -1, -1
        """Where the log was written and synced when that was last told to the link."""
        self._reported: LinkClosed | None = None
        """The end of a connection that the log knows of: repetitions are not told."""
        store.deadlines.define(WAKEUP, self._look)

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._turn.add(self._turn_ended)
        self._look()

    async def stop(self) -> None:
        """No connection any more."""
        self.link.stop()
        self._turn.remove(self._turn_ended)
        self._store.deadlines.disarm(WAKEUP)
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        self._disconnect()

    @property
    def is_connected(self) -> bool:
        return self.link.state is SlaveLinkState.FOLLOWING

    @property
    def trouble(self) -> str:
        """Why no master is followed; empty while one is."""
        if self.is_connected:
            return ""
        where = f"the master at {self.master_address}" if self.master_address else "the master"
        return f"{where} is not followed: {self.link.closed or 'no connection has been made yet'}"

    # --- connecting -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._armed_in = None
        self.link.tick(self._clock.monotonic_ns())
        self._go_on()

    async def _connect(self) -> None:
        address = self.master_address = self._master()
        try:
            if not address:
                raise OSError("no name server says where the master of this group is, and haMasterAddress is not set")
            host, _, port = address.rpartition(":")
            self._first_bytes = await self._opening(address)
            async with asyncio.timeout(OUTBOUND_CONNECT_MS / 1_000):
                await asyncio.get_running_loop().create_connection(
                    lambda: _MasterConnection(self),
                    host.strip("[]"),
                    int(port),
                    ssl=self._tls() if self._first_bytes else None,
                )
        except (OSError, ValueError) as error:  # TimeoutError is an OSError
            reason = (
                f"no connection within {OUTBOUND_CONNECT_MS} ms" if isinstance(error, TimeoutError) else words_of(error)
            )
            self.failed(LinkEnd.LOST, f"{address}: {reason}" if address else reason)
        except RemoteError as error:
            self.failed(LinkEnd.REFUSED, str(error))
        except OrbitError as error:
            self.failed(LinkEnd.LOST, str(error))
        finally:
            self._connecting = None

    def connected(self, transport: asyncio.Transport) -> None:
        if self.link.state is not SlaveLinkState.CONNECTING:
            transport.abort()
            return
        end = self._store.begin_raw()
        if self._syncs and self._store.log.synced_end < end:
            try:
                self._store.sync()
            except OSError as error:
                transport.abort()
                self.failed(LinkEnd.APPEND_FAILED, str(error))
                return
        self._store.confirmation.let_pass()  # what nobody has confirmed here: its master has it as well
        self._transport, self._is_paused = transport, False
        self.since_ns = self._clock.monotonic_ns()
        self.link.connected(end, self.since_ns, self._first_bytes)
        logger.info("following the master at %s from position %d on", self.master_address, self._store.log.end)
        self._reported = None
        self._go_on()
        self._turn.schedule()

    def failed(self, why: LinkEnd, what: str = "", remedy: str = "") -> None:
        self.link.failed(why, self._clock.monotonic_ns(), what, remedy)
        self._ended(self.master_address, self.link.lasted, self.link.was_taken)
        self._go_on()
        self._turn.schedule()  # it sets the alarm, which nothing else may do for long

    def connect_anew(self, why: LinkEnd) -> None:
        """What the master was told of this slave is not so any more."""
        if self.is_connected:
            self.failed(why)

    # --- the log comes --------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        now_ns = self.last_read_ns = self._clock.monotonic_ns()
        self.received_bytes += len(data)
        store = self._store
        try:
            if pieces := self.link.receive_data(data, now_ns):  # they follow one another
                joined = b"".join([piece.data for piece in pieces]) if len(pieces) > 1 else bytes(pieces[0].data)
                store.append_raw(pieces[0].position, joined)
                self.rate.add(len(joined))
        except RecordError as error:
            self.failed(
                LinkEnd.MISMATCH,
                str(error),
                "look whether both brokers belong together, and run orbitmq store check at the master",
            )
        except StoreUnwritableError as error:
            self.failed(LinkEnd.APPEND_FAILED, str(error))
        self._report()
        self._turn.schedule()

    def _turn_ended(self) -> None:
        log = self._store.log
        if (log.written_end, log.synced_end) != self._looked_at:  # nearly always that of the last read was seen with it
            self._report()

    def _report(self) -> None:
        """Tell the link how far the log is, and what follows."""
        if self._transport is not None:
            log = self._store.log
            came_end = self._store.raw_end  # the log ends behind the filler of a file as soon as its head has come
            written_end, synced_end = self._looked_at = log.written_end, log.synced_end
            self.link.appended(
                min(written_end, came_end),
                min(synced_end, came_end),
                self._clock.monotonic_ns(),
                unfinished_bytes=max(came_end - log.end, 0),
            )
            self._go_on()

    # --- what follows ---------------------------------------------------------------------------------------------

    def writable(self, is_paused: bool) -> None:
        self._is_paused = is_paused
        self._go_on()

    def lost(self, transport: asyncio.BaseTransport | None, error: Exception | None) -> None:
        if transport is self._transport:
            self.failed(LinkEnd.LOST, "the master closed it" if error is None else words_of(error))

    def _go_on(self) -> None:
        link, transport = self.link, self._transport
        if link.state is SlaveLinkState.CONNECTING:
            if self._connecting is None:
                self._connecting = asyncio.get_running_loop().create_task(self._connect(), name="follow the master")
        elif link.state is SlaveLinkState.FOLLOWING and transport is not None:
            if not self._is_paused and (output := link.take_output()):
                transport.write(output)
                self.sent_bytes += len(output)
                self.last_write_ns = self._clock.monotonic_ns()
            if link.wants_data is not transport.is_reading() and not transport.is_closing():
                transport.resume_reading() if link.wants_data else transport.pause_reading()
        else:
            self._disconnect()
        if self._armed_in is link.state:  # what is due later than it was is looked at when it was due
            return
        due_ns = link.due_ns
        if due_ns is None:
            self._store.deadlines.disarm(WAKEUP)
        else:
            self._store.deadlines.arm(WAKEUP, due_ns)
        self._armed_in = link.state

    def _disconnect(self) -> None:
        transport, self._transport = self._transport, None
        closed = self.link.closed
        if transport is not None:
            transport.abort()
            self.since_ns = self._clock.monotonic_ns()
            self.ends[LinkEnd.STOPPED if closed is None else closed.why] += 1
        if closed is not None and closed != self._reported:
            self._reported = closed
            logger.warning("the master at %s is not followed, trying again: %s", self.master_address or "?", closed)


class _MasterConnection(asyncio.Protocol):
    def __init__(self, following: Following) -> None:
        self._following = following
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._following.connected(self._transport)

    def data_received(self, data: bytes) -> None:
        self._following.received(data)

    def pause_writing(self) -> None:
        self._following.writable(True)

    def resume_writing(self) -> None:
        self._following.writable(False)

    def connection_lost(self, error: Exception | None) -> None:
        self._following.lost(self._transport, error)
