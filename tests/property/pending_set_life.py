"""The life of a pending set from one seed: messages come, leave, are recalled and moved, whatever happens to clock, process, machine
and disk.

Rules of this file
1. A seed repeats a life in every detail.
2. After each turn of the loop the account reads what the log says. What the timers show is held against the account: a little after
   each step, everything in `judge`.
3. Whatever is refused did not happen. Everything else that goes wrong is `Broken`.
"""

from __future__ import annotations

import errno
import gc
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from tests.crash.harness import quiet, scratch
from tests.crash.readers import Broken
from tests.property.pending_set_account import NUMBER, Account, Asked, Waiting
from tests.worlds import little_store
from tests.worlds.faults import Call, Killed, RecordingFiles
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.errors import StoreUnwritableError, TimerIndexIncompleteError
from orbitmq.store.files import OsFiles
from orbitmq.store.housekeeping import Housekeeping
from orbitmq.timing.due_time import slot_time
from orbitmq.timing.index import counting, gathering, timer_index
from orbitmq.timing.index.parts import IndexShape
from orbitmq.timing.index.search import IndexQuery
from orbitmq.timing.index.timer_index import TimerIndex
from orbitmq.timing.rewriting import Rewriting
from orbitmq.timing.timers import feeding
from orbitmq.timing.timers.changes import recall, reschedule
from orbitmq.timing.timers.timers import Timers, TimerState

START_MS = 4_000_000_000_000
"""So far ahead that every file has expired."""

TOPICS = ("a", "b", "Topic", "a-long-name-of-a-topic")
KEYS = ("k", "k1", "k12", "order-1", "order-2", "ключ", "\N{GRINNING FACE}", "x" * 300)
PREFIXES = ("", "k", "k1", "order", "\N{GRINNING FACE}", "zz")
SHAPE = IndexShape(capacity=12, carried=2, small=4)
SPACE_KINDS = frozenset({"create", "mkdir", "write", "truncate", "allocate"})
"""Calls that need space."""

STEPS = 40
"""Of one life."""

SETTLED_MS = 60_000
"""By then whatever went wrong has been tried again."""


@contextmanager
def little_at_a_time() -> Iterator[None]:
    """Slices, pages and gatherings of a few messages, so that small lives see their borders."""
    small = (
        (gathering, "CHUNK", 4),
        (gathering, "PART", 3),
        (feeding, "SLICE_TIMERS", 7),
        (timer_index, "DUE_SLICE", 5),
    )
    with ExitStack() as stack:
        for module, name, value in small:
            stack.enter_context(mock.patch.object(module, name, value))
        wheel = {"roll_window_slots": 300, "log_file_bytes": 52 * 20 + 16, "slot_count": 1_000}
        stack.enter_context(mock.patch.dict(little_store.LITTLE_WHEEL, wheel))
        yield


