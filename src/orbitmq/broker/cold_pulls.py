"""Pulls that wait for their turn: how many are read from the disk at a time, and for whom.

Rules of this file
1. Two pulls of a connection are read at a time, and a bounded number in all. Further ones wait as requests: nothing is read for them.
2. Nothing is read for a connection that does not take its answers.
3. Connections take turns; the pulls of one of them keep their order. Calls on one connection share its places.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from orbitmq.limits.broker import COLD_PULLS_AT_ONCE_MAX, COLD_PULLS_OF_PEER_MAX, COLD_PULLS_WAITING_MAX
from orbitmq.protocol.caller_connection import CallerConnection


class AnswerReader(Protocol):
    """Who is answered: a connection, or one call of a front end with many on a connection."""

    @property
    def address(self) -> tuple[str, int]:
        """Remote IP text and port, for the log."""
        ...

    @property
    def connection(self) -> CallerConnection:
        """Whose places it takes: itself, or what the call came over."""
        ...

    @property
    def writable(self) -> bool:
        """False while so much waits to be written that nothing new is read for its connection."""
        ...

    def when_writable(self, call: Callable[[], None]) -> None:
        """Calls once when its connection takes answers again, after it was not `writable`."""
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
        self._running: dict[CallerConnection, int] = {}
        self._running_count = 0
        self._waiting: dict[CallerConnection, dict[AnswerReader, deque[R]]] = {}
        """By connection and whom they answer, those first that came first."""
        self._turn: deque[CallerConnection] = deque()
        """Those with waiting pulls for which something may be read."""
        self._in_turn: set[CallerConnection] = set()
        """The same."""
        self.waiting_count = 0

    def begin(self, peer: AnswerReader) -> bool:
        """Take a place for a read that `end` gives back; False when there is none for this connection now."""
        running = self._running.get(peer.connection, 0)
        if running >= COLD_PULLS_OF_PEER_MAX or self._running_count >= COLD_PULLS_AT_ONCE_MAX or not peer.writable:
            return False
        self._running[peer.connection] = running + 1
        self._running_count += 1
        return True

    def wait(self, pull: R) -> bool:
        """Let a pull wait for a place; False when too many do."""
        if self.waiting_count >= COLD_PULLS_WAITING_MAX:
            return False
        connection = pull.peer.connection
        is_first = connection not in self._waiting
        self._waiting.setdefault(connection, {}).setdefault(pull.peer, deque()).append(pull)
        self.waiting_count += 1
        if is_first and not self._running.get(connection):
            self._line_up(connection)
        return True

    def end(self, peer: AnswerReader) -> None:
        """A read has ended and its answer was given: whoever is next has a place."""
        connection = peer.connection
        running = self._running.pop(connection) - 1
        if running:
            self._running[connection] = running
        self._running_count -= 1
        if connection in self._waiting:
            self._line_up(connection)
        self._go_on()

    def drop(self, peer: AnswerReader) -> None:
        """Whoever would be answered is gone; what waits for it is forgotten."""
        waiting = self._waiting.get(peer.connection, {})
        self.waiting_count -= len(waiting.pop(peer, ()))
        if not waiting:
            self._waiting.pop(peer.connection, None)

    def _line_up(self, connection: CallerConnection) -> None:
        peer = next(iter(self._waiting[connection]))
        if peer.writable:
            if connection not in self._in_turn:
                self._in_turn.add(connection)
                self._turn.append(connection)
        else:
            peer.when_writable(lambda: self._again(connection))

    def _again(self, connection: CallerConnection) -> None:
        if connection in self._waiting:
            self._line_up(connection)
            self._go_on()

    def _go_on(self) -> None:
        while self._turn and self._running_count < COLD_PULLS_AT_ONCE_MAX:
            connection = self._turn.popleft()
            self._in_turn.discard(connection)
            waiting = self._waiting.get(connection)
            if waiting is None:
                continue
            peer, pulls = next(iter(waiting.items()))
            if not peer.writable:
                self._line_up(connection)
                continue
            pull = pulls.popleft()
            self.waiting_count -= 1
            if not pulls:
                del waiting[peer]
            if not waiting:
                del self._waiting[connection]
            self._run(pull)
            if connection in self._waiting and self._running.get(connection, 0) < COLD_PULLS_OF_PEER_MAX:
                self._line_up(connection)
