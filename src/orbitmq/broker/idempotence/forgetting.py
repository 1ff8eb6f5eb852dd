"""When the wall clock is believed enough to forget keys by it.

A machine may start with a wrong time and be told the right one a little later. What was forgotten meanwhile would be stored twice, and what
is kept for too long costs its memory only.

Rules of this file
1. Pure: both clocks come in. Only a clock that was put forward makes keys old; one that was put back is none of this file's business.
"""

from __future__ import annotations

from orbitmq.limits.broker import ONCE_CLOCK_BELIEVED_AFTER_MS
from orbitmq.limits.clock import CLOCK_JUMP_MS


class ForgettingTime:
    __slots__ = ("_ahead_ms", "_from_ms")

    def __init__(self, wall_ms: int, steady_ms: int) -> None:
        """At a start. steady_ms: of a clock that never jumps."""
        self._ahead_ms = wall_ms - steady_ms
        self._from_ms = steady_ms + ONCE_CLOCK_BELIEVED_AFTER_MS

    def was_put_forward(self, wall_ms: int, steady_ms: int) -> bool:
        """Whether that happened to the wall clock since the last call; then it is not believed again for a while."""
        ahead_ms = wall_ms - steady_ms
        is_forward = ahead_ms - self._ahead_ms > CLOCK_JUMP_MS
        self._ahead_ms = ahead_ms
        if is_forward:
            self._from_ms = steady_ms + ONCE_CLOCK_BELIEVED_AFTER_MS
        return is_forward

    def has_come(self, steady_ms: int) -> bool:
        """Whether keys are forgotten for their age now."""
        return steady_ms >= self._from_ms
