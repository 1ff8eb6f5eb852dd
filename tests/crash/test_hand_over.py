"""An orderly stop and a take-over that end, or fail, at any of their calls: no message is lost to whoever opens the store next.

A stop leaves timer files for RocketMQ. Whatever happens to it, RocketMQ refuses the store or sees exactly what waits, and our own
next start delivers exactly that. A take-over finds out what RocketMQ has not delivered. Whatever happens to it, RocketMQ refuses the
store or goes on where it was, and our own next start delivers what it has not.

Rules of this file
1. RocketMQ's side is read by nothing but the layout of its files (`rocketmq_timers`) and the records in the log.
2. Every case starts from a copy of the same store, and every call of what is tested is a case.
"""

from __future__ import annotations

import errno
import gc
import os
import random
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import msgspec
import pytest
from tests.crash.harness import quiet, scratch
from tests.worlds import little_store
from tests.worlds.faults import Call, Killed, RecordingFiles
from tests.worlds.little_store import SMALL, LittleStore, SteppedWorker
from tests.worlds.rocketmq_timers import Refused, seen_by_rocketmq

from orbitmq.clock import ManualClock
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import decode_record
from orbitmq.store.files import OsFiles
from orbitmq.store.opening import open_store
from orbitmq.timing.rocketmq import handing_over
from orbitmq.timing.rocketmq.checkpoint import TimerCheckpoint
from orbitmq.timing.rocketmq.exchange import TimerExchange
from orbitmq.timing.rocketmq.fence import lower_fence
from orbitmq.timing.rocketmq.log import TimerLog, TimerUnit
from orbitmq.timing.rocketmq.taking_over import TakeOver
from orbitmq.timing.timers.ledger import TimerLedger
from orbitmq.timing.timers.pending_journal import encode_position, encode_snapshot
from orbitmq.timing.timers.timers import Timers

SLOTS, WINDOW, LOG_BYTES = 512, 100, 52 * 6 + 16
"""A wheel of nine minutes, of which a hundred seconds are in use, and a timer log of six units a file."""

SETTINGS = msgspec.structs.replace(SMALL, max_hash_slot_num=5, max_index_num=20)
START_MS = 1_795_228_412_345
Due = dict[str, int]
"""Unique key -> due time."""


@pytest.fixture(autouse=True)
def small_wheel() -> Iterator[None]:
    small = {"roll_window_slots": WINDOW, "log_file_bytes": LOG_BYTES, "slot_count": SLOTS}
    with mock.patch.dict(little_store.LITTLE_WHEEL, small), quiet():
        yield


class Stored(NamedTuple):
    """A closed store, and what waits in it."""

    root: Path
    due: Due
    now_ms: int

    def copy(self, base: Path) -> Path:
        return Path(shutil.copytree(self.root, base / "store"))


def send(little: LittleStore, due: Due, key: str, after_ms: int) -> None:
    due[key] = little.clock.now_ms() + after_ms
    little.send(after_ms=after_ms, UNIQ_KEY=key)


def let_pass(little: LittleStore, due: Due, ms: int) -> None:
    """Time passes, and what falls due in it waits no more."""
    little.advance(ms)
    for key in [key for key, due_ms in due.items() if due_ms <= little.clock.now_ms()]:
        del due[key]


def begin_life(root: Path) -> Stored:
    """A store after an orderly stop: overdue, soon, in one slot together, beyond the roll window."""
    root.mkdir()
    clock, due = ManualClock(START_MS), Due()
    little = LittleStore(root, clock=clock, settings=SETTINGS)
    for number in range(6):
        send(little, due, f"soon{number}", 900 + 700 * number)
        send(little, due, f"later{number}", 60_000 + 250 * number)
        send(little, due, f"far{number}", 300_000 + 40_000 * number)
    let_pass(little, due, 2_000)
    little.close()
    return Stored(root, due, clock.now_ms())


def live_on(little: LittleStore, due: Due) -> None:
    """Some are delivered, others come, and what is due then is not delivered any more."""
    little.timers.paused = False
    let_pass(little, due, 1_000)
    for number in range(4):
        send(little, due, f"new{number}", 5_000 + 300 * number)
    little.timers.paused = True
    send(little, due, "overdue", 200)
    little.advance(1_500)


# --- RocketMQ, by the layout of its files -------------------------------------------------------------------------------


def record_at(root: Path, physical: int) -> tuple[int, dict[str, str]]:
    """Queue offset and properties of the record at a log position."""
    size = SETTINGS.mapped_file_size_commit_log
    data = (root / "commitlog" / f"{physical // size * size:020d}").read_bytes()
    record = decode_record(data, physical % size)
    return record.queue_offset, decode_properties(record.properties)


