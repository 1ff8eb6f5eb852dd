"""One crash from one seed: a life, its end, and the judgement of what it left.

Ends
    kill    the process dies at a call; everything it had written is there, the call itself happened in part
    power   the machine dies: of what was not synced any subset is lost
    both    the process dies, another one lives on the same machine, then the machine dies

Rules of this file
1. A seed repeats a run in every detail. In odd ones saves take many turns.
2. With asynchronous flush a power failure may take what was not yet synced; nothing else may be missing.
"""

from __future__ import annotations

import enum
import gc
import logging
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar
from unittest import mock

from tests.crash.workload import START_MS, Life, Promises, examine
from tests.worlds.faults import Call, Killed, Plan, RecordingFiles

from orbitmq.clock import ManualClock
from orbitmq.store import saving, unit_writing
from orbitmq.store.files import OsFiles
from orbitmq.store.mark import MARK_FILE
from orbitmq.store.settings import FlushDiskType

CALLS_MAX = 1_000
"""A life of `TURNS` turns makes about this many calls."""

TURNS = 300


class End(enum.Enum):
    KILL = "kill"
    POWER = "power"
    BOTH = "both"


class Verdict(NamedTuple):
    seed: int
    problem: Exception | None
    calls: int
    acknowledged: int
    ended_in: str
    """Kind of call and file at which the process died; empty when it lived on."""


def kill_at(number: int) -> Plan:
    def plan(call: Call) -> Killed | None:
        return Killed() if call.number == number else None

    return plan


Site = tuple[str, str, int]
"""Kind of call, kind of file, and the how many-eth such call it is."""


