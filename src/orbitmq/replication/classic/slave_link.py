"""A slave's connection to its master without the socket: the log in, reports out, and when to connect again.

    PAUSED  ->  CONNECTING  ->  FOLLOWING  ->  PAUSED  ...  STOPPED

Rules of this file
1. The first report leaves at once and names the end of our log. RocketMQ's slaves wait for up to 5 s with it.
2. A transfer goes on where the last one ended, the first one at the end of our log; only a slave without a log takes the master's
   beginning. Any other position closes the connection: a log is never written with a gap, or over.
3. What is reported was appended: written, or on the disk where reports promise that. A report leaves when that grows, else as a heartbeat.
4. Bytes that were received and not appended have a bound; beyond it `wants_data` is False, and the silence of the master is our own.
5. Silence is measured by the last byte read. After any end it is connected anew when a pause is over, until `stop`: soon after a
   connection that lasted, else after twice the pause before, up to a bound.
6. No clock is read. Times are monotonic nanoseconds; `closed` says why the last connection ended.
"""

from __future__ import annotations

import enum
from typing import Final

from orbitmq.errors import ReplicationFrameError
from orbitmq.protocol.replication.frames import LogPiece, TransferReader, encode_report
from orbitmq.replication.classic.closing import LinkClosed, LinkEnd
from orbitmq.replication.classic.link_settings import LinkSettings


class SlaveLinkState(enum.Enum):
    PAUSED = enum.auto()
    """Nothing is to be done until `due_ns`."""
    CONNECTING = enum.auto()
    """Whoever owns the link connects, and says `connected` or `failed`."""
    FOLLOWING = enum.auto()
    STOPPED = enum.auto()


class SlaveLinkEvent(enum.Enum):
    PAUSE_OVER = enum.auto()
    CONNECTED = enum.auto()
    FAILED = enum.auto()
    STOPS = enum.auto()


_State, _Event = SlaveLinkState, SlaveLinkEvent

SLAVE_LINK_TABLE: Final = {
    (_State.PAUSED, _Event.PAUSE_OVER): _State.CONNECTING,
    (_State.PAUSED, _Event.STOPS): _State.STOPPED,
    (_State.CONNECTING, _Event.CONNECTED): _State.FOLLOWING,
    (_State.CONNECTING, _Event.FAILED): _State.PAUSED,
    (_State.CONNECTING, _Event.STOPS): _State.STOPPED,
    (_State.FOLLOWING, _Event.FAILED): _State.PAUSED,
    (_State.FOLLOWING, _Event.STOPS): _State.STOPPED,
}


class ReportedEnd(enum.Enum):
    """What a report promises."""

    WRITTEN = "written"
    """The log has it, in memory of the system perhaps; as RocketMQ's slaves."""
    SYNCED = "synced"
    """It is on the disk."""


