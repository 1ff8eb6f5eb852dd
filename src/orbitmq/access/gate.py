"""The gate: what a server asks before it hands a request on.

Rules of this file
1. What a gate does not let through raises `Denied`; there is no other way of saying no.
2. Who calls is known while one request is being handled, and to nobody else: handlers that go on later take it along.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from orbitmq.access.needed import Needed
from orbitmq.access.users import User
from orbitmq.errors import OrbitError
from orbitmq.limits.broker import REMARK_CHARS_MAX
from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.peer import Peer

if TYPE_CHECKING:
    from orbitmq.protocol.grpc.open_call import OpenCall

CallNeeds = Callable[[], Iterable[Needed]]
"""What a gRPC call needs, as its request names it. Asked for when the caller is known and to be judged, so that nothing of a stranger's is
read. May raise what reading a request raises."""

LedTo = Callable[[Command], Iterable[str | None]]
"""The topics that a request leads to through a record, a handle, an id or a name; None among them stands for all topics. Empty where there
is nothing, which its handler then says itself."""

CALLER: Final = "caller"
"""The attachment of a peer that is the `User` of the request being handled. Absent while nobody is asked who they are."""


def caller_name(peer: Peer) -> str:
    """The user whose request of this connection is being handled; empty while nobody is asked who they are."""
    user = peer.attachments.get(CALLER)
    return user.name if isinstance(user, User) else ""


class Denied(OrbitError):
    """`code` and `remark` of the answer, which is given after `wait_ms`. The remark says who may not do what from where; it never holds a
    secret or a signature."""

    def __init__(self, code: ResponseCode, remark: str, *, wait_ms: int = 0) -> None:
        if len(remark) > REMARK_CHARS_MAX:  # it may quote a name that is a megabyte long
            remark = f"{remark[: REMARK_CHARS_MAX // 2]} ... {remark[-REMARK_CHARS_MAX // 4 :]}"
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.wait_ms = wait_ms
        self.is_told = False
        """Whether the audit log has its line."""


class Gate(Protocol):
    denials: Counter[str]
    """Requests and calls that were not let through, by the reason: a label of a metric."""

    def admit(self, command: Command, peer: Peer, led_to: LedTo | None) -> None:
        """Let a request through or raise `Denied`. `led_to`: for requests whose row names a resource by a record; may raise what
        reading a record raises."""
        ...

    def admit_call(self, call: OpenCall, needs: CallNeeds) -> str:
        """Let a gRPC call through, of a stream one of its messages, or raise `Denied`: the name of its caller, empty where nobody is asked
        who they are. Raises what `needs` raises as well."""
        ...

    def may_publish(self, user: str, ip: str, topic: str) -> bool:
        """Whether a user at that address may publish to a topic: who may not is shown no message of it that waits for a producer's
        decision. `user` is empty where the gate did not ask who called."""
        ...

    def may_consume(self, user: str, ip: str, group: str, topic: str | None) -> bool:
        """As `may_publish`: whether a user may consume a topic in a group; None: all topics. Who may not is shown no message of it that
        somebody else wants consumed at once."""
        ...
