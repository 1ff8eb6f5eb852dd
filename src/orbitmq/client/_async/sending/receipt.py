"""What a program gets back for a send.

Rules of this file
1. A receipt is made for every send: plain fields, nothing is decoded or asked for before somebody wants it.
2. The receipt of a timer message knows the client's timers, and asks them; others have none to ask.
3. A receipt that was pickled has no client, wherever it is read again. It still names its message to any client.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import msgspec

from orbitmq.client.message import SendStatus
from orbitmq.client.sending.outgoing import STORED_CODES, Outgoing
from orbitmq.errors import ClientError
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.send_answer import DELIVER_FIELD, Repeat, repeat_of

if TYPE_CHECKING:
    from orbitmq.client.timers import HasTimer, TimerOutcome
    from orbitmq.protocol.remoting.frame import Command


class TimerCalls(Protocol):
    """What a receipt asks on behalf of the program."""

    async def recall(self, timer: HasTimer | str | None = None) -> TimerOutcome: ...

    async def reschedule(
        self,
        timer: HasTimer | str | None = None,
        *,
        at: datetime | int | None = None,
        after: timedelta | float | None = None,
    ) -> TimerOutcome: ...

    async def status(self, timer: HasTimer | str | None = None) -> TimerOutcome: ...


class _NoClient:
    """The timers of a receipt that was pickled."""

    async def recall(self, timer: HasTimer | str | None = None) -> TimerOutcome:
        _no_client("recall(receipt)")

    async def reschedule(
        self,
        timer: HasTimer | str | None = None,
        *,
        at: datetime | int | None = None,
        after: timedelta | float | None = None,
    ) -> TimerOutcome:
        _no_client("reschedule(receipt, ...)")

    async def status(self, timer: HasTimer | str | None = None) -> TimerOutcome:
        _no_client("status(receipt)")


class SendReceipt(msgspec.Struct, frozen=True):
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

    send_status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region: str | None = None
    attempts_count: int = 1
    trace_on: bool = True
    recall_handle: str | None = None
    timers: TimerCalls | None = None
    repeat: Repeat | None = None
    deliver_ms: int | None = None

    async def recall(self) -> TimerOutcome:
        """Cancel the message if it has not been delivered yet: `Timers.recall` with this receipt."""
        return await self._timers().recall(self)

    async def reschedule(
        self, *, at: datetime | int | None = None, after: timedelta | float | None = None
    ) -> TimerOutcome:
        """Give the message another due time if it has not been delivered yet: `Timers.reschedule` with this receipt."""
        return await self._timers().reschedule(self, at=at, after=after)

    async def status(self) -> TimerOutcome:
        """Whether the message still waits for its due time: `Timers.status` with this receipt."""
        return await self._timers().status(self)

    def __reduce__(self) -> tuple[Any, ...]:
        fields = msgspec.structs.astuple(msgspec.structs.replace(self, timers=None))
        return _pickled, (fields, self.timers is not None)

    def __deepcopy__(self, memo: object) -> SendReceipt:
        return self

    def _timers(self) -> TimerCalls:
        if self.timers is None:
            raise ClientError(
                f"message {self.message_id} was sent without at and without after; there is nothing to recall or to move",
                remedy="delay levels cannot be recalled: send with after=",
            )
        return self.timers


def _pickled(fields: tuple[Any, ...], is_timed: bool) -> SendReceipt:
    return msgspec.structs.replace(SendReceipt(*fields), timers=_NoClient() if is_timed else None)


def _no_client(call: str) -> NoReturn:
    raise ClientError("this receipt was pickled, and knows no client any more", remedy=f"ask one: mq.timers.{call}")


def receipts(
    outgoing: Outgoing, queue: MessageQueue, answer: Command, attempts_count: int, timers: TimerCalls | None = None
) -> list[SendReceipt]:
    """One receipt per message of a stored request. `ClientError` when the answer lacks what every broker sends."""
    status = STORED_CODES[answer.code]
    queue_id = answer.optional_integer("queueId")
    queue_offset = answer.optional_integer("queueOffset")
    if queue_id is None or queue_offset is None:
        raise ClientError(
            f"broker {queue.broker_name} stored a message of topic {outgoing.topic!r} but did not say where; "
            f"its answer has the fields {sorted(answer.fields)}",
            remedy="the broker does not follow the protocol; do not send the message again",
        )
    stored_in = queue if queue.queue_id == queue_id else MessageQueue(queue.topic, queue.broker_name, queue_id)
    region = answer.fields.get("MSG_REGION")
    trace_on = answer.fields.get("TRACE_ON") != "false"
    if not outgoing.is_batch:
        repeat = repeat_of(answer.fields)
        message_id = outgoing.unique_ids[0]
        return [
            SendReceipt(
                status,
                message_id if repeat is None else answer.fields.get("transactionId") or message_id,
                answer.text("msgId"),
                stored_in,
                queue_offset,
                answer.fields.get("transactionId"),
                region,
                attempts_count,
                trace_on,
                None if timers is None else answer.fields.get("recallHandle"),
                timers,
                repeat,
                None if repeat is None else answer.optional_integer(DELIVER_FIELD),
            )
        ]
    offset_ids = answer.text("msgId").split(",")
    if len(offset_ids) != len(outgoing.unique_ids):
        offset_ids = [answer.text("msgId")] * len(outgoing.unique_ids)  # an inner batch is one record with one id
    step = 0 if "batchUniqId" in answer.fields else 1
    return [
        SendReceipt(
            status,
            unique_id,
            offset_id,
            stored_in,
            queue_offset + position * step,
            None,
            region,
            attempts_count,
            trace_on,
            None,
            timers,
        )
        for position, (unique_id, offset_id) in enumerate(zip(outgoing.unique_ids, offset_ids, strict=True))
    ]
