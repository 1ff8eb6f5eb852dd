"""A damaged place of the log, fetched from another copy: what to ask for, and whether the answer may be written over it.

Nobody knows how long the place is: sizes lead no further from where the damage begins. The other copy's records do, one after the other,
until one ends where a sound one of ours begins.

Rules of this file
1. An answer is believed in nothing. It has to have the size that was asked for, or less where the other log ends, go on with whole records
   of these positions that pass their checks, and meet our next sound record exactly. It has to repeat the bytes that we have before the
   place and those of our next record; where it is damaged itself on one side of the place, the other side has to do.
2. Nothing is written before all of that is so: a place is mended whole or not at all. Where nobody reads the log meanwhile, a long one is
   mended in pieces of whole records: killed in between it is damaged still.
3. A place lies in one file, and below what is confirmed here: the limit.
4. Nothing is read and nothing is sent here; whoever owns the place brings answers and our own records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from orbitmq.errors import RecordError
from orbitmq.limits.replication import MEND_RANGE_BYTES_MAX, MEND_READ_BYTES
from orbitmq.protocol.records import BLANK_BYTES_MIN, CheckStatus, check_record
from orbitmq.store.dispatch import Dispatched, DueTime, no_levels
from orbitmq.store.raw_records import RawRecords, SoundRecords

OurRecord = Callable[[int], bytes | None]
"""Our sound record, or the head of the filler, that begins at a position; no bytes where our log ends there; None where neither is so."""


class WantedPiece(NamedTuple):
    position: int
    size: int


class MissingRange:
    """`begin` is where the damage begins, behind a sound record or at the beginning of a file. When `is_whole`, `data` are the bytes for
    it, whose end is `end`, and `entries` are what they hold."""

    def __init__(
        self,
        begin: int,
        limit: int,
        segment_bytes: int,
        before: bytes,
        due_time: DueTime = no_levels,
        *,
        in_pieces: bool = False,
        ends_with_theirs: bool = False,
    ) -> None:
        """`limit`: up to there our log is confirmed. `before`: our bytes right before the place, of the same file. `due_time`: of delayed
        messages among what comes. `in_pieces`: a part of a long place is whole as well; the rest is a place of its own.
        `ends_with_theirs`: our log ends in this file, nobody knows where; it is whole where the other log ends."""
        file_end = begin - begin % segment_bytes + segment_bytes
        if not begin < limit or begin % segment_bytes < len(before):
            raise ValueError(f"nothing is missing at {begin}, with {len(before)} bytes before it, below {limit}")
        self.begin: Final = begin
        self.limit: Final = min(limit, file_end)
        self.data = b""
        self.end = begin
        self.entries: list[Dispatched] = []
        self.is_whole = False
        self.is_over = True
        """False of a part of a long place."""
        self._in_pieces = in_pieces
        self._ends_with_theirs = ends_with_theirs
        self._before = before
        self._begins_differently = False
        self._parts: list[bytes] = []
        self._raw = RawRecords(segment_bytes, begin, due_time)
        self._asked = WantedPiece(begin, 0)

    def next_read(self) -> WantedPiece:
        """What to ask the other copy for, answered by `take`."""
        position = self._raw.received_end
        if position == self.begin:
            position -= len(self._before)
        self._asked = WantedPiece(position, min(MEND_READ_BYTES, self.limit - position))
        return self._asked

    def take(self, data: bytes, ours: OurRecord) -> bool:
        """The answer to the last `next_read`; whether the place is whole now. RecordError where it may not be used: then nothing is to be
        asked or written any more."""
        asked = self._asked
        answer_end, is_short = asked.position + len(data), len(data) < asked.size
        if not answer_end > self._raw.received_end or len(data) > asked.size:
            raise RecordError(
                f"{len(data)} bytes came of the log from {asked.position} on, {asked.size} were asked for"
            )
        if asked.position < self.begin:
            self._begins_differently = not data.startswith(self._before)
            data = data[len(self._before) :]
        at = self._raw.received_end
        for whole in self._raw.take(data):
            if self._take_records(whole, ours):
                self._compare(data[max(self.end - at, 0) :], ours)
                self.is_whole = True
                return True
        if is_short and self._ends_with_theirs and self._raw.received_end == self.end and not self._begins_differently:
            self._keep(b"")
            self.is_whole = True
            return True
        if is_short:
            raise RecordError(f"it ends at {answer_end}, before a sound record of ours follows")
        if self._raw.received_end - self.begin > MEND_RANGE_BYTES_MAX:
            self._take_piece()
            return True
        if self._raw.received_end >= self.limit:
            raise RecordError(f"its records do not end at {self.limit}, where ours do")
        return False

    def _take_piece(self) -> None:
        if not self._in_pieces:
            raise RecordError(
                f"no sound record follows within {MEND_RANGE_BYTES_MAX} bytes: too much is damaged to be mended in place while the broker "
                "runs; stop it, and run `orbitmq store mend`"
            )
        if self._begins_differently:
            raise RecordError(f"it has other bytes before log position {self.begin}: that is another log")
        self._keep(b"")
        self.is_whole, self.is_over = True, False

    def _take_records(self, whole: SoundRecords, ours: OurRecord) -> bool:
        """Whether the place ends within these records, or behind them."""
        size = 0
        for entry in whole.entries:
            self.entries.append(entry)
            size += entry.size
            self.end += entry.size
            if self.end == self.limit or ours(self.end) is not None:
                self._keep(whole.data[:size])
                return True
        self._parts.append(whole.data)
        if whole.end == self.end:
            return False
        if whole.end > self.limit:
            raise RecordError(f"its file ends behind {self.end}, our log goes on up to {self.limit}")
        self.end = whole.end  # behind the filler of the file
        self._keep(b"")
        return True

    def _keep(self, last: bytes) -> None:
        self.data = b"".join([*self._parts, last])

    def _compare(self, rest: bytes, ours: OurRecord) -> None:
        """What the answer has around the place is what we have."""
        own = (ours(self.end) or b"") if self.end < self.limit else b""
        shared = min(len(own), len(rest))
        ends_differently = own[:shared] != rest[:shared]
        if ends_differently and not (self._before and self._is_damaged(rest)):
            raise RecordError(f"it has other bytes from log position {self.end} on: that is another log")
        repeats_next = not ends_differently and BLANK_BYTES_MIN < len(own) == shared
        if self._begins_differently and not repeats_next:
            raise RecordError(f"it has other bytes before log position {self.begin}: that is another log")

    def _is_damaged(self, rest: bytes) -> bool:
        """Whether the other copy has no sound record behind the place either."""
        found = check_record(rest, 0, len(rest), expect_physical_offset=self.end).status
        return found not in (CheckStatus.VALID, CheckStatus.TRUNCATED)