class SlaveLink:
    """`received_end` is the end of what was received on this connection; None for a slave without a log that has received nothing."""

    __slots__ = (
        "_appended_end",
        "_connected_ns",
        "_failures",
        "_last_read_ns",
        "_last_write_ns",
        "_opening",
        "_pause_end_ns",
        "_reported",
        "_reports",
        "_settings",
        "_transfers",
        "_unfinished_bytes",
        "_unsent_report",
        "closed",
        "lasted",
        "received_end",
        "state",
        "was_taken",
    )

    def __init__(self, settings: LinkSettings, reports: ReportedEnd, now_ns: int) -> None:
        self._settings = settings
        self._reports: Final = reports
        self._transfers = TransferReader()
        self._opening = b""
        self._unsent_report: int | None = None
        self._appended_end = 0
        self._reported = 0
        self._unfinished_bytes = 0
        self._failures = 0
        self._last_read_ns = self._last_write_ns = self._pause_end_ns = self._connected_ns = now_ns
        self.received_end: int | None = None
        self.state = SlaveLinkState.PAUSED
        self.closed: LinkClosed | None = None
        self.lasted = False
        """Whether the connection that ended last was there for as long as the longest pause."""
        self.was_taken = False
        """Whether the master has sent something on this connection, or on the one that ended last."""

    # --- a connection begins and ends ---------------------------------------------------------------------------------

    def connected(self, log_end: int, now_ns: int, opening: bytes = b"") -> None:
        """A connection has been made. `log_end` is the end of our log, 0 for none, with everything appended that was received before, and
        synced where reports promise that: this report counts like any other. `opening` is sent first."""
        if self.state is not SlaveLinkState.CONNECTING:
            raise ValueError(f"a connection in state {self.state.name}")
        self._transfers = TransferReader()
        self._appended_end = self._reported = log_end
        self._unfinished_bytes = 0
        self.received_end = log_end or None
        self._last_read_ns = self._last_write_ns = self._connected_ns = now_ns
        self._opening = opening
        self._unsent_report = log_end
        self.closed = None
        self.was_taken = False
        self._step(_Event.CONNECTED)

    def failed(self, why: LinkEnd, now_ns: int, what: str = "", remedy: str = "") -> None:
        """The connection ended or could not be made. What was received and not appended yet may be appended or dropped."""
        if (self.state, _Event.FAILED) not in SLAVE_LINK_TABLE:
            return
        self.closed = LinkClosed(why, what, remedy)
        is_connected = self.state is SlaveLinkState.FOLLOWING
        self.was_taken &= is_connected
        self.lasted = is_connected and now_ns - self._connected_ns >= self._settings.reconnect_ns
        if self.lasted:
            self._failures = 0
        self._pause_end_ns = now_ns + self._settings.pause_ns(self._failures)
        self._failures += 1
        self._step(_Event.FAILED)

    def stop(self) -> None:
        """No connection any more."""
        if self.state is not SlaveLinkState.STOPPED:
            self._step(_Event.STOPS)

    # --- the log ------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes | bytearray | memoryview, now_ns: int) -> list[LogPiece]:
        """Pieces of the log to append, in this order. They refer to `data`. Nothing of what came with an error is given."""
        if self.state is not SlaveLinkState.FOLLOWING or not data:
            return []
        self._last_read_ns = now_ns
        self.was_taken = True
        try:
            pieces = self._transfers.receive(data)
        except ReplicationFrameError as error:
            self.failed(LinkEnd.BAD_FRAME, now_ns, str(error))
            return []
        end = self.received_end
        for position, piece in pieces:
            if end is not None and position != end:
                self.failed(
                    LinkEnd.MISMATCH,
                    now_ns,
                    f"the master sends the log from {position}, ours ends at {end}",
                    "look whether both brokers belong together; if so, empty this store and let it be copied anew",
                )
                return []
            end = position + len(piece)
        if end is not None and self.received_end is None and pieces:
            self._appended_end = pieces[0].position
        self.received_end = end
        return [piece for piece in pieces if len(piece.data)]

    def appended(self, written_end: int, synced_end: int, now_ns: int, unfinished_bytes: int = 0) -> None:
        """Our log is written and synced so far, and the last `unfinished_bytes` received are of a record whose end has not come. A log that
        has become shorter than what was reported ends the connection."""
        if self.state is not SlaveLinkState.FOLLOWING or self.received_end is None:
            return
        reported = written_end if self._reports is ReportedEnd.WRITTEN else synced_end
        if written_end < self._reported:
            self.failed(
                LinkEnd.LOG_CUT, now_ns, f"it was reported up to {self._reported} and ends at {written_end} now"
            )
            return
        if written_end > self.received_end:
            raise ValueError(f"the log was received up to {self.received_end} and written up to {written_end}")
        if not self.wants_data:
            self._last_read_ns = now_ns
        self._unfinished_bytes = unfinished_bytes
        self._appended_end = max(self._appended_end, written_end)
        if reported > self._reported:
            self._report(reported, now_ns)

    @property
    def unappended_bytes(self) -> int:
        """Received and not written to our log."""
        return 0 if self.received_end is None else self.received_end - self._appended_end

    @property
    def wants_data(self) -> bool:
        """The socket is to be read. What waits for the end of its record waits for the socket, not for the disk."""
        waits_bytes = self.unappended_bytes - self._unfinished_bytes
        return self.state is SlaveLinkState.FOLLOWING and waits_bytes <= self._settings.unappended_bytes_max

    # --- time and output ----------------------------------------------------------------------------------------------

    @property
    def due_ns(self) -> int | None:
        """When `tick` has to be called next; None: not before something else happens."""
        if self.state is SlaveLinkState.PAUSED:
            return self._pause_end_ns
        if self.state is not SlaveLinkState.FOLLOWING:
            return None
        heartbeat = self._last_write_ns + self._settings.heartbeat_ns
        return min(heartbeat, self._last_read_ns + self._settings.silence_ns) if self.wants_data else heartbeat

    def tick(self, now_ns: int) -> None:
        """Ends a pause, ends a connection on which nothing comes, reports as a heartbeat."""
        if self.state is SlaveLinkState.PAUSED:
            if now_ns >= self._pause_end_ns:
                self._step(_Event.PAUSE_OVER)
        elif self.state is SlaveLinkState.FOLLOWING:
            if self.wants_data and now_ns - self._last_read_ns >= self._settings.silence_ns:
                self.failed(
                    LinkEnd.SILENT, now_ns, f"nothing was read from the master for {self._settings.silence_ms} ms"
                )
            elif now_ns - self._last_write_ns >= self._settings.heartbeat_ns:
                self._report(self._reported, now_ns)

    def _report(self, position: int, now_ns: int) -> None:
        self._reported = self._unsent_report = position
        self._last_write_ns = now_ns

    def take_output(self) -> bytes:
        """What has to be written, to be taken when the socket has taken what came before. Of several reports only the last one is."""
        if self._unsent_report is None or self.state is not SlaveLinkState.FOLLOWING:
            return b""
        output = self._opening + encode_report(self._unsent_report)
        self._opening, self._unsent_report = b"", None
        return output

    def _step(self, event: SlaveLinkEvent) -> None:
        self.state = SLAVE_LINK_TABLE[self.state, event]
