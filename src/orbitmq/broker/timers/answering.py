"""Answers to requests that may need the far tier, and therefore a later turn.

Rules of this file
1. What is known at once is answered at once; a look into the far tier answers through the peer when it is done.
2. A question that cannot be answered now (the index is being made ready, too many look-ups wait) is SYSTEM_BUSY: the same
   question can be asked again. A far tier that cannot be reached is SERVICE_NOT_AVAILABLE.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from orbitmq.broker.refusal import Refusal
from orbitmq.errors import OrbitError, TimerIndexIncompleteError
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.timing.far.tier import FarBusyError, FarTierError

Found = TypeVar("Found")


class Question(Generic[Found]):
    """A request whose answer is made of something that is found now or later."""

    def __init__(self, command: Command, peer: Peer, answer: Callable[[Found], Command | None]) -> None:
        """`answer(found)` gives the answer, or None when it comes through the peer by itself. May raise `OrbitError`."""
        self._command = command
        self._peer = peer
        self._answer = answer
        self._returned = False
        self._now: Command | None = None

    def ask(self, look: Callable[[Callable[[Found], None], Callable[[Exception], None]], None]) -> Command | None:
        """Run `look(found, failed)`, which calls one of the two now or later. The answer, when there is one now."""
        try:
            look(self._found, self._failed)
        except OrbitError as error:
            self._now = self._refused(error)
        self._returned = True
        return self._now

    def _found(self, found: Found) -> None:
        if not self._returned:
            self._now = self._answer(found)
            return
        try:
            answer = self._answer(found)
        except OrbitError as error:
            answer = self._refused(error)
        self._send(answer)

    def _failed(self, error: Exception) -> None:
        answer = self._refused(error)
        if self._returned:
            self._send(answer)
        else:
            self._now = answer

    def _send(self, answer: Command | None) -> None:
        if answer is not None and not self._command.is_oneway:
            self._peer.send(answer)

    def _refused(self, error: Exception) -> Command:
        return response(self._command, code_of(error), error.remark if isinstance(error, Refusal) else str(error))


def code_of(error: Exception) -> ResponseCode:
    if isinstance(error, Refusal):
        return error.code
    if isinstance(error, FarBusyError | TimerIndexIncompleteError):
        return ResponseCode.SYSTEM_BUSY
    return ResponseCode.SERVICE_NOT_AVAILABLE if isinstance(error, FarTierError) else ResponseCode.SYSTEM_ERROR
