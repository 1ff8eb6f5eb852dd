"""The life of the recurring messages of a store whose process dies at any write, whose machine loses power and whose disk
fills up, against the list of all instants of their rules.

Whatever happens: no run is stored twice or early, runs of a rule are in the order of their instants, every instant of a rule in force
is stored or was left out for a reason, and the count of runs is that of the messages.
"""

from __future__ import annotations

import errno
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.worlds.faults import Call, Killed, RecordingFiles
from tests.worlds.recurring_store import OpenRuns, RecurringStore

from orbitmq.clock import ManualClock
from orbitmq.errors import ConfigurationError, RecordError, StoreUnwritableError
from orbitmq.protocol.properties import Property
from orbitmq.protocol.remoting.recurring_bodies import CatchUp, Overlap
from orbitmq.store.files import OsFiles
from orbitmq.store.message import NewMessage
from orbitmq.store.settings import FlushDiskType
from orbitmq.timing.recurrence.book import RecurrenceBook
from orbitmq.timing.recurrence.reading import BookReading
from orbitmq.timing.recurrence.rule import Rule
from orbitmq.timing.recurrence.runner import Recurrences
from orbitmq.timing.recurrence.schedule import Schedule
from orbitmq.timing.recurrence.state import RecurringState, RunMessage
from orbitmq.timing.recurrence.turns import LeftOut, LeftOutReason, RecurrenceTurn

MINUTE = 60_000
START = 1_774_738_800_000
"""2026-03-28 23:00 UTC: two hours before clocks change in Berlin."""

NAMES = st.sampled_from(["a", "b", "c"])

RULES = st.builds(
    Rule,
    cron=st.sampled_from(["*/7 * * * *", "0,1,30 * * * *", "30 2 * * *", "*/20 1-3 * * *"]),
    zone=st.sampled_from(["UTC", "Europe/Berlin"]),
    count_max=st.none() | st.integers(1, 30),
    jitter_ms=st.sampled_from([0, 0, 90_000, 40 * MINUTE]),
    catch_up=st.sampled_from(CatchUp),
    catch_up_max=st.sampled_from([1, 3, 100]),
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
        st.tuples(st.just("define"), st.tuples(NAMES, RULES)),
        st.tuples(st.just("stall"), st.integers(1, 40)),
        st.tuples(st.just("down"), st.integers(1, 300)),
        st.tuples(st.just("kill"), st.integers(1, 12)),
        st.tuples(st.just("kill"), st.integers(1, 12)),
        st.tuples(st.just("tear"), st.integers(1, 3)),
        st.tuples(st.just("power"), st.integers(0, 99)),
        st.tuples(st.just("full"), st.integers(1, 6)),
        st.tuples(st.just("back"), st.integers(1, 60)),
        st.tuples(st.just("consume"), st.just(0)),
        st.tuples(st.just("move"), st.just(0)),
        st.tuples(st.sampled_from(["pause", "resume", "delete"]), NAMES),
    ),
    max_size=30,
)

Step = tuple[str, object]


class Watched(Recurrences):
    """Tells what it leaves out."""

    on_done: Callable[[RecurringState, RecurrenceTurn], None]

    def _store_turn(self, state: RecurringState, turn: RecurrenceTurn, messages: list[NewMessage]) -> None:
        super()._store_turn(state, turn, messages)
        self.on_done(state, turn)


@dataclass
class Generation:
    """What one rule owes: its instants later than `from_ms` up to `settled_ms`, but for those that were left out."""

    schedule: Schedule
    state: RecurringState
    from_ms: int
    settled_ms: int
    left_out: list[LeftOut] = field(default_factory=list)


