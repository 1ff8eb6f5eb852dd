"""What of its log a leader sends to one follower next: in order, in whole records, no more than a window ahead of what is acknowledged.

Rules of this file
1. A stream belongs to a session of the follower. Where its position lies in our log was judged before it was made.
2. One read is under way at a time. A piece does not cross the end of a file.
3. No clock: times are monotonic nanoseconds.
"""

from __future__ import annotations

from typing import Final

from orbitmq.replication.classic.link_settings import LinkSettings
from orbitmq.replication.classic.log_extent import LogExtent, LogRead
from orbitmq.replication.classic.send_rate import SendRate
from orbitmq.replication.classic.whole_records import RecordPieces
from orbitmq.replication.replica_steps import FollowSession


class LogStream:
    """`sent_end` is where the next piece begins."""

    __slots__ = ("_pieces", "_rate", "_reading", "_start", "_window_bytes", "sent_end", "session")

    def __init__(self, settings: LinkSettings, session: FollowSession, position: int) -> None:
        self.session: Final = session
        self.sent_end = position
        self._start = position
        self._window_bytes = settings.window_bytes
        self._pieces = RecordPieces(settings.batch_bytes, settings.body_bytes_max)
        self._rate = SendRate(settings.rate_bytes_per_s if settings.limits_rate else 0)
        self._reading: LogRead | None = None

    @property
    def begins_with_record(self) -> bool:
        """What is to be read begins with a record or the filler of a file, and not inside a record that is larger than a piece."""
        return not self._pieces.left

    def next_read(self, extent: LogExtent, acknowledged: int | None, now_ns: int) -> LogRead | None:
        """What to read now, answered by `read_done`. None: nothing, for now. `acknowledged`: what the follower reported in this session."""
        if self._reading is not None or self._rate.free_at_ns > now_ns:
            return None
        position, file_bytes = self.sent_end, extent.file_bytes
        file_end = position - position % file_bytes + file_bytes
        size = min(self._pieces.wanted, extent.end - position, file_end - position)
        unacknowledged = position - max(acknowledged or 0, self._start)
        # A follower acknowledges whole records: one that is larger than the window is sent to its end.
        if size <= 0 or (not self._pieces.left and unacknowledged + size > self._window_bytes):
            return None
        self._reading = LogRead(position, size)
        return self._reading

    def read_done(self, data: bytes | memoryview, now_ns: int) -> int | str:
        """How many of the bytes of the last `next_read` are sent, from `sent_end` before. A text says why they are no records: nothing can
        be sent any more."""
        assert self._reading is not None, "next_read() comes first"
        position, self._reading = self._reading.position, None
        length = self._pieces.length(data, position)
        if isinstance(length, int):
            self.sent_end += length
            self._rate.sent(length, now_ns)
        return length
