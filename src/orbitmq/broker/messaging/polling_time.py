"""How long a receive may wait for messages.

A client says when it gives up (the deadline of the call), and newer ones how long they want to wait. An answer has to reach a client
before it gives up.

Rules of this file
1. No clock is read here: what is left of a deadline is passed in.

Source: RocketMQ gRPC, ReceiveMessage: polling time.
"""

from __future__ import annotations

from typing import Final

from orbitmq.limits.grpc import REQUEST_TIMEOUT_MS
from orbitmq.protocol.grpc.messages import Code
from orbitmq.protocol.grpc.status import RpcError
from orbitmq.units import NS_PER_MS

CODE_SINCE: Final = "5.0.3"
"""Clients of this version know ILLEGAL_POLLING_TIME. Versions are compared as texts, as by RocketMQ's proxy."""


def polling_ns(
    left_ns: int | None, wish_ms: int | None, request_timeout_ms: int, version: str, least_ms: int, most_ms: int
) -> int:
    """How long to wait, from `least_ms` to `most_ms`. Raises RpcError where the deadline leaves less.

    `left_ns`: until the deadline; None without one. `wish_ms`: what the request says, if anything.
    """
    if left_ns is None:
        left_ns = (most_ms + REQUEST_TIMEOUT_MS) * NS_PER_MS
    wish_ns = left_ns - request_timeout_ms * NS_PER_MS // 2 if wish_ms is None else wish_ms * NS_PER_MS
    polling = min(max(wish_ns, least_ms * NS_PER_MS), most_ms * NS_PER_MS)
    if polling <= left_ns:
        return polling
    if left_ns >= least_ms * NS_PER_MS:
        return left_ns
    raise RpcError(
        Code.ILLEGAL_POLLING_TIME if version >= CODE_SINCE else Code.BAD_REQUEST,
        f"a receive waits for {least_ms} ms at least, and the deadline of this one leaves {max(left_ns, 0) // NS_PER_MS} ms: "
        "wait longer, or with a longer request timeout",
    )