class World:
    def __init__(self, root: Path, *, synchronous: bool = False) -> None:
        self.root = root
        self.clock = ManualClock(START)
        self.sender = OpenRuns()
        self.flush = FlushDiskType.SYNC_FLUSH if synchronous else FlushDiskType.ASYNC_FLUSH
        root.mkdir(exist_ok=True)
        self.files = RecordingFiles(OsFiles(), root)
        self.generations: dict[tuple[str, int], Generation] = {}
        self.crash_count = 0
        self.open()

    def open(self) -> None:
        watched = Watched(self.clock)
        watched.on_done = self.left_out
        self.here = RecurringStore(
            self.root, self.files, self.clock, self.sender, watched,
            flush_disk_type=self.flush, mapped_file_size_commit_log=64 * 1024,
        )  # fmt: skip

    @property
    def recurrences(self) -> Recurrences:
        return self.here.recurrences

    def left_out(self, state: RecurringState, turn: RecurrenceTurn) -> None:
        self.generations[state.name, state.generation].left_out += turn.left_out

    # --- what happens -----------------------------------------------------------------------------------------------

    def step(self, action: str, value: object) -> None:
        try:
            self.act(action, value)
        except Killed:
            self.crash()
        except (StoreUnwritableError, ConfigurationError, RecordError):
            self.note()
        else:
            self.note()

    def crash(self) -> None:
        """The process is dead; a new one starts on what it has written."""
        self.crash_count += 1
        self.files.revive()
        self.here.kill()
        self.open()
        self.here.rest()
        self.note()

    def act(self, action: str, value: object) -> None:
        here, recurrences = self.here, self.recurrences
        match action, value:
            case "wait", int(minutes):
                here.advance(minutes * MINUTE)
            case "power", int(seed) if self.flush is FlushDiskType.SYNC_FLUSH:
                self.cut_power(seed)
            case "stall", int(minutes):
                self.clock.advance(minutes * MINUTE)
                here.rest()
            case "down", int(minutes):
                self.files.plan = None
                here.store.close()
                self.clock.advance(minutes * MINUTE)
                self.open()
                self.here.rest()
            case "kill", int(calls):
                self.kill_at(calls)
            case "tear", int(writes):
                self.tear(writes)
            case "full", int(writes):
                self.fill_up(writes)
            case "back", int(minutes):
                self.clock.set_wall(self.clock.now_ms() - minutes * MINUTE)
            case "consume", _:
                queue = here.store.queues.get("T", 0)
                self.sender.committed = queue.max_offset if queue is not None else None
            case "move", _:
                recurrences.take_below(here.store.log.end, 2)
                here.turn()
            case "define", (str(name), Rule() as rule):
                change = recurrences.put(name, rule, RunMessage("T", b"run"), here.statuses.append)
                if (made := change.state) is not None:
                    self.generations.setdefault((name, made.generation), self.owed(made))
                here.turn()
            case _, str(name) if (state := recurrences.get(name)) is not None:
                on_done = here.statuses.append
                if action == "pause":
                    recurrences.set_paused(state, paused=True, on_done=on_done)
                elif action == "resume":
                    before = recurrences.get(name)
                    change = recurrences.set_paused(state, paused=False, on_done=on_done)
                    assert before is not None
                    assert change.state is not None
                    gap = LeftOut(
                        LeftOutReason.MISSED, before.progress.settled_ms + 1, change.state.progress.settled_ms + 1
                    )
                    if before.paused:
                        self.generations[name, state.generation].left_out.append(gap)
                else:
                    recurrences.delete(state, on_done)
                here.turn()

    def owed(self, state: RecurringState) -> Generation:
        return Generation(state.schedule(), state, state.progress.settled_ms, state.progress.settled_ms)

    def cut_power(self, seed: int) -> None:
        """The machine dies: of what was not synced any part is lost."""
        self.crash_count += 1
        self.files.revive()
        root = self.root.with_name(f"{self.root.name}-{self.crash_count}")
        self.files.power_cut(root, random.Random(seed))
        self.here.kill()
        self.root, self.files = root, RecordingFiles(OsFiles(), root, boot=f"boot {self.crash_count}")
        self.open()
        self.here.rest()

    def kill_at(self, calls: int) -> None:
        """The process dies in the call that comes as this number."""
        number = len(self.files.calls) + calls
        self.files.plan = lambda call: Killed() if call.number == number else None

    def tear(self, writes: int) -> None:
        """The process dies in the middle of a write of the log: some of its records are whole, one perhaps is not."""
        left = writes

        def plan(call: Call) -> Killed | None:
            nonlocal left
            left -= call.kind == "write" and call.path.parent.name == "commitlog"
            return None if left else Killed()

        self.files.plan = plan

    def fill_up(self, writes: int) -> None:
        """The next writes find a full disk; an odd number of them those of the log only."""
        left = writes

        def plan(call: Call) -> OSError | None:
            nonlocal left
            if not left or call.kind != "write" or (writes % 2 and call.path.parent.name != "commitlog"):
                return None
            left -= 1
            return OSError(errno.ENOSPC, "full")

        self.files.plan = plan

    def note(self) -> None:
        """How far every rule is, as the store says."""
        for state in self.recurrences:
            one = self.generations[state.name, state.generation]
            one.settled_ms = max(one.settled_ms, state.progress.settled_ms)

    # --- the judgement ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.files.plan = None
        self.clock.advance(2_000)  # a disk that was full is tried again
        self.here.rest()
        self.note()
        records, runs = self.here.records(), self.here.runs()
        ids = [run[Property.UNIQ_KEY] for run in runs]
        assert len(set(ids)) == len(ids), "stored twice"
        counts = Counter((run[Property.RECURRING], int(run[Property.RUN])) for run in runs)
        assert all(record.body == b"run" for record in records)
        for (name, number), one in self.generations.items():
            mine = [run for run in runs if (run[Property.RECURRING], run[Property.RUN]) == (name, str(number))]
            planned = [int(run[Property.PLANNED_MS]) for run in mine]
            assert all(first < second for first, second in pairwise(planned)), "out of order"
            stored = {run[Property.UNIQ_KEY] for run in mine}
            count_max = one.state.rule.count_max
            assert count_max is None or len(planned) <= count_max, "too many"
            if count_max is None or len(planned) < count_max:
                for run in one.schedule.occurrences(one.from_ms, one.settled_ms, 20_000):
                    named = any(span.first_ms <= run.planned_ms < span.before_ms for span in one.left_out)
                    assert run.id in stored or named, f"lost {run} of {name}"
        for state in self.recurrences:
            assert state.progress.stored_count == counts[state.name, state.generation], "counted wrongly"
        self.never_early()

    def never_early(self) -> None:
        for record, run in zip(self.here.records(), self.here.runs(), strict=True):
            known = self.generations[run[Property.RECURRING], int(run[Property.RUN])]
            [due] = known.schedule.occurrences(int(run[Property.PLANNED_MS]) - 1, int(run[Property.PLANNED_MS]), 1)
            assert record.store_timestamp >= due.at_ms, "early"
            assert due.id == run[Property.UNIQ_KEY]