def timer_records(root: Path) -> Iterator[tuple[int, str, dict[str, str]]]:
    """(queue offset, unique key, properties) of the records in the consume queue of the timer topic."""
    for path in sorted((root / "consumequeue" / TIMER_TOPIC / "0").iterdir()):
        data = path.read_bytes()
        for at in range(0, len(data), 20):
            physical, size, _ = struct.unpack_from(">qiq", data, at)
            if size:
                queue_offset, properties = record_at(root, physical)
                yield queue_offset, properties.get(Property.UNIQ_KEY, ""), properties


def seen(root: Path) -> Due:
    """What RocketMQ would deliver and when: what stands in its slots, and what it would link. Raises Refused, and AssertionError for
    whatever it would stumble over."""
    files = seen_by_rocketmq(root, 1_000, SLOTS, LOG_BYTES)
    found: Due = {}
    for _, physical, _, _ in files.messages:
        _, properties = record_at(root, physical)
        key = properties[Property.UNIQ_KEY]
        assert key not in found, f"{key} stands in two slots"
        found[key] = int(properties[Property.TIMER_DELIVER_MS])
    linked = files.next_offset
    if files.last_physical >= 0:
        linked = min(linked, record_at(root, files.last_physical)[0] + 1)
    for queue_offset, key, properties in timer_records(root):
        if queue_offset >= linked:
            found[key] = int(properties[Property.TIMER_DELIVER_MS])
    return found


def wrong_for_rocketmq(root: Path, *allowed: Due) -> str:
    """What is wrong with what RocketMQ finds; nothing where it refuses the store."""
    try:
        found = seen(root)
    except Refused:
        return ""
    except AssertionError as error:
        return f"RocketMQ would stumble: {error}"
    return "" if found in allowed else f"RocketMQ would see {sorted(found)}, {sorted(allowed[0])} wait"


# --- our own next start -------------------------------------------------------------------------------------------------


def wrong_for_us(root: Path, due: Due, now_ms: int, *, boot: str) -> str:
    """What is wrong with what our own next start delivers. It may be the first one after another that was interrupted."""
    clock = ManualClock(now_ms)
    little = LittleStore(root, files=RecordingFiles(OsFiles(), root, boot=boot), clock=clock, settings=SETTINGS)
    try:
        before = Counter(one[Property.UNIQ_KEY] for one in little.properties())
        waiting = sorted(one[1] for _, one in pending(little))
        if waiting != sorted(due):
            return f"pending are {waiting}, {sorted(due)} wait"
        while clock.now_ms() < max(due.values()):
            little.advance(20_000)
        records = little.records()
        came = [decode_properties(record.properties)[Property.UNIQ_KEY] for record in records]
        late = [key for key, record in zip(came, records, strict=True) if record.store_timestamp < due.get(key, 0)]
        if late:
            return f"{late} came early"
        if Counter(came) - before != Counter(due.keys()):
            return f"delivered were {came}"
        return ""
    finally:
        little.kill()


def pending(little: LittleStore) -> list[tuple[int, tuple[int, str]]]:
    found = []
    for offset in little.timers.pending.offsets():
        record = little.timers.read(offset)
        assert record is not None
        found.append((offset, (record.deliver_ms, record.unique_key or "")))
    return found


# --- ends ---------------------------------------------------------------------------------------------------------------


def error(number: int) -> Callable[[Call], BaseException]:
    return lambda call: OSError(number, os.strerror(number), str(call.path))


TROUBLES: dict[str, Callable[[Call], BaseException]] = {
    "killed": lambda call: Killed("planned"),
    "power cut": lambda call: Killed("planned"),
    "disk full": error(errno.ENOSPC),
    "disk error": error(errno.EIO),
}


class Stage:
    """A copy of a store whose files fail, or end the process, at one call."""

    def __init__(self, base: Path, stored: Stored, trouble: str) -> None:
        self.base = base
        self.root = stored.copy(base)
        self.trouble = trouble
        self.files = RecordingFiles(OsFiles(), self.root)
        self.clock = ManualClock(stored.now_ms)
        self.due = dict(stored.due)
        self.happened = False

    def open(self) -> LittleStore:
        return LittleStore(self.root, files=self.files, clock=self.clock, settings=SETTINGS)

    def fail_at(self, step: int) -> None:
        """The trouble comes at the call that is `step` calls ahead."""
        fatal = (self.files.calls[-1].number if self.files.calls else 0) + step

        def plan(call: Call) -> Any:
            self.happened |= call.number == fatal
            return TROUBLES[self.trouble](call) if call.number == fatal else None

        self.files.plan = plan

    def left(self, step: int) -> tuple[Path, str]:
        """Where the next start looks, and in which run of the machine."""
        if self.trouble != "power cut":
            return self.root, self.files.boot
        self.files.power_cut(self.base / "after", random.Random(step))
        return self.base / "after", "next boot"


