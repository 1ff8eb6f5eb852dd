"""Which pulls read a range of a queue: several in one wave, none reading what another reads.

A broker decides how much one pull brings: 32 messages by default, or some bytes of them. A range is therefore read in waves. All pulls
of a wave but the last are *closed*, they end where the next one begins; the last is *open*, it takes what it gets. What the open
one got is how far apart the pulls of the next wave are.

Rules of this file
1. Pure: asks out, answers in. The caller sends, waits, and tries again.
2. A closed ask that got too little is asked for the rest, in the same wave. What a wave brought counts when `done` says that all of
   it has arrived; until then `wave` begins it anew.
3. With a filter a pull may pass its end: what lies beyond belongs to the next ask and is dropped by the caller.
"""

from __future__ import annotations

from typing import NamedTuple

from orbitmq.limits.client import BULK_BUFFER_BYTES, BULK_PULLS_MAX


class Ask(NamedTuple):
    """One pull: at most `messages` messages from `begin` on; those from `end` on are another ask's."""

    begin: int
    end: int
    messages: int


class Pace(NamedTuple):
    """What a pull of a queue brought lately: offsets it went ahead, and bytes."""

    advance: int = 0
    answer_bytes: int = 0


class RangePull:
    """Reads offsets from `begin` on and below `end`.

    pull_count: messages one pull may ask for. filtered: whether a pull may pass over messages. pace: what was seen of this queue before.
    pulls_max: asks of one wave.
    """

    def __init__(
        self,
        begin: int,
        end: int,
        pull_count: int,
        *,
        filtered: bool = False,
        pace: Pace | None = None,
        pulls_max: int = BULK_PULLS_MAX,
    ) -> None:
        self.next = begin
        self.pace = pace or Pace()
        self._end = end
        self._pull_count = pull_count
        self._filtered = filtered
        self._pulls_max = pulls_max
        self._open = Ask(begin, end, pull_count)
        self._reached = begin

    @property
    def finished(self) -> bool:
        return self.next >= self._end

    def wave(self) -> list[Ask]:
        """The asks of the next wave, in order. Calling it again, after a failure, begins the same wave anew."""
        advance, answer_bytes = self.pace
        at = self.next
        asks: list[Ask] = []
        if advance > 0:
            several = min(self._pulls_max, BULK_BUFFER_BYTES // max(answer_bytes, 1))
            count = self._pull_count if self._filtered else min(advance, self._pull_count)
            while len(asks) < several - 1 and at + advance < self._end:
                asks.append(Ask(at, at + advance, count))
                at += advance
        self._open = Ask(at, self._end, self._pull_count if self._filtered else min(self._pull_count, self._end - at))
        asks.append(self._open)
        return asks

    def answered(self, ask: Ask, next_offset: int, body_bytes: int) -> Ask | None:
        """An answer went as far as `next_offset`, which is beyond `ask.begin`. What has to be asked for besides, in the same wave."""
        if ask is self._open:
            self._reached = min(next_offset, self._end)
            if body_bytes and (next_offset < self._end or next_offset - ask.begin > self.pace.advance):
                self.pace = Pace(next_offset - ask.begin, body_bytes)
            return None
        if next_offset >= ask.end:
            return None
        return Ask(
            next_offset, ask.end, self._pull_count if self._filtered else min(ask.end - next_offset, ask.messages)
        )

    def done(self) -> None:
        """Every ask of the wave was answered, and all that was asked for besides."""
        self.next = self._reached
