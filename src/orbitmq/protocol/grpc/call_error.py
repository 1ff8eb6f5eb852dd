"""What ends a gRPC call early: the statuses of gRPC itself, below the codes of RocketMQ.

Rules of this file
1. An error of this kind ends one stream. The connection and its other calls go on.
2. Its text goes to the client, so it says what was wrong with the call and repeats none of its contents but names of methods.

Source: gRPC, status codes; gRPC over HTTP/2, responses.
"""

from __future__ import annotations

from enum import IntEnum

from orbitmq.errors import ProtocolError


class GrpcStatus(IntEnum):
    """How a call ended; the numbers are those of the trailer `grpc-status`."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class CallError(ProtocolError):
    """A call cannot be carried out. `http_status` is 200 unless whoever called does not seem to speak gRPC."""

    def __init__(self, status: GrpcStatus, text: str, *, http_status: int = 200) -> None:
        super().__init__(text)
        self.status = status
        self.http_status = http_status
