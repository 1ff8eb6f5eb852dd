"""Messages that are sent together with what a program does: the half message before, the decision after.

    with producer.transaction("orders", b"created") as tx:
        database.insert(order)

Rules of this file
1. Leaving the block commits, leaving it by an exception rolls back. Before the block begins the half message is stored.
2. A decision that did not reach its broker, or that the broker cannot store at the moment, is kept and given when the broker asks; so is
   a decision of this process that was lost on its way. While the block runs a question gets no answer, and the broker asks again.
3. What this process does not know is the matter of the group's checker, which looks into the program's own data. Without one the broker
   gives the message up in the end.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/sending/transactions.py: change that file and run `make generate`.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from orbitmq.client._async.sending import transactions as source
from orbitmq.client._sync.loop_thread import LoopThread


class MessageTransaction:
    """One message that counts when its block has ended well. Made by `Producer.transaction`, used with `with`."""

    def __init__(self, twin: source.MessageTransaction, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.MessageTransaction = twin

    @property
    def message_id(self) -> str:
        """The unique id of the message, by which the program's own data may name it. There once the block has begun."""
        return self._loop.do(lambda: self._twin.message_id)

    def roll_back(self) -> None:
        """Leave the block without sending the message, and without an exception."""
        self._loop.do(self._twin.roll_back)

    def __enter__(self) -> Self:
        self._loop.run(self._twin.__aenter__())
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.end(self._twin.__aexit__(error_type, error, trace))
