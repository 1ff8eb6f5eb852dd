"""The values of a receipt outside the loop.

Rules of this file
1. Values are those of the receipt on the loop, which is kept and asked.
2. Two receipts are equal when those on the loop are.
3. One that was pickled has no loop; what was the receipt there says so.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from orbitmq.client._async.sending import receipt
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.client.message import SendStatus
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.send_answer import Repeat

R = TypeVar("R")


class _NoLoop:
    def run(self, work: Coroutine[Any, Any, R]) -> R:
        try:
            work.send(None)
        finally:
            work.close()
        raise AssertionError("a receipt without a client asked somebody")


class KeptReceipt:
    """What `SendReceipt` says, without what it does."""

    __slots__ = ("_loop", "_twin")

    def __init__(self, twin: receipt.SendReceipt, loop_thread: LoopThread | _NoLoop) -> None:
        self._twin = twin
        self._loop = loop_thread

    @property
    def send_status(self) -> SendStatus:
        return self._twin.send_status

    @property
    def message_id(self) -> str:
        return self._twin.message_id

    @property
    def offset_message_id(self) -> str:
        return self._twin.offset_message_id

    @property
    def queue(self) -> MessageQueue:
        return self._twin.queue

    @property
    def queue_offset(self) -> int:
        return self._twin.queue_offset

    @property
    def transaction_id(self) -> str | None:
        return self._twin.transaction_id

    @property
    def region(self) -> str | None:
        return self._twin.region

    @property
    def attempts_count(self) -> int:
        return self._twin.attempts_count

    @property
    def trace_on(self) -> bool:
        return self._twin.trace_on

    @property
    def recall_handle(self) -> str | None:
        return self._twin.recall_handle

    @property
    def repeat(self) -> Repeat | None:
        return self._twin.repeat

    @property
    def deliver_ms(self) -> int | None:
        return self._twin.deliver_ms

    def __reduce__(self) -> tuple[Any, ...]:
        return _pickled, (type(self), self._twin)

    def __deepcopy__(self, memo: object) -> KeptReceipt:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeptReceipt) and self._twin == other._twin

    def __hash__(self) -> int:
        return hash(self._twin)

    def __repr__(self) -> str:
        return repr(self._twin)


def _pickled(kind: type[KeptReceipt], twin: receipt.SendReceipt) -> KeptReceipt:
    return kind(twin, _NoLoop())
