"""The loop turn: work is collected while sockets are read and finished once, when all of them have been.

The sockets that are ready in one pass of the event loop deliver their bytes one after the other. What the handlers
do with them is left open (appended, not yet written; answered, not yet sent) until `Turn` runs, right after that
pass: first every `end_turn` callable (the broker writes its log here), then every dirty connection is flushed, each
with one write. So a burst over many connections costs one file write and one socket write per connection.

A pass over many busy sockets may take long. When it has lasted a slice, the turn ends in the middle of it: requests go
into the `RequestQueue` from then on, and the turn handles a slice of them, writes, answers, and lets reading go on.

Rules of this file
1. A turn is scheduled at most once, by whoever first leaves work behind, and never when there is none.
2. An `end_turn` callable that fails stops neither the others nor the flushing: it is logged with its traceback
   and counted.
3. Every timer of the server goes through `Wakeups`, by name: an idle process can say why it woke.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from orbitmq.clock import Clock, SystemClock
from orbitmq.histogram import Histogram
from orbitmq.limits.server import LOOP_STALL_MS, TURN_SLICE_MS
from orbitmq.server.connections.large_reads import LargeReads
from orbitmq.server.connections.request_queue import RequestQueue

_log = logging.getLogger(__name__)


class Wakeups:
    """Timers with names, counted when they fire."""

    __slots__ = ("_counts", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._counts: Counter[str] = Counter()

    def call_later(self, delay_s: float, name: str, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Run `callback` once after `delay_s` seconds and count that under `name`."""
        return self._loop.call_later(delay_s, self._fire, name, callback)

    def count(self, name: str) -> None:
        """Count a wake-up that did not come from `call_later` (a thread's notification, a signal)."""
        self._counts[name] += 1

    def counts(self) -> dict[str, int]:
        """Name -> how often it fired since the start."""
        return dict(self._counts)

    def _fire(self, name: str, callback: Callable[[], None]) -> None:
        self._counts[name] += 1
        callback()


SLICE_NS: Final = TURN_SLICE_MS * 1_000_000
STALL_NS: Final = LOOP_STALL_MS * 1_000_000

LOOP_BOUNDS_US: Final = (
    100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000,
)  # fmt: skip
"""Buckets for how long the loop was held."""


class Flushable(Protocol):
    """A connection with collected output."""

    def flush(self) -> None: ...


class Turn:
    """End-of-turn work of one event loop; shared by all listeners of the process."""

    __slots__ = (
        "_abandoned",
        "_dirty",
        "_end_turn",
        "_finishing",
        "_loop",
        "_scheduled",
        "delays_us",
        "durations_us",
        "failures",
        "large_reads",
        "request_queue",
        "rounds_open",
        "stalls",
        "started_ns",
        "turns",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock | None = None, request_queue: RequestQueue | None = None
    ) -> None:
        self._loop = loop
        self.request_queue = request_queue if request_queue is not None else RequestQueue(clock or SystemClock())
        self.large_reads = LargeReads(loop, self.request_queue.now_ns)
        self.started_ns = 0
        """When the first whole command of this turn was read; 0 before that. A part of one ends no turn."""
        self.rounds_open = 0
        """Connections that were read as far as one round goes and have more to read."""
        self._end_turn: dict[Callable[[], None], int] = {}
        self._dirty: list[Flushable] = []
        self._scheduled = False
        self._finishing = False
        self._abandoned = False
        self.turns = 0
        self.failures = 0
        self.durations_us = Histogram(LOOP_BOUNDS_US)
        """From the first command read in a turn to the last write of its end."""
        self.delays_us = Histogram(LOOP_BOUNDS_US)
        """How late the loop ran a timer."""
        self.stalls = 0
        """Turns and delays of `LOOP_STALL_MS` or more."""

    def add(self, end_turn: Callable[[], None]) -> None:
        """Run `end_turn` once at the end of every turn, in the order of adding, until removed as often as added."""
        self._end_turn[end_turn] = self._end_turn.get(end_turn, 0) + 1

    def remove(self, end_turn: Callable[[], None]) -> None:
        """Take one adding back. Call `run` before, when work may be open."""
        count = self._end_turn.get(end_turn, 0)
        if count > 1:
            self._end_turn[end_turn] = count - 1
        else:
            self._end_turn.pop(end_turn, None)

    def schedule(self) -> None:
        """Work was left open: run the turn's end as soon as all sockets that are ready now have been read."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._end_pass)

    def mark_dirty(self, connection: Flushable) -> None:
        """Flush `connection` at the end of the turn. The caller marks a connection once until it is flushed."""
        self._dirty.append(connection)
        if not self._scheduled and not self._finishing:
            self._scheduled = True
            self._loop.call_soon(self._end_pass)

    def _end_pass(self) -> None:
        """All sockets that were ready have been read once. While requests wait and sockets are not yet empty, reading
        goes on until its slice is over: what waits in the kernel's buffers is seen by nobody."""
        if not self._scheduled:
            return  # the turn was run directly in the meantime
        if (
            self.rounds_open
            and self.request_queue
            and self.started_ns
            and self.request_queue.now_ns() - self.started_ns < SLICE_NS
        ):
            self._loop.call_soon(self._end_pass)
            return
        self.run()

    def run(self) -> None:
        """Finish the turn now, with at most a slice of what waits in the request queue.

        Also called directly, by a pass that has lasted its slice and at shutdown, so that nothing collected is lost.
        """
        if self._finishing or self._abandoned:
            return
        self._scheduled = False
        self._finishing = True
        self.turns += 1
        begun_ns = self.started_ns or self.request_queue.now_ns()
        if self.request_queue:
            self.request_queue.serve(SLICE_NS)
        for end_turn in list(self._end_turn):
            try:
                end_turn()
            except Exception:
                self.failures += 1
                _log.exception("the end of a loop turn failed in %r", end_turn)
        self._finishing = False
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            try:
                connection.flush()
            except Exception:
                self.failures += 1
                _log.exception("writing to %r failed", connection)
        self.started_ns = 0
        lasted_ns = self.request_queue.now_ns() - begun_ns
        self.durations_us.observe(lasted_ns // 1_000)
        if lasted_ns >= STALL_NS:
            self.stalls += 1
            _log.warning("a loop turn took %d ms", lasted_ns // 1_000_000)
        if self.request_queue:
            self.schedule()

    @property
    def is_idle(self) -> bool:
        """Nothing was left behind: no turn is under way, nothing waits to be handled or written."""
        return not (self._scheduled or self._finishing or self._dirty or self.request_queue or self.large_reads)

    def abandon(self) -> None:
        """No turn ends any more: what was left open stays open, as when the process is killed."""
        self._abandoned = True

    def timer_ran(self, late_ns: int) -> None:
        """A timer of the loop ran so much after its time: something held the loop."""
        self.delays_us.observe(late_ns // 1_000)
        if late_ns >= STALL_NS:
            self.stalls += 1
            _log.warning("the event loop was held for %d ms: a timer ran late by that", late_ns // 1_000_000)
