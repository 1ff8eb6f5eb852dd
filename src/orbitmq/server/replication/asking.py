"""A slave asks its master for a ticket, over the master's main port."""

from __future__ import annotations

from orbitmq.clock import Clock
from orbitmq.errors import ProtocolError, RemoteError
from orbitmq.limits.replication import TICKET_BYTES, TICKET_REQUEST_MS
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import request
from orbitmq.protocol.remoting.replication_bodies import FollowAnswer, FollowRequest
from orbitmq.server.outbound import Calling, Outbound


async def ask_to_follow(address: str, wanted: FollowRequest, clock: Clock, calling: Calling) -> FollowAnswer | None:
    """What the master at `address` answers; None where it is one of RocketMQ, which does not know the request. Raises RemoteError where
    it refuses, ClientError where it cannot be reached, ProtocolError for an answer that is none."""
    outbound = Outbound(address, clock, calling=calling)
    try:
        answer = await outbound.call(request(RequestCode.FOLLOW_LOG, None, wanted.encode()), TICKET_REQUEST_MS)
    finally:
        await outbound.close()
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise RemoteError(answer.code, answer.remark or "", address=address)
    found = FollowAnswer.decode(bytes(answer.body))
    try:
        size = len(bytes.fromhex(found.ticket))
    except ValueError:
        size = 0
    if size != TICKET_BYTES:
        raise ProtocolError(f"the master at {address} gave a ticket of {size} bytes")
    return found
