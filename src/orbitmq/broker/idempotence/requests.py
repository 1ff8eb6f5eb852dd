"""FIND_SCOPES and FINISH_EPOCH: what senders of idempotent messages ask beside their sends.

Rules of this file
1. Nothing here is needed for a repeat to be recognised: one request helps a sender to find the broker it sent to, the other lets the
   broker forget what nobody will ask for again.
2. Where callers are known, scopes of a topic are found and finished by who may publish to it; others by who may publish to all.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.access.gate import LedTo
from orbitmq.broker.idempotence.finished import Finished, is_of_topic
from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.idempotence.identity import EPOCH_MAX, TRANSIENT_PREFIX, WINDOW_PREFIX
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.clock import Clock
from orbitmq.errors import ProtocolError
from orbitmq.limits.broker import ONCE_SCOPE_BYTES_MAX, ONCE_SCOPES_LISTED_MAX
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.idempotence_bodies import FinishEpoch, ScopeList, ScopeQuery, ScopeView
from orbitmq.protocol.remoting.peer import Peer


class IdempotenceRequests(Room):
    def __init__(self, sends: Idempotence, clock: Clock) -> None:
        self._sends = sends
        self._clock = clock

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        return {RequestCode.FIND_SCOPES: self.find, RequestCode.FINISH_EPOCH: self.finish}

    def led_to(self) -> Mapping[RequestCode, LedTo]:
        return {
            RequestCode.FIND_SCOPES: lambda command: [_topic_of(command, _query(command).prefix)],
            RequestCode.FINISH_EPOCH: lambda command: [_topic_of(command, _finish(command).scope)],
        }

    def facts(self) -> Mapping[str, object]:
        sends = self._sends
        return {
            "orbitmqRepeatedSends": sends.repeat_count,
            "orbitmqStaleEpochs": sends.stale_count,
            "orbitmqIdempotenceFull": sends.full_count,
            "orbitmqOnceScopes": sends.memory.scope_count,
            "orbitmqOnceKeys": sends.memory.key_count,
            "orbitmqOnceFullestOwner": _fullness(sends),
        }

    def find(self, command: Command, peer: Peer) -> Command:
        """FIND_SCOPES."""
        prefix = _query(command).prefix
        if not prefix:
            raise _invalid("the prefix is empty: ask for the scopes of one sender")
        found = self._sends.memory.scopes(prefix, ONCE_SCOPES_LISTED_MAX + 1)
        views = [
            ScopeView(
                scope=scope.name,
                epoch=scope.epoch,
                keys=scope.key_count,
                previous_epoch=scope.previous_epoch,
                finished_epoch=scope.finished_epoch,
            )
            for scope in found[:ONCE_SCOPES_LISTED_MAX]
        ]
        answer = ScopeList(scopes=views, more=len(found) > len(views))
        return response(command, ResponseCode.SUCCESS, body=answer.encode())

    def finish(self, command: Command, peer: Peer) -> Command:
        """FINISH_EPOCH."""
        body = _finish(command)
        scope = body.scope
        if (
            not scope
            or scope.startswith((TRANSIENT_PREFIX, WINDOW_PREFIX))
            or len(scope.encode("utf-8", "replace")) > ONCE_SCOPE_BYTES_MAX
        ):
            raise _invalid(
                f"scope {scope[:64]!r} is empty, transient, has windows and no epochs, or has more than {ONCE_SCOPE_BYTES_MAX} bytes"
            )
        if not (0 <= body.epoch < EPOCH_MAX and 0 <= body.mark <= EPOCH_MAX):
            raise _invalid(f"epoch {body.epoch} or mark {body.mark} is not between 0 and 2^63 - 1")
        finished = Finished(body.epoch, body.mark, body.brief)
        if not self._sends.finish(scope, finished, self._clock.now_ms()):
            raise Refusal(
                ResponseCode.STALE_EPOCH,
                f"epoch {body.epoch} of scope {scope!r} was finished before, and other things were sent in it",
            )
        return response(command, ResponseCode.SUCCESS)


def _fullness(sends: Idempotence) -> str:
    """How much the owner that is nearest to its bound has of it, and its name; empty without one."""
    name, share = sends.memory.fullest
    return f"{share:.2f} {name}" if name else ""


def _query(command: Command) -> ScopeQuery:
    try:
        return ScopeQuery.decode(command.body)
    except ProtocolError as error:
        raise _invalid(str(error)) from error


def _finish(command: Command) -> FinishEpoch:
    try:
        return FinishEpoch.decode(command.body)
    except ProtocolError as error:
        raise _invalid(str(error)) from error


def _topic_of(command: Command, name: str) -> str | None:
    """The topic that the request names, if scopes of that name, or that begin so, are of that topic; else None: any may be meant."""
    topic = command.text("topic")
    return topic if topic and is_of_topic(name, topic) else None


def _invalid(remark: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, remark)
