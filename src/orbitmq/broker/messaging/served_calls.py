"""What the front end knows of an RPC that is served: how its request is read, and who carries it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from orbitmq.protocol.grpc.open_call import OpenCall


class ServedCall(NamedTuple):
    """`read` makes the request of bytes; raises CallError for what cannot be read, RpcError for what is too large.

    `carry_out` carries a request out, now or later, and ends its call; of a stream it is given each message, and `over` ends it. Raises
    RpcError, CallError, Refusal, RecordsNotInMemory, NotAnsweredYet, OrbitError and OSError before it has changed anything: the front
    answers then, or asks again.

    `over`: no message comes any more, or the caller has cancelled (`is_wanted`). What waits for the call is forgotten; the front ends it.
    Who answers in a later turn looks at `is_wanted` first: a call that nobody wants has ended.
    """

    read: Callable[[bytes], Any]
    carry_out: Callable[[OpenCall, Any], None]
    over: Callable[[OpenCall], None] | None = None