def stop(little: LittleStore) -> bool:
    """As a server stops. Whether the timer files were left."""
    is_left = True
    try:
        little.timers.hand_over()
    except OSError:
        is_left = False
    return little.store.close() and is_left


def stop_that_ends(stored: Stored, trouble: str, step: int) -> tuple[bool, str]:
    """Whether the trouble came at call `step` of a stop, and what is wrong with what it left."""
    with scratch() as base:
        stage = Stage(base, stored, trouble)
        little = stage.open()
        live_on(little, stage.due)
        stage.fail_at(step)
        is_whole = False
        try:
            is_whole = stop(little)
        except Killed:
            little.kill()
        except OSError:
            little.kill()
        stage.files.plan = None
        place, boot = stage.left(step)
        problem = wrong_for_rocketmq(place, stage.due)
        if not problem and is_whole and trouble == "killed" and not stage.happened:
            problem = "" if not is_refused(place) else "it is whole and refused"
        return stage.happened, problem or wrong_for_us(place, stage.due, stage.clock.now_ms(), boot=boot)


def is_refused(root: Path) -> bool:
    try:
        seen(root)
    except Refused:
        return True
    return False


Case = Callable[[Stored, str, int], tuple[bool, str]]


def first_problem(case: Case, stored: Stored, trouble: str, *, first: int = 1) -> str:
    """Try one call after the other, from call `first` on."""
    for step in range(first, 10_000):
        happened, problem = case(stored, trouble, step)
        if problem:
            return f"{trouble} at call {step}: {problem}"
        if not happened:
            assert step > 20, "it was never interrupted"
            return ""
    raise AssertionError("it has no end")


@pytest.fixture(scope="module")
def stored() -> Iterator[Stored]:
    small = {"roll_window_slots": WINDOW, "log_file_bytes": LOG_BYTES, "slot_count": SLOTS}
    with scratch() as base, mock.patch.dict(little_store.LITTLE_WHEEL, small), quiet():
        yield begin_life(base / "first")


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_stop_is_exact_for_rocketmq_or_refused_and_nothing_is_lost(trouble: str, stored: Stored) -> None:
    assert first_problem(stop_that_ends, stored, trouble) == ""


# --- taking over --------------------------------------------------------------------------------------------------------


