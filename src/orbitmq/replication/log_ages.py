"""How long ago the log ended where: what makes lag in bytes a lag in time.

Rules of this file
1. What is remembered is never too much: at the time asked about, the log was at least so long. So whoever is called late is late.
2. It is remembered in steps and for a span, both given: as many entries as the span has steps.
3. Of the time before it began to remember it takes the log to have ended where it did then.
"""

from __future__ import annotations

from collections import deque


class LogAges:
    """Ends of the log by monotonic time."""

    __slots__ = ("_ends", "_span_ns", "_step_ns")

    def __init__(self, end: int, now_ns: int, *, span_ns: int, step_ns: int) -> None:
        self._span_ns = span_ns
        self._step_ns = step_ns
        self._ends: deque[tuple[int, int]] = deque([(now_ns, end)])
        """Time, rounded up to a step, and end; both rising."""

    @property
    def end(self) -> int:
        return self._ends[-1][1]

    def note(self, end: int, now_ns: int) -> None:
        """The log ends at `end` now. An end before an earlier one is that of a log that was cut."""
        ends = self._ends
        if end < ends[-1][1]:
            ends = self._ends = deque((at_ns, min(earlier, end)) for at_ns, earlier in ends)
        elif end > ends[-1][1]:
            at_ns = -(-now_ns // self._step_ns) * self._step_ns
            if at_ns <= ends[-1][0] and len(ends) > 1:
                ends[-1] = (ends[-1][0], end)
            else:
                ends.append((at_ns, end))
        while len(ends) > 1 and ends[1][0] <= now_ns - self._span_ns:
            ends.popleft()

    def end_at(self, then_ns: int) -> int:
        """Where the log ended at `then_ns`, at least."""
        found = self._ends[0][1]
        for at_ns, end in self._ends:
            if at_ns > then_ns:
                break
            found = end
        return found

    def written_ns(self, position: int) -> int | None:
        """When, at the latest, the log first went beyond `position`; None: it does not."""
        return next((at_ns for at_ns, end in self._ends if end > position), None)
