"""How long ago the log ended where: what makes lag in bytes a lag in time.

Rules of this file
1. What is remembered is never too much: at the time asked about, the log was at least so long. So whoever is called late is late.
2. It is remembered in steps and for a span, both given, and for at most twice that span.
3. Of the time before it began to remember it takes the log to have ended where it did then.
"""

from __future__ import annotations

from bisect import bisect_right


class LogAges:
    """Ends of the log by monotonic time. A look costs 0.3 us, however much is remembered."""

    __slots__ = ("_ends", "_span_ns", "_step_ns", "_times_ns", "end")

    def __init__(self, end: int, now_ns: int, *, span_ns: int, step_ns: int) -> None:
        self._span_ns = span_ns
        self._step_ns = step_ns
        self._times_ns = [now_ns]
        """Rounded up to a step, rising; as `_ends`, where the log ended then."""
        self._ends = [end]
        self.end = end

    def note(self, end: int, now_ns: int) -> None:
        """The log ends at `end` now. An end before an earlier one is that of a log that was cut."""
        times_ns, ends = self._times_ns, self._ends
        if end < self.end:
            ends[:] = [min(earlier, end) for earlier in ends]
        elif end > self.end:
            at_ns = -(-now_ns // self._step_ns) * self._step_ns
            if at_ns <= times_ns[-1] and len(ends) > 1:
                ends[-1] = end
            else:
                times_ns.append(at_ns)
                ends.append(end)
                if times_ns[0] < now_ns - 2 * self._span_ns:
                    over = bisect_right(times_ns, now_ns - self._span_ns) - 1
                    del times_ns[:over], ends[:over]
        self.end = end

    def end_at(self, then_ns: int) -> int:
        """Where the log ended at `then_ns`, at least."""
        return self._ends[max(bisect_right(self._times_ns, then_ns) - 1, 0)]

    def written_ns(self, position: int) -> int | None:
        """When, at the latest, the log first went beyond `position`; None: it does not."""
        place = bisect_right(self._ends, position)
        return self._times_ns[place] if place < len(self._ends) else None
