"""Pulls that wait for their turn: how many are read from the disk at a time, and for whom.

Rules of this file
1. Two pulls of a connection are read at a time, and a bounded number in all. Further ones wait as requests: nothing is read for them.
2. Nothing is read for a connection that does not take its answers.
3. Connections take turns; the pulls of one of them keep their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from orbitmq.limits.broker import COLD_PULLS_AT_ONCE_MAX, COLD_PULLS_OF_PEER_MAX, COLD_PULLS_WAITING_MAX


class AnswerReader(Protocol):
    """Who is answered: a connection, or one call of a front end with many on a connection."""

    @property
    def address(self) -> tuple[str, int]:
        """Remote IP text and port, for the log."""
        ...

    @property
    def writable(self) -> bool:
        """False while so much waits to be written that nothing new is read for it."""
        ...

    def when_writable(self, call: Callable[[], None]) -> None:
        """Calls once when it takes answers again, after it was not `writable`."""
        ...


class ColdPull(Protocol):
    """A pull."""

    @property
    def peer(self) -> AnswerReader: ...


R = TypeVar("R", bound=ColdPull)


class ColdPulls(Generic[R]):
    """The pulls of one broker that wait for a read from the disk."""

    def __init__(self, run: Callable[[R], None]) -> None:
        """`run` begins a pull that waited anew; it may ask for a place again."""
        self._run = run
        self._running: dict[AnswerReader, int] = {}
        self._running_count = 0
        self._waiting: dict[AnswerReader, deque[R]] = {}
        self._turn: deque[AnswerReader] = deque()
        """Those with waiting pulls for which something may be read."""
        self._in_turn: set[AnswerReader] = set()
        """The same."""
        self.waiting_count = 0

    def begin(self, peer: AnswerReader) -> bool:
        """Take a place for a read that `end` gives back; False when there is none for this connection now."""
        running = self._running.get(peer, 0)
        if running >= COLD_PULLS_OF_PEER_MAX or self._running_count >= COLD_PULLS_AT_ONCE_MAX or not peer.writable:
            return False
        self._running[peer] = running + 1
        self._running_count += 1
        return True

    def wait(self, pull: R) -> bool:
        """Let a pull wait for a place; False when too many do."""
        if self.waiting_count >= COLD_PULLS_WAITING_MAX:
            return False
        peer = pull.peer
        waiting = self._waiting.get(peer)
        if waiting is None:
            waiting = self._waiting[peer] = deque()
            if not self._running.get(peer):
                self._line_up(peer)
        waiting.append(pull)
        self.waiting_count += 1
        return True

    def end(self, peer: AnswerReader) -> None:
        """A read has ended and its answer was given: whoever is next has a place."""
        running = self._running.pop(peer) - 1
        if running:
            self._running[peer] = running
        self._running_count -= 1
        if peer in self._waiting:
            self._line_up(peer)
        self._go_on()

    def drop(self, peer: AnswerReader) -> None:
        """The connection is gone; its waiting pulls are forgotten."""
        self.waiting_count -= len(self._waiting.pop(peer, ()))

    def _line_up(self, peer: AnswerReader) -> None:
        if peer.writable:
            if peer not in self._in_turn:
                self._in_turn.add(peer)
                self._turn.append(peer)
        else:
            peer.when_writable(lambda: self._again(peer))

    def _again(self, peer: AnswerReader) -> None:
        if peer in self._waiting:
            self._line_up(peer)
            self._go_on()

    def _go_on(self) -> None:
        while self._turn and self._running_count < COLD_PULLS_AT_ONCE_MAX:
            peer = self._turn.popleft()
            self._in_turn.discard(peer)
            waiting = self._waiting.get(peer)
            if waiting is None:
                continue
            if not peer.writable:
                self._line_up(peer)
                continue
            pull = waiting.popleft()
            self.waiting_count -= 1
            if not waiting:
                del self._waiting[peer]
            self._run(pull)
            if peer in self._waiting and self._running.get(peer, 0) < COLD_PULLS_OF_PEER_MAX:
                self._line_up(peer)
