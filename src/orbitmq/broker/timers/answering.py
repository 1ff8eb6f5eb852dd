"""Answers that may need the far tier, and therefore a later turn.

Rules of this file
1. What is known at once is answered at once; a look into the far tier answers when it is done.
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
Answer = TypeVar("Answer")


class Question(Generic[Found, Answer]):
    """Something whose answer is made of what is found now or later."""

    def __init__(
        self,
        answer: Callable[[Found], Answer | None],
        refused: Callable[[Exception], Answer],
        send: Callable[[Answer], None],
    ) -> None:
        """`answer(found)` gives the answer, or None when it comes by itself. May raise `OrbitError`, of which `refused` makes one.

        `send` gets an answer that is not there at once.
        """
        self._answer = answer
        self._refused = refused
        self._send = send
        self._returned = False
        self._now: Answer | None = None

    def ask(self, look: Callable[[Callable[[Found], None], Callable[[Exception], None]], None]) -> Answer | None:
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
        if answer is not None:
            self._send(answer)

    def _failed(self, error: Exception) -> None:
        answer = self._refused(error)
        if self._returned:
            self._send(answer)
        else:
            self._now = answer


def request_question(
    command: Command, peer: Peer, answer: Callable[[Found], Command | None]
) -> Question[Found, Command]:
    """That of a request of remoting; `answer` may send its answer through the peer by itself."""

    def refused(error: Exception) -> Command:
        refusal = refusal_of(error)
        return response(command, refusal.code, refusal.remark)

    def send(answer: Command) -> None:
        if not command.is_oneway:
            peer.send(answer)

    return Question(answer, refused, send)


def refusal_of(error: Exception) -> Refusal:
    """What is told of an error."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, FarBusyError | TimerIndexIncompleteError):
        return Refusal(ResponseCode.SYSTEM_BUSY, str(error))
    is_far = isinstance(error, FarTierError)
    return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE if is_far else ResponseCode.SYSTEM_ERROR, str(error))
