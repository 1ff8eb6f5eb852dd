"""Counting calls by method and by how they end, in the shape of `remoting.tally`.

Rules of this file
1. Only methods that are served have a counter: a peer can invent names, not counters.
2. How a call ends stands in its answers: the code of RocketMQ is the first field of each message that has one. It is read there, once for
   all methods, whichever part of the broker wrote it.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from orbitmq.protocol.grpc.call_error import CallError, GrpcStatus
from orbitmq.protocol.grpc.rpcs import RPCS, Rpc

NO_METHOD: Final = "(none)"
"""Stands for the method of a call that did not become one."""

_STATUS: Final = b"\x0a"
"""Tag of the field `status`, the first of each answer that has one."""
_CODE: Final = 8
"""Tag of the field `code`, the first of a status."""
OK: Final = 20_000
_OK: Final = b"\x08\xa0\x9c\x01"
"""The code OK with its tag."""


class CallTally:
    """Calls of one port since its start."""

    __slots__ = ("begun", "failures", "unsupported")

    def __init__(self) -> None:
        self.begun: dict[Rpc, int] = dict.fromkeys(RPCS, 0)
        """Calls that began. Whoever begins one adds to it."""
        self.failures: Counter[tuple[str, int]] = Counter()
        """(method, code of RocketMQ or status of gRPC) -> answers other than OK."""
        self.unsupported = 0
        """Calls of methods that are not served."""

    def answered(self, rpc: Rpc, message: bytes) -> None:
        """An answer of a call leaves. Costs 0.1 us."""
        if message[2:6] == _OK or message[:1] != _STATUS:
            return
        code = code_of_answer(message)
        if code not in (0, OK):  # it may be OK with a long text
            self.failures[rpc, code] += 1

    def failed(self, rpc: Rpc | None, error: CallError) -> None:
        """A call ended with a status of gRPC; None for one that did not become a call."""
        if rpc is None and error.status is GrpcStatus.UNIMPLEMENTED:
            self.unsupported += 1
        else:
            self.failures[rpc or NO_METHOD, int(error.status)] += 1

    def handled_by_name(self) -> list[tuple[str, int]]:
        """Calls by method; those that came at least once."""
        return [(rpc.value, count) for rpc, count in self.begun.items() if count]

    def failures_by_name(self) -> list[tuple[str, str, int]]:
        """Failures by method and the name of the code."""
        return [(str(rpc), _name(code), count) for (rpc, code), count in list(self.failures.items())]


def code_of_answer(message: bytes) -> int:
    """The code of the status with which `message` begins; 0 where it has none."""
    at = 1
    while message[at] & 0x80:
        at += 1
    at += 1
    if at >= len(message) or message[at] != _CODE:
        return 0
    code = shift = 0
    while True:
        at += 1
        code |= (message[at] & 0x7F) << shift
        shift += 7
        if not message[at] & 0x80:
            return code


def _name(code: int) -> str:
    if code < len(GrpcStatus):
        return GrpcStatus(code).name
    from orbitmq.protocol.grpc.messages import Code  # there is no code before somebody called, and then it is imported

    return Code(code).name