class Life:
    """One pending set, from start to start."""

    def __init__(self, seed: int, root: Path) -> None:
        self.rng = random.Random(seed)
        self.folder = root
        self.clock = ManualClock(START_MS)
        self.account = Account()
        self.steps: list[str] = []
        self.is_full = False
        """The disk has no room at present."""
        self.is_calm = True
        """Nothing is damaged or late, so that everything leaves in order."""
        self.is_sound = True
        """Nobody has changed a file, so that no run is found damaged and no count contradicts another."""
        self.contradictions: list[str] = []
        self.is_moved = self.rng.random() < 0.5
        """Whether retention moves pending records out of its way; otherwise it stops at the first of them."""
        self.open(root / "0")

    @property
    def timers(self) -> Timers:
        return self.little.timers

    @property
    def index(self) -> TimerIndex:
        return self.timers.index

    # --- starts and ends ----------------------------------------------------------------------------------------------

    def open(self, root: Path) -> None:
        """On a machine that has just started."""
        root.mkdir(exist_ok=True)
        self.root = root
        self.files = RecordingFiles(OsFiles(), root, boot=root.name)
        self.begin()

    def begin(self) -> None:
        """Start; once more with room on the disk if that fails."""
        self.files.revive(self.full)
        try:
            self.start()
        except (OSError, StoreUnwritableError) as error:
            self.steps.append(f"  the start failed: {error!r}")
            self.is_full = False
            self.start()
        self.follow()
        self.check()

    def start(self) -> None:
        self.little = little = LittleStore(self.root, files=self.files, clock=self.clock, index=SHAPE)
        self.timers._ledger.shorten_from_bytes = 400
        self.account.cut(little.store.confirm_offset)
        rewriting = Rewriting(self.clock, [self.timers, little.release])
        rewriting.attach(little.store)
        self.housekeeping = Housekeeping(
            little.store,
            self.root,
            self.files,
            self.clock,
            pins=[] if self.is_moved else [self.timers.lowest_needed],
            rewriter=rewriting if self.is_moved else None,
        )

    def full(self, call: Call) -> OSError | None:
        if self.is_full and call.kind in SPACE_KINDS:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(call.path))
        return None

    def end(self) -> None:
        """As a server stops."""
        with suppress(OSError):
            self.timers.hand_over()
        self.little.store.close()

    def stop(self) -> None:
        self.end()
        self.begin()

    def kill(self) -> None:
        synced_end = self.little.store.log.synced_end
        self.little.kill()
        self.begin()
        self.check_kept(synced_end)

    def kill_at_some_call(self) -> None:
        """The process ends at one of the next calls that change or sync a file."""
        fatal = self.call_ahead(40)
        self.files.plan = lambda call: Killed("planned") if call.number >= fatal else self.full(call)
        with suppress(Killed):
            for _ in range(4):
                self.rng.choice((self.send, self.wait, self.change))()
            self.end()
        self.kill_whoever_is_left()

    def kill_whoever_is_left(self) -> None:
        self.files.revive(self.full)
        self.kill()

    def die_in_a_start(self) -> None:
        """The process ends, and the next one ends while it starts."""
        synced_end = self.little.store.log.synced_end
        if self.rng.random() < 0.5:
            self.end()
        else:
            self.little.kill()
        fatal = self.call_ahead(30)
        self.files.plan = lambda call: Killed("planned") if call.number >= fatal else self.full(call)
        with suppress(Killed, OSError, StoreUnwritableError):
            self.start()
            self.little.kill()
        gc.collect()  # who died while opening leaves its lock to the garbage collector
        self.begin()
        self.check_kept(synced_end)

    def power_cut(self) -> None:
        target = self.folder / str(int(self.root.name) + 1)
        synced_end = self.little.store.log.synced_end
        self.files.power_cut(target, self.rng)
        self.little.kill()
        self.open(target)
        self.check_kept(synced_end)

    def check_kept(self, synced_end: int) -> None:
        if self.little.store.confirm_offset < synced_end:
            raise Broken(f"the log ends at {self.little.store.confirm_offset}, it was synced up to {synced_end}")

    def call_ahead(self, most: int) -> int:
        return (self.files.calls[-1].number if self.files.calls else 0) + self.rng.randrange(1, most)

    # --- trouble ------------------------------------------------------------------------------------------------------

    def fill_disk(self) -> None:
        self.is_full = not self.is_full

    def disk_error(self) -> None:
        """One call fails; a store that takes nothing for that is started again."""
        failing = self.call_ahead(40)

        def plan(call: Call) -> OSError | None:
            if call.number == failing:
                return OSError(errno.EIO, os.strerror(errno.EIO), str(call.path))
            return self.full(call)

        self.files.plan = plan
        for _ in range(3):
            self.rng.choice((self.send, self.wait, self.change))()
        self.files.plan = self.full
        if self.little.store.unwritable_reason and not self.is_full:
            self.kill()

    def damage(self) -> None:
        """While the store is closed somebody removes a file of the timers, or changes a byte in it."""
        self.end()
        self.is_calm = self.is_sound = False
        chosen = sorted([*self.root.glob("orbitmq.timerindex/*"), *self.root.glob("orbitmq.timers")])
        if chosen:
            path = self.rng.choice(chosen)
            content = bytearray(path.read_bytes())
            if self.rng.random() < 0.3 or not content:
                path.unlink()
            else:
                content[self.rng.randrange(len(content))] ^= 1 << self.rng.randrange(8)
                path.write_bytes(bytes(content))
            self.steps.append(f"  of {path.name}")
        self.open(self.root)

    def clean(self) -> None:
        """Everything has expired."""
        self.housekeeping.request()
        self.turn()

    def set_clock(self) -> None:
        step = self.rng.choice((-1, -700, -20_000, -400_000, 1, 3_000, 29_000, 400_000))
        self.clock.set_wall(self.clock.now_ms() + step)
        if self.rng.random() < 0.5:
            self.timers.clock_moved()
        self.steps.append(f"  set by {step}")
        self.turn()

    def pause(self) -> None:
        self.timers.paused = not self.timers.paused

    # --- messages -----------------------------------------------------------------------------------------------------

    def send(self) -> None:
        rng = self.rng
        far_ms = rng.choice((0, 1, 2_000, 45_000, 300_000, 3_000_000))
        for _ in range(rng.choice((1, 3, 10, 40))):
            number = str(len(self.account.asked))
            values = {NUMBER: number}
            if rng.random() < 0.9:
                values["UNIQ_KEY"] = f"ID{rng.randrange(int(number) + 1)}"
            if keys := " ".join(rng.sample(KEYS, rng.choice((0, 1, 1, 3)))):
                values["KEYS"] = keys
            after_ms = rng.randrange(far_ms) // rng.choice((1, 1_000)) + 1 if far_ms else -rng.randrange(50_000)
            topic = rng.choice(TOPICS)
            self.account.asked[number] = Asked(topic, self.clock.now_ms() + after_ms)
            with suppress(StoreUnwritableError):
                self.little.append(topic, 0, b"body", after_ms=after_ms, **values)
        self.turn()

    def change(self) -> None:
        """Recall some, or move them."""
        waiting, timers = self.account.in_order(), self.timers
        for one in self.rng.sample(waiting, min(len(waiting), self.rng.choice((1, 5)))):
            if timers.state_of(one.queue_offset) is not TimerState.PENDING:
                continue
            record = timers.read(one.queue_offset)
            if record is None:
                raise Broken(f"the record of {one} cannot be read")
            now_ms, asked = self.clock.now_ms(), self.account.asked[one.number]
            if self.rng.random() < 0.7:
                asked.is_recalled = True
                messages = recall(record.record, now_ms)
            else:
                due_ms = now_ms + self.rng.choice((1, 5_000, 60_000, 900_000))
                asked.dues.add(due_ms)
                fresh_key = f"F{one.number}-{due_ms}"
                messages = reschedule(record.record, due_ms, now_ms, 1_000, fresh_key=fresh_key)
            with suppress(StoreUnwritableError):
                timers.change(record, messages, wait=False, on_done=lambda status: None)
        self.turn()

    def wait(self) -> None:
        self.pass_by(self.rng.choice((1, 250, 2_000, 6_000, 40_000, 400_000)))

    def next_due(self) -> None:
        """To the next due time, or a moment before or after it."""
        now_ms = self.clock.now_ms()
        later = [one.due_ms for one in self.account.waiting.values() if one.due_ms > now_ms]
        if later:
            self.pass_by(max(min(later) - now_ms + self.rng.choice((-1, 0, 0, 1, 700)), 0))

    def pass_by(self, ms: int) -> None:
        self.clock.advance(ms)
        for _ in range(self.rng.choice((1, 2, 6))):
            self.turn()

    def turn(self, *, with_workers: bool = False) -> None:
        """One turn of the loop, and some of what the workers have to do, or all of it."""
        store, timers = self.little.store, self.timers
        is_calm = self.is_calm and self.index.is_complete and not timers.is_releasing
        known_below = store.confirm_offset if is_calm and store.writes_accepted and not self.is_full else None
        delivered: list[Waiting] = []
        try:
            self.little.turn()
            delivered += self.follow()  # before a worker removes what retention may take by now
            jobs = len(self.little.worker.jobs) if with_workers else self.rng.choice((0, 0, 1, 1, 5))
            for _ in range(jobs):
                self.little.worker.step()
        finally:
            delivered += self.follow()
        if known_below is not None:
            self.account.check_order(delivered, known_below)
        self.check()

    def follow(self) -> list[Waiting]:
        return self.account.follow(self.little.store.scan(self.account.read_to), self.clock.now_ms())

    def heard(self, text: str, *parts: object) -> None:
        """What is logged as an error."""
        if "was not counted" in text:
            self.contradictions.append(text % parts)

    # --- questions ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """What holds at any moment, but for a store that could not tell its timers what is in the log."""
        if self.little.store._unapplied:
            return
        if self.is_sound and (self.contradictions or self.index.parts.trouble_count):
            raise Broken(f"{self.index.parts.trouble_count} runs are lost or damaged: {self.contradictions}")
        timers, waiting = self.timers, self.account.waiting.values()
        if list(timers.pending.offsets()) != sorted(one.queue_offset for one in waiting):
            raise Broken(f"pending are {list(timers.pending.offsets())}, by the log {self.account.in_order()}")
        first = min(waiting, default=None)
        if timers.lowest_needed() != min((one.physical_offset for one in waiting), default=None):
            raise Broken(f"retention may go up to {timers.lowest_needed()}, {first} waits")
        next_ms, until_ms = timers.next_due_ms, timers.delivered_until_ms
        if first is None or not self.is_calm:  # a damaged run may not be found out yet
            return
        by_now_ms = first.due_ms if self.index.is_complete else max(first.due_ms, self.clock.now_ms())
        if next_ms is None or next_ms > by_now_ms or until_ms > slot_time(first.due_ms, 1_000):
            raise Broken(f"next is {next_ms}, delivered is everything before {until_ms}, and {first} waits")

    def settle(self) -> None:
        """Until everything is known and what is due has left."""
        self.is_full = False
        self.timers.paused = False
        if not self.little.store.writes_accepted:
            self.clock.advance(1_000)
            for _ in range(6):
                self.turn(with_workers=True)
            if not self.little.store.writes_accepted:
                self.kill()
        self.timers.clock_moved()
        begin_ns = self.clock.monotonic_ns()
        while not self.is_settled():
            if self.clock.monotonic_ns() - begin_ns > SETTLED_MS * 1_000_000:
                raise Broken(f"{self.late()} do not leave, the index is complete: {self.index.is_complete}")
            self.turn(with_workers=True)
            if not self.is_settled():
                self.clock.advance(20)
        self.is_calm = True

    def is_settled(self) -> bool:
        with suppress(TimerIndexIncompleteError):
            self.index.counts()
            is_quiet = not self.little.worker.jobs and not self.timers.is_releasing
            return is_quiet and self.index.is_complete and not self.late()
        return False

    def late(self) -> list[Waiting]:
        now_ms = self.clock.now_ms()
        return [one for one in self.account.waiting.values() if one.due_ms <= now_ms]

    def judge(self) -> None:
        """Everything that can be asked."""
        self.settle()
        rng, index, waiting = self.rng, self.index, self.account.in_order()
        self.same("pages", self.pages(IndexQuery()), waiting)
        topic = rng.choice(TOPICS)
        mine = [one for one in waiting if one.topic == topic]
        self.same("pages of a topic", self.pages(IndexQuery(topic=topic)), mine)
        low, high = sorted(
            self.clock.now_ms() + rng.randrange(-5_000, rng.choice((9_000, 3_000_000))) for _ in range(2)
        )
        part = [one for one in mine if low <= one.due_ms < high]
        self.same("pages of a time", self.pages(IndexQuery(topic=topic, from_ms=low, until_ms=high)), part)
        keyed = sorted((key.encode()[:255], *one) for one in mine if one.keys for key in one.keys.split(" "))
        for prefix in PREFIXES:
            fitting = [Waiting._make(one[1:]) for one in keyed if one[0].startswith(prefix.encode())]
            self.same(f"keys {prefix}...", self.pages(IndexQuery(topic=topic, key_prefix=prefix)), fitting)
        for key in KEYS:
            fitting = [Waiting._make(one[1:]) for one in keyed if one[0] == key.encode()[:255]]
            self.same(f"key {key}", self.pages(IndexQuery(topic=topic, key=key)), fitting)
            found = [(one.deliver_ms, one.queue_offset) for one in index.find_key(topic, key)]
            self.same(f"found by key {key}", found, sorted(fitting))
        pending = {one.queue_offset for one in waiting}
        for unique_key in {one.unique_key for one in mine if one.unique_key}:
            found_ids = {one.queue_offset for one in index.find_id(topic, unique_key)}
            if not {one.queue_offset for one in mine if one.unique_key == unique_key} <= found_ids <= pending:
                raise Broken(f"found by id {unique_key}: {found_ids}")
        self.judge_counts(waiting, low, high)

    def judge_counts(self, waiting: list[Waiting], low: int, high: int) -> None:
        index, timers = self.index, self.timers
        buckets = Counter(one.due_ms // 60_000 * 60_000 for one in waiting)
        counted = index.counts(bucket_ms=60_000)
        if (counted.pending, timers.pending_count) != (len(waiting), len(waiting)):
            raise Broken(f"counted {counted.pending} and {timers.pending_count} of {len(waiting)}")
        if Counter(counted.by_topic) != Counter(one.topic for one in waiting) or counted.buckets != sorted(
            buckets.items()
        ):
            raise Broken(f"counted {counted}")
        between = sum(low <= one.due_ms < high for one in waiting)
        if index.pending_between(low, high) != between:
            raise Broken(f"{index.pending_between(low, high)} of {between} between {low} and {high}")
        slots = Counter(slot_time(one.due_ms, 1_000) for one in waiting)
        for slot_ms in self.rng.sample(sorted(slots), min(len(slots), 3)):
            if timers.slot_count(slot_ms) != slots[slot_ms]:
                raise Broken(f"{timers.slot_count(slot_ms)} of {slots[slot_ms]} in slot {slot_ms}")

    def pages(self, query: IndexQuery) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        cursor = None
        for _ in range(1_000):
            page = self.index.page(query._replace(cursor=cursor, limit=self.rng.choice((1, 3, 50))))
            found += [(one.deliver_ms, one.queue_offset) for one in page.candidates]
            cursor = page.cursor
            if cursor is None:
                return found
        raise Broken("the pages never end")

    def same(self, what: str, found: list[tuple[int, int]], wanted: list[Waiting]) -> None:
        if found != [one[:2] for one in wanted]:
            raise Broken(f"{what}: {found} instead of {[one[:2] for one in wanted]}")

    # --- the whole ----------------------------------------------------------------------------------------------------

    def live(self, count: int) -> None:
        kinds: dict[Callable[[], None], float] = {
            self.send: 12,
            self.wait: 5,
            self.next_due: 5,
            self.change: 5,
            self.judge: 3,
            self.clean: 1,
            self.set_clock: 1,
            self.pause: 0.7,
            self.stop: 1,
            self.kill: 1,
            self.kill_at_some_call: 1,
            self.die_in_a_start: 0.7,
            self.power_cut: 1,
            self.fill_disk: 0.7,
            self.disk_error: 0.7,
            self.damage: 1,
        }
        for step in self.rng.choices(list(kinds), list(kinds.values()), k=count):
            self.steps.append(f"{step.__name__} at {self.clock.now_ms() - START_MS}")
            step()
        self.finish()

    def finish(self) -> None:
        """Everything falls due."""
        self.judge()
        while self.account.waiting:
            due = [one.due_ms for one in self.account.in_order()]
            self.clock.advance(due[self.rng.randrange(len(due))] - self.clock.now_ms())
            self.settle()
        self.judge()
        self.little.kill()


class Verdict(NamedTuple):
    seed: int
    problem: Exception | None
    steps: list[str]


def run(seed: int, steps: int = STEPS) -> Verdict:
    """One life. An exception of any kind is its problem."""
    life: Life | None = None
    problem: Exception | None = None
    with scratch() as base, quiet(), little_at_a_time():
        try:
            life = Life(seed, base)
            with mock.patch.object(counting.logger, "error", life.heard):
                life.live(steps)
        except Exception as error:
            problem = error
    return Verdict(seed, problem, [] if life is None else life.steps)
