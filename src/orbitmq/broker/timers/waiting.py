"""Requests that come while what is pending is still being read again from the log: they wait a little before they are refused.

Rules of this file
1. A request waits until what it needs is known, or two seconds. Then its handler runs, and refuses it with how much is left to read where
   that is not known yet.
2. Bounded: beyond `TIMER_QUESTIONS_WAITING_MAX` a request is handled at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from orbitmq.broker.refusal import Refusal
from orbitmq.broker.room import RequestHandler
from orbitmq.broker.timers.answering import code_of
from orbitmq.clock import Clock
from orbitmq.errors import OrbitError
from orbitmq.limits.timers import TIMER_QUESTION_LOOK_MS, TIMER_QUESTION_WAITS_MS, TIMER_QUESTIONS_WAITING_MAX
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.store.store import MessageStore
from orbitmq.units import NS_PER_MS

WAKEUP: Final = "timer-questions"


class _Waiting(NamedTuple):
    until_ns: int
    command: Command
    peer: Peer
    handler: RequestHandler
    is_ready: Callable[[], bool]


class WaitingQuestions:
    """The requests that wait at one broker."""

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._waiting: list[_Waiting] = []
        store.deadlines.define(WAKEUP, self._look)

    def when_ready(self, handler: RequestHandler, is_ready: Callable[[], bool]) -> RequestHandler:
        """A handler that runs `handler` when `is_ready()`, and after `TIMER_QUESTION_WAITS_MS` at the latest."""

        def ask(command: Command, peer: Peer) -> Command | None:
            if is_ready() or command.is_oneway or len(self._waiting) >= TIMER_QUESTIONS_WAITING_MAX:
                return handler(command, peer)
            until_ns = self._clock.monotonic_ns() + TIMER_QUESTION_WAITS_MS * NS_PER_MS
            self._waiting.append(_Waiting(until_ns, command, peer, handler, is_ready))
            self._arm()
            return None

        return ask

    def _arm(self) -> None:
        self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + TIMER_QUESTION_LOOK_MS * NS_PER_MS)

    def _look(self) -> None:
        now_ns = self._clock.monotonic_ns()
        ended = [one for one in self._waiting if one.until_ns <= now_ns or one.is_ready()]
        self._waiting = [one for one in self._waiting if one not in ended]
        for one in ended:
            answer = _answered(one)
            if answer is not None:
                one.peer.send(answer)
        if self._waiting:
            self._arm()


def _answered(one: _Waiting) -> Command | None:
    try:
        return one.handler(one.command, one.peer)
    except OrbitError as error:
        remark = error.remark if isinstance(error, Refusal) else str(error)
        return response(one.command, code_of(error), remark)
