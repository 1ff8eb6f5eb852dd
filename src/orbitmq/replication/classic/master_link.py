"""One slave's connection as its master sees it, without the socket: reports in, the log out.

    WAITING  ->  CHECKING  ->  STREAMING  ->  CLOSED

Rules of this file
1. The first report says where the log goes on. It has to lie in our log, and at the beginning of a record: another place means that the
   two logs have parted, and the link closes. Whoever owns the link looks at the log in state CHECKING and says what is there.
2. A slave without a log (report 0) begins at the first byte of our newest file, as RocketMQ's slaves do, or at our oldest.
3. Bytes are sent once, in order, up to the end of the log; a transfer does not cross the end of a file, and has whole records where they
   fit into one. No more than a window is sent and not acknowledged, and one read is under way at a time.
4. A report beyond what was sent, or below an earlier one, is no report of this log: the link closes. Within that, positions are not
   compared with records: every byte up to there is ours.
5. Silence is measured by the last byte read. A heartbeat is written when nothing was for a while, and not before the last one has left.
6. No clock is read. Times are monotonic nanoseconds; after CLOSED nothing happens any more, and `closed` says why.
"""

from __future__ import annotations

import enum
from typing import Final

from orbitmq.errors import ReplicationFrameError
from orbitmq.protocol.replication.frames import ReportReader, encode_transfer_head
from orbitmq.replication.classic.closing import LinkClosed, LinkEnd
from orbitmq.replication.classic.link_settings import LinkSettings
from orbitmq.replication.classic.log_extent import LogExtent, LogRead
from orbitmq.replication.classic.send_rate import SendRate
from orbitmq.replication.classic.whole_records import RecordPieces


class MasterLinkState(enum.Enum):
    WAITING = enum.auto()
    """For the first report."""
    CHECKING = enum.auto()
    """Whether a record begins at `asked`."""
    STREAMING = enum.auto()
    CLOSED = enum.auto()


class MasterLinkEvent(enum.Enum):
    ASKED = enum.auto()
    START_KNOWN = enum.auto()
    CLOSES = enum.auto()


_State, _Event = MasterLinkState, MasterLinkEvent

MASTER_LINK_TABLE: Final = {
    (_State.WAITING, _Event.ASKED): _State.CHECKING,
    (_State.WAITING, _Event.START_KNOWN): _State.STREAMING,
    (_State.WAITING, _Event.CLOSES): _State.CLOSED,
    (_State.CHECKING, _Event.START_KNOWN): _State.STREAMING,
    (_State.CHECKING, _Event.CLOSES): _State.CLOSED,
    (_State.STREAMING, _Event.CLOSES): _State.CLOSED,
}


