"""Up to where the log is confirmed, and who waits for that.

A record is written, then confirmed, then dispatched. Two gates stand between the first two: the disk, where the flush mode is
synchronous, and the copies, where some are waited for. What is confirmed is what both let pass. Who copies and which copies count is not
known here: replication says how far they are, or that nobody is waited for.

Rules of this file
1. Records are confirmed whole and in log order, and what is confirmed stays so.
2. A gate that does not hold lets everything pass. Who waits for it when it opens is told what the copies failed in, and the record is
   delivered: it is in the log, and nothing will take it out again.
3. What lies behind the confirmed offset is remembered here, as what it would be dispatched as, until it is confirmed or cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Reversible
from typing import Final

from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import NEVER, OnDone, PutStatus, Waiters
from orbitmq.units import NS_PER_MS

DISK_LATE, COPIES_LATE = "sync-timeout", "copies-timeout"


class Confirmation:
    """Owned by one open store and used on its thread."""

    __slots__ = (
        "_after_sync",
        "_clock",
        "_copied_end",
        "_copies_late",
        "_deadlines",
        "_dispatch",
        "_held",
        "_holds_for_copies",
        "_log",
        "_otherwise",
        "_timeout_ms",
        "_unanswered",
        "_waiters",
        "asks_gates",
    )

    def __init__(
        self,
        log: CommitLog,
        clock: Clock,
        deadlines: Deadlines,
        *,
        after_sync: bool,
        dispatch: Callable[[list[Dispatched]], None],
    ) -> None:
        """`dispatch(entries)` is called with what was confirmed, in log order. The confirmed offset is the `readable_end` of the log."""
        self._log = log
        self._clock = clock
        self._deadlines = deadlines
        self._after_sync: Final = after_sync
        self._dispatch = dispatch
        self.asks_gates = after_sync
        """Whether a sender who waits may have to; otherwise a record is as safe as it will be once it is written."""
        self._held: deque[Dispatched] = deque()
        self._waiters = Waiters()
        self._holds_for_copies = False
        self._copied_end = 0
        self._otherwise = PutStatus.PUT_OK
        """What senders who ask for copies are told while none is waited for."""
        self._copies_late: Callable[[], None] = _nothing
        self._timeout_ms = 0
        self._unanswered: deque[tuple[int, int]] = deque()
        """Ends of the turns that copies have not confirmed, and when each has waited long enough."""
        deadlines.define(DISK_LATE, self._expire)
        deadlines.define(COPIES_LATE, self._look_at_copies)

    @property
    def waiting_count(self) -> int:
        """How many senders wait for a gate."""
        return len(self._waiters)

    @property
    def tail(self) -> Reversible[Dispatched]:
        """What is written and not confirmed, in log order."""
        return self._held

    # --- what is written --------------------------------------------------------------------------------------------

    def written(self, entries: list[Dispatched]) -> None:
        """These records were just written to the log, up to its written end."""
        if not (self._after_sync or self._holds_for_copies):
            self._log.readable_end = self._log.written_end
            self._dispatch(entries)
            return
        self._held.extend(entries)
        if self._holds_for_copies:
            self._expect_copies()
            if not self._after_sync:
                self.look_again()

    def _expect_copies(self) -> None:
        """Copies have their time from now to confirm what is written."""
        if self._timeout_ms:
            late_ns = self._clock.monotonic_ns() + self._timeout_ms * NS_PER_MS
            self._unanswered.append((self._log.written_end, late_ns))
            if len(self._unanswered) == 1:
                self._deadlines.arm(COPIES_LATE, late_ns)

    def wait(self, end_offset: int, disk_timeout_ms: int, on_done: OnDone) -> None:
        """Tell `on_done` when everything below `end_offset` is confirmed, what the copies failed in, or FLUSH_DISK_TIMEOUT after that
        time. Perhaps at once."""
        status = PutStatus.PUT_OK if self._holds_for_copies else self._otherwise
        if end_offset <= self._limit():
            on_done(status)
        elif self._after_sync and end_offset > self._log.synced_end:
            deadline_ns = self._clock.monotonic_ns() + disk_timeout_ms * NS_PER_MS
            self._waiters.wait(end_offset, deadline_ns, on_done, status)
            self._deadlines.arm(DISK_LATE, deadline_ns)
        else:
            self._waiters.wait(end_offset, NEVER, on_done, status)

    def look_again(self) -> None:
        """A gate has moved: confirm what both let pass, and tell who waited for it."""
        limit, log = self._limit(), self._log
        if limit <= log.readable_end:
            return
        held = self._held
        ready: list[Dispatched] = []
        if limit >= log.written_end:
            ready += held
            held.clear()
        while held and held[0].physical_offset + held[0].size <= limit:
            ready.append(held.popleft())
        # A filler has no entry: the offset stays at the end of a record, or goes to the beginning of the next one.
        if not held and limit >= log.written_end:
            log.readable_end = log.written_end
        elif held and limit >= held[0].physical_offset:
            log.readable_end = held[0].physical_offset
        elif ready:
            log.readable_end = ready[-1].end_offset
        self._dispatch(ready)
        self._waiters.confirmed(limit)

    def _limit(self) -> int:
        """Below this position both gates let everything pass."""
        end = self._log.synced_end if self._after_sync else self._log.written_end
        return self._copied_end if self._holds_for_copies and self._copied_end < end else end

    def _expire(self) -> None:
        self._waiters.expire(self._clock.monotonic_ns(), self._log.synced_end)
        following = self._waiters.next_deadline_ns
        if following is not None:
            self._deadlines.arm(DISK_LATE, following)

    # --- copies -----------------------------------------------------------------------------------------------------

    def hold_for_copies(self, copied_end: int, timeout_ms: int = 0, late: Callable[[], None] | None = None) -> None:
        """From now on nothing is confirmed that the copies have not; they have everything below `copied_end`, which may lie inside a
        record. Where a record waits longer than `timeout_ms` (0: without end), `late` is called, again and again, until the copies
        have it or nobody is waited for.

        ValueError when the copies lack something that is confirmed: such a copy does not count yet.
        """
        if copied_end < self._log.readable_end:
            raise ValueError(f"copies have the log up to {copied_end}, it is confirmed up to {self._log.readable_end}")
        self._holds_for_copies = self.asks_gates = True
        self._copied_end = copied_end
        self._timeout_ms = timeout_ms
        self._copies_late = late or _nothing
        self._otherwise = PutStatus.PUT_OK
        if self._held and not self._unanswered:
            self._expect_copies()

    def copies_have(self, end: int) -> None:
        """The copies that count have everything below `end`. A smaller position than before is taken as it is: it confirms nothing."""
        self._copied_end = end
        if self._holds_for_copies:
            while self._unanswered and self._unanswered[0][0] <= end:
                self._unanswered.popleft()
            self.look_again()

    def let_pass(self, waiting: PutStatus = PutStatus.PUT_OK, later: PutStatus = PutStatus.PUT_OK) -> None:
        """Nobody is waited for any more. Who waits for copies now is told `waiting`, who comes later `later`, each when the disk has
        the record where the flush mode asks for that."""
        if waiting is not PutStatus.PUT_OK:
            self._waiters.copies_failed(waiting, self._copied_end)
        self._holds_for_copies = False
        self._otherwise = later
        self.asks_gates = self._after_sync or later is not PutStatus.PUT_OK
        self._unanswered.clear()
        self._copies_late = _nothing
        self.look_again()

    def give_up_waiting(self, up_to: int = NEVER) -> None:
        """Whether what is not confirmed stays is for another broker to say: tell those who wait for a record that ends at `up_to` or before
        UNKNOWN. The records stay as they are."""
        self._waiters.give_up(PutStatus.UNKNOWN, up_to=up_to)

    def _look_at_copies(self) -> None:
        """Some turn may have waited for its copies long enough."""
        unanswered, now_ns = self._unanswered, self._clock.monotonic_ns()
        while unanswered and unanswered[0][0] <= self._copied_end:
            unanswered.popleft()
        if unanswered and unanswered[0][1] <= now_ns:
            self._copies_late()
            if unanswered:  # it waits on: ask again, in its time
                unanswered[0] = unanswered[0][0], now_ns + self._timeout_ms * NS_PER_MS
        if unanswered:
            self._deadlines.arm(COPIES_LATE, unanswered[0][1])

    # --- the end ----------------------------------------------------------------------------------------------------

    def remember_tail(self, entries: Iterable[Dispatched]) -> None:
        """What a start found behind the confirmed offset."""
        self._held.extend(entries)

    def cut(self, to: int) -> list[Dispatched]:
        """Forget what begins at `to` or behind it, tell those who wait for it UNKNOWN, and answer it.

        ValueError when `to` is confirmed, or where no record ends or begins: records may follow there only.
        """
        confirmed_end = self._log.readable_end
        if to < confirmed_end:
            raise ValueError(f"the log is confirmed up to {confirmed_end} and cannot be cut at {to}")
        kept = [entry for entry in self._held if entry.physical_offset < to]
        cut = list(self._held)[len(kept) :]
        kept_end = kept[-1].end_offset if kept else confirmed_end
        if to not in (kept_end, cut[0].physical_offset if cut else self._log.written_end):
            raise ValueError(f"{to} lies inside a record or the end of a file, behind {kept_end}")
        self._held = deque(kept)
        self._unanswered = deque((min(end, to), late_ns) for end, late_ns in self._unanswered)
        self._waiters.give_up(PutStatus.UNKNOWN, beyond=to)
        return cut

    def fail(self) -> None:
        """Nothing more becomes durable: whoever waits is told so."""
        self._waiters.fail()


def _nothing() -> None:
    pass