def sites_of(calls: Iterable[Call], root: Path) -> dict[Site, Call]:
    """The first, second, fourth, eighth ... call of each kind to each kind of file: queues are alike, and so are files of a sequence."""
    chosen: dict[Site, Call] = {}
    times: Counter[tuple[str, str]] = Counter()
    for call in calls:
        file = re.sub(r"(?<=^consumequeue/).+|\d+", "#", str(call.path.relative_to(root)))
        times[call.kind, file] += 1
        nth = times[call.kind, file]
        if nth & (nth - 1) == 0:
            chosen[call.kind, file, nth] = call
    return chosen


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory in memory where there is one: the tests judge calls, not the disk."""
    memory = Path("/dev/shm")
    base = Path(tempfile.mkdtemp(prefix="orbitmq-crash-", dir=memory if memory.is_dir() else None))
    try:
        yield base
    finally:
        shutil.rmtree(base)


@contextmanager
def quiet() -> Iterator[None]:
    """Lives full of trouble log a lot; what counts is the verdict."""
    logger = logging.getLogger("orbitmq")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def in_small_parts() -> Iterator[None]:
    """Units of queues are written and synced a queue at a time, with pauses, as those of thousands of queues are."""
    with (
        mock.patch.object(unit_writing, "WRITTEN_QUEUES_MAX", 1),
        mock.patch.object(saving, "SYNCED_QUEUES_MAX", 1),
    ):
        yield


KINDS = ("create", "write", "truncate", "allocate", "sync", "sync_dir", "rename", "remove", "mkdir", "punch")


def draw_death(rng: random.Random, since: int = 0) -> Plan:
    """A moment to die at, behind call `since`: any call, the n-th of one kind, or shortly after a recovery mark."""
    way = rng.random()
    if way < 0.5:
        return kill_at(since + rng.randint(1, CALLS_MAX))
    if way < 0.7:
        kind, count = rng.choice(KINDS), rng.randint(1, 40)
        return die_after(lambda call: call.number > since and call.kind == kind, count, 0)
    count, more = rng.randint(1, 60), rng.randint(0, 6)
    return die_after(lambda call: call.number > since and call.path.name == MARK_FILE, count, more)


def die_after(chosen: Callable[[Call], bool], count: int, more: int) -> Plan:
    """Die at the call that comes `more` calls after the `count`-th chosen one."""
    seen = 0
    left = -1

    def plan(call: Call) -> Killed | None:
        nonlocal seen, left
        if left > 0:
            left -= 1
        elif left < 0 and chosen(call):
            seen += 1
            if seen == count:
                left = more
        return Killed() if left == 0 else None

    return plan


class Crashed(NamedTuple):
    """What a life left behind."""

    root: Path
    files: RecordingFiles
    """What recorded the life; its journal is complete."""
    promises: Promises
    clock: ManualClock
    boot: str


def live_until(files: RecordingFiles, root: Path, seed: int | str, flush: FlushDiskType, turns: int = TURNS) -> Crashed:
    """Live until the plan of `files` ends the process, or for `turns` turns and then as if killed."""
    return _live(files, root, seed, flush, Promises(), ManualClock(START_MS), turns)[0]


def _live(
    files: RecordingFiles,
    root: Path,
    seed: int | str,
    flush: FlushDiskType,
    promises: Promises,
    clock: ManualClock,
    turns: int,
) -> tuple[Crashed, int]:
    synced_end = 0
    life: Life | None = None
    try:
        life = Life(root, files, seed, flush, promises, clock)
        life.live(turns)
    except Killed:
        pass
    if life is not None:
        synced_end = life.running.store.log.synced_end
        promises.synced_timers = max(promises.synced_timers, life.running.timers.synced_offset)
        life.running.die()
    life = None
    gc.collect()  # a life that ended while opening leaves its lock to the garbage collector
    return Crashed(root, files, promises, clock, files.boot), synced_end


def crash(base: Path, end: End, flush: FlushDiskType, seed: int, *, keep: float | None = None) -> Crashed:
    """Live and die by `seed`; `keep` is the chance of an unsynced page to survive the power failure."""
    rng = random.Random(seed * 7 + 1)
    root = base / "store"
    root.mkdir()
    files = RecordingFiles(OsFiles(), root, plan=draw_death(rng))
    promises, clock = Promises(), ManualClock(START_MS)
    crashed, synced_end = _live(files, root, seed, flush, promises, clock, TURNS)
    if end is End.BOTH:
        files.revive(draw_death(rng, len(files.calls)))
        crashed, again = _live(files, root, f"{seed}+", flush, promises, clock, TURNS)
        synced_end = max(synced_end, again)
    if end is End.KILL:
        return crashed
    left = base / "after"
    files.power_cut(left, rng, keep=keep)
    if flush is FlushDiskType.ASYNC_FLUSH:
        promises = promises.up_to(synced_end)
    return Crashed(left, files, promises, clock, "next boot")


class Mortal(Protocol):
    """What lives on recorded files until it dies."""

    clock: ManualClock

    def die(self) -> None: ...


Living = TypeVar("Living", bound=Mortal)


@contextmanager
def second_life(
    rng: random.Random,
    open_: Callable[[Path, RecordingFiles, int | None], Living],
    live: Callable[[Living], None],
    calls_max: int,
    *,
    with_power: bool,
) -> Iterator[Living]:
    """What opens on the files of a life that ended at one of its first `calls_max` calls, of the process or `with_power` of the machine.

    `open_` gets the directory, its files and the time at which the first life ended, None before.
    """
    with scratch() as base, quiet():
        root = base / "store"
        root.mkdir()
        files = RecordingFiles(OsFiles(), root, plan=kill_at(rng.randint(60, calls_max)))
        living: Living | None = None
        now_ms: int | None = None
        try:
            living = open_(root, files, now_ms)
            live(living)
        except Killed:
            pass
        if living is not None:
            now_ms = living.clock.now_ms()
            living.die()
        if with_power:
            root = base / "after"
            files.power_cut(root, rng)
        again = RecordingFiles(OsFiles(), root, boot="next boot" if with_power else files.boot)
        yield open_(root, again, now_ms)


def judge(
    end: End,
    flush: FlushDiskType,
    seed: int,
    *,
    keep: float | None = None,
    recovered: Callable[[Crashed], None] | None = None,
) -> Verdict:
    """Run one seed. An exception of any kind, in the life or after it, is the problem of the verdict."""
    with scratch() as base, quiet(), in_small_parts() if seed % 2 else nullcontext():
        calls = acknowledged = 0
        where = ""
        problem: Exception | None = None
        try:
            crashed = crash(base, end, flush, seed, keep=keep)
            calls = len(crashed.files.calls)
            acknowledged = len(crashed.promises.plain) + len(crashed.promises.delayed)
            if crashed.files.killed:
                last = crashed.files.calls[-1]
                where = f"{last.kind} {last.path.name}"
            if recovered is not None:
                recovered(crashed)
            files = RecordingFiles(OsFiles(), crashed.root, boot=crashed.boot)
            examine(crashed.root, files, crashed.promises, crashed.clock, flush)
        except Exception as error:
            problem = error
        gc.collect()
        return Verdict(seed, problem, calls, acknowledged, where)
