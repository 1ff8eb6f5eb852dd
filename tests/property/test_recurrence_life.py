"""The life of a recurring message under an engine that crashes, against the list of all instants of its rules.

The engine of the test does what the real one promises: it takes the turn, stores each run whose id it has not stored yet, and then
writes the record. A crash loses everything but messages and records. Whatever happens in between: no run is stored twice or
early, the order is that of the rule, and every instant of a rule in force is stored or named as left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.protocol.remoting.recurring_bodies import CatchUp, Overlap, RecurringOutcome
from orbitmq.timing.recurrence.records import decode, defined, deleted, encode, progressed, replay
from orbitmq.timing.recurrence.rule import Rule
from orbitmq.timing.recurrence.schedule import Occurrence, Schedule
from orbitmq.timing.recurrence.state import RecurringState, RunMessage, RunPlace, define, pause, resume
from orbitmq.timing.recurrence.turns import (
    LeftOut,
    LeftOutReason,
    RecurrenceTurn,
    next_due,
    previous_of,
    settled,
    take_turn,
)

MINUTE = 60_000
START = 1_774_738_800_000
"""2026-03-28 23:00 UTC: two hours before clocks change in Berlin."""

RULES = st.builds(
    Rule,
    cron=st.sampled_from(["*/7 * * * *", "0,1,30 * * * *", "30 2 * * *", "*/20 1-3 * * *"]),
    zone=st.sampled_from(["UTC", "Europe/Berlin"]),
    count_max=st.none() | st.integers(1, 30),
    jitter_ms=st.sampled_from([0, 0, 90_000, 40 * MINUTE]),
    catch_up=st.sampled_from(CatchUp),
    catch_up_max=st.integers(1, 5),
) | st.builds(
    Rule,
    interval_ms=st.sampled_from([MINUTE, 11 * MINUTE, 100 * MINUTE]),
    start_ms=st.none() | st.just(START - 12_345),
    overlap=st.just(Overlap.SKIP),
    overlap_group=st.just("workers"),
    catch_up=st.sampled_from([CatchUp.NONE, CatchUp.LATEST]),
)  # fmt: skip

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(1, 90)),
        st.tuples(st.just("wait"), st.integers(1, 90)),
        st.tuples(st.just("down"), st.integers(1, 900)),
        st.tuples(st.just("crash"), st.integers(0, 3)),
        st.tuples(st.just("back"), st.integers(1, 60)),
        st.tuples(st.just("consume"), st.just(0)),
        st.tuples(st.just("define"), RULES),
        st.tuples(st.sampled_from(["pause", "resume", "delete"]), st.just(0)),
    ),
    max_size=25,
)


@dataclass
class Generation:
    """What one generation owes: its instants later than `from_ms`, while it was in force and not paused."""

    schedule: Schedule
    state: RecurringState
    from_ms: int
    left_out: list[LeftOut] = field(default_factory=list)
    done: list[Occurrence] = field(default_factory=list)
    settled_ms: int = 0


class Engine:
    """Messages and records survive; everything else is forgotten by `crash`."""

    looks_for_the_id = True

    def __init__(self) -> None:
        self.now_ms = START
        self.records: list[bytes] = []
        self.messages: list[str] = []
        self.taken_count = 0
        self.generations: dict[int, Generation] = {}
        self.state: RecurringState | None = None

    def restart(self) -> None:
        self.state = None
        for position, record in enumerate(self.records):
            self.state = replay(self.state, decode(record, f"record {position}"))

    def define(self, rule: Rule) -> None:
        self.settle()
        change = define(self.state, "r", rule, RunMessage("t", b""), self.now_ms)
        assert change.state is not None
        if change.outcome is not RecurringOutcome.UNCHANGED:
            self.write(change.state)
            new = change.state
            self.generations[new.generation] = Generation(new.schedule(), new, new.progress.settled_ms)

    def write(self, state: RecurringState) -> None:
        self.state = state
        self.records.append(encode(defined(state)))

    def settle(self, crash_after: int | None = None) -> None:
        """Take what is due. With `crash_after`, end after so many messages, before the record."""
        state = self.state
        if state is None:
            return
        schedule = state.schedule()
        previous = previous_of(state.progress, self.taken_count, 0)
        turn = take_turn(state, schedule, self.now_ms, previous)
        for run in turn.runs[:crash_after]:
            assert run.at_ms <= self.now_ms, "early"
            if run.id not in self.messages or not self.looks_for_the_id:
                self.messages.append(run.id)
        if crash_after is not None:
            self.restart()
            return
        if turn.settled_ms == state.progress.settled_ms:
            return
        last = RunPlace(0, self.messages.index(turn.runs[-1].id)) if turn.runs else None
        self.state = settled(state, turn, last)
        self.records.append(encode(progressed(self.state)))
        generation = self.generations[state.generation]
        generation.left_out += turn.left_out
        generation.done += turn.runs
        generation.settled_ms = turn.settled_ms

    def step(self, action: str, value: object) -> None:
        match action, value:
            case "wait", int(minutes):
                until_ms = self.now_ms + minutes * MINUTE
                while (due_ms := self.due_ms()) is not None and due_ms <= until_ms:
                    self.now_ms = max(self.now_ms, due_ms)
                    self.settle()
                self.now_ms = max(self.now_ms, until_ms)
            case "down", int(minutes):
                self.now_ms += minutes * MINUTE
                self.restart()
                self.settle()
            case "crash", int(count):
                self.now_ms = max(self.now_ms, self.due_ms() or 0)
                self.settle(crash_after=count)
            case "back", int(minutes):
                self.now_ms -= minutes * MINUTE
            case "consume", _:
                self.taken_count = len(self.messages)
            case "define", Rule():
                self.define(value)
            case _ if self.state is not None:
                self.settle()
                if action == "pause":
                    self.write(pause(self.state).state or self.state)
                elif action == "resume":
                    before_ms = self.state.progress.settled_ms
                    resumed = resume(self.state, self.now_ms).state
                    assert resumed is not None
                    self.write(resumed)
                    gap = LeftOut(LeftOutReason.MISSED, before_ms + 1, resumed.progress.settled_ms + 1)
                    self.generations[resumed.generation].left_out.append(gap)
                else:
                    self.records.append(encode(deleted(self.state)))
                    self.state = None

    def due_ms(self) -> int | None:
        return None if self.state is None else next_due(self.state, self.state.schedule())

    def check(self) -> None:
        assert len(set(self.messages)) == len(self.messages), "stored twice"
        stored = set(self.messages)
        for generation in self.generations.values():
            planned = [run.planned_ms for run in generation.done]
            assert all(one < other for one, other in pairwise(planned)), "out of order"
            count_max = generation.state.rule.count_max
            if count_max is not None:
                assert len(planned) <= count_max
                if len(planned) == count_max:
                    continue
            for run in generation.schedule.occurrences(generation.from_ms, generation.settled_ms, 20_000):
                named = any(span.first_ms <= run.planned_ms < span.before_ms for span in generation.left_out)
                assert run.id in stored or named, f"lost {run}"


def live(steps: list[tuple[str, object]], rule: Rule) -> Engine:
    engine = Engine()
    engine.define(rule)
    for action, value in steps:
        engine.step(action, value)
        engine.check()
    return engine


@settings(max_examples=120, deadline=None)
@given(STEPS, RULES)
def test_every_run_is_stored_once_or_named(steps: list[tuple[str, object]], rule: Rule) -> None:
    live(steps, rule)


EVERY_MINUTE = Rule(interval_ms=MINUTE, catch_up=CatchUp.ALL)
CRASHES: list[tuple[str, object]] = [("wait", 3), ("crash", 1), ("wait", 3)]
DOWN: list[tuple[str, object]] = [("wait", 3), ("down", 9), ("wait", 3)]


def test_the_model_catches_an_engine_that_does_not_look_for_the_id(monkeypatch: pytest.MonkeyPatch) -> None:
    live(CRASHES, EVERY_MINUTE)
    monkeypatch.setattr(Engine, "looks_for_the_id", False)
    with pytest.raises(AssertionError, match="stored twice"):
        live(CRASHES, EVERY_MINUTE)


HONEST = take_turn


def plant(monkeypatch: pytest.MonkeyPatch, bug: Callable[..., RecurrenceTurn]) -> None:
    monkeypatch.setitem(Engine.settle.__globals__, "take_turn", bug)


def test_the_model_catches_a_run_that_is_dropped_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = msgspec.structs.replace(EVERY_MINUTE, catch_up=CatchUp.LATEST)
    engine = live(DOWN, rule)
    assert any(span.reason is LeftOutReason.MISSED for span in engine.generations[START].left_out)
    plant(monkeypatch, lambda *arguments: HONEST(*arguments)._replace(left_out=()))
    with pytest.raises(AssertionError, match="lost"):
        live(DOWN, rule)


def test_the_model_catches_a_run_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = Rule(cron="0 * * * *", jitter_ms=40 * MINUTE)
    steps: list[tuple[str, object]] = [("wait", 90), ("down", 1), ("wait", 90)]
    live(steps, rule)
    plant(
        monkeypatch,
        lambda state, schedule, now_ms, previous: HONEST(state, schedule, now_ms + 99 * MINUTE, previous),
    )
    with pytest.raises(AssertionError, match="early"):
        live(steps, rule)


def test_the_model_catches_a_run_that_a_late_record_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record before the messages: a crash between them loses the messages."""
    honest = Engine.settle

    def hasty(self: Engine, crash_after: int | None = None) -> None:
        if crash_after is None:
            honest(self)
        else:
            kept = list(self.messages)
            honest(self)
            self.messages = kept + self.messages[len(kept) :][:crash_after]

    monkeypatch.setattr(Engine, "settle", hasty)
    with pytest.raises(AssertionError, match="lost"):
        live([("wait", 3), ("crash", 0), ("wait", 3)], EVERY_MINUTE)