class MasterLink:
    """`asked` is the first report, None before there is one; `sent_end` is the end of what was sent, -1 before it is known."""

    __slots__ = (
        "_extent",
        "_from_oldest",
        "_last_read_ns",
        "_last_write_ns",
        "_output",
        "_pieces",
        "_rate",
        "_reading",
        "_reported",
        "_reports",
        "_settings",
        "_start",
        "asked",
        "closed",
        "sent_end",
        "state",
    )

    def __init__(self, settings: LinkSettings, extent: LogExtent, now_ns: int, *, from_oldest: bool = False) -> None:
        self._settings = settings
        self._extent = extent
        self._from_oldest = from_oldest
        self._reports = ReportReader()
        self._rate = SendRate(settings.rate_bytes_per_s if settings.limits_rate else 0)
        self._last_read_ns = self._last_write_ns = now_ns
        self._output: list[bytes | memoryview] = []
        self._reading: LogRead | None = None
        self._reported = 0
        self._start = 0
        self._pieces = RecordPieces(settings.batch_bytes, settings.body_bytes_max)
        self.state = MasterLinkState.WAITING
        self.asked: int | None = None
        self.sent_end = -1
        self.closed: LinkClosed | None = None

    # --- what comes from the slave -----------------------------------------------------------------------------------

    def receive_data(self, data: bytes | bytearray | memoryview, now_ns: int) -> None:
        if self.state is MasterLinkState.CLOSED or not data:
            return
        self._last_read_ns = now_ns
        try:
            positions = self._reports.receive(data)
        except ReplicationFrameError as error:
            self.close(LinkEnd.BAD_FRAME, str(error))
            return
        for position in positions:
            if self.asked is None:
                self._ask(position, now_ns)
            else:
                self._acknowledge(position)
            if self.closed is not None:
                return

    def _ask(self, position: int, now_ns: int) -> None:
        start, end = self._extent.start, self._extent.end
        self.asked = self._reported = position
        if position == 0:
            self._begin(start if self._from_oldest else max(start, self._extent.newest_file), now_ns)
        elif position > end:
            self.close(
                LinkEnd.BEYOND_END,
                f"it has the log up to {position}, ours ends at {end}",
                "compare the two logs; if ours is the right one, empty the slave's store and let it be copied anew",
            )
        elif position < start:
            self.close(
                LinkEnd.BEHIND_START,
                f"it has the log up to {position}, ours begins at {start}",
                "empty the slave's store and let it be copied anew",
            )
        elif position in (start, end):
            self._begin(position, now_ns)
        else:
            self.sent_end = position
            self._step(_Event.ASKED)

    def start_checked(self, is_record: bool, now_ns: int) -> None:
        """What is at `asked`, in state CHECKING: a record of ours begins there, or the filler of a file; or neither."""
        if self.state is not MasterLinkState.CHECKING or self.asked is None:
            return
        if is_record:
            self._begin(self.asked, now_ns)
            return
        self.close(
            LinkEnd.INSIDE_RECORD,
            f"it has the log up to {self.asked}, where no record of ours begins",
            "start the slave again, so that it cuts a record that it has in part; if that does not help, empty its store",
        )

    def _begin(self, position: int, now_ns: int) -> None:
        self._start = self.sent_end = position
        self._last_write_ns = now_ns
        self._step(_Event.START_KNOWN)

    def _acknowledge(self, position: int) -> None:
        if position > self.sent_end or self._reported < position < self._start:
            self.close(
                LinkEnd.NOT_SENT, f"it reports {position}, the log was sent from {self._start} to {self.sent_end}"
            )
        elif position < self._reported:
            self.close(LinkEnd.WENT_BACK, f"it reported {self._reported} and then {position}")
        else:
            self._reported = position

    @property
    def acknowledged(self) -> int | None:
        """Up to where the slave has our log, by its last report; None while that is not known, and when the link is closed."""
        return self._reported if self.state is MasterLinkState.STREAMING else None

    # --- what becomes of the log --------------------------------------------------------------------------------------

    def log_is(self, extent: LogExtent) -> None:
        """The log has grown, or its oldest files were removed. A log that was cut below what was sent closes the link."""
        self._extent = extent
        if self.state is MasterLinkState.CLOSED or self.sent_end < 0:
            return
        if extent.end < self.sent_end:
            self.close(LinkEnd.LOG_CUT, f"it was sent up to {self.sent_end} and ends at {extent.end} now")
        elif self.sent_end < extent.start:
            self.close(
                LinkEnd.BEHIND_START,
                f"it was sent the log up to {self.sent_end}, ours begins at {extent.start} now",
                "empty the slave's store and let it be copied anew",
            )

    def next_read(self, now_ns: int) -> LogRead | None:
        """What to read for this slave, answered by `read_done` or `read_failed`. None: nothing, for now."""
        if self.state is not MasterLinkState.STREAMING or self._reading is not None or self._rate.free_at_ns > now_ns:
            return None
        position, (_, end, file_bytes) = self.sent_end, self._extent
        if position == end:
            return None
        file_end = position - position % file_bytes + file_bytes
        size = min(self._pieces.wanted, end - position, file_end - position)
        unacknowledged = position - max(self._reported, self._start)
        # A slave acknowledges whole records: one that is larger than the window is sent to its end.
        if size <= 0 or (not self._pieces.left and unacknowledged + size > self._settings.window_bytes):
            return None
        self._reading = LogRead(position, size)
        return self._reading

    def read_done(self, data: bytes | memoryview, now_ns: int) -> None:
        """The bytes of the last `next_read`, or whole records at their beginning. They are sent as they are, and must not change before
        they have left."""
        read, self._reading = self._reading, None
        if read is None or self.state is not MasterLinkState.STREAMING:
            return
        if not 0 < len(data) <= read.size:
            raise ValueError(f"{len(data)} bytes were read at {read.position}, {read.size} were asked for")
        length = self._pieces.length(data, read.position)
        if isinstance(length, str):
            self.close(LinkEnd.LOG_UNREADABLE, length, "run orbitmq store check")
        elif length:
            self._output += (encode_transfer_head(read.position, length), memoryview(data)[:length])
            self.sent_end += length
            self._rate.sent(length, now_ns)
            self._last_write_ns = now_ns

    @property
    def begins_with_record(self) -> bool:
        """What is to be read begins with a record or the filler of a file, and not inside a record that is larger than a transfer."""
        return not self._pieces.left

    def read_failed(self, why: str) -> None:
        """The last `next_read` cannot be had: the slave is not sent anything that could not be read."""
        self._reading = None
        self.close(LinkEnd.LOG_UNREADABLE, why)

    # --- time and output ----------------------------------------------------------------------------------------------

    @property
    def due_ns(self) -> int | None:
        """When `tick` and `next_read` have to be called again, if nothing else happens."""
        if self.state is MasterLinkState.CLOSED:
            return None
        due = self._last_read_ns + self._settings.silence_ns
        if self.state is MasterLinkState.STREAMING:
            if not self._output:
                due = min(due, self._last_write_ns + self._settings.heartbeat_ns)
            if self._rate.free_at_ns > self._last_write_ns and self.sent_end < self._extent.end:
                due = min(due, self._rate.free_at_ns)
        return due

    def tick(self, now_ns: int) -> None:
        """Writes a heartbeat where one is due, and closes where the slave was silent for too long."""
        if self.state is MasterLinkState.CLOSED:
            return
        if now_ns - self._last_read_ns >= self._settings.silence_ns:
            self.close(LinkEnd.SILENT, f"nothing was read from it for {self._settings.silence_ms} ms")
        elif (
            self.state is MasterLinkState.STREAMING
            and not self._output
            and now_ns - self._last_write_ns >= self._settings.heartbeat_ns
        ):
            self._output.append(encode_transfer_head(self.sent_end, 0))
            self._last_write_ns = now_ns

    def take_output(self) -> list[bytes | memoryview]:
        """What has to be written, in order. To be taken when the socket has taken what came before."""
        output, self._output = self._output, []
        return output

    def close(self, why: LinkEnd, what: str = "", remedy: str = "") -> None:
        """Ends the link; only the first reason counts. Nothing of it is written any more."""
        if self.state is not MasterLinkState.CLOSED:
            self.closed = LinkClosed(why, what, remedy)
            self._output.clear()
            self._step(_Event.CLOSES)

    def _step(self, event: MasterLinkEvent) -> None:
        self.state = MASTER_LINK_TABLE[self.state, event]
