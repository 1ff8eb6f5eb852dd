"""What a program gets back for a send.

Rules of this file
1. A receipt is made for every send: plain fields, nothing is decoded or asked for before somebody wants it.
2. The receipt of a timer message knows the client's timers, and asks them; others have none to ask.
3. A receipt that was pickled has no client, wherever it is read again. It still names its message to any client.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/sending/receipt.py: change that file and run `make generate`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from orbitmq.client._sync.kept_receipt import KeptReceipt
from orbitmq.client.timers import TimerOutcome


class SendReceipt(KeptReceipt):
    """Where a message was stored. It can be pickled; `Timers.recall` of any client takes what comes of that.

    send_status: how far the broker had come with storing it when it answered.
    message_id: the id made by the client (property UNIQ_KEY); the one to log and to search for. Of a repeat: that of the first send.
    offset_message_id: the broker's id, made of its address and the position in its commit log.
    queue_offset: position in the queue. Of a delayed message: its position among those that wait.
    attempts_count: 1 unless earlier attempts failed; those may have stored the message as well.
    trace_on: whether the broker wants its messages traced.
    recall_handle: of a timer message: names it to `Client.timers`, also in another process. None if the broker gave none.
    repeat: None for a message that this send stored; else the broker had it already, stored nothing, and all of this is the answer
        to the first send.
    deliver_ms: of a repeat with a time: when the first message falls, or fell, due.
    """

    __slots__ = ()

    def recall(self) -> TimerOutcome:
        """Cancel the message if it has not been delivered yet: `Timers.recall` with this receipt."""
        return self._loop.run(self._twin.recall())

    def reschedule(self, *, at: datetime | int | None = None, after: timedelta | float | None = None) -> TimerOutcome:
        """Give the message another due time if it has not been delivered yet: `Timers.reschedule` with this receipt."""
        return self._loop.run(self._twin.reschedule(at=at, after=after))

    def status(self) -> TimerOutcome:
        """Whether the message still waits for its due time: `Timers.status` with this receipt."""
        return self._loop.run(self._twin.status())
