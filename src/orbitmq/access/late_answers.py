"""Answers that wait: what callers are told who have failed too often to prove who they are.

Rules of this file
1. A connection whose answer waits is not read, and nothing more of it is handled, until that answer has left: who is refused can neither
   have more refused meanwhile nor take places in the request queue from others. A oneway request, which has no answer, costs the same wait;
   so do the other calls of a connection of gRPC.
2. What the connection had sent before its answer left is answered with it, up to `REFUSED_TOGETHER_MAX` refusals; more of them end it. So
   a connection that ends while it waits is noticed when its answer is due, and not a wait for each of its requests later.
3. One timer for all; at most `LATE_ANSWERS_MAX` wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

import msgspec

from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.limits.access import LATE_ANSWERS_MAX, REFUSED_TOGETHER_MAX
from orbitmq.protocol.caller_connection import CallerConnection
from orbitmq.units import NS_PER_MS

WAKEUP: Final = "late answers"

LAST_REFUSAL: Final = "access.last_refusal"
"""Attachment of a connection: its `LastRefusal`."""


class LastRefusal(msgspec.Struct, gc=False):
    """When the last late answer of a connection left (monotonic), and how many earlier requests were refused after it."""

    told_ns: int
    together_count: int = 0


class LateAnswers:
    def __init__(self, deadlines: Deadlines, clock: Clock) -> None:
        self._deadlines = deadlines
        self._clock = clock
        self._waiting: list[tuple[int, int, CallerConnection, Callable[[], None] | None]] = []
        """Heap by the time at which they leave, and by their numbers."""
        self._number = 0
        deadlines.define(WAKEUP, self._send_due)

    def __len__(self) -> int:
        return len(self._waiting)

    def send(self, connection: CallerConnection, answer: Callable[[], None] | None, wait_ms: int) -> None:
        """Call what sends the answer after a while, or at once behind an earlier refusal; None for a request that gets none. Where too many
        wait already the connection is closed instead."""
        last = connection.attachments.get(LAST_REFUSAL)
        if isinstance(last, LastRefusal) and connection.received_ns <= last.told_ns:
            last.together_count += 1
            if last.together_count > REFUSED_TOGETHER_MAX:
                connection.close(
                    f"it sent more than {REFUSED_TOGETHER_MAX} requests behind one that was refused, and they are refused as well"
                )
            elif answer is not None:
                answer()
            return
        if len(self._waiting) >= LATE_ANSWERS_MAX:
            connection.close(f"{LATE_ANSWERS_MAX} connections wait already because their callers are not known")
            return
        connection.pause_requests()
        due_ns = self._clock.monotonic_ns() + wait_ms * NS_PER_MS
        self._number += 1
        heapq.heappush(self._waiting, (due_ns, self._number, connection, answer))
        self._deadlines.arm(WAKEUP, due_ns)

    def _send_due(self) -> None:
        now_ns = self._clock.monotonic_ns()
        while self._waiting and self._waiting[0][0] <= now_ns:
            _, _, connection, answer = heapq.heappop(self._waiting)
            connection.attachments[LAST_REFUSAL] = LastRefusal(now_ns)
            if answer is not None:
                answer()
            connection.resume_requests()
        if self._waiting:
            self._deadlines.arm(WAKEUP, self._waiting[0][0])
