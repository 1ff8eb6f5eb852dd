"""Requests that come while what is pending is still being read again from the log: they wait a little before they are refused.

Rules of this file
1. A request waits until what it needs is known, or two seconds, or until the broker stops. Then its handler runs, and refuses it with
   how much is left to read where that is not known yet.
2. The broker asks the handler as if the request had just come: it may have to fetch old records, or fail, alone.
3. Bounded: beyond `TIMER_QUESTIONS_WAITING_MAX` a request is handled at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from orbitmq.broker.room import NotAnsweredYet, RequestHandler
from orbitmq.clock import Clock
from orbitmq.limits.timers import TIMER_QUESTION_LOOK_MS, TIMER_QUESTION_WAITS_MS, TIMER_QUESTIONS_WAITING_MAX
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.store.store import MessageStore
from orbitmq.units import NS_PER_MS

WAKEUP: Final = "timer-questions"


class _Waiting(NamedTuple):
    until_ns: int
    question: object
    again: Callable[[], None]
    is_ready: Callable[[], bool]


class WaitingQuestions:
    """The requests that wait at one broker. A question is whatever stands for a request, also when that is asked again."""

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._waiting: list[_Waiting] = []
        self._ended: object = None
        """The question that has waited and is asked anew."""
        store.deadlines.define(WAKEUP, self._look)

    def when_ready(self, handler: RequestHandler, is_ready: Callable[[], bool]) -> RequestHandler:
        """A handler that runs `handler` when `is_ready()`, and after `TIMER_QUESTION_WAITS_MS` at the latest."""

        def ask(command: Command, peer: Peer) -> Command | None:
            if not command.is_oneway:
                self.wait_for(is_ready, command)
            return handler(command, peer)

        return ask

    def wait_for(self, is_ready: Callable[[], bool], question: object) -> None:
        """Raises NotAnsweredYet unless `is_ready()`, the question has waited for `TIMER_QUESTION_WAITS_MS`, or too many wait."""
        has_waited = question is self._ended
        if not (is_ready() or has_waited or len(self._waiting) >= TIMER_QUESTIONS_WAITING_MAX):
            raise NotAnsweredYet(lambda again: self._wait(question, again, is_ready))

    def _wait(self, question: object, again: Callable[[], None], is_ready: Callable[[], bool]) -> None:
        until_ns = self._clock.monotonic_ns() + TIMER_QUESTION_WAITS_MS * NS_PER_MS
        self._waiting.append(_Waiting(until_ns, question, again, is_ready))
        self._arm()

    def _arm(self) -> None:
        self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + TIMER_QUESTION_LOOK_MS * NS_PER_MS)

    def _look(self) -> None:
        now_ns = self._clock.monotonic_ns()
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if one.until_ns <= now_ns or one.is_ready():
                self._end(one)
            else:
                self._waiting.append(one)
        if self._waiting:
            self._arm()

    def _end(self, one: _Waiting) -> None:
        self._ended = one.question
        one.again()
        self._ended = None

    def close(self) -> None:
        """Handle everything that waits."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            self._end(one)
