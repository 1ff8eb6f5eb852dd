"""Requests about timer messages: recall, reschedule, status, list, count, show.

Rules of this file
1. Every verdict is the truth when the answer leaves. A request that changes something is answered when the change is as
   durable as the flush mode asks.
2. Several matches without `all` change nothing: each is answered AMBIGUOUS.
3. The work of one request is bounded: `TIMER_CHANGES_PER_REQUEST_MAX` timers are changed or told of, and the answer says
   when there are more; a page has at most `TIMER_PAGE_MAX`.
4. A body that cannot be read, or asks for what does not go together, is answered INVALID_PARAMETER.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from orbitmq.broker.refusal import Refusal
from orbitmq.broker.timers.changing import TimerChanges, Told
from orbitmq.broker.timers.finding import Near, PendingIndex, TimerFinder, Wanted
from orbitmq.errors import ProtocolError
from orbitmq.limits import TIMER_CHANGES_PER_REQUEST_MAX, TIMER_PAGE_MAX
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.remoting.bodies.json_body import JsonBody
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.timer_bodies import (
    TIER_FAR,
    TIER_NEAR,
    ChangeTimers,
    CountQuery,
    TimerAnswer,
    TimerAnswers,
    TimerCounts,
    TimerMessage,
    TimerPage,
    TimerQuery,
    TimerView,
    Verdict,
)
from orbitmq.store.durability import PutStatus
from orbitmq.timing.index.search import IndexQuery
from orbitmq.timing.timers.timers import TimerRecord, Timers

_Body = TypeVar("_Body", bound=JsonBody)


Act = Callable[[TimerRecord, Told], TimerView]
"""Begins to change one timer, and answers how it is to be shown. Raises `Refusal` when nothing was changed."""


class TimerRequests:
    def __init__(self, finder: TimerFinder, changes: TimerChanges, timers: Timers, index: PendingIndex) -> None:
        self._finder = finder
        self._changes = changes
        self._timers = timers
        self._index = index

    # --- changing ---------------------------------------------------------------------------------------------------

    def recall(self, command: Command, peer: Peer) -> Command | None:
        """RECALL_TIMERS."""
        self._changes.check_allowed()
        change = _read(ChangeTimers, command)
        _refuse_times(change)
        wanted = self._finder.wanted(change.selector)
        near = self._finder.near(wanted, TIMER_CHANGES_PER_REQUEST_MAX)

        def act(timer: TimerRecord, told: Told) -> TimerView:
            self._changes.recall(timer, told)
            return self._finder.view(timer)

        return self._change(command, peer, change, wanted, near, Verdict.RECALLED, act)

    def reschedule(self, command: Command, peer: Peer) -> Command | None:
        """RESCHEDULE_TIMERS."""
        self._changes.check_allowed()
        change = _read(ChangeTimers, command)
        wanted = self._finder.wanted(change.selector)
        time = self._changes.new_time(change)
        near = self._finder.near(wanted, TIMER_CHANGES_PER_REQUEST_MAX)
        if change.selector.all or len(near.pending) == 1:
            self._changes.make_room(time, len(near.pending))

        def act(timer: TimerRecord, told: Told) -> TimerView:
            self._changes.reschedule(timer, time, told)
            return self._finder.view(timer._replace(deliver_ms=time.deliver_ms))

        return self._change(command, peer, change, wanted, near, Verdict.RESCHEDULED, act)

    def _change(
        self, command: Command, peer: Peer, change: ChangeTimers, wanted: Wanted, near: Near, verdict: Verdict, act: Act
    ) -> Command | None:
        """Change what is meant, or say why not; the answer goes when everything that was changed is safe."""
        pending = near.pending
        if len(pending) + len(near.leaving) > 1 and not change.selector.all:
            return response(command, ResponseCode.SUCCESS, body=self._seen(near, Verdict.AMBIGUOUS).encode())
        if not pending:
            return response(command, ResponseCode.SUCCESS, body=self._not_pending(wanted, near).encode())
        answers = TimerAnswers([TimerAnswer(Verdict.TOO_LATE, self._finder.view_of(one)) for one in near.leaving])
        answers.more = not near.is_all
        open_changes = _OpenChanges(command, peer, answers)
        for timer in pending:
            try:
                view = act(timer, open_changes.begin())
            except Refusal:
                open_changes.not_begun()
                if not answers.changed:
                    raise
                answers.answers.append(TimerAnswer(Verdict.PENDING, self._finder.view(timer)))
            else:
                answers.answers.append(TimerAnswer(verdict, view))
                answers.changed += 1
        return None

    # --- looking ----------------------------------------------------------------------------------------------------

    def status(self, command: Command, peer: Peer) -> Command:
        """TIMER_STATUS: what is known of each selected timer; nothing is ambiguous here."""
        change = _read(ChangeTimers, command)
        _refuse_times(change)
        wanted = self._finder.wanted(change.selector)
        near = self._finder.near(wanted, TIMER_CHANGES_PER_REQUEST_MAX)
        answers = self._seen(near, Verdict.PENDING) if near.pending else self._not_pending(wanted, near)
        return response(command, ResponseCode.SUCCESS, body=answers.encode())

    def show(self, command: Command, peer: Peer) -> Command:
        """GET_TIMER: one pending message in full."""
        change = _read(ChangeTimers, command)
        _refuse_times(change)
        wanted = self._finder.wanted(change.selector)
        near = self._finder.near(wanted, 2)
        if len(near.pending) > 1:
            shown = TimerMessage(Verdict.AMBIGUOUS)
        elif near.pending:
            (timer,) = near.pending
            record = timer.record
            shown = TimerMessage(
                Verdict.PENDING,
                self._finder.view(timer),
                decode_properties(record.properties),
                bytes(record.body),
                record.sys_flag,
            )
        else:
            answer = self._not_pending(wanted, near).answers[0]
            shown = TimerMessage(answer.verdict, answer.timer)
        return response(command, ResponseCode.SUCCESS, body=shown.encode())

    def list(self, command: Command, peer: Peer) -> Command:
        """LIST_TIMERS: a page of what is pending."""
        query = _read(TimerQuery, command)
        if not 1 <= query.limit <= TIMER_PAGE_MAX:
            raise _wrong(f"a page has 1 to {TIMER_PAGE_MAX} timers, not {query.limit}")
        if query.tier not in (None, TIER_NEAR, TIER_FAR):
            raise _wrong(f"a tier is {TIER_NEAR!r} or {TIER_FAR!r}, not {query.tier[:32]!r}")
        if query.key is not None and query.key_prefix is not None:
            raise _wrong("a page is by key or by keyPrefix, not by both")
        if query.topic is None and (query.key is not None or query.key_prefix is not None):
            raise _wrong("keys belong to a topic: name the topic")
        if query.tier == TIER_FAR:
            return response(command, ResponseCode.SUCCESS, body=TimerPage([]).encode())
        try:
            page = self._index.page(
                IndexQuery(
                    query.topic,
                    query.from_ms,
                    query.until_ms,
                    query.key,
                    query.key_prefix,
                    query.limit,
                    query.cursor,
                )
            )
        except ValueError as error:
            raise _wrong(str(error)) from error
        timers: list[TimerView] = []
        for queue_offset, _ in page.candidates:
            timer = self._timers.read(queue_offset)
            if timer is not None and _fits(timer, query):
                timers.append(self._finder.view(timer))
        return response(command, ResponseCode.SUCCESS, body=TimerPage(timers, page.cursor).encode())

    def count(self, command: Command, peer: Peer) -> Command:
        """COUNT_TIMERS: exact counts, and buckets of due times."""
        query = _read(CountQuery, command)
        if query.bucket_ms < 0:
            raise _wrong(f"a bucket has a width of at least 1 ms, not {query.bucket_ms}")
        counted = self._index.counts(query.topic, query.from_ms, query.until_ms, query.bucket_ms)
        pending = self._timers.pending_count
        counts = TimerCounts(
            pending, counted.by_topic, counted.buckets, pending, 0, self._timers.next_due_ms if pending else None
        )
        return response(command, ResponseCode.SUCCESS, body=counts.encode())

    # --- answers ----------------------------------------------------------------------------------------------------

    def _seen(self, near: Near, verdict: Verdict) -> TimerAnswers:
        """The matches as they are: `verdict` for those that wait."""
        answers = [TimerAnswer(Verdict.TOO_LATE, self._finder.view_of(one)) for one in near.leaving]
        answers += [TimerAnswer(verdict, self._finder.view(timer)) for timer in near.pending]
        return TimerAnswers(answers, more=not near.is_all)

    def _not_pending(self, wanted: Wanted, near: Near) -> TimerAnswers:
        return self._seen(near, Verdict.PENDING) if near.leaving else TimerAnswers([self._finder.past(wanted)])


class _OpenChanges:
    """The changes of one request that are not safe yet, and its answer, which leaves when all are."""

    def __init__(self, command: Command, peer: Peer, answers: TimerAnswers) -> None:
        self._command = command
        self._peer = peer
        self._answers = answers
        self._open_count = 0
        self._worst = PutStatus.PUT_OK

    def begin(self) -> Told:
        self._open_count += 1
        return self._told

    def not_begun(self) -> None:
        self._open_count -= 1

    def _told(self, status: PutStatus) -> None:
        if status is not PutStatus.PUT_OK and self._worst is not PutStatus.SERVICE_NOT_AVAILABLE:
            self._worst = status
        self._open_count -= 1
        if self._open_count or self._command.is_oneway:
            return
        if self._worst is PutStatus.SERVICE_NOT_AVAILABLE:
            remark = "the change could not be written: nothing was changed, try again later"
            answer = response(self._command, ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        else:
            answer = response(self._command, ResponseCode.SUCCESS, body=self._answers.encode())
            if self._worst is PutStatus.FLUSH_DISK_TIMEOUT:
                answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
                answer.remark = "the change is stored, but was not flushed to disk in time"
        self._peer.send(answer)


def _read(body: type[_Body], command: Command) -> _Body:
    try:
        return body.decode(command.body)
    except ProtocolError as error:
        raise _wrong(str(error)) from error


def _refuse_times(change: ChangeTimers) -> None:
    if change.deliver_ms is not None or change.delay_ms is not None:
        raise _wrong("only a reschedule has a new time (deliverMs, delayMs)")


def _fits(timer: TimerRecord, query: TimerQuery) -> bool:
    """Whether what the index took for a match is one."""
    if query.topic is not None and timer.topic != query.topic:
        return False
    if query.key is None and query.key_prefix is None:
        return True
    words = (timer.keys or "").split(" ")
    if query.key is not None:
        return query.key in words
    return any(word.startswith(query.key_prefix or "") for word in words)


def _wrong(remark: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, remark)
