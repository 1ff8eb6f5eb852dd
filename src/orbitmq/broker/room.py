"""A room: one part of the broker, and the one way in which it joins.

A room answers requests of its own, or decides for rooms that do. What else it has to do with the rest is the rest of this interface, and
each method has an empty default: a room writes those that it needs. The broker asks for them once, when it is put together, so that what a
room leaves out costs nothing afterwards.

Rules of this file
1. A room gets what it needs when it is made: `BrokerCore`, and the rooms made before it. It looks for nothing later.
2. What a room derives from the log has to be there when the store is opened, before any room: see `DerivedState`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from orbitmq.access.audit import Subject
from orbitmq.access.gate import LedTo
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.store.dispatch import Dispatched

RequestHandler = Callable[[Command, Peer], Command | None]
"""The answer to a request; None when it comes later through the peer, or never. What it raises becomes an answer (`Broker.handle`)."""


class NotAnsweredYet(Exception):
    """Raised by a handler that has changed nothing and wants to be asked again in a later turn."""

    def __init__(self, wait: Callable[[Callable[[], None]], None]) -> None:
        """`wait(again)` sees to it that `again` is called once, later; that asks the handler as if the request had just come."""
        super().__init__("the request is asked again later")
        self.wait = wait


class Room:
    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        """What answers which request. Two rooms never answer the same."""
        return {}

    def excess_handlers(self) -> Mapping[RequestCode, RequestHandler]:
        """What answers requests that find too many waiting, where that is not what answers the others."""
        return {}

    def led_to(self) -> Mapping[RequestCode, LedTo]:
        """What tells the topics of the records that a request leads to, for each code served here whose row says `@record`."""
        return {}

    def subjects(self) -> Mapping[RequestCode, Subject]:
        """What requests that administer this room are about, for the audit log, where their fields do not say it all."""
        return {}

    def arrived(self, entries: Sequence[Dispatched]) -> None:
        """These messages became visible, in the order of the log."""

    def turn_ended(self) -> None:
        """The log of this turn is written."""

    def arm(self, now_ns: int) -> None:
        """Arm the deadlines that this room has defined (`BrokerCore.deadlines`). Called at the end of each turn: a few comparisons."""

    def peer_closed(self, peer: Peer) -> None:
        """A connection is gone."""

    def facts(self) -> Mapping[str, object]:
        """What the runtime information says about this room."""
        return {}

    def close(self) -> None:
        """The broker stops: answer what is held, save what is not in the log. Raises OSError for what could not be saved."""


def having(rooms: list[Room], method: str) -> list[Room]:
    """The rooms that have a method of their own."""
    return [room for room in rooms if getattr(type(room), method) is not getattr(Room, method)]
