"""What clients do in the life of a broker's timers: sends of every kind, recalls, reschedules and questions.

Rules of this file
1. Whatever was asked for and not answered may have happened or not; the log says which.
2. What is answered is the truth when the answer leaves.
"""

from __future__ import annotations

from typing import Final

from tests.property.timer_account import Broken, Sent, Standing, State
from tests.property.timer_machine import KEYS, LATER, MINUTE, QUEUES, SECOND, TOPICS, Asked, Machine, Open

from orbitmq.protocol.properties import Property
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.timer_bodies import (
    ChangeTimers,
    TimerAnswers,
    TimerSelector,
    TimerViewBody,
    Verdict,
)

_RECALLED: Final = frozenset({Verdict.RECALLED, Verdict.ALREADY_RECALLED})
RETRIED_MS: Final = 10 * MINUTE
"""How long after its first attempt a sender tries again."""


AHEAD_MS = 600_000
"""What is due this long from now is far ahead for these lives."""


class Asking(Machine):
    def _new_values(self) -> tuple[str, dict[str, str]]:
        self.number += 1
        key = f"ID{self.seed}-{self.number}"
        values = {Property.UNIQ_KEY: key}
        if self.rng.random() < 0.7:
            values[Property.KEYS] = " ".join(self.rng.sample(KEYS, self.rng.choice((1, 1, 2))))
        if self.rng.random() < 0.5:
            values[Property.TAGS] = self.rng.choice(("red", "blue"))
        return key, values

    def _time(self) -> int:
        """A due time worth trying."""
        rng, now_ms = self.rng, self.clock.now_ms()
        way = rng.random()
        known = [standing.due_ms for standing in self.account.waiting(State.NEAR)]
        if way < 0.25 and known:
            return max(rng.choice(known) + rng.choice((0, 0, 0, 1, -1)), 1)
        if way < 0.33:
            return now_ms - rng.choice((0, 1, 5_000))
        if way < 0.38:
            return (now_ms // SECOND + rng.randint(1, 4)) * SECOND + rng.choice((0, 1, 999))
        if way < 0.48:
            return now_ms + AHEAD_MS + rng.randint(-3_000, 3_000)
        if way < 0.55:
            return now_ms + rng.randint(2, 5) * AHEAD_MS // 2 + rng.randrange(1_000)
        if way < 0.68 and self.tier is not None:
            return (
                now_ms + 30 * MINUTE + rng.choice((-1, 20_000, 30_000, 5 * MINUTE, 90 * MINUTE)) + rng.randrange(2_000)
            )
        return now_ms + rng.choice(LATER) + rng.choice((0, 0, rng.randrange(50)))

    def send(self) -> None:
        rng, crowd = self.rng, self.rng.choice((1, 1, 2, 6))
        due_ms = self._time()
        for _ in range(crowd):
            if rng.random() < 0.5:
                due_ms = self._time()
            key, values = self._new_values()
            now_ms = self.clock.now_ms()
            way, is_relative = rng.random(), False
            if way < 0.6:
                values[Property.TIMER_DELIVER_MS] = str(due_ms)
                dues = {due_ms}
            elif way < 0.8:
                is_relative, dues = True, {due_ms}
                values[Property.TIMER_DELAY_MS] = str(due_ms - now_ms)
            elif way < 0.9:
                seconds = max((due_ms - now_ms) // SECOND, 0)
                is_relative, dues = True, {now_ms + seconds * SECOND}
                values[Property.TIMER_DELAY_SEC] = str(seconds)
            else:
                level = rng.randint(1, 3)
                is_relative, dues = True, {now_ms + (SECOND, 5 * SECOND, 40 * SECOND)[level - 1]}
                values[Property.DELAY] = str(level)
            if rng.random() < 0.15:
                values |= {
                    Property.ONCE_SCOPE: "scope",
                    Property.ONCE_EPOCH: str(self.number // 40),
                    Property.ONCE_KEY: key,
                }
                self.once.append(key)
            self._send(
                Sent(
                    key,
                    rng.choice(TOPICS),
                    rng.randrange(QUEUES),
                    self._body(),
                    values,
                    dues,
                    is_relative,
                    min(dues),
                    min(dues) - now_ms,
                )
            )

    def plain(self) -> None:
        key, values = self._new_values()
        self._send(Sent(key, self.rng.choice(TOPICS), 0, self._body(), values, set()))

    def _body(self) -> bytes:
        return self.rng.randbytes(self.rng.choice((1, 40, 40, 700)))

    def repeat(self) -> None:
        """Send again what may have been stored or not, as its sender does."""
        if self.once:
            sent = self.account.sent[self.rng.choice(self.once[-4:])]
            if sent.is_relative:  # it counts from the first time that was stored, which may be this one
                sent.dues.add(self.clock.now_ms() + sent.delay_ms)
                sent.first_ms = min(sent.dues)
            self._send(sent)

    def again(self) -> None:
        """Send again what was stored lately, because its answer was lost: nothing tells the broker that it is the same."""
        lately_ms = self.clock.now_ms() - RETRIED_MS
        known = [
            sent
            for sent in list(self.account.sent.values())[-8:]
            if sent.dues
            and not sent.is_move_asked
            and sent.first_ms - sent.delay_ms >= lately_ms
            and not {Property.ONCE_KEY, Property.DELAY} & sent.values.keys()
        ]
        if known:
            sent = self.rng.choice(known)
            sent.is_sent_again = True
            if sent.is_relative:
                sent.dues.add(self.clock.now_ms() + sent.delay_ms)
                sent.first_ms = min(sent.dues)
            self._send(sent)
            if self.rng.random() < 0.6:  # and think better of it
                self.turn()
                standing = self.account.messages.get(sent.key)
                if standing is not None:
                    self._recall(standing)

    def _send(self, sent: Sent) -> None:
        self.account.sent.setdefault(sent.key, sent)
        for one in self.open:
            if one.asked is not None:
                self._note(sent, one.asked)
        values = dict(sent.values)
        answer, peer = self.broker.send(sent.topic, sent.queue_id, sent.body, values)

        def check(answer: Command) -> None:
            if answer.code in (ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT):
                if sent.key not in self.account.messages and answer.code == ResponseCode.SUCCESS:
                    raise Broken(f"the message {sent.key} was answered and is not in the log")
                if "recallHandle" in answer.fields:
                    self.handles[sent.key] = answer.fields["recallHandle"]
            elif answer.code == ResponseCode.SYSTEM_ERROR:
                raise Broken(f"the send of {sent.key} failed: {answer.remark}")

        self.open.append(Open(answer, peer, check))

    def cancel(self) -> None:
        """Cancel as a client of RocketMQ 5.3 does: with a message to the same slot."""
        standing = self._some(State.NEAR, State.FAR)
        until_ms = 0 if standing is None else standing.due_ms - self.clock.now_ms()
        if standing is None or until_ms <= 0:
            return
        sent = standing.sent
        values = {
            Property.UNIQ_KEY: sent.key,
            Property.TIMER_DEL_UNIQKEY: f"{sent.topic}+{sent.key}",
            Property.TIMER_DELIVER_MS: str(standing.due_ms),
        }
        answer, peer = self.broker.send(sent.topic, 0, b"0", values)
        self.open.append(Open(answer, peer, lambda answer: None))

    # --- changes and questions --------------------------------------------------------------------------------------

    def _some(self, *states: State) -> Standing | None:
        known = self.account.waiting(*states) if states else list(self.account.messages.values())
        return self.rng.choice(known) if known else None

    def _selector(self, standing: Standing) -> TimerSelector:
        sent = standing.sent
        way, handle = self.rng.random(), self.handles.get(sent.key)
        if way < 0.3 and handle is not None:
            return TimerSelector(handle=handle)
        if way < 0.45 and standing.words():
            return TimerSelector(topic=sent.topic, key=self.rng.choice(standing.words()), all=self.rng.random() < 0.4)
        return TimerSelector(topic=sent.topic, message_id=sent.key)

    def _wanted(self) -> Standing | None:
        if self.rng.random() < 0.85:
            return self._some(State.NEAR, State.FAR) or self._some()
        return self._some()

    def recall(self) -> None:
        standing = self._wanted()
        if standing is not None:
            self._recall(standing)

    def _recall(self, standing: Standing) -> None:
        handle = self.handles.get(standing.sent.key)
        if self.retries and handle is not None and self.rng.random() < 0.4:
            self._recall_by_handle(standing, handle)
        else:
            self._change(RequestCode.RECALL_TIMERS, self._selector(standing), standing, None)

    def _recall_by_handle(self, standing: Standing, handle: str) -> None:
        """As a client of RocketMQ does."""
        sent = standing.sent
        before = self._states()
        asked = Asked(sent.key, sent.topic, None, None)
        self._note(sent, asked)
        fields = {"producerGroup": "pg", "topic": sent.topic, "recallHandle": handle}
        answer, peer = self.broker.ask(RequestCode.RECALL_MESSAGE, fields=fields)

        def check(answer: Command) -> None:
            if answer.code == ResponseCode.SYSTEM_ERROR:
                raise Broken(f"the recall of {sent.key} failed: {answer.remark}")
            if answer.code == ResponseCode.SUCCESS:
                self._all_recalled(sent.key, before)

        self.open.append(Open(answer, peer, check, asked))

    def _states(self) -> dict[str, State]:
        return {one.name: one.state for one in self.account.messages.values()}

    def _all_recalled(self, key: str, before: dict[str, State]) -> None:
        """The answer to a recall was success: no copy that was there when it was asked for waits, or was delivered."""
        for one in self.account.copies.get(key, []):
            is_known = one.name in before and one.state is not State.LEVEL and one.place >= self.broker.store.log.start
            if is_known and one.state is not State.RECALLED and not one.sent.is_move_asked:
                raise Broken(f"{key} is said to be recalled, and {one.name} is {one.state.value}")

    def reschedule(self) -> None:
        standing = self._wanted()
        if standing is None:
            return
        rng, now_ms = self.rng, self.clock.now_ms()
        way = rng.random()
        if way < 0.3:
            due_ms = max(standing.due_ms + rng.choice((-1, 1, 3, -200, 400)), 1)
        elif way < 0.5:
            due_ms = max(rng.choice(sorted(standing.sent.dues) or [now_ms]) + rng.choice((0, 0, 1, -1)), 1)
        else:
            due_ms = self._time()
        selector = self._selector(standing)
        self._change(RequestCode.RESCHEDULE_TIMERS, selector, standing, due_ms)
        if rng.random() < 0.3:
            self.turn()
            self._change(RequestCode.RESCHEDULE_TIMERS, selector, standing, max(due_ms + rng.choice((0, -1, 1_500)), 1))

    def _meant(self, selector: TimerSelector, standing: Standing) -> list[Standing]:
        if selector.key is None:
            return [standing]
        return self.account.matching(selector.topic or "", selector.key)

    def _change(self, code: RequestCode, selector: TimerSelector, standing: Standing, due_ms: int | None) -> None:
        """Ask for a change, and hold what is answered against the log."""
        account = self.account
        before = self._states()
        asked = Asked(standing.sent.key, selector.topic, selector.key, due_ms)
        for sent in list(account.sent.values()):  # in the log or on its way there
            self._note(sent, asked)
        meant = {one.name for one in self._meant(selector, standing)}
        body = ChangeTimers(selector, deliver_ms=due_ms).encode()
        answer, peer = self.broker.ask(code, body)

        def check(answer: Command) -> None:
            if answer.code == ResponseCode.SYSTEM_ERROR:
                raise Broken(f"{code.name} failed: {answer.remark}")
            if answer.code != ResponseCode.SUCCESS:
                return
            told = TimerAnswers.decode(bytes(answer.body))
            for one in told.answers:
                self._check_verdict(one.verdict, one.timer, standing, selector, before, due_ms)
            named = {one.timer.message_id for one in told.answers if one.timer is not None}
            if selector.key is not None and not selector.all and told.changed and len(named) > 1:
                raise Broken(f"{len(named)} timers with {selector.key} were changed, asked for was one")
            verdicts = {one.verdict for one in told.answers}
            if selector.key is None and due_ms is None and not told.more and verdicts <= _RECALLED:
                self._all_recalled(standing.sent.key, before)
            waited = {
                account.messages[name].sent.key
                for name in meant
                if account.messages[name].is_waiting and before[name] is account.messages[name].state
            }
            if selector.all and due_ms is None and waited - named and self.tier is None:
                raise Broken(f"{waited - named} wait and have {selector.key}, recalled was {named}")

        self.open.append(Open(answer, peer, check, asked))

    def _note(self, sent: Sent, asked: Asked) -> None:
        """A message may be meant by a request that was not answered."""
        is_meant = (
            asked.key in sent.words() and sent.topic == asked.topic if asked.key else sent.key == asked.message_id
        )
        if not is_meant:
            return
        if asked.deliver_ms is None:
            sent.is_recall_asked = True
        else:
            now_ms, sent.is_move_asked = self.clock.now_ms(), True
            sent.dues |= {asked.deliver_ms} | ({now_ms} if asked.deliver_ms <= now_ms else set())
        self.account.disturbed.add(sent.key)

    def _check_verdict(
        self,
        verdict: Verdict,
        view: TimerViewBody | None,
        asked: Standing,
        selector: TimerSelector,
        before: dict[str, State],
        due_ms: int | None,
    ) -> None:
        account = self.account
        if view is None and selector.key is not None:
            return
        key = asked.sent.key if view is None else view.message_id
        # The account may have forgotten a message and read it again.
        copies = account.copies.get(key) or ([] if view is not None else [asked])
        if not copies:
            raise Broken(f"{verdict} is said of {key}, which is not in the log")
        if verdict is Verdict.NOT_FOUND:
            for one in copies:
                self._check_copy(verdict, one, selector, before, due_ms)
            return
        problems = list[Broken]()  # it may be said of any of them
        for one in copies:
            try:
                self._check_copy(verdict, one, selector, before, due_ms)
            except Broken as problem:
                problems.append(problem)
        if len(problems) == len(copies):
            raise problems[0]

    def _check_copy(
        self,
        verdict: Verdict,
        standing: Standing,
        selector: TimerSelector,
        before: dict[str, State],
        due_ms: int | None,
    ) -> None:
        key, state = standing.name, standing.state
        was = before.get(key, State.UNKNOWN)
        if verdict is Verdict.RECALLED and state is not State.RECALLED:
            raise Broken(f"{key} is said to be recalled, and is {state.value}")
        if verdict is Verdict.ALREADY_RECALLED and state is not State.RECALLED:
            raise Broken(f"{key} is said to be recalled already, and is {state.value}")
        if verdict is Verdict.ALREADY_DELIVERED and state is not State.DELIVERED:
            raise Broken(f"{key} is said to be delivered, and is {state.value}")
        if verdict in (Verdict.PENDING, Verdict.AMBIGUOUS, Verdict.RESCHEDULED, Verdict.TOO_LATE) and was not in (
            State.NEAR,
            State.FAR,
            State.UNKNOWN,
        ):
            raise Broken(f"{key} is said to be {verdict}, and was {was.value}")
        has_passed = due_ms is not None and due_ms <= standing.stored_ms and due_ms < standing.due_ms
        is_there = has_passed or standing.due_ms == due_ms or due_ms is None  # what has passed means now
        if verdict is Verdict.RESCHEDULED and standing.is_waiting and not is_there:
            raise Broken(f"{key} is said to be moved to {due_ms}, and is {state.value} at {standing.due_ms}")
        if (
            verdict is Verdict.NOT_FOUND
            and was is not State.UNKNOWN
            and was is state
            and selector.key is None
            and (
                standing.place >= self.broker.store.log.start
                and state is not State.LEVEL
                and not self._was_never_timed(standing)
            )
        ):
            raise Broken(f"{key} is said to be unknown, and is {state.value}")

    def _was_never_timed(self, standing: Standing) -> bool:
        return standing.state is State.DELIVERED and Property.DELAY in standing.sent.values

    def status(self) -> None:
        standing = self._some() if self.rng.random() < 0.5 else self._wanted()
        if standing is None:
            return
        selector = TimerSelector(topic=standing.sent.topic, message_id=standing.sent.key)
        before = self._states()
        answer, peer = self.broker.ask(RequestCode.TIMER_STATUS, ChangeTimers(selector).encode())

        def check(answer: Command) -> None:
            if answer.code == ResponseCode.SYSTEM_ERROR:
                raise Broken(f"the question failed: {answer.remark}")
            if answer.code == ResponseCode.SUCCESS:
                for one in TimerAnswers.decode(bytes(answer.body)).answers:
                    self._check_verdict(one.verdict, one.timer, standing, selector, before, None)

        self.open.append(Open(answer, peer, check))