@contextmanager
def world(*, synchronous: bool = False) -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder:
        made = World(Path(folder) / "store", synchronous=synchronous)
        try:
            yield made
        finally:
            made.files.revive()
            made.here.kill()


def live(steps: list[Step], rule: Rule, *, synchronous: bool = False) -> int:
    """A life with its judgement; answers how often the process died."""
    with world(synchronous=synchronous) as one:
        one.step("define", ("a", rule))
        for action, value in steps:
            one.step(action, value)
        one.check()
        one.crash()
        one.check()
        return one.crash_count


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, RULES, st.booleans())
def test_every_run_is_stored_once_or_left_out_for_a_reason(steps: list[Step], rule: Rule, synchronous: bool) -> None:
    live(steps, rule, synchronous=synchronous)


EVERY_MINUTE = Rule(interval_ms=MINUTE, catch_up=CatchUp.ALL, catch_up_max=100)


def killed_everywhere() -> Iterator[list[Step]]:
    """Runs that are late and come together, and the end of the process in the middle of the write that stores them."""
    for minutes in range(1, 9):
        yield [("wait", minutes), ("tear", 1), ("stall", 20), ("wait", 3), ("tear", 1), ("stall", 9)]
        yield [("wait", minutes), ("kill", minutes), ("stall", 20), ("wait", 3)]


