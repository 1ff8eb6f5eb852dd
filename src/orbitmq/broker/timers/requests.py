"""Requests about timer messages: recall, reschedule, status, list, count, show.

Rules of this file
1. Every verdict is the truth when the answer leaves. A request that changes something is answered when the change is as
   durable as the flush mode asks.
2. Several messages without `all` change nothing: each is answered AMBIGUOUS. Copies of one message, stored under one unique key by
   a sender that tried again, are one: all of them are changed, and one that was delivered already stands in the answer.
3. The work of one request is bounded: `TIMER_CHANGES_PER_REQUEST_MAX` timers are changed or shown, and the answer says
   when there are more; a page has at most `TIMER_PAGE_MAX`.
4. A body that cannot be read, or asks for what does not go together, is answered INVALID_PARAMETER.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from orbitmq.broker.put_answers import ANSWERS, IN_PART, NOT_CONFIRMED
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.timers.answering import Question, request_question
from orbitmq.broker.timers.changing import OnDone, TimerChanges
from orbitmq.broker.timers.finding import Meant, TimerFinder, Wanted
from orbitmq.broker.timers.views import Pending
from orbitmq.errors import ProtocolError
from orbitmq.limits.timers import TIMER_CHANGES_PER_REQUEST_MAX, TIMER_PAGE_MAX, TIMER_TOPICS_ASKED_MAX
from orbitmq.protocol.names import REVIVE_TOPIC_PREFIX
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
    TimerCountsBody,
    TimerMessageBody,
    TimerPage,
    TimerQuery,
    TimerViewBody,
    Verdict,
)
from orbitmq.store.durability import PutStatus, worst_of
from orbitmq.timing.far.far_timers import FarTimers
from orbitmq.timing.far.queries import FarPage
from orbitmq.timing.far.tier import FarQuery
from orbitmq.timing.index.entries import first_key
from orbitmq.timing.index.search import IndexQuery
from orbitmq.timing.index.timer_index import TimerIndex
from orbitmq.timing.timers.pending_records import TimerRecord
from orbitmq.timing.timers.timers import Timers
from orbitmq.units import DAY_MS

_Body = TypeVar("_Body", bound=JsonBody)


Act = Callable[[Pending, OnDone], TimerViewBody]
"""Begins to change one timer, and answers how it is to be shown. Raises `Refusal` when nothing was changed."""

_NEAR_CURSOR: Final = "near:"
_FAR_CURSOR: Final = "far:"


class TimerRequests:
    def __init__(
        self,
        finder: TimerFinder,
        changes: TimerChanges,
        timers: Timers,
        index: TimerIndex,
        far: FarTimers | None,
    ) -> None:
        self._finder = finder
        self._changes = changes
        self._timers = timers
        self._index = index
        self._far = far

    def topics(self, command: Command) -> list[str]:
        """The topic of the timers that a request selects, by whatever it selects them. Raises Refusal."""
        return [self._finder.wanted(_read(ChangeTimers, command).selector).topic]

    # --- changing ---------------------------------------------------------------------------------------------------

    def recall(self, command: Command, peer: Peer) -> Command | None:
        """RECALL_TIMERS."""
        self._changes.check_allowed()
        change = _read(ChangeTimers, command)
        _refuse_times(change)

        def act(timer: Pending, on_done: OnDone) -> TimerViewBody:
            self._changes.recall(timer, on_done)
            return self._finder.view(timer)

        return self._each(
            command, peer, change, lambda wanted, meant: self._change(
                command, peer, change, wanted, meant, Verdict.RECALLED, act
            )
        )  # fmt: skip

    def reschedule(self, command: Command, peer: Peer) -> Command | None:
        """RESCHEDULE_TIMERS."""
        self._changes.check_allowed()
        change = _read(ChangeTimers, command)
        self._changes.new_time(change)

        def answer(wanted: Wanted, meant: Meant) -> Command | None:
            due_ms = self._changes.new_time(change)
            if change.selector.all or meant.is_one:
                self._changes.make_room(due_ms, len(meant.pending))

            def act(timer: Pending, on_done: OnDone) -> TimerViewBody:
                self._changes.reschedule(timer, due_ms, on_done)
                moved = self._finder.view(timer._replace(deliver_ms=due_ms))
                moved.tier = self._changes.tier_of(due_ms)
                return moved

            return self._change(command, peer, change, wanted, meant, Verdict.RESCHEDULED, act)

        return self._each(command, peer, change, answer)

    def _each(
        self, command: Command, peer: Peer, change: ChangeTimers, answer: Callable[[Wanted, Meant], Command | None],
        limit: int = TIMER_CHANGES_PER_REQUEST_MAX,
    ) -> Command | None:  # fmt: skip
        """Answer with what is selected, now or when the far tier has been asked."""
        wanted = self._finder.wanted(change.selector)
        question: Question[Meant, Command] = request_question(command, peer, lambda meant: answer(wanted, meant))
        return question.ask(lambda done, failed: self._finder.meant(wanted, limit, done, failed))

    def _change(
        self,
        command: Command,
        peer: Peer,
        change: ChangeTimers,
        wanted: Wanted,
        meant: Meant,
        verdict: Verdict,
        act: Act,
    ) -> Command | None:
        """Change what is meant, or say why not; the answer goes when everything that was changed is safe."""
        pending = meant.pending
        if not meant.is_one and not change.selector.all:
            return response(command, ResponseCode.SUCCESS, body=self._seen(wanted, meant, Verdict.AMBIGUOUS).encode())
        if not pending:
            return self._answer_past(command, peer, self._not_pending(wanted, meant))
        answers = self._answers(_left(self._finder, wanted, meant))
        answers.more = not meant.is_all
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
        open_changes.all_begun()
        return None

    def _answer_past(self, command: Command, peer: Peer, answers: TimerAnswers) -> Command | None:
        """What became of it; that it was recalled is as safe as the recall, whose own answer may have been that it is not, or none."""
        if all(answer.verdict is not Verdict.ALREADY_RECALLED for answer in answers.answers):
            return response(command, ResponseCode.SUCCESS, body=answers.encode())
        open_changes = _OpenChanges(command, peer, answers)
        self._finder.wait_for_log(open_changes.begin())
        open_changes.all_begun()
        return None

    # --- looking ----------------------------------------------------------------------------------------------------

    def status(self, command: Command, peer: Peer) -> Command | None:
        """TIMER_STATUS: what is known of each selected timer; nothing is ambiguous here."""
        change = _read(ChangeTimers, command)
        _refuse_times(change)

        def answer(wanted: Wanted, meant: Meant) -> Command:
            answers = self._seen(wanted, meant, Verdict.PENDING) if meant.pending else self._not_pending(wanted, meant)
            return response(command, ResponseCode.SUCCESS, body=answers.encode())

        return self._each(command, peer, change, answer)

    def show(self, command: Command, peer: Peer) -> Command | None:
        """GET_TIMER: one pending message in full."""
        change = _read(ChangeTimers, command)
        _refuse_times(change)

        def answer(wanted: Wanted, meant: Meant) -> Command:
            if not meant.is_one:
                shown = TimerMessageBody(Verdict.AMBIGUOUS)
            elif meant.pending:
                timer = meant.pending[0]
                record = timer.record
                shown = TimerMessageBody(
                    Verdict.PENDING,
                    self._finder.view(timer),
                    decode_properties(record.properties),
                    bytes(record.body),
                    record.sys_flag,
                )
            else:
                past = self._not_pending(wanted, meant).answers[0]
                shown = TimerMessageBody(past.verdict, past.timer)
            return response(command, ResponseCode.SUCCESS, body=shown.encode())

        return self._each(command, peer, change, answer, 2)

    def list(self, command: Command, peer: Peer) -> Command | None:
        """LIST_TIMERS: a page of what is pending; first what is near, then the far tier."""
        query = _read(TimerQuery, command)
        if not 1 <= query.limit <= TIMER_PAGE_MAX:
            raise _wrong(f"a page has 1 to {TIMER_PAGE_MAX} timers, not {query.limit}")
        if query.tier not in (None, TIER_NEAR, TIER_FAR):
            raise _wrong(f"a tier is {TIER_NEAR!r} or {TIER_FAR!r}, not {query.tier[:32]!r}")
        if query.key is not None and query.key_prefix is not None:
            raise _wrong("a page is by key or by keyPrefix, not by both")
        if query.topic is None and (query.key is not None or query.key_prefix is not None):
            raise _wrong("keys belong to a topic: name the topic")
        cursor = query.cursor or ""
        if cursor.startswith(_FAR_CURSOR) or (query.tier == TIER_FAR and not cursor):
            return self._far_page(command, peer, query, cursor.removeprefix(_FAR_CURSOR))
        if query.tier == TIER_FAR or (cursor and not cursor.startswith(_NEAR_CURSOR)):
            raise _wrong("the cursor is not one of a page of these timers")
        question: Question[TimerPage, Command] = request_question(command, peer, lambda page: _success(command, page))
        return question.ask(lambda done, _: done(self._near_page(query, cursor.removeprefix(_NEAR_CURSOR) or None)))

    def _near_page(self, query: TimerQuery, cursor: str | None) -> TimerPage:
        try:
            page = self._index.page(
                IndexQuery(query.topic, query.from_ms, query.until_ms, query.key, query.key_prefix, query.limit, cursor)
            )
        except ValueError as error:
            raise _wrong(str(error)) from error
        self._timers.will_read([candidate.queue_offset for candidate in page.candidates])
        timers: list[TimerViewBody] = []
        prefix = query.key_prefix
        for place, (queue_offset, _) in enumerate(page.candidates):
            timer = self._timers.read(queue_offset)
            if timer is None or not _fits(timer, query):
                continue
            if prefix is None or page.keys[place] == first_key(timer.keys, prefix):  # a message is listed once
                timers.append(self._finder.view(timer))
        if page.cursor is not None:
            return TimerPage(timers, _NEAR_CURSOR + page.cursor)
        far = self._far
        goes_on = query.tier is None and far is not None and far.is_needed
        return TimerPage(timers, _FAR_CURSOR if goes_on else None)

    def _far_page(self, command: Command, peer: Peer, query: TimerQuery, cursor: str) -> Command | None:
        far = self._far
        if far is None:
            return _success(command, TimerPage([]))
        after = None
        if cursor:
            due, _, source = cursor.partition(":")
            if not (due.isascii() and due.isdigit() and source.isascii() and source.isdigit() and len(cursor) < 40):
                raise _wrong("the cursor is not one of a page of these timers")
            after = int(due), int(source)
        wanted = FarQuery(
            topic=query.topic,
            key=query.key,
            key_prefix=query.key_prefix,
            from_ms=query.from_ms,
            until_ms=query.until_ms,
            limit=query.limit,
            after=after,
        )

        def answer(page: FarPage) -> Command:
            last = page.records[-1] if page.records else None
            more = f"{_FAR_CURSOR}{last.deliver_ms}:{last.source}" if page.more and last is not None else None
            timers = [self._finder.view(record) for record in page.records]
            return _success(command, TimerPage(timers, more, page.left_out))

        question: Question[FarPage, Command] = request_question(command, peer, answer)
        return question.ask(
            lambda done, failed: far.find(
                wanted, lambda page: failed(page) if isinstance(page, Exception) else done(page)
            )
        )

    def count(self, command: Command, peer: Peer) -> Command | None:
        """COUNT_TIMERS: exact counts, of one topic or all, and buckets of due times. What is far is counted by the day; its days
        are not known topic by topic, so those of one topic are shown only when no other one is far."""
        query = _read(CountQuery, command)
        if query.bucket_ms < 0:
            raise _wrong(f"a bucket has a width of at least 1 ms, not {query.bucket_ms}")
        question: Question[TimerCountsBody, Command] = request_question(
            command, peer, lambda counts: _success(command, counts)
        )
        return question.ask(lambda done, _: done(self._counts(query)))

    def _counts(self, query: CountQuery) -> TimerCountsBody:
        counted = self._index.counts(query.topic, query.from_ms, query.until_ms, query.bucket_ms)
        near_topics, buckets, times = _of_topic(counted.by_topic, query.topic), dict(counted.buckets), []
        if self._timers.pending_count:
            times.append(self._next_due_ms())
        far_topics: dict[str, int] = {}
        if self._far is not None:
            counts = self._far.counts()
            far_topics = _of_topic(counts.by_topic, query.topic)
            if counts.pending:
                times.append(counts.next_deliver_ms)
            if query.bucket_ms and len(far_topics) == len(counts.by_topic):
                low_ms, high_ms = query.from_ms or 0, query.until_ms
                for day, count in counts.by_day.items():
                    if day * DAY_MS + DAY_MS > low_ms and (high_ms is None or day * DAY_MS < high_ms):
                        bucket = max(day * DAY_MS, low_ms) // query.bucket_ms * query.bucket_ms
                        buckets[bucket] = buckets.get(bucket, 0) + count
        by_topic = {
            topic: near_topics.get(topic, 0) + far_topics.get(topic, 0) for topic in sorted(near_topics | far_topics)
        }
        near, far = sum(near_topics.values()), sum(far_topics.values())
        next_due_ms = min((time for time in times if time is not None), default=None)
        return TimerCountsBody(near + far, by_topic, sorted(buckets.items()), near, far, next_due_ms)

    def _next_due_ms(self) -> int | None:
        """Nothing near is due before this time. Where records of POP wait as well, the topics are asked one by one."""
        counted = self._index.counts(None, None, None, 0)
        if counted.pending == self._timers.pending_count or len(counted.by_topic) > TIMER_TOPICS_ASKED_MAX:
            return self._timers.next_due_ms
        firsts = [self._index.page(IndexQuery(topic, limit=1)).candidates for topic in counted.by_topic]
        return min((found[0].deliver_ms for found in firsts if found), default=None)

    # --- answers ----------------------------------------------------------------------------------------------------

    def _seen(self, wanted: Wanted, meant: Meant, verdict: Verdict) -> TimerAnswers:
        """The matches as they are: `verdict` for those that wait."""
        answers = _left(self._finder, wanted, meant)
        answers += [TimerAnswer(verdict, self._finder.view(timer)) for timer in meant.pending]
        return self._answers(answers, more=not meant.is_all)

    def _answers(self, answers: Sequence[TimerAnswer], *, more: bool = False) -> TimerAnswers:
        return TimerAnswers([*answers], more=more)

    def _not_pending(self, wanted: Wanted, meant: Meant) -> TimerAnswers:
        return (
            self._seen(wanted, meant, Verdict.PENDING) if meant.leaving else self._answers([self._finder.past(wanted)])
        )


class _OpenChanges:
    """The changes of one request that are not safe yet, and its answer, which leaves when all are."""

    def __init__(self, command: Command, peer: Peer, answers: TimerAnswers) -> None:
        self._command = command
        self._peer = peer
        self._answers = answers
        self._open_count = 1  # for those that are still to be begun
        self._worst = PutStatus.PUT_OK
        self._failed_count = 0

    def begin(self) -> OnDone:
        self._open_count += 1
        return self._settled

    def not_begun(self) -> None:
        self._open_count -= 1

    def all_begun(self) -> None:
        self._settled(PutStatus.PUT_OK)

    def _settled(self, status: PutStatus) -> None:
        self._worst = worst_of([self._worst, status])
        self._failed_count += status is PutStatus.SERVICE_NOT_AVAILABLE
        self._open_count -= 1
        if self._open_count or self._command.is_oneway:
            return
        if self._worst is PutStatus.SERVICE_NOT_AVAILABLE:
            written_count = self._answers.changed - self._failed_count
            remark = (
                f"{self._failed_count} of {self._answers.changed} changes could not be written, {written_count} are done: ask again later"
                if written_count
                else "the change could not be written: nothing was changed, try again later"
            )
            answer = response(self._command, ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        elif self._worst is PutStatus.UNKNOWN:
            answer = response(self._command, ANSWERS[self._worst], NOT_CONFIRMED)
        else:
            answer = response(self._command, ANSWERS[self._worst], body=self._answers.encode())
            if self._worst is not PutStatus.PUT_OK:
                answer.remark = f"the change {IN_PART[self._worst]}"
        self._peer.send(answer)


def _left(finder: TimerFinder, wanted: Wanted, meant: Meant) -> list[TimerAnswer]:
    """What is meant and cannot be changed any more."""
    answers = [TimerAnswer(Verdict.TOO_LATE, finder.view(one)) for one in meant.leaving]
    delivered = finder.delivered_copy(wanted, meant.pending)
    return answers if delivered is None else [*answers, delivered]


def _read(body: type[_Body], command: Command) -> _Body:
    try:
        return body.decode(command.body)
    except ProtocolError as error:
        raise _wrong(str(error)) from error


def _success(command: Command, body: JsonBody) -> Command:
    return response(command, ResponseCode.SUCCESS, body=body.encode())


def _refuse_times(change: ChangeTimers) -> None:
    if change.deliver_ms is not None or change.delay_ms is not None:
        raise _wrong("only a reschedule has a new time (deliverMs, delayMs)")


def _of_topic(by_topic: Mapping[str, int], topic: str | None) -> dict[str, int]:
    """The counts of one topic, or of all."""
    return {name: count for name, count in by_topic.items() if count and topic in (None, name)}


def _fits(timer: TimerRecord, query: TimerQuery) -> bool:
    """Whether what the index took for a match is one. What POP keeps among the timers is nobody's message."""
    if timer.topic.startswith(REVIVE_TOPIC_PREFIX) or (query.topic is not None and timer.topic != query.topic):
        return False
    if query.key is None and query.key_prefix is None:
        return True
    words = (timer.keys or "").split(" ")
    if query.key is not None:
        return query.key in words
    return any(word.startswith(query.key_prefix or "") for word in words)


def _wrong(remark: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, remark)
