"""RECALL_MESSAGE: RocketMQ's request to recall one timer message by its handle.

Rules of this file
1. The checks come in RocketMQ's order with its codes: switched off, not accepting, unknown topic, a handle that is wrong.
2. The answer is truthful, which RocketMQ's is not: success means that the message is not delivered, by this recall or an
   earlier one. What is delivered, or unknown, or on its way, is ILLEGAL_OPERATION and says so. A sender's retry may have stored a
   message several times under its unique key: all that wait are recalled, and success means that none has left.
3. A handle goes on to work after a reschedule: the message is found by its unique key, and only what is not found is held
   against the handle's time.

Source: RocketMQ broker, recall; remoting, RECALL_MESSAGE.
"""

from __future__ import annotations

from orbitmq.broker.refusal import Refusal, topic_missing
from orbitmq.broker.timers.answering import Question
from orbitmq.broker.timers.changing import TimerChanges
from orbitmq.broker.timers.finding import Meant, TimerFinder, Wanted, wanted_of_handle
from orbitmq.broker.topics import TopicTable
from orbitmq.clock import Clock
from orbitmq.errors import ProtocolError
from orbitmq.limits.timers import TIMER_CHANGES_PER_REQUEST_MAX
from orbitmq.protocol.recall_handles import RecallHandle, decode_handle
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.timer_bodies import Verdict
from orbitmq.store.durability import PutStatus

REMARKS = {
    Verdict.ALREADY_DELIVERED: "the message has been delivered already",
    Verdict.TOO_LATE: "the message is being delivered, or changed by somebody else, right now",
    Verdict.NOT_FOUND: "no message with this handle is pending",
}


class RecallProcessor:
    def __init__(
        self,
        topics: TopicTable,
        finder: TimerFinder,
        changes: TimerChanges,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._finder = finder
        self._changes = changes
        self._clock = clock

    def recall(self, command: Command, peer: Peer) -> Command | None:
        """RECALL_MESSAGE (370). Cost: about 35 us."""
        handle = self._checked(command)
        wanted = wanted_of_handle(handle)
        question = Question[Meant](command, peer, lambda meant: self._recall(command, peer, handle, wanted, meant))
        return question.ask(
            lambda done, failed: self._finder.meant(wanted, TIMER_CHANGES_PER_REQUEST_MAX, done, failed)
        )

    def _recall(
        self, command: Command, peer: Peer, handle: RecallHandle, wanted: Wanted, meant: Meant
    ) -> Command | None:
        answer = response(command, ResponseCode.SUCCESS, fields={"msgId": handle.message_id})
        if not meant.pending:
            verdict = Verdict.TOO_LATE if meant.leaving else self._finder.past(wanted).verdict
            if verdict is not Verdict.ALREADY_RECALLED:
                raise self._not_recalled(handle, verdict)
            return answer
        count, statuses = len(meant.pending), list[PutStatus]()
        left = self._copy_left(wanted, meant)

        def settled(status: PutStatus) -> None:
            statuses.append(status)
            if len(statuses) == count and not command.is_oneway:
                peer.send(_answered(answer, statuses, left, is_all=meant.is_all))

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

    def topics(self, command: Command) -> list[str]:
        """The topic of the handle. Raises Refusal."""
        return [_handle(command).topic]

    def _checked(self, command: Command) -> RecallHandle:
        self._changes.check_allowed()
        topic = command.text("topic")
        if self._topics.get(topic) is None:
            raise topic_missing(topic)
        handle = _handle(command)
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
        remark = REMARKS[verdict]
        now_ms = self._clock.now_ms()
        if verdict is Verdict.NOT_FOUND and handle.timestamp_ms <= now_ms:
            remark += f": its time {handle.timestamp_ms} has passed"
        return Refusal(ResponseCode.ILLEGAL_OPERATION, remark)


def _handle(command: Command) -> RecallHandle:
    try:
        return decode_handle(command.text("recallHandle"))
    except ProtocolError as error:
        raise Refusal(ResponseCode.ILLEGAL_OPERATION, str(error)) from error


def _answered(answer: Command, statuses: list[PutStatus], left: Verdict | None, *, is_all: bool) -> Command:
    """The answer when the recall of every copy has ended."""
    failed_count = statuses.count(PutStatus.SERVICE_NOT_AVAILABLE)
    if failed_count:
        answer.code, answer.fields = ResponseCode.SERVICE_NOT_AVAILABLE, {}
        answer.remark = (
            f"{failed_count} of {len(statuses)} copies of the message could not be recalled: try again later"
            if failed_count < len(statuses)
            else "the recall could not be written: nothing was changed, try again later"
        )
    elif not is_all:
        answer.code, answer.fields = ResponseCode.SYSTEM_BUSY, {}
        answer.remark = f"{len(statuses)} copies of the message were recalled, and more of them wait: recall it again"
    elif left is not None:
        answer.code, answer.fields = ResponseCode.ILLEGAL_OPERATION, {}
        answer.remark = f"{REMARKS[left]}; it was stored several times, and {len(statuses)} that waited were recalled"
    elif PutStatus.FLUSH_DISK_TIMEOUT in statuses:
        answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
        answer.remark = "the recall is stored, but was not flushed to disk in time"
    return answer