def live_all() -> int:
    return sum(live(steps, EVERY_MINUTE) for steps in killed_everywhere())


def test_a_process_that_dies_in_any_write_stores_every_run_once() -> None:
    assert live_all() > 24, "the planned ends did happen"


def test_the_judge_finds_runs_of_a_torn_end_that_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BookReading, "_found_run", lambda self, entry, changed: None)
    with pytest.raises(AssertionError, match="stored twice"):
        live_all()


def test_the_judge_finds_a_mark_that_leads_the_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs of a torn end are known, and the process dies again before their progress is written."""
    honest = BookReading.state

    def hasty(self: BookReading) -> dict[str, int]:
        return {name: value for name, value in honest(self).items() if name == "first"}

    def never(self: Recurrences) -> None: ...

    monkeypatch.setattr(BookReading, "state", hasty)
    monkeypatch.setattr(Recurrences, "wake", never)
    with pytest.raises(AssertionError, match=r"stored twice|counted wrongly"):
        twice_torn(monkeypatch)


def test_runs_of_a_torn_end_are_known_after_a_second_end(monkeypatch: pytest.MonkeyPatch) -> None:
    twice_torn(monkeypatch)


def twice_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs in the log without a record of their progress; recovery, a mark, and an end before anything else is written."""
    with world() as one:
        one.step("define", ("a", EVERY_MINUTE))
        state = one.recurrences.get("a")
        assert state is not None
        one.clock.advance(2 * MINUTE)
        for run in state.schedule().occurrences(state.progress.settled_ms, one.clock.now_ms(), 9):
            one.here.store.append(one.sender.message_of(state, run, run.at_ms))
        one.here.store.commit()
        for _ in range(2):
            one.here.kill()
            monkeypatch.setattr(one, "sender", OpenRuns())
            one.open()
            one.here.store._written_saves.save_now()
        monkeypatch.undo()
        known = one.recurrences.get("a")
        assert known is not None
        assert known.progress.stored_count == 2, "counted wrongly"
        one.generations["a", state.generation] = one.owed(state)
        one.check()


def test_the_judge_finds_changes_that_a_full_disk_took(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Step] = [("wait", 3), ("full", 1), ("wait", 5), ("full", 2), ("wait", 5)]
    live(steps, EVERY_MINUTE)
    monkeypatch.setattr(RecurrenceBook, "take_back", lambda self, physical_offset: [])
    with pytest.raises(AssertionError, match=r"lost|counted wrongly"):
        live(steps, EVERY_MINUTE)


def test_the_judge_finds_a_definition_that_the_mark_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = BookReading.state

    def hasty(self: BookReading) -> dict[str, int]:
        return honest(self) | {"first": self._book.next_offset}

    monkeypatch.setattr(BookReading, "state", hasty)
    with world() as one:
        one.step("define", ("a", EVERY_MINUTE))
        one.step("down", 3)
        assert one.recurrences.get("a") is None


def test_the_judge_finds_a_run_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Recurrences._take

    def hasty(self: Recurrences, name: str, now_ms: int) -> None:
        honest(self, name, now_ms + 99 * MINUTE)

    rule = Rule(cron="0 * * * *", jitter_ms=40 * MINUTE)
    live([("wait", 90)], rule)
    monkeypatch.setattr(Recurrences, "_take", hasty)
    with pytest.raises(AssertionError, match="early"):
        live([("wait", 30), ("down", 61), ("wait", 90)], rule)
