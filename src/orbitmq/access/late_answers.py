"""Answers that wait: what callers are told who have failed too often to prove who they are.

Rules of this file
1. A connection whose answer waits is not read, and nothing more of it is handled, until that answer has left: who is refused can neither
   have more refused meanwhile nor take places in the request queue from others. A oneway request, which has no answer, costs the same wait.
2. One timer for all; at most `LATE_ANSWERS_MAX` wait. A connection that closes meanwhile is forgotten when its answer is due.
"""

from __future__ import annotations

import heapq
from typing import Final

from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.limits.access import LATE_ANSWERS_MAX
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.units import NS_PER_MS

WAKEUP: Final = "late answers"


class LateAnswers:
    def __init__(self, deadlines: Deadlines, clock: Clock) -> None:
        self._deadlines = deadlines
        self._clock = clock
        self._waiting: list[tuple[int, int, Peer, Command | None]] = []
        """Heap by the time at which they leave, and by their numbers."""
        self._number = 0
        deadlines.define(WAKEUP, self._send_due)

    def __len__(self) -> int:
        return len(self._waiting)

    def send(self, peer: Peer, answer: Command | None, wait_ms: int) -> None:
        """Send an answer after a while, None for a request that gets none. Where too many wait already the connection is closed instead."""
        if len(self._waiting) >= LATE_ANSWERS_MAX:
            peer.close(f"{LATE_ANSWERS_MAX} connections wait already because their callers are not known")
            return
        peer.pause_requests()
        due_ns = self._clock.monotonic_ns() + wait_ms * NS_PER_MS
        self._number += 1
        heapq.heappush(self._waiting, (due_ns, self._number, peer, answer))
        self._deadlines.arm(WAKEUP, due_ns)

    def _send_due(self) -> None:
        now_ns = self._clock.monotonic_ns()
        while self._waiting and self._waiting[0][0] <= now_ns:
            _, _, peer, answer = heapq.heappop(self._waiting)
            if answer is not None:
                peer.send(answer)
            peer.resume_requests()
        if self._waiting:
            self._deadlines.arm(WAKEUP, self._waiting[0][0])
