"""Recalls of one timer message by its handle: what becomes of one, whichever front end it came through.

Rules of this file
1. The checks come in RocketMQ's order with its codes: switched off, not accepting, unknown topic, a handle that is wrong.
2. The outcome is truthful, which RocketMQ's is not: success means that the message is not delivered, by this recall or an
   earlier one. What is delivered, or unknown, or on its way, is ILLEGAL_OPERATION and says so. A sender's retry may have stored a
   message several times under its unique key: all that wait are recalled, and success means that none has left.
3. A handle goes on to work after a reschedule: the message is found by its unique key, and only what is not found is held
   against the handle's time.
4. A recall is told when its record is as durable as the flush mode asks.

Source: RocketMQ broker, recall; remoting, RECALL_MESSAGE; gRPC, RecallMessage.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from orbitmq.broker.put_answers import ANSWERS, NOT_CONFIRMED
from orbitmq.broker.refusal import Refusal, topic_missing
from orbitmq.broker.timers.answering import Question, refusal_of
from orbitmq.broker.timers.changing import TimerChanges
from orbitmq.broker.timers.finding import Meant, TimerFinder, Wanted, wanted_of_handle
from orbitmq.broker.topics import TopicTable
from orbitmq.clock import Clock
from orbitmq.errors import ProtocolError
from orbitmq.limits.timers import TIMER_CHANGES_PER_REQUEST_MAX
from orbitmq.protocol.recall_handles import RecallHandle, decode_handle
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.timer_bodies import Verdict
from orbitmq.store.durability import PutStatus, worst_of

REMARKS = {
    Verdict.ALREADY_DELIVERED: "the message has been delivered already",
    Verdict.TOO_LATE: "the message is being delivered, or changed by somebody else, right now",
    Verdict.NOT_FOUND: "no message with this handle is pending",
}


class TimerRecalled(msgspec.Struct, frozen=True, gc=False):
    """The message is not delivered. `status`: whether the record of that is as durable as the flush mode asks."""

    message_id: str
    status: PutStatus = PutStatus.PUT_OK


class NotRecalledRefusal(Refusal):
    """The handle is sound, and its message does not wait: front ends may have a code of their own for it."""

    def __init__(self, verdict: Verdict, more: str = "") -> None:
        super().__init__(ResponseCode.ILLEGAL_OPERATION, REMARKS[verdict] + more)
        self.verdict = verdict


RecallOutcome = TimerRecalled | Refusal


class Recalls:
    """Recalls that one broker is asked for."""

    def __init__(self, topics: TopicTable, finder: TimerFinder, changes: TimerChanges, clock: Clock) -> None:
        self._topics = topics
        self._finder = finder
        self._changes = changes
        self._clock = clock

    def recall(self, topic: str, handle_text: str, told: Callable[[RecallOutcome], None]) -> RecallOutcome | None:
        """The outcome where it is known at once; else None, and `told` hears it later, once. Cost: about 35 us.

        Raises RecordsNotInMemory and OSError, when nothing was changed.
        """
        try:
            handle = self._checked(topic, handle_text)
        except Refusal as refusal:
            return refusal
        wanted = wanted_of_handle(handle)
        question = Question[Meant, RecallOutcome](
            lambda meant: self._recall(handle, wanted, meant, told), refusal_of, told
        )
        return question.ask(
            lambda done, failed: self._finder.meant(wanted, TIMER_CHANGES_PER_REQUEST_MAX, done, failed)
        )

    def _recall(
        self, handle: RecallHandle, wanted: Wanted, meant: Meant, told: Callable[[RecallOutcome], None]
    ) -> RecallOutcome | None:
        if not meant.pending:
            verdict = Verdict.TOO_LATE if meant.leaving else self._finder.past(wanted).verdict
            if verdict is not Verdict.ALREADY_RECALLED:
                return self._not_recalled(handle, verdict)
            self._finder.wait_for_log(
                lambda status: told(_outcome(handle.message_id, [status], None, is_all=True))
            )  # the first answer may have been that it is not safe, or none
            return None
        count, statuses = len(meant.pending), list[PutStatus]()
        left = self._copy_left(wanted, meant)

        def settled(status: PutStatus) -> None:
            statuses.append(status)
            if len(statuses) == count:
                told(_outcome(handle.message_id, statuses, left, is_all=meant.is_all))

        begun = 0
        try:
            for timer in meant.pending:
                self._changes.recall(timer, settled)
                begun += 1
        except Refusal:
            if not begun:
                raise
            for _ in range(count - begun):
                settled(PutStatus.SERVICE_NOT_AVAILABLE)
        return None

    def _copy_left(self, wanted: Wanted, meant: Meant) -> Verdict | None:
        """What became of a copy of the message that cannot be recalled any more."""
        if self._finder.delivered_copy(wanted, meant.pending) is not None:
            return Verdict.ALREADY_DELIVERED
        return Verdict.TOO_LATE if meant.leaving else None

    def _checked(self, topic: str, handle_text: str) -> RecallHandle:
        self._changes.check_allowed()
        if self._topics.get(topic) is None:
            raise topic_missing(topic)
        handle = read_handle(handle_text)
        if handle.topic != topic:
            raise Refusal(
                ResponseCode.ILLEGAL_OPERATION, f"the recall handle is of topic {handle.topic!r}, not of {topic!r}"
            )
        if handle.broker_name != self._finder.broker_name:
            raise Refusal(
                ResponseCode.ILLEGAL_OPERATION,
                f"the recall handle is of broker {handle.broker_name!r}; this is {self._finder.broker_name!r}",
            )
        return handle

    def _not_recalled(self, handle: RecallHandle, verdict: Verdict) -> Refusal:
        if verdict is Verdict.NOT_FOUND and handle.timestamp_ms <= self._clock.now_ms():
            return NotRecalledRefusal(verdict, f": its time {handle.timestamp_ms} has passed")
        return NotRecalledRefusal(verdict)


def read_handle(text: str) -> RecallHandle:
    """What a handle says. Raises Refusal for a text that is none."""
    try:
        return decode_handle(text)
    except ProtocolError as error:
        raise Refusal(ResponseCode.ILLEGAL_OPERATION, str(error)) from error


def _outcome(message_id: str, statuses: list[PutStatus], left: Verdict | None, *, is_all: bool) -> RecallOutcome:
    """What became of a recall when that of every copy has ended."""
    failed_count = statuses.count(PutStatus.SERVICE_NOT_AVAILABLE)
    if failed_count:
        return Refusal(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"{failed_count} of {len(statuses)} copies of the message could not be recalled: try again later"
            if failed_count < len(statuses)
            else "the recall could not be written: nothing was changed, try again later",
        )
    if PutStatus.UNKNOWN in statuses:
        return Refusal(ANSWERS[PutStatus.UNKNOWN], NOT_CONFIRMED)
    if not is_all:
        return Refusal(
            ResponseCode.SYSTEM_BUSY,
            f"{len(statuses)} copies of the message were recalled, and more of them wait: recall it again",
        )
    if left is not None:
        return NotRecalledRefusal(left, f"; it was stored several times, and {len(statuses)} that waited were recalled")
    return TimerRecalled(message_id, worst_of(statuses))