def rocketmq_runs(stored: Stored, base: Path) -> Stored:
    """What RocketMQ leaves when it was stopped in the middle: it has delivered what fell due in two seconds, linked nothing that came
    meanwhile, and delivered one message more than its checkpoint says."""
    root, due = stored.copy(base), dict(stored.due)
    clock = ManualClock(stored.now_ms + 2_000)
    sender = LittleStore(base / "sender", clock=clock, settings=SETTINGS)
    foreign = open_store(root, SETTINGS, OsFiles(), clock, notify=lambda call: call(), worker=SteppedWorker())
    read_ms = (clock.now_ms() - 1_000) // 1_000 * 1_000
    for number in range(4):
        key, after_ms = f"theirs{number}", 3_000 + 20_000 * number
        foreign.append(sender.message(after_ms=after_ms, UNIQ_KEY=key))
        due[key] = clock.now_ms() + after_ms
    fallen = sorted((due_ms, key) for key, due_ms in due.items() if due_ms <= read_ms)
    behind = min((due_ms, key) for key, due_ms in due.items() if read_ms < due_ms <= clock.now_ms())
    for _, key in [*fallen, behind]:
        foreign.append(sender.message(UNIQ_KEY=key, TIMER_OUT_MS=str((due[key] - 1) // 1_000 * 1_000)))
        del due[key]
    foreign.commit()
    assert foreign.close()
    sender.kill()
    page = bytearray((root / "config" / "timercheck").read_bytes())
    page[:8] = struct.pack(">q", read_ms)
    (root / "config" / "timercheck").write_bytes(page)
    (root / "checkpoint").write_bytes(bytes(4096))  # of its own, so that our mark is worth nothing
    return Stored(root, due, clock.now_ms())


def take_over_that_ends(left: Stored, trouble: str, step: int) -> tuple[bool, str]:
    """Whether the trouble came at call `step` of the first start after RocketMQ, and what is wrong with what that start left."""
    with scratch() as base:
        stage = Stage(base, left, trouble)
        stage.fail_at(step)
        with suppress(Killed, OSError):
            stage.open().kill()
        gc.collect()  # who died while opening leaves its lock to the garbage collector
        stage.files.plan = None
        place, boot = stage.left(step)
        problem = wrong_for_rocketmq(place, seen(left.root))
        return stage.happened, problem or wrong_for_us(place, stage.due, stage.clock.now_ms(), boot=boot)


@pytest.fixture(scope="module")
def left(stored: Stored) -> Iterator[Stored]:
    with scratch() as base:
        yield rocketmq_runs(stored, base)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_take_over_that_ends_anywhere_loses_nothing(trouble: str, left: Stored) -> None:
    assert first_problem(take_over_that_ends, left, trouble) == ""


# --- planted bugs -------------------------------------------------------------------------------------------------------


def fence_lowered_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """RocketMQ may start before the checkpoint says from where."""
    correct = TimerExchange._write_checkpoint

    def write(self: TimerExchange, *arguments: Any) -> None:
        lower_fence(self._files, self._root)
        correct(self, *arguments)

    monkeypatch.setattr(TimerExchange, "_write_checkpoint", write)


def fence_never_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing keeps RocketMQ out."""
    monkeypatch.setattr(TimerExchange, "raise_fence", lambda self: None)


def overdue_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is due later is left for RocketMQ."""
    correct = handing_over._LogWriter.add

    def add(self: Any, units: Any, magic: int) -> None:
        later = [place for place in units.places if units.dues[place] > self._slots.now_ms]
        correct(self, units._replace(places=later), magic)

    monkeypatch.setattr(handing_over._LogWriter, "add", add)


def checkpoint_ahead_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint speaks of a timer log that a power failure may take."""
    monkeypatch.setattr(handing_over._LogWriter, "sync", handing_over._LogWriter._write)


def exact_although_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timer files count as left for RocketMQ however far they were written."""
    correct = Timers.hand_over

    def hand_over(self: Timers, **options: Any) -> None:
        try:
            correct(self, **options)
        finally:
            self._is_exact = self._exchange._is_handed_over = True  # type: ignore[attr-defined]

    monkeypatch.setattr(Timers, "hand_over", hand_over)


STOP_BUGS: dict[Callable[[pytest.MonkeyPatch], None], tuple[str, int]] = {
    fence_lowered_early: ("killed", 1),
    fence_never_raised: ("killed", 1),
    overdue_left_out: ("killed", 1_000),
    checkpoint_ahead_of_the_log: ("power cut", 1),
    exact_although_it_failed: ("disk full", 1),
}
"""What shows each of them, and from which call of the stop on."""


@pytest.mark.parametrize("plant", STOP_BUGS, ids=lambda plant: plant.__name__)
def test_a_bug_planted_into_the_stop_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the very stops that leave everything right without it."""
    trouble, first = STOP_BUGS[plant]
    plant(monkeypatch)
    assert first_problem(stop_that_ends, stored, trouble, first=first)


def units_of_another_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit is taken to wait in the slot of the first unit of the timer log."""
    correct = TimerLog.scan

    def scan(self: TimerLog) -> Iterator[TimerUnit]:
        units = list(correct(self))
        return (unit._replace(write_ms=units[0].write_ms, delay_ms=units[0].delay_ms) for unit in units)

    monkeypatch.setattr(TimerLog, "scan", scan)


def settled_before_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer files go although a power failure may still take what was found in them."""
    correct = TimerLedger.datasync

    def datasync(self: TimerLedger) -> None:
        if self.synced_offset:  # not the first time
            correct(self)
        self.synced_offset = self.pending.next_offset

    def rewrite(self: TimerLedger) -> None:
        if self.journal.exists:
            self.journal.cut(0)
        at = self._at(synced=False)
        self.journal.append([*encode_snapshot(self.pending), encode_position(at)])
        self.noted(at)

    monkeypatch.setattr(TimerLedger, "datasync", datasync)
    monkeypatch.setattr(TimerLedger, "rewrite", rewrite)


def unlinked_records_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """RocketMQ is taken to have linked everything."""
    monkeypatch.setattr(TimerCheckpoint, "unlinked_from", 1 << 40)


def deliveries_behind_the_checkpoint_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What RocketMQ delivered before it could note so comes once more."""
    monkeypatch.setattr(TakeOver, "_delivered", lambda self, overdue: [])


START_BUGS: dict[Callable[[pytest.MonkeyPatch], None], tuple[str, int]] = {
    units_of_another_slot: ("killed", 1_000),
    settled_before_it_is_durable: ("power cut", 1),
    unlinked_records_forgotten: ("killed", 1_000),
    deliveries_behind_the_checkpoint_forgotten: ("killed", 1_000),
}


@pytest.mark.parametrize("plant", START_BUGS, ids=lambda plant: plant.__name__)
def test_a_bug_planted_into_the_take_over_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], left: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble, first = START_BUGS[plant]
    plant(monkeypatch)
    assert first_problem(take_over_that_ends, left, trouble, first=first)
